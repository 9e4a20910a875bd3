//! The system's allocator, with a count of the bytes in use, and of their peak: for tests in a
//! process of their own.

#![expect(unsafe_code, reason = "an allocator can't be written without")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

/// The global allocator of a program that calls [`most_during`].
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by the system's allocator; only sizes are counted beside it.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The bytes that all threads hold, in a program whose global allocator is [`CountingAllocator`].
pub fn held_bytes() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Runs `work`, and returns with its result the most bytes that all threads held meanwhile, above what they held before.
/// Counts nothing but in a program whose global allocator is [`CountingAllocator`].
pub fn most_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let done = work();
    (done, MOST.load(Ordering::Relaxed).saturating_sub(before))
}
