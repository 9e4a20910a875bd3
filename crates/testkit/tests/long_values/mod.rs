//! Values that are stored apart from their leaves, beside a model: merges with tiny files, side branches,
//! unwinds, old views, losses of power; what they take on disk; and what rot in them costs.

mod database;
mod faults;
mod model;
mod space;
