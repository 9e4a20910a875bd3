//! The report: figures of each job, the fitted serial part, and targets.

use super::{
    child::Measured,
    fit::Fit,
    job::Job,
    setting::{CROWDED_CORES, Setting},
    stages::Stages,
};
use crate::report::{Report, Target, median};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The measurements of a job, by setting.
pub(super) type Runs = BTreeMap<Setting, Vec<Measured>>;

/// Numbers of cores for which speeds are predicted.
const PREDICTED: [usize; 3] = [16, 32, 64];
/// Most processor time of the same work with so many threads on two cores, against two threads.
const CROWDED_MAX: [(usize, f64); 2] = [(16, 1.05), (64, 1.10)];

/// The value for JSON, in microseconds or units a second, with three digits after the point.
fn figure(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

/// Adds the figures of a job.
pub(super) fn add(job: Job, runs: &Runs, report: &mut Report) {
    let mut result = Map::from_iter([("job".to_owned(), json!(job.name()))]);
    let middle = |setting: &Setting, of: &dyn Fn(&Measured) -> f64| {
        median(runs[setting].iter().map(of).collect())
    };
    let mut times = Vec::new();
    let mut stages = None;
    for (setting, measured) in runs {
        let us = middle(setting, &|m| 1e6 * m.seconds / m.units);
        let cpu_us = middle(setting, &|m| 1e6 * m.cpu_seconds / m.units);
        if !setting.is_crowded() {
            times.push((setting.cores, us));
            // On the most cores, as settings are in order.
            let last = measured.last();
            stages = last.and_then(|last| Stages::of(last, *setting)).or(stages);
        }
        let mut add = |name: &str, value: f64| {
            result.insert(format!("{name}_{}", setting.name()), figure(value));
        };
        add("units_per_second", 1e6 / us);
        add("cpu_us_per_unit", cpu_us);
        if measured.iter().any(|m| m.gas > 0.0) {
            add(
                "mgas_per_second",
                middle(setting, &|m| m.gas / 1e6 / m.seconds),
            );
        }
        let last = measured.last().cloned().unwrap_or_default();
        let share = |parts: &mut dyn Iterator<Item = (&String, f64)>| -> Value {
            let part = |(name, seconds): (&String, f64)| {
                (name.clone(), figure(1e6 * seconds / last.units))
            };
            Value::Object(parts.map(part).collect())
        };
        let threads = last.threads.iter();
        let mut all = threads.clone().map(|(name, (all, _))| (name, *all));
        let mut most = threads.map(|(name, (_, most))| (name, *most));
        let mut parts = last.parts.iter().map(|(name, seconds)| (name, *seconds));
        let lists = [
            ("threads_us_per_unit", share(&mut all)),
            ("longest_thread_us_per_unit", share(&mut most)),
            ("parts_us_per_unit", share(&mut parts)),
        ];
        for (name, list) in lists {
            result.insert(format!("{name}_{}", setting.name()), list);
        }
    }
    if job.is_parallel()
        && let Some(fit) = Fit::of(&times)
    {
        result.insert("serial_us_per_unit".to_owned(), figure(fit.serial_us));
        result.insert("parallel_us_per_unit".to_owned(), figure(fit.parallel_us));
    }
    if let Some(stages) = stages.filter(|_| job.is_parallel()) {
        for cores in PREDICTED {
            let (us, bound) = stages.predict(cores);
            result.insert(format!("predicted_per_second_{cores}"), figure(1e6 / us));
            result.insert(format!("bound_{cores}"), json!(bound));
        }
        let stages = stages.by_thread.iter().map(|(name, stage)| {
            let us = json!({
                "alone_us": figure(stage.alone_us),
                "shared_us": figure(stage.shared_us),
            });
            (name.clone(), us)
        });
        result.insert("stages".to_owned(), Value::Object(stages.collect()));
    }
    let two = Setting::of(CROWDED_CORES);
    if runs.contains_key(&two) {
        let cpu = |m: &Measured| m.cpu_seconds / m.units;
        for (threads, most) in CROWDED_MAX {
            let crowd = Setting { threads, ..two };
            if job.is_parallel() && runs.contains_key(&crowd) {
                let ratio = middle(&crowd, &cpu) / middle(&two, &cpu);
                result.insert(format!("crowded_cpu_ratio_{threads}"), figure(ratio));
                report.targets.push(Target {
                    name: format!(
                        "processor time with {threads} threads on two cores: {}",
                        job.name()
                    ),
                    value: ratio,
                    unit: "x",
                    target: format!("at most {most:.2}"),
                    met: ratio <= most,
                });
            }
        }
    }
    report.results.push(result);
}

/// Adds a table with a row for each job.
pub(super) fn add_table(settings: &[Setting], report: &mut Report) {
    let speeds = settings.iter().map(|setting| setting.name());
    let mut heads: Vec<_> = speeds.map(|name| format!("{name}: k/s")).collect();
    heads.extend(["cpu, us", "serial, us"].map(str::to_owned));
    heads.extend(PREDICTED.map(|cores| format!("~{cores}: k/s")));
    heads.push(format!("bound at {}", PREDICTED[0]));
    let mut rows = vec![("job, threads/cores".to_owned(), heads)];
    let widest = settings.iter().rfind(|setting| !setting.is_crowded());
    for result in &report.results {
        let text = |name: &str, scale: f64| match result.get(name).and_then(Value::as_f64) {
            Some(value) => format!("{:.1}", value * scale),
            None => "-".to_owned(),
        };
        let mut row: Vec<_> = settings
            .iter()
            .map(|setting| text(&format!("units_per_second_{}", setting.name()), 1e-3))
            .collect();
        let widest = widest.map_or_else(String::new, |setting| setting.name());
        row.push(text(&format!("cpu_us_per_unit_{widest}"), 1.0));
        row.push(text("serial_us_per_unit", 1.0));
        row.extend(PREDICTED.map(|cores| text(&format!("predicted_per_second_{cores}"), 1e-3)));
        let bound = format!("bound_{}", PREDICTED[0]);
        let bound = result.get(&bound).and_then(Value::as_str);
        row.push(bound.unwrap_or("-").to_owned());
        let name = result["job"].as_str().unwrap_or_default().to_owned();
        rows.push((name, row));
    }
    report.comparison = rows;
}
