//! See `cambium_fuzz::block_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("block_record", bytes));
