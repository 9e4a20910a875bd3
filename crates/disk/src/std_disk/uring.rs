//! Reads by io_uring, through rings that own the memory into which the kernel writes. A batch
//! borrows a ring of the pool, and a queue of reads has its own.
//!
//! ```text
//!  pieces --> slot free? --> submission queue ==kernel==> completion queue --> `done`
//!                 ^                                                             |
//!                 +------------- the slot is free again <-----------------------+
//! ```
//!
//! The kernel writes only into the ring's own slots, never into the caller's memory. So a ring that
//! fails with reads in flight need not wait for them: it leaks its slots, and the caller reads in
//! another way. Copying 4 KiB out of a slot that was just filled is negligible beside the 5 us that
//! the system takes for the read.
//!
//! Files and slots are not registered with the ring. Registering them made no measurable
//! difference, and a registered file would stay open, and keep its space, after its removal.
//! Neither did waiting for 1 to 64 reads at a time, or binding rings to one thread. `docs/DISK.md`
//! has the figures.

#![allow(unsafe_code)]

use super::window::{Window, copy_part};
use io_uring::{IoUring, opcode, types};
use rustix::{fs::MemfdFlags, io::Errno};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Maximum number of reads in flight in one ring of the pool.
const DEPTH: u32 = 128;
/// Maximum depth of any ring.
const DEPTH_MAX: u32 = 1024;
/// Size of a slot, and maximum size of a piece, in bytes.
pub(super) const SLOT_BYTES: usize = 16 << 10;
/// Alignment of slots in bytes, enough for direct I/O on any device.
const SLOT_ALIGN: usize = 4096;
/// Number of finished reads that a wait returns with: few system calls, while the queue never runs
/// empty.
const FINISHED_PER_WAIT: usize = 16;
/// Maximum number of idle rings that are kept for later callers.
const IDLE_RINGS_MAX: usize = 16;
/// Number of consecutive refusals for lack of memory, with no read finished in between, after which
/// the ring gives up the rest of a batch.
const REFUSALS_MAX: u32 = 50;
/// Pause after a refusal.
pub(super) const REFUSAL_PAUSE: Duration = Duration::from_micros(500);
/// Maximum time that a ring which gives up waits for the reads that the system has accepted.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// A part of a read that fits into a slot of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Number that the caller gave the read.
    pub(super) read: u64,
    /// Range of the file, of 1 to [`SLOT_BYTES`] bytes.
    pub(super) window: Window,
}

impl Piece {
    /// Copies the part of the read's buffer `out`, which is at `offset` of the file, that is in
    /// `bytes`, which were read. Returns false if there are too few of them.
    pub(super) fn copy(&self, out: &mut [u8], offset: u64, bytes: &[u8]) -> bool {
        let Window { start, end } = self.window;
        copy_part(out, offset, start, end, bytes)
    }
}

/// Creates a ring with this many entries.
pub(super) type SetUp = fn(entries: u32) -> io::Result<IoUring>;

/// Creates a ring with the system's io_uring.
pub(super) fn set_up(entries: u32) -> io::Result<IoUring> {
    // Without the flag, each completion interrupts the running thread. Linux before 5.19 does not
    // know it.
    IoUring::builder()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::new(entries))
}

/// A pool of rings, one for each concurrent caller.
pub(super) struct Rings {
    set_up: SetUp,
    idle: Mutex<Vec<Ring>>,
    /// Number of slots in all rings, idle or in use.
    slots: Arc<AtomicU64>,
}

/// Why a ring did not complete its reads.
#[derive(Debug)]
pub(super) enum RingError {
    /// No further ring can be created now, or the system refuses reads for lack of memory. Some of
    /// the reads may have been completed. A later attempt may succeed.
    Refused,
    /// The ring failed. Some of the reads may have been completed.
    Broken(io::Error),
}

impl Rings {
    /// Creates a pool with one ring, created by `set_up` and tested with a read.
    pub(super) fn new(set_up: SetUp) -> io::Result<Self> {
        let slots = Arc::new(AtomicU64::new(0));
        let mut ring = Ring::new(set_up, DEPTH, slots.clone())?;
        ring.probe()?;
        Ok(Self {
            set_up,
            idle: Mutex::new(vec![ring]),
            slots,
        })
    }

