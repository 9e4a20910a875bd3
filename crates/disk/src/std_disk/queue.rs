//! A queue of reads: by a ring of its own if the system permits it, otherwise by threads.
//!
//! ```text
//!  submit --> waiting --> ring --all pieces are read--> poll
//!        \                 \                          /
//!         \ no ring         \ error, end of file     /
//!          +-----------------+--> threads ----------+
//! ```
//!
//! [`ReadQueue::submit`] only fills the ring's submission queue, so that one system call of
//! [`ReadQueue::poll`] passes many reads to the kernel and takes the finished ones.

use super::{
    background::BackgroundReads,
    batch::BatchReader,
    file::StdFile,
    shared::Shared,
    threads::Threads,
    uring::{Piece, REFUSAL_PAUSE, Ring, SLOT_BYTES, is_passing},
    window::Window,
};
use crate::{FinishedRead, QueuedRead, ReadQueue};
use std::{
    any::Any,
    collections::{HashMap, VecDeque, hash_map::Entry},
    io,
    os::fd::AsFd,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Time for which the system may refuse all reads for lack of memory before the ring is given up.
const REFUSED_MAX: Duration = Duration::from_millis(25);

/// A queue of a [`StdDisk`](crate::StdDisk).
pub(super) struct StdQueue {
    batches: Arc<BatchReader>,
    shared: Arc<Shared>,
    depth: usize,
    /// Created by the first read, and again some time after the system refused one.
    ring: Option<Ring>,
    /// Pieces that wait for a free slot of the ring.
    waiting: VecDeque<Piece>,
    /// Time since which the system has refused all pieces.
    refused_since: Option<Instant>,
    /// Number of the next read of the ring.
    next: u64,
    unfinished: Unfinished,
}

/// Reads that were not handed out.
struct Unfinished {
    /// Reads of the ring, by the numbers in their pieces.
    in_ring: HashMap<u64, RingRead>,
    background: BackgroundReads,
}

/// A read by the ring.
struct RingRead {
    file: StdFile,
    read: QueuedRead,
    /// Number of pieces that are not done.
    pieces: usize,
    /// Whether a piece failed or was too short.
    is_incomplete: bool,
}

impl StdQueue {
    /// Creates a queue with up to `depth` pieces in the ring.
    pub(super) fn new(batches: Arc<BatchReader>, shared: Arc<Shared>, depth: usize) -> Self {
        Self {
            batches,
            shared,
            depth,
            ring: None,
            waiting: VecDeque::new(),
            refused_since: None,
            next: 0,
            unfinished: Unfinished {
                in_ring: HashMap::new(),
                background: BackgroundReads::new(),
            },
        }
    }

    /// Creates the ring if there is none. Returns false if the system does not permit one now.
    fn has_ring(&mut self) -> bool {
        if self.ring.is_none()
            && let Ok(rings) = self.batches.rings()
            && !self.batches.is_pausing()
        {
            match rings.separate(self.depth) {
                Ok(ring) => self.ring = Some(ring),
                Err(_) => self.batches.note_refusal(),
            }
        }
        self.ring.is_some()
    }

    /// Splits a read into pieces for the ring. `window` is the range to read, and is not empty.
    fn submit_to_ring(&mut self, file: StdFile, read: QueuedRead, window: Window) {
        let (number, before) = (self.next, self.waiting.len());
        self.next += 1;
        let pieces = window.pieces(SLOT_BYTES);
        self.waiting.extend(pieces.map(|window| Piece {
            read: number,
            window,
        }));
        let read = RingRead {
            file,
            read,
            pieces: self.waiting.len() - before,
            is_incomplete: false,
        };
        self.unfinished.in_ring.insert(number, read);
        self.fill();
    }

    /// Pushes waiting pieces while slots are free.
    fn fill(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        while let Some(piece) = self.waiting.front() {
            // The file stays open, because its read stays in the map until all pieces are done.
            let file = &self.unfinished.in_ring[&piece.read].file;
            if !ring.push(file.as_file().as_fd(), *piece) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Submits pieces to the kernel and takes what is done. With `wait`, blocks until a piece is
    /// done, but not for long after a refusal.
    fn poll_ring(&mut self, wait: bool, finished: &mut Vec<FinishedRead>) {
        let taken = self.take_finished(finished);
        self.fill();
        let Some(ring) = &mut self.ring else { return };
        // The kernel delivers completions to this thread when it enters the kernel. So it is
        // entered even if there is nothing to submit, unless something was done already.
        if ring.in_flight() == 0 || taken > 0 && !ring.has_unsubmitted() {
            return;
        }
        let entered = ring.submit_and_wait(usize::from(wait && taken == 0));
        let taken = self.take_finished(finished);
        match entered {
            Ok(_) => self.refused_since = None,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if is_passing(&e) && taken > 0 => self.refused_since = None,
            Err(e) if is_passing(&e) => {
                let since = self.refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > REFUSED_MAX {
                    self.batches.note_refusal();
                    self.drain(finished);
                    self.give_up_ring();
                } else if wait {
                    thread::sleep(REFUSAL_PAUSE);
                }
            }
            Err(e) => {
                self.batches.note_broken(&e);
                self.give_up_ring();
            }
        }
    }

    /// Takes the ring's completions, and returns their number.
    fn take_finished(&mut self, finished: &mut Vec<FinishedRead>) -> usize {
        let Some(ring) = &mut self.ring else { return 0 };
        let threads = &self.batches.threads;
        ring.take_finished(&mut |piece, bytes| {
            self.unfinished.end_piece(piece, bytes, threads, finished);
        })
    }

    /// Takes the completions of all pieces that the kernel has accepted. The ring must not be used
    /// after it.
    fn drain(&mut self, finished: &mut Vec<FinishedRead>) {
        let Some(ring) = &mut self.ring else { return };
        let threads = &self.batches.threads;
        ring.drain(&mut |piece, bytes| {
            self.unfinished.end_piece(piece, bytes, threads, finished);
        });
    }

    /// Drops the ring, and leaves its reads to threads.
    fn give_up_ring(&mut self) {
        self.ring = None;
        self.refused_since = None;
        self.waiting.clear();
        let Unfinished {
            in_ring,
            background,
        } = &mut self.unfinished;
        for (_, RingRead { read, .. }) in in_ring.drain() {
            background.submit(read, &self.batches.threads);
        }
    }
}

impl ReadQueue for StdQueue {
    fn submit(&mut self, read: QueuedRead) {
        let file = (&*read.file as &dyn Any).downcast_ref::<StdFile>().cloned();
        if let Some(file) = file {
            let window = file.window(read.offset, read.bytes.len());
            let bytes = window.map_or(0, Window::len);
            self.shared.counters.add_reads(1, bytes);
            if let Some(window) = window
                && bytes > 0
                && self.has_ring()
            {
                return self.submit_to_ring(file, read, window);
            }
        }
        let background = &mut self.unfinished.background;
        background.submit(read, &self.batches.threads);
    }

    fn in_flight(&self) -> usize {
        self.unfinished.in_ring.len() + self.unfinished.background.in_flight()
    }

    fn poll(&mut self, wait: bool, finished: &mut Vec<FinishedRead>) {
        let before = finished.len();
        loop {
            self.unfinished.background.poll(false, finished);
            self.poll_ring(wait && finished.len() == before, finished);
            if !wait || finished.len() > before || self.in_flight() == 0 {
                return;
            }
            if self.unfinished.in_ring.is_empty() {
                self.unfinished.background.poll(true, finished);
            }
        }
    }
}

impl Drop for StdQueue {
    fn drop(&mut self) {
        // A ring with reads in flight could not free its memory.
        if let Some(ring) = &mut self.ring {
            ring.drain(&mut |_, _| ());
        }
    }
}

impl Unfinished {
    /// Copies what was read of a piece. The last piece of a read finishes it, or leaves it to
    /// `threads` if a piece is missing: plain reads handle every case, such as the end of the file.
    fn end_piece(
        &mut self,
        piece: Piece,
        bytes: Option<&[u8]>,
        threads: &Threads,
        finished: &mut Vec<FinishedRead>,
    ) {
        let Entry::Occupied(mut entry) = self.in_ring.entry(piece.read) else {
            unreachable!("a read stays until its last piece");
        };
        let read = entry.get_mut();
        let target = &mut read.read;
        let is_read = bytes.is_some_and(|b| piece.copy(&mut target.bytes, target.offset, b));
        read.is_incomplete |= !is_read;
        read.pieces -= 1;
        if read.pieces > 0 {
            return;
        }
        let read = entry.remove();
        match read.is_incomplete {
            true => self.background.submit(read.read, threads),
            false => finished.push(read.read.finish(Ok(()))),
        }
    }
}
