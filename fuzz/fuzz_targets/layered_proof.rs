//! See `cambium_fuzz::layered_proof`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("layered_proof", bytes));
