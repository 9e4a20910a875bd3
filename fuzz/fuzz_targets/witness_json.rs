//! See `cambium_fuzz::witness_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("witness_json", bytes));
