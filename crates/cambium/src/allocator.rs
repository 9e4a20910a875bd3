//! The allocator of the program and of the benchmarks.

/// The system's allocator takes a fifth of the processor time of computing a root, which allocates
/// and frees memory of all sizes on all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h`.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// Time after which freed memory is returned to the operating system, in milliseconds. The
/// allocator's own second lets a process that reads 50 MB a second keep another 80 MB.
const PURGE_DELAY_MS: std::ffi::c_long = 50;

/// Makes the process keep little more memory than is in use: `--memory` is compared with that. An
/// import of cold payments takes 5 % more processor time by it, and at 256 MiB a third less memory.
/// Call it before other threads start.
pub(crate) fn keep_little_memory() {
    // Huge pages are resident as a whole, however little of them is in use. A kernel without them
    // refuses, and has nothing to switch off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    // SAFETY: options may be set by one thread at a time. No other thread runs yet.
    #[allow(unsafe_code)]
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_that_of_the_delay() {
        // SAFETY: no other test of this program reads or sets options.
        #[allow(unsafe_code)]
        let delay = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
            // The default of version 3.
            assert_eq!(delay(), 1000);
            keep_little_memory();
            assert_eq!(delay(), PURGE_DELAY_MS);
        }
    }
}
