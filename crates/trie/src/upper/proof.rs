//! Proofs under the `layered` commitment: the parts of the three tries that determine the values of some accounts and
//! slots.
//!
//! ```text
//!   delta          the paths of all targets
//!   intermediate   the paths of those that the delta says nothing about
//!   snapshot       the paths of those that the intermediate says nothing about either
//! ```
//!
//! A target ends at a value, at a tombstone, at a deletion, or at a wipe. The roots of the tries are
//! not part of a proof: they are the hashes of its parts, and the hash of all three has to be the
//! root that the verifier trusts. There is one proof for a root and its targets: a node that no
//! target needs is refused, and so is one that is missing.

use super::{
    compact::{Leaves, decode, encode, root_of},
    descent::{Descent, Hidden, hidden_by},
    layer::UpperTrie,
    leaf::UpperKind,
    parts::LayeredParts,
    roots::{DELTA, INTERMEDIATE, LayeredRoots, SNAPSHOT},
};
use crate::{
    error::{Missing, UpdateError},
    extract::ProofTargets,
    multiproof::ProvedAccount,
    partial::PartialTrie,
    resolve::NoResolve,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{DecodeError, Path, Reader};

/// A proof of accounts and slots, present or absent, under the `layered` commitment: the encoded
/// parts of the delta, the intermediate trie and the snapshot, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayeredProof {
    /// The proof as it is transferred. `docs/COMMITMENTS.md` has its format.
    pub bytes: Bytes,
}

/// Error of [`LayeredProof::verify`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayeredProofError {
    /// The proof does not consist of three tries.
    #[error("the proof is malformed: {0}")]
    Malformed(#[from] DecodeError),
    /// The proof is of another state.
    #[error("the proof has the root {got}, and {expected} is expected")]
    WrongRoot {
        /// The root to verify against.
        expected: B256,
        /// The root of the proof.
        got: B256,
    },
    /// A node on the path of a target is missing.
    #[error("no node at depth {depth} of the {trie} on the way to {path}")]
    Incomplete {
        /// Which of the three tries.
        trie: &'static str,
        /// Path of the target.
        path: Path,
        /// Depth of the missing node, in nibbles.
        depth: usize,
    },
    /// The proof has nodes that no target needs, or is not encoded in the one form there is.
    #[error("the proof has more than its targets need")]
    Surplus,
}

fn incomplete(trie: &'static str) -> impl Fn(Hidden) -> LayeredProofError {
    move |Hidden { path, depth }| LayeredProofError::Incomplete { trie, path, depth }
}

impl LayeredProof {
    /// Proves the values, or the absence, of `targets`. `snapshot` extracts the paths of some of
    /// them from the trie of the snapshot: see [`PartialTrie::extract`].
    ///
    /// # Errors
    ///
    /// The error of `snapshot`.
    ///
    /// # Panics
    ///
    /// If a part of the upper tries is blinded.
    pub fn new<E>(
        delta: &mut UpperTrie,
        intermediate: &mut UpperTrie,
        snapshot: impl FnOnce(&ProofTargets) -> Result<PartialTrie, E>,
        targets: &ProofTargets,
    ) -> Result<Self, E> {
        let prover = LayeredProver::new(delta, intermediate, targets);
        let part = snapshot(&prover.snapshot_targets())?;
        Ok(prover.finish(&part))
    }

    /// Returns the roots of the three tries in the proof, which is not verified.
    ///
    /// # Errors
    ///
    /// An error if the proof does not consist of three tries.
    pub fn roots(&self) -> Result<LayeredRoots, DecodeError> {
        Ok(self.decode()?.1)
    }

    /// The tries of the proof, hashed, and their roots.
    fn decode(&self) -> Result<([PartialTrie; 3], LayeredRoots), DecodeError> {
        let mut reader = Reader::new(&self.bytes);
        let mut delta = decode(&mut reader, Leaves::Upper)?;
        let mut intermediate = decode(&mut reader, Leaves::Upper)?;
        let mut snapshot = decode(&mut reader, Leaves::State)?;
        reader.finish()?;
        let roots = LayeredRoots {
            delta: root_of(&mut delta),
            intermediate: root_of(&mut intermediate),
            snapshot: root_of(&mut snapshot),
        };
        Ok(([delta, intermediate, snapshot], roots))
    }

    /// Returns the three tries of a proof that is of the root `root`: for a verifier that learns only
    /// while it reads which keys it needs. Other keys may be in it as well.
    ///
    /// # Errors
    ///
    /// An error if the proof is malformed or of another root.
    pub fn parts(&self, root: B256) -> Result<LayeredParts, LayeredProofError> {
        let (tries, roots) = self.decode_of(root)?;
        Ok(LayeredParts::new(tries, roots))
    }

