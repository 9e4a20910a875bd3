//! `cambium_figures`: everything that a collector gets, as JSON.

use crate::{error::RpcError, limits::Kind, table::Methods};
use cambium_metrics::{LabelledMetrics, MetricsPage, WeakRegistry};
use cambium_state::{Latency, Metrics};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

pub(super) fn add(methods: Methods, registry: WeakRegistry) -> Methods {
    methods.with(
        "cambium_figures() -> Figures",
        Kind::Quick,
        move |_, params, reply| {
            params.end()?;
            let registry = registry.upgrade();
            let registry = registry.ok_or_else(|| RpcError::server("the server ends"))?;
            let mut collected = Collected::default();
            registry.report(&mut collected);
            reply.value(&Figures {
                role: registry.role(),
                figures: collected.families,
            })
        },
    )
}

#[derive(Serialize)]
struct Figures {
    role: &'static str,
    figures: Vec<Family>,
}

/// The figures of one name, which is that of the page for collectors.
#[derive(Serialize)]
struct Family {
    name: String,
    kind: &'static str,
    help: &'static str,
    samples: Vec<Sample>,
}

#[derive(Serialize)]
struct Sample {
    labels: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    value: Figure,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Figure {
    Number {
        value: u64,
    },
    /// Quantiles in seconds; null if nothing was measured.
    Summary {
        count: u64,
        p50: Option<f64>,
        p99: Option<f64>,
        p999: Option<f64>,
        max: Option<f64>,
    },
}

#[derive(Default)]
struct Collected {
    families: Vec<Family>,
    places: HashMap<String, usize>,
    labels: BTreeMap<&'static str, String>,
}

impl Collected {
    fn add(&mut self, name: &str, kind: &'static str, help: &'static str, value: Figure) {
        let name = MetricsPage::name_of(name, kind);
        let next = self.families.len();
        let place = *self.places.entry(name.clone()).or_insert(next);
        if place == next {
            self.families.push(Family {
                name,
                kind,
                help,
                samples: Vec::new(),
            });
        }
        let labels = self.labels.clone();
        self.families[place].samples.push(Sample { labels, value });
    }
}

impl Metrics for Collected {
    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(name, MetricsPage::COUNTER, help, Figure::Number { value });
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(name, MetricsPage::GAUGE, help, Figure::Number { value });
    }

    fn latency(&mut self, name: &'static str, help: &'static str, latency: &Latency) {
        let seconds = |ns: u64| (latency.count > 0).then_some(ns as f64 / 1e9);
        let value = Figure::Summary {
            count: latency.count,
            p50: seconds(latency.p50_ns),
            p99: seconds(latency.p99_ns),
            p999: seconds(latency.p999_ns),
            max: seconds(latency.max_ns),
        };
        self.add(name, MetricsPage::SUMMARY, help, value);
    }
}

impl LabelledMetrics for Collected {
    fn labels(&mut self, labels: &[(&'static str, &str)]) {
        let labels = labels.iter();
        self.labels = labels
            .map(|(label, value)| (*label, (*value).to_owned()))
            .collect();
    }
}
