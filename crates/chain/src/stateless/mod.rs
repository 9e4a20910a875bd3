//! Stateless execution: a block is executed from its witness, without a database, and its state
//! root computed.
//!
//! A witness is untrusted. Trie nodes are linked by hash from the parent's state root, codes are
//! found by hash, and each earlier header by the parent hash in the next one. The parent itself is
//! only bound by the block's header. The verifier provides the fork rules, and the parent's hash if
//! it knows it ([`StatelessRules`]).
//!
//! ```text
//!   witness    what is verified, what is trusted, and what comes out
//!   make       from a database
//!   ancestors  its headers, strictly in order or as they are linked
//!   state      the state that a witness has, and the root after a block
//!   execute    from the witness alone
//! ```

mod witness;
mod make;
mod ancestors;
mod state;
mod execute;

pub use witness::{
    BlockWitness, LayeredWitness, STATELESS_GAS_LIMIT_MAX, StatelessError, StatelessReport,
    StatelessRules, Strictness, WitnessForm, WitnessGap,
};
