//! From a block to its state changes: block execution on revm.

mod rules;

pub use rules::Rules;
