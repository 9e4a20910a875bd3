//! A simulation of block execution on other machines: transactions with measured times and reads
//! are executed by workers that share cores and a disk.
//!
//! ```text
//!   tasks, in order --> idle worker: the next task whose dependencies are done
//!                          |  ^
//!         a slice of time  v  |  a read
//!                   queue of cores, queue of the disk
//! ```
//!
//! A task alternates between a core, for a slice of its time, and the disk, for a read. Cores and
//! the disk serve requests in the order of their arrival. The time of sequential parts (indexing
//! the list before, assembling results after) is added unchanged. Contention for memory bandwidth,
//! caches and locks is not modelled. The prediction for the machine at hand is compared with its
//! measurement.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// A transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    /// Nanoseconds of processor time, without waiting for reads.
    pub(crate) cpu_ns: u64,
    /// Number of reads from the disk, one after another.
    pub(crate) reads: u32,
    /// Indices of earlier tasks whose results it needs.
    pub(crate) after: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// Maximum number of transactions in progress.
    pub(crate) workers: usize,
    /// Nanoseconds that a read takes.
    pub(crate) read_ns: u64,
    /// Number of reads that the disk serves in parallel.
    pub(crate) reads_at_once: usize,
}

impl Machine {
    /// Returns the nanoseconds in which all tasks finish, if they start in this order.
    pub(crate) fn run(&self, tasks: &[Task], order: &[usize]) -> u64 {
        Run::new(self, tasks, order).until_the_end()
    }

    /// Returns the nanoseconds of the longest chain of dependent tasks, a lower bound for any
    /// number of cores and workers.
    pub(crate) fn critical_path(&self, tasks: &[Task]) -> u64 {
        let mut ends: Vec<u64> = Vec::with_capacity(tasks.len());
        for task in tasks {
            let start = task.after.iter().map(|at| ends[*at]).max().unwrap_or(0);
            ends.push(start + task.cpu_ns + u64::from(task.reads) * self.read_ns);
        }
        ends.into_iter().max().unwrap_or(0)
    }
}

/// A resource with several servers and one queue.
struct Station {
    free: usize,
    waiting: VecDeque<(usize, u64)>,
}

impl Station {
    fn new(free: usize) -> Self {
        let waiting = VecDeque::new();
        Self { free, waiting }
    }

    /// Requests service of `ns` nanoseconds for `task`. Returns the service that starts, if one
    /// does.
    fn ask(&mut self, task: usize, ns: u64) -> Option<(usize, u64)> {
        self.waiting.push_back((task, ns));
        self.next()
    }

    fn leave(&mut self) -> Option<(usize, u64)> {
        self.free += 1;
        self.next()
    }

