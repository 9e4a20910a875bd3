//! Parts of records that are longer than a message.

use alloy_primitives::B256;

/// Header of a message that is a part of a record: its place from 0, the number of parts, and the digest of the record.
pub(super) const PART: &str = "Cambium-Part";
/// Most messages of a batch: the servers refuse more.
pub(super) const PARTS_MAX: usize = 1_000;
/// A part of a record, as its header tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) at: u32,
    pub(super) of: u32,
    pub(super) digest: B256,
}

impl Part {
    pub(super) fn encode(&self) -> String {
        format!("{} {} {}", self.at, self.of, self.digest)
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let part = Self {
            at: words.next()?.parse().ok()?,
            of: words.next()?.parse().ok()?,
            digest: words.next()?.parse().ok()?,
        };
        let is_possible = part.at < part.of && part.of as usize <= PARTS_MAX;
        (is_possible && words.next().is_none()).then_some(part)
    }
}