    /// Returns the memory of all slots, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.slots.load(Ordering::Relaxed) * SLOT_BYTES as u64
    }

    /// Creates a ring that does not belong to the pool, with up to `depth` reads in flight.
    pub(super) fn separate(&self, depth: usize) -> io::Result<Ring> {
        let depth = depth.clamp(1, DEPTH_MAX as usize) as u32;
        Ring::new(self.set_up, depth, self.slots.clone())
    }

    /// Reads all `pieces`, each of the file beside it, and calls `done` with each piece and the
    /// bytes read, or `None` after an error. There may be fewer bytes than requested, at the end of
    /// the file or for other reasons.
    pub(super) fn read(
        &self,
        pieces: &[(BorrowedFd<'_>, Piece)],
        done: impl FnMut(Piece, Option<&[u8]>),
    ) -> Result<(), RingError> {
        let idle = self.idle().pop();
        let mut ring = match idle {
            Some(ring) => ring,
            None => {
                Ring::new(self.set_up, DEPTH, self.slots.clone()).map_err(|_| RingError::Refused)?
            }
        };
        ring.read(pieces, done)
            .map_err(|error| match is_passing(&error) {
                true => RingError::Refused,
                false => RingError::Broken(error),
            })?;
        let mut idle = self.idle();
        if idle.len() < IDLE_RINGS_MAX {
            idle.push(ring);
        }
        Ok(())
    }

    /// Takes all idle rings away: the next caller makes a new one.
    #[cfg(test)]
    pub(super) fn take_idle(&self) -> impl Drop + use<> {
        struct Taken(#[expect(dead_code, reason = "held")] Vec<Ring>);
        impl Drop for Taken {
            fn drop(&mut self) {}
        }
        Taken(std::mem::take(&mut *self.idle()))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Ring>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

/// A ring with its slots. It must not be used again after an error of [`Ring::submit_and_wait`]
/// that does not pass. When dropped with reads in flight, it leaks its slots.
pub(super) struct Ring {
    uring: IoUring,
    slots: Slots,
    free: Vec<u32>,
    /// The piece that each slot was lent to last.
    pieces: Vec<Piece>,
    /// Entries in the submission queue or in the kernel whose completion has not been taken.
    in_flight: usize,
    /// Counter of the pool's slots, reduced when this ring's memory is freed.
    counted: Arc<AtomicU64>,
}

impl Ring {
    fn new(set_up: SetUp, depth: u32, counted: Arc<AtomicU64>) -> io::Result<Self> {
        let uring = set_up(depth)?;
        counted.fetch_add(depth.into(), Ordering::Relaxed);
        let no_piece = Piece {
            read: 0,
            window: Window { start: 0, end: 0 },
        };
        Ok(Self {
            uring,
            slots: Slots::new(depth),
            free: (0..depth).collect(),
            pieces: vec![no_piece; depth as usize],
            in_flight: 0,
            counted,
        })
    }

    /// Tests the ring with a read from a file in memory: some sandboxes permit creating a ring, but
    /// not using it.
    fn probe(&mut self) -> io::Result<()> {
        const CONTENT: &[u8] = b"a probe of io_uring";
        let file = rustix::fs::memfd_create("cambium-probe", MemfdFlags::CLOEXEC)?;
        rustix::io::pwrite(&file, CONTENT, 0)?;
        let window = Window {
            start: 2,
            end: 2 + SLOT_BYTES as u64,
        };
        let mut found = Vec::new();
        self.read(&[(file.as_fd(), Piece { read: 0, window })], |_, bytes| {
            found.extend_from_slice(bytes.unwrap_or_default())
        })?;
        if found == CONTENT[2..] {
            Ok(())
        } else {
            Err(io::Error::other("a first read by it failed"))
        }
    }

    /// See [`Rings::read`]. After an error, or if `done` panics, the ring must not be used again.
    fn read(
        &mut self,
        mut pieces: &[(BorrowedFd<'_>, Piece)],
        mut done: impl FnMut(Piece, Option<&[u8]>),
    ) -> io::Result<()> {
        let mut refusals = 0;
        while !pieces.is_empty() || self.in_flight > 0 {
            while let [(file, piece), rest @ ..] = pieces
                && self.push(*file, *piece)
            {
                pieces = rest;
            }
            let wanted = self.in_flight.min(FINISHED_PER_WAIT);
            let refused = match self.submit_and_wait(wanted) {
                Ok(_) => false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if is_passing(&e) && refusals < REFUSALS_MAX => true,
                Err(e) => {
                    if is_passing(&e) {
                        self.drain(&mut done);
                    }
                    return Err(e);
                }
            };
            let finished = self.take_finished(&mut done);
            if refused && finished == 0 {
                refusals += 1;
                thread::sleep(REFUSAL_PAUSE);
            } else {
                refusals = 0;
            }
        }
        Ok(())
    }

    /// Passes all pushed pieces to the kernel, and waits until `wanted` completions can be taken.
    pub(super) fn submit_and_wait(&mut self, wanted: usize) -> io::Result<usize> {
        #[cfg(test)]
        if tests::refuses() {
            return Err(Errno::AGAIN.into());
        }
        self.uring.submit_and_wait(wanted)
    }

    /// Waits up to [`DRAIN_MAX`] for the reads that the system has accepted. Entries left in the
    /// submission queue never start, since a ring is not used again after an error.
    pub(super) fn drain(&mut self, done: &mut impl FnMut(Piece, Option<&[u8]>)) {
        let start = Instant::now();
        loop {
            self.take_finished(done);
            if self.in_flight == self.uring.submission().len() {
                self.in_flight = 0;
                return;
            }
            if start.elapsed() > DRAIN_MAX {
                return;
            }
            thread::sleep(REFUSAL_PAUSE);
        }
    }

    /// Puts a piece of `file` into the submission queue. Returns false if no slot is free. The file
    /// must stay open until the piece is done or the ring is dropped.
    pub(super) fn push(&mut self, file: BorrowedFd<'_>, piece: Piece) -> bool {
        let Some(slot) = self.free.pop() else {
            return false;
        };
        let Window { start, .. } = piece.window;
        let len = piece.window.len();
        assert!(len <= SLOT_BYTES as u64, "piece of {len} bytes");
        let target = self.slots.pointer(slot);
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), target, len as u32)
            .offset(start)
            .build()
            .user_data(slot.into());
        // SAFETY: the slot is ours, was free, and is at least `len` bytes long. It is not freed
        // before the completion was seen (see `Drop`), nor looked at or lent to another read. If
        // the descriptor is closed too early, another file is read, into the slot alone.
        let accepted = unsafe { self.uring.submission().push(&entry) };
        assert!(accepted.is_ok(), "the queue has room for all slots");
        self.pieces[slot as usize] = piece;
        self.in_flight += 1;
        true
    }

    /// Returns the number of pieces that were pushed and are not done.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether pieces were pushed that the kernel has yet to accept.
    pub(super) fn has_unsubmitted(&mut self) -> bool {
        !self.uring.submission().is_empty()
    }

    /// Passes completed reads to `done`, and returns their number.
    pub(super) fn take_finished(&mut self, done: &mut impl FnMut(Piece, Option<&[u8]>)) -> usize {
        let mut finished = 0;
        for entry in self.uring.completion() {
            let slot = entry.user_data() as u32;
            self.in_flight -= 1;
            finished += 1;
            let len = usize::try_from(entry.result()).ok();
            // SAFETY: the read into the slot is over, and the slot is lent again only after this.
            let bytes = len.map(|len| unsafe { self.slots.bytes(slot, len) });
            done(self.pieces[slot as usize], bytes);
            self.free.push(slot);
        }
        finished
    }
}

/// Whether the same call may succeed later.
pub(super) fn is_passing(error: &io::Error) -> bool {
    [Errno::AGAIN, Errno::BUSY]
        .map(Errno::raw_os_error)
        .map(Some)
        .contains(&error.raw_os_error())
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: every read was seen to be over, so the kernel no longer writes to the slots,
            // and no other reference to them exists.
            unsafe { self.slots.free() };
            self.counted
                .fetch_sub(self.slots.count.into(), Ordering::Relaxed);
        }
    }
}

/// Memory for reads: slots of `SLOT_BYTES` each. Not freed on drop.
struct Slots {
    start: NonNull<u8>,
    count: u32,
}

// SAFETY: the memory belongs to this value alone, and is reached only through it.
unsafe impl Send for Slots {}

impl Slots {
    /// Allocates 1 to [`DEPTH_MAX`] slots.
    fn new(count: u32) -> Self {
        let layout = Self::layout(count);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, count }
    }

    fn layout(count: u32) -> Layout {
        assert!((1..=DEPTH_MAX).contains(&count), "{count} slots");
        Layout::from_size_align(count as usize * SLOT_BYTES, SLOT_ALIGN).expect("a small size")
    }

    fn pointer(&self, slot: u32) -> *mut u8 {
        assert!(slot < self.count, "slot {slot}");
        // SAFETY: by the assertion, the slot lies within the allocation.
        unsafe { self.start.as_ptr().add(slot as usize * SLOT_BYTES) }
    }

    /// Returns the first `len` bytes of a slot.
    ///
    /// # Safety
    ///
    /// The slot must not be written to while the returned slice is in use.
    unsafe fn bytes(&self, slot: u32, len: usize) -> &[u8] {
        assert!(len <= SLOT_BYTES, "{len} bytes in a slot");
        // SAFETY: within the allocation by the assertions; zeros or what a read left, so
        // initialised; not written to meanwhile, says the caller.
        unsafe { std::slice::from_raw_parts(self.pointer(slot), len) }
    }

    /// # Safety
    ///
    /// Must be called at most once, after the last use of any slot, including the kernel's.
    unsafe fn free(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.count)) };
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::{cell::Cell, fs::File, io::Write, panic::AssertUnwindSafe};

    thread_local! {
        /// Submissions that are accepted, and after these how many are refused.
        static REFUSALS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    pub(in crate::std_disk) fn refuse(after: u32, count: u32) {
        REFUSALS.set((after, count));
    }

    pub(super) fn refuses() -> bool {
        let (after, count) = REFUSALS.get();
        REFUSALS.set((
            after.saturating_sub(1),
            count - u32::from(after == 0 && count > 0),
        ));
        after == 0 && count > 0
    }

    /// A ring, or nothing to test where the system has none.
    fn rings() -> Option<Rings> {
        Rings::new(set_up).ok()
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn piece(file: &File, read: u64, start: u64, len: u64) -> (BorrowedFd<'_>, Piece) {
        let end = start + len;
        let window = Window { start, end };
        (file.as_fd(), Piece { read, window })
    }

    #[test]
    fn slots_are_apart_and_can_be_read_to_their_ends() {
        let mut slots = Slots::new(DEPTH);
        for slot in [0, 1, DEPTH - 1] {
            // SAFETY: the whole slot, which nothing else uses.
            unsafe { slots.pointer(slot).write_bytes(slot as u8 + 1, SLOT_BYTES) };
        }
        for slot in [0, 1, DEPTH - 1] {
            // SAFETY: there are no writers.
            let bytes = unsafe { slots.bytes(slot, SLOT_BYTES) };
            assert_eq!(
                (bytes[0], bytes[SLOT_BYTES - 1]),
                (slot as u8 + 1, slot as u8 + 1)
            );
        }
        // SAFETY: it is not used any more.
        unsafe { slots.free() };
    }

    #[test]
    fn more_pieces_than_slots_are_all_read() {
        let Some(rings) = rings() else { return };
        let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let file = file(&content);
        let piece = |n: u64| piece(&file, n, n * 40, 1 + n % 97);
        let pieces: Vec<_> = (0..5_000).map(piece).collect();
        let mut found = vec![0; pieces.len()];
        let read = rings.read(&pieces, |piece, bytes| {
            let n = piece.read as usize;
            let at = n * 40;
            assert_eq!(bytes, Some(&content[at..at + 1 + n % 97]));
            found[n] += 1;
        });
        read.unwrap();
        assert!(found.iter().all(|times| *times == 1));
        assert_eq!(rings.idle().len(), 1);
    }

    #[test]
    fn reads_that_are_refused_for_a_while_are_made_and_for_longer_left_to_others() {
        let Some(rings) = rings() else { return };
        let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let file = file(&content);
        let piece = |n: u64| piece(&file, n, n * 40, 40);
        let pieces: Vec<_> = (0..1_000).map(piece).collect();
        for (count, is_made) in [(3, true), (u32::MAX, false)] {
            for after in [0, 1, 5] {
                refuse(after, count);
                let mut found = 0;
                let read = rings.read(&pieces, |piece, bytes| {
                    let start = piece.window.start as usize;
                    assert_eq!(bytes, Some(&content[start..][..40]));
                    found += 1;
                });
                refuse(0, 0);
                match read {
                    Ok(()) => assert!(is_made && found == pieces.len()),
                    Err(RingError::Refused) => assert!(!is_made && found < pieces.len()),
                    Err(RingError::Broken(error)) => panic!("given up for good: {error}"),
                }
            }
        }
        // No harm was done.
        let mut found = 0;
        rings.read(&pieces, |_, _| found += 1).unwrap();
        assert_eq!(found, pieces.len());
    }

    #[test]
    fn a_ring_dropped_with_reads_under_way_is_not_used_again() {
        let Some(rings) = rings() else { return };
        let file = file(&[7; 1 << 20]);
        let piece = |n| piece(&file, n, n, 100);
        let pieces: Vec<_> = (0..1_000).map(piece).collect();
        let panics = AssertUnwindSafe(|| rings.read(&pieces, |_, _| panic!("in `done`")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(rings.idle().len(), 0);
        let mut read = 0;
        rings
            .read(&pieces, |_, bytes| read += bytes.map_or(0, <[u8]>::len))
            .unwrap();
        assert_eq!(read, 100 * pieces.len());
    }
}
