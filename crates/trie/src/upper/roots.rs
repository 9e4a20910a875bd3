//! The root of the commitment, of the roots of its three tries.

use alloy_primitives::B256;
use cambium_keccak::keccak256;

/// Names of the three tries, for errors.
pub(crate) const DELTA: &str = "delta";
pub(crate) const INTERMEDIATE: &str = "intermediate trie";
pub(crate) const SNAPSHOT: &str = "snapshot";

/// Returns the root of the `layered` commitment, of the roots of its three tries:
/// `keccak(delta ++ intermediate ++ snapshot)`.
pub fn layered_root(delta: B256, intermediate: B256, snapshot: B256) -> B256 {
    let mut roots = [0; 96];
    for (at, root) in [delta, intermediate, snapshot].iter().enumerate() {
        roots[32 * at..][..32].copy_from_slice(root.as_slice());
    }
    keccak256(&roots)
}

/// Roots of the three tries that a root of the `layered` commitment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayeredRoots {
    /// Root of the delta.
    pub delta: B256,
    /// Root of the intermediate trie.
    pub intermediate: B256,
    /// Root of the snapshot.
    pub snapshot: B256,
}

impl LayeredRoots {
    /// The root of all three: see [`layered_root`].
    pub fn root(&self) -> B256 {
        layered_root(self.delta, self.intermediate, self.snapshot)
    }
}
