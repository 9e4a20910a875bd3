//! What bounds a job on more cores: its stages, each a thread that shares a part of its work with a crew, and the processors.
//!
//! A crew's threads and the one that gives them work take equal parts of it. So what that thread does beyond its part, it does alone,
//! however many cores there are. A stage of `alone` and `shared` takes `alone + shared / cores`, and a job as long as its longest
//! stage, or all its processor time divided by the cores.
//!
//! This says nothing of transactions that wait for each other, of memory, and of processors that are slower when all work.

use super::{child::Measured, setting::Setting};
use std::collections::BTreeMap;

/// Crews, each with the threads that share their work with it: the one that works most, if there are several.
const CREWS: [(&str, &[&str]); 3] = [
    ("cambium-prep", &["cambium-prepare"]),
    // Where there is no pipeline, the calling thread executes.
    ("cambium-run", &["cambium-execute", "cambium-bench"]),
    // Roots, and reads of many keys.
    ("cambium-state", &["cambium-verify", "cambium-execute"]),
];
/// Execution does not wait for what is read ahead.
const NOT_WAITED_FOR: [&str; 2] = ["cambium-ahead", "cambium-drop"];

/// Processor time of a stage, in microseconds of a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stage {
    pub(super) alone_us: f64,
    pub(super) shared_us: f64,
}

/// The stages of a job, by thread, and all its processor time in microseconds of a unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stages {
    pub(super) by_thread: BTreeMap<String, Stage>,
    cpu_us: f64,
}

impl Stages {
    /// The stages of a job in a setting with a thread for each core. `None` on one core, where crews have no threads.
    pub(super) fn of(measured: &Measured, setting: Setting) -> Option<Self> {
        if setting.cores < 2 || setting.is_crowded() || measured.units <= 0.0 {
            return None;
        }
        let others = (setting.cores - 1) as f64;
        let us = |seconds: f64| 1e6 * seconds / measured.units;
        let all_of = |name: &str| measured.threads.get(name).map_or(0.0, |(all, _)| us(*all));
        let most_of = |name: &str| {
            measured
                .threads
                .get(name)
                .map_or(0.0, |(_, most)| us(*most))
        };
        let sharing: Vec<_> = CREWS
            .iter()
            .filter_map(|(crew, threads)| {
                let mut threads = threads.iter();
                let first = *threads.next()?;
                let more = |one, other| {
                    if most_of(other) > most_of(one) {
                        other
                    } else {
                        one
                    }
                };
                Some((threads.copied().fold(first, more), all_of(crew)))
            })
            .collect();
        let mut by_thread = BTreeMap::new();
        for (name, (_, most)) in &measured.threads {
            if measured.pools.contains(name) || NOT_WAITED_FOR.contains(&&**name) {
                continue;
            }
            let crews = sharing.iter().filter(|(thread, _)| thread == name);
            let crew_us: f64 = crews.map(|(_, crew_us)| crew_us).sum();
            let part_us = crew_us / others;
            let stage = Stage {
                alone_us: (us(*most) - part_us).max(0.0),
                shared_us: crew_us + part_us,
            };
            by_thread.insert(name.clone(), stage);
        }
        Some(Self {
            by_thread,
            cpu_us: us(measured.cpu_seconds),
        })
    }

    /// Microseconds of a unit on so many cores, and what bounds it.
    pub(super) fn predict(&self, cores: usize) -> (f64, &str) {
        let cores = cores as f64;
        let stages = self
            .by_thread
            .iter()
            .map(|(name, stage)| (stage.alone_us + stage.shared_us / cores, &**name));
        let processors = (self.cpu_us / cores, "all processors");
        stages.fold(processors, |longest, stage| {
            if stage.0 > longest.0 { stage } else { longest }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_does_beyond_its_part_bounds_the_job() {
        let threads = [
            ("cambium-prepare", (1.2, 1.2)),
            ("cambium-prep", (3.0, 1.0)),
            ("cambium-execute", (0.5, 0.5)),
            ("cambium-ahead", (9.0, 9.0)),
            ("cambium-read", (2.0, 1.0)),
        ];
        let measured = Measured {
            units: 1e6,
            cpu_seconds: 16.0,
            threads: threads.map(|(name, used)| (name.to_owned(), used)).into(),
            pools: ["cambium-prep", "cambium-read"].map(str::to_owned).into(),
            ..Measured::default()
        };
        assert_eq!(Stages::of(&measured, Setting::of(1)), None);
        let crowded = Setting {
            threads: 16,
            ..Setting::of(4)
        };
        assert_eq!(Stages::of(&measured, crowded), None);
        let stages = Stages::of(&measured, Setting::of(4)).unwrap();
        let names: Vec<_> = stages.by_thread.keys().map(String::as_str).collect();
        assert_eq!(names, ["cambium-execute", "cambium-prepare"]);
        let prepare = stages.by_thread["cambium-prepare"];
        assert!((prepare.alone_us - 0.2).abs() < 1e-9, "{prepare:?}");
        assert!((prepare.shared_us - 4.0).abs() < 1e-9, "{prepare:?}");
        assert_eq!(stages.predict(4).1, "all processors");
        assert_eq!(stages.predict(1_000).1, "cambium-execute");
    }
}
