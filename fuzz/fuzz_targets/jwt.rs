//! See `cambium_fuzz::jwt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("jwt", bytes));
