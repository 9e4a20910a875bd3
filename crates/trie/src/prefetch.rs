//! Asking for memory before it is needed.
//!
//! The nodes that a change touches are scattered over the arena: reading them one after another,
//! hashing would wait for memory for most of its time.
#![allow(unsafe_code)]

/// Starts to bring `value` into the caches. Does nothing on processors other than x86-64.
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
