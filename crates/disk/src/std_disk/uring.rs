//! Reads by io_uring, through rings that own the memory into which the kernel writes.
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

/// Maximum number of reads in flight in one ring.
const DEPTH: u32 = 128;
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
const REFUSAL_PAUSE: Duration = Duration::from_micros(500);
/// Maximum time that a ring which gives up waits for the reads that the system has accepted.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// A range of a file, of 1 to [`SLOT_BYTES`] bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) file: BorrowedFd<'a>,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// Creates a ring with this many entries.
pub(super) type SetUp = fn(entries: u32) -> io::Result<IoUring>;

/// Creates a ring with the system's io_uring.
pub(super) fn set_up(entries: u32) -> io::Result<IoUring> {
    // Without the flag, each completion interrupts whatever the thread does. Linux before 5.19
    // does not know it.
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
        let mut ring = Ring::new(set_up, slots.clone())?;
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

    /// Reads all `pieces`, and calls `done` with the index of each piece and the bytes read, or
    /// `None` after an error. There may be fewer bytes than requested, at the end of the file or
    /// for other reasons.
    pub(super) fn read(
        &self,
        pieces: &[Piece<'_>],
        done: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), RingError> {
        let idle = self.idle().pop();
        let mut ring = match idle {
            Some(ring) => ring,
            None => Ring::new(self.set_up, self.slots.clone()).map_err(|_| RingError::Refused)?,
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

struct Ring {
    uring: IoUring,
    slots: Slots,
    free: Vec<u32>,
    /// Entries in the submission queue or in the kernel whose completion has not been taken.
    in_flight: usize,
    /// Counter of the pool's slots, reduced when this ring's memory is freed.
    counted: Arc<AtomicU64>,
}

impl Ring {
    fn new(set_up: SetUp, counted: Arc<AtomicU64>) -> io::Result<Self> {
        let uring = set_up(DEPTH)?;
        counted.fetch_add(DEPTH.into(), Ordering::Relaxed);
        Ok(Self {
            uring,
            slots: Slots::new(),
            free: (0..DEPTH).collect(),
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
        let piece = Piece {
            file: file.as_fd(),
            offset: 2,
            len: SLOT_BYTES as u32,
        };
        let mut found = Vec::new();
        self.read(&[piece], |_, bytes| {
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
        pieces: &[Piece<'_>],
        mut done: impl FnMut(usize, Option<&[u8]>),
    ) -> io::Result<()> {
        let (mut next, mut refusals) = (0, 0);
        while next < pieces.len() || self.in_flight > 0 {
            next += self.push(&pieces[next..], next);
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

    fn submit_and_wait(&mut self, wanted: usize) -> io::Result<usize> {
        #[cfg(test)]
        if tests::refuses() {
            return Err(Errno::AGAIN.into());
        }
        self.uring.submit_and_wait(wanted)
    }

    /// Waits up to [`DRAIN_MAX`] for the reads that the system has accepted. Entries left in the
    /// submission queue never start, since a ring is not used again after an error.
    fn drain(&mut self, done: &mut impl FnMut(usize, Option<&[u8]>)) {
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

    /// Puts pieces into the submission queue while slots are free, and returns their number.
    /// `first` is the index of the first piece.
    fn push(&mut self, pieces: &[Piece<'_>], first: usize) -> usize {
        let mut queue = self.uring.submission();
        let mut pushed = 0;
        for piece in pieces {
            let Some(slot) = self.free.pop() else { break };
            assert!(
                piece.len as usize <= SLOT_BYTES,
                "piece of {} bytes",
                piece.len
            );
            let target = self.slots.pointer(slot);
            let user_data = u64::from(slot) << 32 | (first + pushed) as u64;
            let fd = types::Fd(piece.file.as_raw_fd());
            let entry = opcode::Read::new(fd, target, piece.len)
                .offset(piece.offset)
                .build()
                .user_data(user_data);
            // SAFETY: the slot is ours, was free, and is at least `piece.len` bytes long. It is
            // not freed before the completion was seen (see `Drop`), nor looked at or lent to
            // another read. The descriptor is open while `piece` lives, so while it is submitted.
            let accepted = unsafe { queue.push(&entry) };
            assert!(accepted.is_ok(), "the queue has room for all slots");
            self.in_flight += 1;
            pushed += 1;
        }
        pushed
    }

    /// Passes completed reads to `done`, and returns their number.
    fn take_finished(&mut self, done: &mut impl FnMut(usize, Option<&[u8]>)) -> usize {
        let mut finished = 0;
        for entry in self.uring.completion() {
            let (slot, piece) = ((entry.user_data() >> 32) as u32, entry.user_data() as u32);
            self.in_flight -= 1;
            finished += 1;
            let len = usize::try_from(entry.result()).ok();
            // SAFETY: the read into the slot is over, and the slot is lent again only after this.
            let bytes = len.map(|len| unsafe { self.slots.bytes(slot, len) });
            done(piece as usize, bytes);
            self.free.push(slot);
        }
        finished
    }
}

/// Whether the same call may succeed later.
fn is_passing(error: &io::Error) -> bool {
    [Errno::AGAIN, Errno::BUSY]
        .map(Errno::raw_os_error)
        .map(Some)
        .contains(&error.raw_os_error())
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: every read was seen to be over, so the kernel no longer writes to the slots,
            // and nobody else can reach them.
            unsafe { self.slots.free() };
            self.counted.fetch_sub(DEPTH.into(), Ordering::Relaxed);
        }
    }
}

/// Memory for reads: `DEPTH` slots of `SLOT_BYTES` each. Not freed on drop.
struct Slots(NonNull<u8>);

// SAFETY: the memory belongs to this value alone, and is reached only through it.
unsafe impl Send for Slots {}

impl Slots {
    const LAYOUT: Layout = match Layout::from_size_align(DEPTH as usize * SLOT_BYTES, SLOT_ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("not a layout"),
    };

    fn new() -> Self {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(Self::LAYOUT) };
        Self(NonNull::new(start).unwrap_or_else(|| handle_alloc_error(Self::LAYOUT)))
    }

    fn pointer(&self, slot: u32) -> *mut u8 {
        assert!(slot < DEPTH, "slot {slot}");
        // SAFETY: by the assertion, the slot lies within the allocation.
        unsafe { self.0.as_ptr().add(slot as usize * SLOT_BYTES) }
    }

    /// Returns the first `len` bytes of a slot.
    ///
    /// # Safety
    ///
    /// Nobody may write to the slot while the returned slice is in use.
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
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) };
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

    #[test]
    fn slots_are_apart_and_can_be_read_to_their_ends() {
        let mut slots = Slots::new();
        for slot in [0, 1, DEPTH - 1] {
            // SAFETY: all of a slot, which nobody else uses.
            unsafe { slots.pointer(slot).write_bytes(slot as u8 + 1, SLOT_BYTES) };
        }
        for slot in [0, 1, DEPTH - 1] {
            // SAFETY: nobody writes.
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
        let piece = |n: u64| Piece {
            file: file.as_fd(),
            offset: n * 40,
            len: 1 + n as u32 % 97,
        };
        let pieces: Vec<_> = (0..5_000).map(piece).collect();
        let mut found = vec![0; pieces.len()];
        let read = rings.read(&pieces, |n, bytes| {
            let at = n * 40;
            assert_eq!(bytes, Some(&content[at..at + pieces[n].len as usize]));
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
        let piece = |n: u64| Piece {
            file: file.as_fd(),
            offset: n * 40,
            len: 40,
        };
        let pieces: Vec<_> = (0..1_000).map(piece).collect();
        for (count, is_made) in [(3, true), (u32::MAX, false)] {
            for after in [0, 1, 5] {
                refuse(after, count);
                let mut found = 0;
                let read = rings.read(&pieces, |n, bytes| {
                    assert_eq!(bytes, Some(&content[n * 40..][..40]));
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
        let piece = |n| Piece {
            file: file.as_fd(),
            offset: n,
            len: 100,
        };
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
