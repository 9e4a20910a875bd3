//! Writing at a pace that leaves room for others.

use crate::sync::AtomicBool;
use cambium_disk::DiskError;
use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

/// Gentle writes are made in pieces of this size.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// A gentle piece takes so long at least: 128 MiB a second.
const PIECE_TIME: Duration = Duration::from_millis(2);

/// Whether what is written in the background is written gently: in small pieces, with breaks. A
/// sync of the block log waits for what the device was given before it, however much that is:
/// beside writing at 700 MB a second, 15 ms at p99 on the development machine, and 1 ms beside 100.
#[derive(Debug, Default)]
pub struct WritePace {
    is_gentle: AtomicBool,
}

impl WritePace {
    /// Begins or ends writing gently. It begins with full speed.
    pub fn set_gentle(&self, is_gentle: bool) {
        self.is_gentle.store(is_gentle, Ordering::Relaxed);
    }

    pub(crate) fn is_gentle(&self) -> bool {
        self.is_gentle.load(Ordering::Relaxed)
    }

    /// Runs the write of a piece, and takes a break after it.
    pub(crate) fn write(
        &self,
        piece: impl FnOnce() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        if !self.is_gentle() {
            return piece();
        }
        let start = Instant::now();
        piece()?;
        thread::sleep(PIECE_TIME.saturating_sub(start.elapsed()));
        Ok(())
    }
}
