//! Figures as a page of text.

use super::labelled::LabelledMetrics;
use cambium_state::{Latency, Metrics};
use std::{
    collections::HashMap,
    fmt::{self, Write},
};

/// What names begin with, but for those of the process, which collectors know from other programs.
const PREFIX: &str = "cambium_";
const OF_PROCESS: &str = "process_";

/// A page of figures in the text format of Prometheus, version 0.0.4.
///
/// A counter has `_total` at the end of its name, and a latency is a summary in seconds, with `_seconds`: the quantiles since the
/// process started, of which the last one is the maximum, and the count. It has no sum. All names begin with `cambium_`, but for
/// those that begin with `process_`. Figures of one name are together, in whatever order they come.
///
/// ```
/// use cambium_metrics::MetricsPage;
/// use cambium_state::{Db, StateError};
///
/// fn page(db: &Db) -> Result<String, StateError> {
///     let mut page = MetricsPage::default();
///     db.report(&mut page)?;
///     Ok(page.to_string())
/// }
/// ```
#[derive(Debug, Default)]
pub struct MetricsPage {
    families: Vec<Family>,
    /// Places of families by their names.
    places: HashMap<String, usize>,
    /// Labels of what comes next, as they are written.
    labels: String,
}

/// The figures of one name.
#[derive(Debug)]
struct Family {
    name: String,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

impl MetricsPage {
    /// What the HTTP header `Content-Type` of a page is.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// The kind of a total.
    pub const COUNTER: &str = "counter";
    /// The kind of a current value.
    pub const GAUGE: &str = "gauge";
    /// The kind of a latency.
    pub const SUMMARY: &str = "summary";

    /// The name under which a figure of a kind is shown.
    pub fn name_of(name: &str, kind: &str) -> String {
        let prefix = if name.starts_with(OF_PROCESS) {
            ""
        } else {
            PREFIX
        };
        let unit = match kind {
            Self::COUNTER => "_total",
            Self::SUMMARY => "_seconds",
            _ => "",
        };
        named(&format!("{prefix}{name}{unit}"))
    }

    /// The samples of a family, its name, and the labels of the next figure.
    fn family(
        &mut self,
        name: &str,
        kind: &'static str,
        help: &'static str,
    ) -> (&mut String, &str, &str) {
        let full = Self::name_of(name, kind);
        let next = self.families.len();
        let place = *self.places.entry(full.clone()).or_insert(next);
        if place == next {
            self.families.push(Family {
                name: full,
                kind,
                help,
                samples: String::new(),
            });
        }
        let Family { name, samples, .. } = &mut self.families[place];
        (samples, name, &self.labels)
    }
}

/// A name without characters that names can't have.
fn named(name: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let letters = name.chars();
    letters
        .map(|it| if allowed(it) { it } else { '_' })
        .collect()
}

/// A text with `\`, ends of lines and, in a label, quotes escaped.
struct Escaped<'t> {
    text: &'t str,
    is_label: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.text.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.is_label => f.write_str("\\\"")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Labels in braces; nothing if there are none.
fn in_braces(labels: &str) -> String {
    match labels.is_empty() {
        true => String::new(),
        false => format!("{{{labels}}}"),
    }
}

impl Metrics for MetricsPage {
    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        let (samples, name, labels) = self.family(name, Self::COUNTER, help);
        let _ = writeln!(samples, "{name}{} {value}", in_braces(labels));
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        let (samples, name, labels) = self.family(name, Self::GAUGE, help);
        let _ = writeln!(samples, "{name}{} {value}", in_braces(labels));
    }