    fn next(&mut self) -> Option<(usize, u64)> {
        if self.free == 0 {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.free -= 1;
        Some(next)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ended {
    Slice,
    Read,
}

struct Run<'a> {
    machine: &'a Machine,
    tasks: &'a [Task],
    /// Tasks that have not started, in the order in which they are to start.
    waiting: VecDeque<usize>,
    through: Vec<bool>,
    reads_left: Vec<u32>,
    idle_workers: usize,
    cores: Station,
    disk: Station,
    now: u64,
    events: BinaryHeap<Reverse<(u64, usize, Ended)>>,
}

impl<'a> Run<'a> {
    fn new(machine: &'a Machine, tasks: &'a [Task], order: &[usize]) -> Self {
        Self {
            machine,
            tasks,
            waiting: order.iter().copied().collect(),
            through: vec![false; tasks.len()],
            reads_left: tasks.iter().map(|task| task.reads).collect(),
            idle_workers: machine.workers,
            cores: Station::new(machine.cores),
            disk: Station::new(machine.reads_at_once),
            now: 0,
            events: BinaryHeap::new(),
        }
    }

    fn until_the_end(mut self) -> u64 {
        self.begin();
        while let Some(Reverse((at, task, ended))) = self.events.pop() {
            self.now = at;
            match ended {
                Ended::Slice => {
                    let next = self.cores.leave();
                    self.work(next);
                    if self.reads_left[task] == 0 {
                        self.through[task] = true;
                        self.idle_workers += 1;
                        self.begin();
                    } else {
                        self.reads_left[task] -= 1;
                        let next = self.disk.ask(task, self.machine.read_ns);
                        self.read(next);
                    }
                }
                Ended::Read => {
                    let next = self.disk.leave();
                    self.read(next);
                    self.ask_for_core(task);
                }
            }
        }
        self.now
    }

    /// Starts tasks on idle workers.
    fn begin(&mut self) {
        let mut at = 0;
        while self.idle_workers > 0 && at < self.waiting.len() {
            let task = self.waiting[at];
            let is_ready = |before: &usize| self.through[*before];
            if self.tasks[task].after.iter().all(is_ready) {
                self.waiting.remove(at);
                self.idle_workers -= 1;
                self.ask_for_core(task);
            } else {
                at += 1;
            }
        }
    }

    fn ask_for_core(&mut self, task: usize) {
        let Task { cpu_ns, reads, .. } = self.tasks[task];
        let next = self.cores.ask(task, cpu_ns / (u64::from(reads) + 1));
        self.work(next);
    }

    fn work(&mut self, next: Option<(usize, u64)>) {
        self.schedule(next, Ended::Slice);
    }

    fn read(&mut self, next: Option<(usize, u64)>) {
        self.schedule(next, Ended::Read);
    }

    fn schedule(&mut self, next: Option<(usize, u64)>, ended: Ended) {
        if let Some((task, ns)) = next {
            self.events.push(Reverse((self.now + ns, task, ended)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cores: usize, workers: usize) -> Machine {
        Machine {
            cores,
            workers,
            read_ns: 100,
            reads_at_once: 4,
        }
    }

    fn task(cpu_ns: u64, reads: u32, after: &[usize]) -> Task {
        Task {
            cpu_ns,
            reads,
            after: after.to_vec(),
        }
    }

    #[test]
    fn cores_are_shared_and_reads_overlap() {
        let eight = vec![task(50, 0, &[]); 8];
        let order: Vec<_> = (0..8).collect();
        assert_eq!(machine(1, 1).run(&eight, &order), 400);
        assert_eq!(machine(2, 2).run(&eight, &order), 200);
        assert_eq!(
            machine(2, 8).run(&eight, &order),
            200,
            "cores are the limit"
        );
        // 20 ns of processor time, a read, 20 ns.
        let reading = vec![task(40, 1, &[]); 8];
        assert_eq!(machine(1, 1).run(&reading, &order), 8 * 140);
        assert_eq!(machine(4, 4).run(&reading, &order), 2 * 140);
        // The disk serves four at once, and the others queue.
        assert_eq!(machine(8, 8).run(&reading, &order), 20 + 100 + 100 + 20);
    }

    #[test]
    fn the_longest_first_is_no_worse_than_the_longest_last() {
        let uneven = [10, 10, 10, 30].map(|cpu_ns| task(cpu_ns, 0, &[]));
        assert_eq!(machine(2, 2).run(&uneven, &[0, 1, 2, 3]), 40);
        assert_eq!(machine(2, 2).run(&uneven, &[3, 0, 1, 2]), 30);
    }

    #[test]
    fn a_chain_takes_what_it_takes() {
        let chain = [
            task(50, 0, &[]),
            task(50, 1, &[0]),
            task(50, 0, &[1]),
            task(20, 0, &[]),
        ];
        let order = [0, 1, 2, 3];
        assert_eq!(machine(8, 8).critical_path(&chain), 250);
        assert_eq!(machine(8, 8).run(&chain, &order), 250);
        assert_eq!(machine(1, 1).run(&chain, &order), 270);
        assert_eq!(machine(2, 2).run(&chain, &order), 250);
    }
}
