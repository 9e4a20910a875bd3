//! See `cambium_fuzz::rpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("rpc", bytes));
