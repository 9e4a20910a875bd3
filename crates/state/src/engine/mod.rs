//! The parts of an open database, which handles, views, sessions and blocks share.

pub(crate) mod layers;
pub(crate) mod past_states;
pub(crate) mod merging;
pub(crate) mod prover;
pub(crate) mod news;
pub(crate) mod parts;
