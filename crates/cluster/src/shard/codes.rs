//! The codes of a shard's accounts.

use alloy_primitives::{B256, Bytes, map::HashMap};

/// Codes by hash, each with the number of versions whose blocks put an account with it. Those of the first state, and of
/// final blocks, stay.
#[derive(Debug, Default)]
pub(super) struct Codes {
    codes: HashMap<B256, (Bytes, usize)>,
    bytes: usize,
}

impl Codes {
    /// The codes of the first state.
    pub(super) fn of_first(codes: HashMap<B256, Bytes>) -> Self {
        let mut first = Self::default();
        first.add(codes);
        first
    }

    pub(super) fn get(&self, hash: &B256) -> Option<&Bytes> {
        self.codes.get(hash).map(|(code, _)| code)
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = B256> {
        self.codes.keys().copied()
    }

    /// Adds the codes of a version.
    pub(super) fn add(&mut self, codes: HashMap<B256, Bytes>) {
        for (hash, code) in codes {
            let bytes = &mut self.bytes;
            let (_, versions) = self.codes.entry(hash).or_insert_with(|| {
                *bytes += code.len();
                (code, 0)
            });
            *versions += 1;
        }
    }

    /// Removes the codes of a version that is lost.
    pub(super) fn remove(&mut self, hashes: &[B256]) {
        for hash in hashes {
            let Some((code, versions)) = self.codes.get_mut(hash) else {
                continue;
            };
            *versions -= 1;
            if *versions == 0 {
                self.bytes -= code.len();
                self.codes.remove(hash);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.codes.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
