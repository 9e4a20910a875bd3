//! See `cambium_fuzz::genesis`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("genesis", bytes));
