//! See `cambium_fuzz::proof`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("proof", bytes));
