//! The figures of the report, computed from the measurements.

use super::{
    store::{Setup, Store, Turns},
    ways::{Provider, Way},
};
use crate::{
    bal::plan::{Case, figure},
    report::{Report, median},
    system,
};
use serde_json::{Map, Value, json};

const MIB: f64 = (1 << 20) as f64;

impl Store {
    /// Returns the median of one figure of a way of executing, or NaN without measurements.
    fn median(&self, way: Way, of: impl Fn(&Turns) -> &Vec<f64>) -> f64 {
        median(
            self.turns
                .get(&way)
                .map_or(Vec::new(), |turns| of(turns).clone()),
        )
    }

    fn ms(&self, way: Way) -> f64 {
        self.median(way, |turns| &turns.ms)
    }

    /// Returns the fastest way of executing that was measured.
    fn best(&self) -> Option<Way> {
        let ways = self.turns.keys().copied();
        ways.min_by(|one, other| self.ms(*one).total_cmp(&self.ms(*other)))
    }
}

/// Adds the figures to a report.
pub(super) fn add(
    case: &Case,
    setup: &Setup,
    stores: &[Store],
    device: Vec<f64>,
    report: &mut Report,
) {
    let cambium = stores
        .iter()
        .find(|store| store.provider == Provider::Cambium);
    let device = median(device);
    for store in stores {
        let mut result = of_store(setup, store, cambium);
        result.insert("workload".to_owned(), json!(case.name));
        result.insert("fio_reads_per_second".to_owned(), figure(device));
        report.results.push(result);
    }
    report.comparison.extend(comparison(setup, stores));
}

fn of_store(setup: &Setup, store: &Store, cambium: Option<&Store>) -> Map<String, Value> {
    let mut result = Map::new();
    let mut add = |name: &str, value: Value| result.insert(name.to_owned(), value);
    add("store", json!(store.provider.to_string()));
    add("configuration", json!(store.configuration));
    if let Some(failure) = &store.failure {
        add("failure", json!(failure));
    }
    add("transactions", json!(setup.transactions));
    add("mgas", figure(setup.gas as f64 / 1e6));
    add("state_mib", figure(setup.state_bytes as f64 / MIB));
    if store.provider != Provider::Memory {
        let bytes = system::disk_bytes(&store.dir).unwrap_or(0);
        add("disk_mib", figure(bytes as f64 / MIB));
    }
    add("memory_share_mib", figure(setup.share_bytes as f64 / MIB));
    add(
        "memory_of_process_mib",
        figure(setup.process_bytes as f64 / MIB),
    );
    add("cgroup_limit_mib", figure(setup.limit_bytes() as f64 / MIB));
    add(
        "cgroup_peak_mib",
        figure(store.cgroup_peak_bytes as f64 / MIB),
    );
    add("open_ms", figure(median(store.open_ms.clone())));
    let one = Way::all().find(|way| matches!(way, Way::Parallel(_)));
    let one = one.map_or(f64::NAN, |way| store.ms(way));
    for way in Way::all() {
        let ms = store.ms(way);
        let rate = setup.transactions as f64 / ms * 1e3;
        add(&format!("{way}_ms"), figure(ms));
        add(&format!("{way}_transactions_per_second"), figure(rate));
        add(&format!("{way}_against_1_thread"), figure(one / ms));
        let own = cambium.map_or(f64::NAN, |cambium| cambium.ms(way));
        add(&format!("{way}_speed_of_cambium"), figure(own / ms));
        let reads = store.median(way, |turns| &turns.device_reads);
        add(&format!("{way}_device_reads"), figure(reads));
        let read = store.median(way, |turns| &turns.read_bytes) / MIB;
        add(&format!("{way}_read_mib"), figure(read));
    }
    result
}

/// Returns a table with ways of executing as rows and stores as columns.
fn comparison(setup: &Setup, stores: &[Store]) -> Vec<(String, Vec<String>)> {
    let row = |name: &str, of: &dyn Fn(&Store) -> String| {
        (name.to_owned(), stores.iter().map(of).collect::<Vec<_>>())
    };
    let mut rows = vec![row("milliseconds", &|store| store.provider.to_string())];
    for way in Way::all() {
        let name = match way {
            Way::Sequential => "sequential".to_owned(),
            Way::Parallel(threads) => format!("parallel, threads: {threads}"),
            Way::Batched => "batched".to_owned(),
        };
        rows.push(row(&name, &|store| format!("{:.0}", store.ms(way))));
    }
    let rate = |store: &Store| {
        let ms = store.best().map_or(f64::NAN, |way| store.ms(way));
        format!("{:.0}", setup.transactions as f64 / ms * 1e3)
    };
    rows.push(row("best: transactions a second", &rate));
    rows.push(row("best: by", &|store| {
        store.best().map_or("-".to_owned(), |way| way.to_string())
    }));
    let most = Way::all()
        .filter(|way| matches!(way, Way::Parallel(_)))
        .last();
    if let Some(most) = most {
        rows.push(row(&format!("device reads, {most}"), &|store| {
            format!("{:.0}", store.median(most, |turns| &turns.device_reads))
        }));
        rows.push(row(&format!("MiB read, {most}"), &|store| {
            format!("{:.0}", store.median(most, |turns| &turns.read_bytes) / MIB)
        }));
    }
    rows
}