    fn latency(&mut self, name: &'static str, help: &'static str, latency: &Latency) {
        let (samples, name, labels) = self.family(name, Self::SUMMARY, help);
        let Latency {
            count,
            p50_ns,
            p99_ns,
            p999_ns,
            max_ns,
        } = *latency;
        let comma = if labels.is_empty() { "" } else { "," };
        for (quantile, ns) in [
            ("0.5", p50_ns),
            ("0.99", p99_ns),
            ("0.999", p999_ns),
            ("1", max_ns),
        ] {
            // There is no quantile of nothing.
            let seconds = match count {
                0 => f64::NAN,
                _ => ns as f64 / 1e9,
            };
            let _ = writeln!(
                samples,
                "{name}{{{labels}{comma}quantile=\"{quantile}\"}} {seconds}"
            );
        }
        let _ = writeln!(samples, "{name}_count{} {count}", in_braces(labels));
    }
}

impl LabelledMetrics for MetricsPage {
    fn labels(&mut self, labels: &[(&'static str, &str)]) {
        self.labels.clear();
        for (label, value) in labels {
            let comma = if self.labels.is_empty() { "" } else { "," };
            let value = Escaped {
                text: value,
                is_label: true,
            };
            let _ = write!(self.labels, "{comma}{}=\"{value}\"", named(label));
        }
    }
}

impl fmt::Display for MetricsPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in &self.families {
            let Family {
                name,
                kind,
                help,
                samples,
            } = family;
            let help = Escaped {
                text: help,
                is_label: false,
            };
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_text_that_collectors_read() {
        let mut page = MetricsPage::default();
        page.labels(&[("role", "a \"shard\"\n\\of 2"), ("n", "1")]);
        page.gauge("build_info", "Version \\ and\nrole.", 1);
        page.labels(&[]);
        page.counter("reads", "Reads.", 7);
        page.labels(&[("method", "read")]);
        page.counter("requests", "Requests.", 1);
        page.latency("request", "Time.", &Latency::default());
        // Of a family that has begun before.
        page.labels(&[("method", "status")]);
        page.counter("requests", "Requests.", u64::MAX);
        let latency = Latency {
            count: 2,
            p50_ns: 1,
            p99_ns: 1_500_000_000,
            p999_ns: 1_500_000_000,
            max_ns: 61_000_000_000,
        };
        page.latency("request", "Time.", &latency);
        page.labels(&[]);
        page.gauge("process_open_fds", "Descriptors.", 3);
        page.latency("odd-name", "Time.", &latency);
        let expected = r#"# HELP cambium_build_info Version \\ and\nrole.
# TYPE cambium_build_info gauge
cambium_build_info{role="a \"shard\"\n\\of 2",n="1"} 1
# HELP cambium_reads_total Reads.
# TYPE cambium_reads_total counter
cambium_reads_total 7
# HELP cambium_requests_total Requests.
# TYPE cambium_requests_total counter
cambium_requests_total{method="read"} 1
cambium_requests_total{method="status"} 18446744073709551615
# HELP cambium_request_seconds Time.
# TYPE cambium_request_seconds summary
cambium_request_seconds{method="read",quantile="0.5"} NaN
cambium_request_seconds{method="read",quantile="0.99"} NaN
cambium_request_seconds{method="read",quantile="0.999"} NaN
cambium_request_seconds{method="read",quantile="1"} NaN
cambium_request_seconds_count{method="read"} 0
cambium_request_seconds{method="status",quantile="0.5"} 0.000000001
cambium_request_seconds{method="status",quantile="0.99"} 1.5
cambium_request_seconds{method="status",quantile="0.999"} 1.5
cambium_request_seconds{method="status",quantile="1"} 61
cambium_request_seconds_count{method="status"} 2
# HELP process_open_fds Descriptors.
# TYPE process_open_fds gauge
process_open_fds 3
# HELP cambium_odd_name_seconds Time.
# TYPE cambium_odd_name_seconds summary
cambium_odd_name_seconds{quantile="0.5"} 0.000000001
cambium_odd_name_seconds{quantile="0.99"} 1.5
cambium_odd_name_seconds{quantile="0.999"} 1.5
cambium_odd_name_seconds{quantile="1"} 61
cambium_odd_name_seconds_count 2
"#;
        assert_eq!(page.to_string(), expected);
    }
}
