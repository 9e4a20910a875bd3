//! Values that are stored apart from their leaves, beside a model: merges with tiny files, side branches, unwinds, old
//! views, losses of power; their space on disk; and losses by rot in them.

mod database;
mod faults;
mod model;
mod space;
