//! See `cambium_fuzz::stateless`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("stateless", bytes));
