//! Durable parts of the state engine: leaf pages, segments, block log, checkpoints, recovery.
