//! See `cambium_fuzz::access_list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("access_list", bytes));
