//! The history beside the naive model: any account, slot and proof at any kept block, whatever the
//! chain did since, and whatever happened to the history's files.

mod backup;
mod crafted;
mod faults;
mod growing;
mod interrupted;
mod limits;
mod long_chain;
mod odd_paths;
mod promises;
mod public_chains;
mod ranges;
mod states;
mod world;
