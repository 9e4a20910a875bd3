//! See `cambium_fuzz::page`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("page", bytes));
