//! Processor time of this process by thread, while threads come and go.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::Path,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two readings. What a thread uses after its last reading is in the process's total and in no thread's.
const INTERVAL: Duration = Duration::from_millis(100);
/// Name of the thread that takes the readings, whose time does not count.
const OWN_NAME: &str = "bench-watch";

/// Processor time in nanoseconds, by thread.
#[derive(Clone, Debug, Default)]
struct Readings(HashMap<u32, (String, u64)>);

impl Readings {
    /// Adds what the threads of this process have used so far.
    fn take(&mut self) {
        let Ok(tasks) = fs::read_dir("/proc/self/task") else {
            return;
        };
        for task in tasks.flatten() {
            let path = task.path();
            let number = task.file_name().to_string_lossy().parse();
            // A thread that has ended meanwhile keeps its last reading.
            if let (Ok(number), Some(used)) = (number, used_ns(&path)) {
                let entry = self.0.entry(number).or_insert_with(|| {
                    let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
                    (name.trim().to_owned(), 0)
                });
                entry.1 = used;
            }
        }
    }
}

/// Nanoseconds that a thread has run, by the scheduler's own count.
fn used_ns(task: &Path) -> Option<u64> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Processor time of a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Used {
    /// By name of threads, without the numbers at the ends of names: seconds of all, and of the one that used the most.
    pub(super) by_name: BTreeMap<String, (f64, f64)>,
    /// Of these, the names of threads of pools, which have numbers at the ends: with more cores others of the pool take over what
    /// one has done.
    pub(super) pools: BTreeSet<String>,
}

/// A thread that reads the processor time of the others.
pub(super) struct Watch {
    before: Readings,
    stop: Sender<()>,
    thread: JoinHandle<Readings>,
}

impl Watch {
    pub(super) fn start() -> std::io::Result<Self> {
        let mut before = Readings::default();
        before.take();
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name(OWN_NAME.to_owned());
        let thread = thread.spawn(move || {
            let mut readings = Readings::default();
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                readings.take();
            }
            readings.take();
            readings
        })?;
        Ok(Self {
            before,
            stop,
            thread,
        })
    }

    /// Ends the readings, and returns what was used since the start.
    pub(super) fn stop(self) -> Used {
        drop(self.stop);
        let after = self.thread.join().unwrap_or_default();
        used_between(&self.before, &after)
    }
}

fn used_between(before: &Readings, after: &Readings) -> Used {
    let mut used = Used::default();
    for (number, (name, ns)) in &after.0 {
        // A number is given again only after many others.
        let before = before.0.get(number).map_or(0, |(_, ns)| *ns);
        let seconds = ns.saturating_sub(before) as f64 / 1e9;
        if name == OWN_NAME {
            continue;
        }
        let group = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        if group.len() < name.len() {
            used.pools.insert(group.to_owned());
        }
        let (all, most) = used.by_name.entry(group.to_owned()).or_default();
        *all += seconds;
        *most = most.max(seconds);
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn time_is_found_by_the_names_of_threads() {
        let watch = Watch::start().unwrap();
        let spin = |time: Duration| {
            let start = Instant::now();
            while start.elapsed() < time {
                std::hint::spin_loop();
            }
        };
        thread::scope(|scope| {
            for number in 0..2 {
                let thread = thread::Builder::new().name(format!("pool-{number}"));
                let spun = thread.spawn_scoped(scope, move || {
                    spin(Duration::from_millis(if number == 0 { 40 } else { 300 }));
                });
                spun.unwrap();
            }
        });
        let used = watch.stop();
        // Other tests run beside this one.
        let (all, most) = used.by_name["pool"];
        assert!(most > 0.05 && most <= all, "{used:?}");
        assert!(used.pools.contains("pool"), "{used:?}");
    }

    #[test]
    fn numbers_do_not_separate_threads_of_a_pool() {
        let reading = |entries: &[(u32, &str, u64)]| {
            let entries = entries.iter();
            Readings(
                entries
                    .map(|(number, name, ns)| (*number, ((*name).to_owned(), *ns)))
                    .collect(),
            )
        };
        let before = reading(&[(1, "a-0", 500_000_000)]);
        let after = reading(&[
            (1, "a-0", 1_500_000_000),
            (2, "a-11", 2_000_000_000),
            (3, "b", 7_000_000),
            (4, OWN_NAME, 9_000_000_000),
        ]);
        let used = used_between(&before, &after);
        // With more cores the pool's other threads take over.
        assert_eq!(used.pools, ["a".to_owned()].into());
        assert_eq!(used.by_name["b"], (0.007, 0.007));
        assert_eq!(used.by_name["a"], (3.0, 2.0));
        assert_eq!(used.by_name.len(), 2);
    }
}
