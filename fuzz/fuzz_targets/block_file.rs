//! See `cambium_fuzz::block_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("block_file", bytes));
