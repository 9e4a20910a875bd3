//! Batches of reads: by io_uring if the system permits it, otherwise by threads.

use super::{
    file::StdFile,
    shared::Shared,
    threads::Threads,
    uring::{Piece, RingError, Rings, SLOT_BYTES, SetUp},
    window::Window,
};
use crate::ReadRequest;
use std::{
    any::Any,
    io,
    os::fd::AsFd,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// Reads batches with the best method available.
#[derive(Debug)]
pub(super) struct BatchReader {
    /// Function that creates a ring. `None` if io_uring is not wanted.
    set_up: Option<SetUp>,
    /// The rings, or the reason why there are none. Decided at the first use.
    rings: OnceLock<Result<Rings, String>>,
    /// Reason why a ring failed. No ring is used after that.
    broken: OnceLock<String>,
    /// Time at which the system refused reads for lack of memory. Rings then pause for
    /// [`REFUSED_PAUSE`].
    refused_at: Mutex<Option<Instant>>,
    pub(super) threads: Threads,
}

/// Pause of the rings after the system refused reads.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

impl BatchReader {
    /// Creates a reader that uses rings created by `set_up`, or threads without it.
    pub(super) fn new(set_up: Option<SetUp>) -> Self {
        Self {
            set_up,
            rings: OnceLock::new(),
            broken: OnceLock::new(),
            refused_at: Mutex::new(None),
            threads: Threads::default(),
        }
    }

    /// Returns the rings, or the reason why there are none.
    pub(super) fn rings(&self) -> Result<&Rings, &str> {
        if let Some(why) = self.broken.get() {
            return Err(why);
        }
        let rings = self.rings.get_or_init(|| match self.set_up {
            Some(set_up) => Rings::new(set_up).map_err(|e| e.to_string()),
            None => Err("not wanted".into()),
        });
        rings.as_ref().map_err(String::as_str)
    }

    /// Returns the memory held by the rings, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let rings = self.rings.get();
        rings.map_or(0, |rings| rings.as_ref().map_or(0, Rings::memory_bytes))
    }

    /// Executes all `requests`, and stores the outcome of each in it.
    pub(super) fn read(&self, requests: &mut [ReadRequest<'_>], shared: &Shared) {
        let mut ours = Vec::with_capacity(requests.len());
        for request in requests {
            let file: &dyn Any = request.file;
            match file.downcast_ref::<StdFile>() {
                Some(file) => ours.push((file, request)),
                None => request.outcome = request.file.read_at(request.buf, request.offset),
            }
        }
        let window = |(file, request): &(&StdFile, &mut ReadRequest<'_>)| {
            file.window(request.offset, request.buf.len())
        };
        let windows: Vec<_> = ours.iter().map(window).collect();
        let bytes = windows.iter().flatten().map(|window| window.len()).sum();
        shared.counters.add_reads(ours.len() as u64, bytes);
        if let Ok(rings) = self.rings()
            && ours.len() > 1
            && !self.is_pausing()
        {
            self.read_by(rings, &mut ours, &windows);
        }
        // All reads, or those that the ring did not complete. Plain reads handle every case, such
        // as the end of the file.
        if !ours.is_empty() {
            self.threads.read(&mut ours);
        }
    }

    fn refused_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the rings pause after the system refused reads or a further ring.
    pub(super) fn note_refusal(&self) {
        *self.refused_at() = Some(Instant::now());
    }

    /// Records why a ring failed.
    pub(super) fn note_broken(&self, error: &io::Error) {
        let _ = self.broken.set(format!("a ring failed: {error}"));
    }

    /// Returns whether no ring should be used, because the system refused reads a short time ago.
    pub(super) fn is_pausing(&self) -> bool {
        let mut refused_at = self.refused_at();
        refused_at.take_if(|at| at.elapsed() > REFUSED_PAUSE);
        refused_at.is_some()
    }

    /// Executes `requests` with a ring, and removes those that succeed from the list.
    fn read_by(
        &self,
        rings: &Rings,
        requests: &mut Vec<(&StdFile, &mut ReadRequest<'_>)>,
        windows: &[Option<Window>],
    ) {
        let mut pieces = Vec::new();
        let mut missing = vec![0; requests.len()];
        for (at, ((file, _), window)) in requests.iter().zip(windows).enumerate() {
            let Some(window) = window else {
                missing[at] = 1;
                continue;
            };
            for window in window.pieces(SLOT_BYTES) {
                missing[at] += 1;
                let read = at as u64;
                pieces.push((file.as_file().as_fd(), Piece { read, window }));
            }
        }
        let read = rings.read(&pieces, |piece, bytes| {
            let at = piece.read as usize;
            let (_, target) = &mut requests[at];
            if bytes.is_some_and(|bytes| piece.copy(target.buf, target.offset, bytes)) {
                missing[at] -= 1;
            }
        });
        match &read {
            Ok(()) => {}
            Err(RingError::Refused) => self.note_refusal(),
            Err(RingError::Broken(e)) => self.note_broken(e),
        }
        let mut missing = missing.into_iter();
        requests.retain_mut(|(_, request)| {
            let is_missing = missing.next() != Some(0);
            if !is_missing {
                request.outcome = Ok(());
            }
            is_missing
        });
    }
}
