//! See `cambium_fuzz::changes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("changes", bytes));
