//! See `cambium_fuzz::preimages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("preimages", bytes));