    /// The tries of the proof, which is of the root `root`.
    fn decode_of(&self, root: B256) -> Result<([PartialTrie; 3], LayeredRoots), LayeredProofError> {
        let (tries, roots) = self.decode()?;
        let (expected, got) = (root, roots.root());
        match got == expected {
            true => Ok((tries, roots)),
            false => Err(LayeredProofError::WrongRoot { expected, got }),
        }
    }

    /// Verifies the proof against the root `root`. Returns the values at `targets`, in their order.
    ///
    /// # Errors
    ///
    /// An error if the proof is malformed, of another root, or has less or more than `targets` need.
    pub fn verify(
        &self,
        root: B256,
        targets: &ProofTargets,
    ) -> Result<Vec<ProvedAccount>, LayeredProofError> {
        let ([delta, intermediate, mut snapshot], _) = self.decode_of(root)?;
        let mut descent = Descent::new(targets);
        let mut needed = Vec::with_capacity(self.bytes.len());
        for (name, trie) in [(DELTA, delta), (INTERMEDIATE, intermediate)] {
            let mut layer = UpperTrie::from_trie(trie, UpperKind::Accounts);
            let part = layer.extract(&descent.targets());
            let part = part.map_err(|error| missing(name, &error))?;
            encode(part.trie(), Leaves::Upper, &mut needed);
            descent.pass_upper(&layer).map_err(incomplete(name))?;
        }
        let part = snapshot.extract(&descent.targets(), &mut NoResolve);
        let part = part.map_err(|error| missing(SNAPSHOT, &error))?;
        encode(&part, Leaves::State, &mut needed);
        descent
            .pass_state(&snapshot)
            .map_err(incomplete(SNAPSHOT))?;
        match needed[..] == self.bytes[..] {
            true => Ok(descent.finish()),
            false => Err(LayeredProofError::Surplus),
        }
    }
}

/// Makes a [`LayeredProof`] in two steps, between which the snapshot is read.
pub struct LayeredProver {
    bytes: Vec<u8>,
    descent: Descent,
    /// Accounts whose slots in the snapshot are all needed.
    whole: Vec<B256>,
}

impl LayeredProver {
    /// Puts the parts of the upper tries into the proof.
    ///
    /// # Panics
    ///
    /// If a part of the upper tries is blinded.
    pub fn new(
        delta: &mut UpperTrie,
        intermediate: &mut UpperTrie,
        targets: &ProofTargets,
    ) -> Self {
        Self::for_witness(delta, intermediate, targets, &[])
    }

    /// Does the same, and puts all slots of the accounts `whole` into the proof, layer by layer where they count: only
    /// all of them show that an account has no slot but tombstones.
    ///
    /// # Panics
    ///
    /// If a part of the upper tries is blinded.
    pub fn for_witness(
        delta: &mut UpperTrie,
        intermediate: &mut UpperTrie,
        targets: &ProofTargets,
        whole: &[B256],
    ) -> Self {
        let mut bytes = Vec::new();
        let mut descent = Descent::new(targets);
        let mut whole = whole.to_vec();
        for layer in [delta, intermediate] {
            let slots = whole.iter().map(|path| (*path, layer.slots_of(path)));
            let slots = ProofTargets::new(slots.collect());
            let part = layer.extract(&descent.targets().and(&slots));
            let part = part.expect("an upper trie without blinded nodes");
            encode(part.trie(), Leaves::Upper, &mut bytes);
            let passed = descent.pass_upper(layer);
            passed.expect("an upper trie without blinded nodes");
            whole.retain(|path| !layer.is_wiped(path));
        }
        Self {
            bytes,
            descent,
            whole,
        }
    }

    /// Accounts whose slots in the snapshot are all needed in the proof: [`Self::snapshot_targets`]
    /// does not name them.
    pub fn whole(&self) -> &[B256] {
        &self.whole
    }

    /// Returns the targets that the upper tries do not have.
    pub fn snapshot_targets(&self) -> ProofTargets {
        self.descent.targets()
    }

    /// Returns the proof. `part` is what [`PartialTrie::extract`] returns for
    /// [`Self::snapshot_targets`], and for all slots of [`Self::whole`], from the trie of the snapshot.
    pub fn finish(mut self, part: &PartialTrie) -> LayeredProof {
        encode(part, Leaves::State, &mut self.bytes);
        LayeredProof {
            bytes: self.bytes.into(),
        }
    }
}

fn missing(trie: &'static str, error: &UpdateError<Missing>) -> LayeredProofError {
    incomplete(trie)(hidden_by(error))
}
