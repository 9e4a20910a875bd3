//! See `cambium_fuzz::engine_ssz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("engine_ssz", bytes));
