//! See `cambium_fuzz::block_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("block_body", bytes));
