//! See `cambium_fuzz::trie_part`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cambium_fuzz::run("trie_part", bytes));
