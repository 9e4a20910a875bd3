//! Prefetching of memory.
//!
//! The nodes that a change touches are scattered over the arena. Without prefetching, hashing would
//! wait for memory most of the time.
#![allow(unsafe_code)]

/// Prefetches `value` into the processor's caches. Does nothing on processors other than x86-64.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = core::ptr::from_ref(value).cast::<i8>();
        let mut line = 0;
        while line < size_of::<T>() {
            // SAFETY: the address is within `value`, and prefetching reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.add(line)) };
            line += 64;
        }
        // SAFETY: as above; the last byte, since a value may begin anywhere in a line.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.add(size_of::<T>() - 1)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
