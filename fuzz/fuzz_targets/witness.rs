//! See `cambium_fuzz::witness`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("witness", bytes));
