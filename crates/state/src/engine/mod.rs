//! What an open database is made of.

pub(crate) mod layers;
pub(crate) mod past_states;
pub(crate) mod merging;
pub(crate) mod parts;
