//! Reading in a process of its own, whose memory is limited, page cache included.

use super::{
    kind::Kind,
    plan::{Failure, Plan, Truth},
    states::OldStates,
};
use crate::{
    cgroup::{self, Cgroup},
    process::{Next, Process, tell},
    report::Notes,
    system::{self, Io},
};
use alloy_primitives::B256;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Time without an event after which a process counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(1_800);

/// Request to a process.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    plan: Plan,
    kind: Kind,
    part: Part,
    /// The cgroup that the process joins first.
    cgroup: Option<PathBuf>,
}

/// Work of one process. Memory that a process has freed and not returned counts, so the next part has a new one.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Part {
    /// Reads, with these numbers of threads one after another.
    Reads(Vec<u64>),
    /// Reads with one thread while blocks are imported.
    Importing,
}

/// Result of a process.
#[derive(Debug, Serialize, Deserialize)]
struct ReadAll {
    figures: Map<String, Value>,
    errors: Vec<String>,
}

/// Results of one thread.
#[derive(Default)]
struct Reads {
    latencies: Vec<Duration>,
    nodes: u64,
    errors: Vec<String>,
}

/// Reads in processes of their own. Adds to figures, and returns what was wrong.
pub(super) fn read_in_processes(
    plan: &Plan,
    kind: Kind,
    threads: &[u64],
    figures: &mut Map<String, Value>,
    notes: &mut Notes,
) -> Result<Vec<String>, Failure> {
    let reads = Part::Reads(threads.to_vec());
    let mut errors = read_in_process(plan, kind, reads, figures, notes)?;
    if plan.imported > 0 {
        errors.extend(read_in_process(
            plan,
            kind,
            Part::Importing,
            figures,
            notes,
        )?);
    }
    Ok(errors)
}

fn read_in_process(
    plan: &Plan,
    kind: Kind,
    part: Part,
    figures: &mut Map<String, Value>,
    notes: &mut Notes,
) -> Result<Vec<String>, Failure> {
    if let Err(error) = system::drop_caches() {
        notes.add(format!("caches are not dropped ({error})"));
    }
    let group = Cgroup::or_note(kind.name(), plan.process_memory, notes);
    let peak = match part {
        Part::Reads(_) => "cgroup_peak_mib",
        Part::Importing => "importing_cgroup_peak_mib",
    };
    let task = Task {
        plan: plan.clone(),
        kind,
        part,
        cgroup: group.as_ref().map(Cgroup::members),
    };
    let process = Process {
        command: "history-child",
        log: &plan.dir.join("child.log"),
        silence_max: SILENCE_MAX,
        threads: None,
    };
    let mut read: Option<ReadAll> = None;
    process.run(&task, &mut |event| {
        read = Some(event);
        Next::GoOn
    })?;
    let read = read.ok_or("the child told nothing")?;
    figures.extend(read.figures);
    if let Some(bytes) = group.as_ref().and_then(Cgroup::peak_bytes) {
        figures.insert(peak.to_owned(), json!(bytes >> 20));
    }
    Ok(read.errors)
}

/// Executes the request of a parent.
pub(crate) fn child(task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task)?;
    // Memory for checking the reads is not part of the limit.
    let (truth, roots) = (Truth::new(&task.plan), task.plan.roots()?);
    let nonce = |index, number| truth.nonce(index, number);
    if let Some(members) = &task.cgroup {
        cgroup::join(members)?;
    }
    let is_importing = matches!(task.part, Part::Importing);
    let states = task.kind.open(&task.plan, is_importing)?;
    let (mut figures, mut errors) = (Map::new(), Vec::new());
    let mut add = |(of_these, wrong): (Map<String, Value>, Vec<String>), prefix: &str| {
        errors.extend(wrong);
        let named = |(name, value)| (format!("{prefix}{name}"), value);
        figures.extend(of_these.into_iter().map(named));
    };
    match &task.part {
        Part::Reads(threads) => {
            for count in threads {
                let prefix = match count {
                    1 => String::new(),
                    count => format!("{count}_threads_"),
                };
                let read = read_with(&*states, &task.plan, *count, &nonce, &roots)?;
                add(read, &prefix);
            }
        }
        Part::Importing => {
            let read = read_while_importing(&*states, &task.plan, &nonce, &roots)?;
            add(read, "importing_");
        }
    }
    drop(states);
    tell(&ReadAll { figures, errors })
}

/// The nonce of an account after a block, as it should be.
type Nonce<'a> = &'a (dyn Fn(u64, u64) -> u64 + Sync);

