//! The state engine: views, sessions, layers, merges, forks and proofs over trie and store.
