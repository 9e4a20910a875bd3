//! The partial trie: Ethereum-exact commitments, proofs, witnesses and their verifiers.
