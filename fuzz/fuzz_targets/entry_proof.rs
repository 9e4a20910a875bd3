//! See `cambium_fuzz::entry_proof`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("entry_proof", bytes));
