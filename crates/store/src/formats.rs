//! The formats of the files of a data directory, by number.

use crate::{block_index, block_log, checkpoint, codes, manifest, page, segments, values};

/// Number of the format of each kind of file that this version writes, by the name of the kind.
pub const FORMATS: [(&str, u32); 8] = [
    ("manifest", manifest::FORMAT),
    ("log", block_log::FORMAT),
    ("segments", segments::FORMAT),
    ("pages", page::FORMAT as u32),
    ("values", values::FORMAT),
    ("codes", codes::FORMAT),
    ("checkpoints", checkpoint::FORMAT),
    ("block index", block_index::FORMAT),
];
