//! See `cambium_fuzz::era1`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("era1", bytes));