/// Reads with a number of threads. Each has its own part of the reads.
pub(super) fn read_with(
    states: &dyn OldStates,
    plan: &Plan,
    threads: u64,
    nonce: Nonce<'_>,
    roots: &[B256],
) -> Result<(Map<String, Value>, Vec<String>), Failure> {
    let (io, before) = (Io::now(&plan.dir), states.history_reads());
    let looked_up = states.look_ups();
    let start = Instant::now();
    let each: Result<Vec<Reads>, Failure> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let reads = plan.reads(threads).skip(thread as usize);
                    let reads = reads.step_by(threads as usize);
                    read_some(states, reads, nonce, roots)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            let reads = thread.join();
            reads.map_err(|_| Failure::from("a thread that reads panicked"))?
        });
        joined.collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    let io = Io::now(&plan.dir).since(&io);
    let after = states.history_reads();
    let looked_up = states.look_ups() - looked_up;
    let mut all = Reads::default();
    for reads in each? {
        all.latencies.extend(reads.latencies);
        all.nodes += reads.nodes;
        all.errors.extend(reads.errors);
    }
    all.latencies.sort_unstable();
    let count = all.latencies.len().max(1) as f64;
    let at = |share: f64| {
        let index = (count * share) as usize;
        all.latencies.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    let each = |number: u64| number as f64 / count;
    let mut figures = json!({
        "reads_per_second": count / elapsed,
        "read_p50_ms": at(0.5),
        "read_p99_ms": at(0.99),
        "device_reads_per_read": each(io.device_reads),
        "device_bytes_per_read": each(io.read_bytes),
    });
    let (of_history, waits) = (after.0 - before.0, after.1 - before.1);
    if of_history > 0 {
        figures["history_reads_per_read"] = json!(each(of_history));
        // Pages of the present state are read one by one.
        let rounds = waits + io.device_reads.saturating_sub(of_history);
        figures["rounds_per_read"] = json!(each(rounds));
    }
    if looked_up > 0 {
        figures["look_ups_per_read"] = json!(each(looked_up));
    }
    if all.nodes > 0 {
        figures["nodes_per_read"] = json!(each(all.nodes));
        figures["device_reads_per_node"] = json!(io.device_reads as f64 / all.nodes as f64);
    }
    Ok((figures.as_object().cloned().unwrap_or_default(), all.errors))
}

/// Reads with one thread while another one imports blocks at the plan's rate.
fn read_while_importing(
    states: &dyn OldStates,
    plan: &Plan,
    nonce: Nonce<'_>,
    roots: &[B256],
) -> Result<(Map<String, Value>, Vec<String>), Failure> {
    let is_over = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        let importing = scope.spawn(|| -> Result<(u64, Duration), Failure> {
            let blocks = plan.all_changed_accounts().skip(plan.blocks as usize);
            let (mut count, mut slowest) = (0, Duration::ZERO);
            for (at, indices) in (0..).zip(blocks) {
                let due = Duration::from_secs_f64(at as f64 / plan.import_rate as f64);
                thread::sleep(due.saturating_sub(start.elapsed()));
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let begun = Instant::now();
                states.import(&indices)?;
                slowest = slowest.max(begun.elapsed());
                count = at + 1;
            }
            Ok((count, slowest))
        });
        let read = read_with(states, plan, 1, nonce, roots);
        let elapsed = start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let imported = importing.join();
        let (count, slowest) = imported.map_err(|_| "the thread that imports panicked")??;
        let (mut figures, errors) = read?;
        figures.insert("blocks".to_owned(), json!(count));
        figures.insert("seconds".to_owned(), json!(elapsed));
        figures.insert(
            "slowest_block_ms".to_owned(),
            json!(1e3 * slowest.as_secs_f64()),
        );
        Ok((figures, errors))
    })
}

fn read_some(
    states: &dyn OldStates,
    reads: impl Iterator<Item = (u64, u64)>,
    nonce: Nonce<'_>,
    roots: &[B256],
) -> Result<Reads, Failure> {
    let mut all = Reads::default();
    for (index, number) in reads {
        let root = roots[number as usize];
        let start = Instant::now();
        let found = states.read(index, number, root)?;
        all.latencies.push(start.elapsed());
        all.nodes += found.nodes;
        if found.root.is_some_and(|found| found != root) {
            all.errors.push(format!("the root at block {number}"));
        }
        let expected = nonce(index, number);
        if found.nonce != Some(expected) {
            all.errors.push(format!(
                "account {index} at block {number}: {:?}, not {expected}",
                found.nonce
            ));
        }
    }
    Ok(all)
}
