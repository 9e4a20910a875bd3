//! The pre-state of a block, restricted to its witness, and the root after the block.

use super::{
    ancestors::Ancestor,
    witness::{BlockWitness, StatelessError, StatelessRules, WitnessGap},
};
use alloy_consensus::Header;
use alloy_primitives::{
    Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256,
    map::{HashMap, HashSet},
};
use cambium_evm::{StateRead, account_info};
use cambium_primitives::{BlockNumber, Changes};
use cambium_state::bytecode;
use cambium_trie::{
    Alone, EMPTY_ROOT, LayeredParts, LayeredProof, LayeredRoots, LayeredUpdateError, TrieError,
    UnfoldError, UpdateError, UpperTrie, WitnessError, WitnessNodes, commit,
};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    num::NonZeroU64,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Reason why the root after a block can't be computed.
pub(super) enum RootFault {
    /// The witness lacks something.
    Gap(WitnessGap),
    /// The witness unfolds to far more nodes than it has.
    Witness(WitnessError),
    /// The changes don't fit the state.
    Trie(TrieError),
}

impl From<LayeredUpdateError> for RootFault {
    fn from(error: LayeredUpdateError) -> Self {
        match error {
            LayeredUpdateError::Gap(gap) => Self::Gap(gap.into()),
            LayeredUpdateError::Trie(error) => Self::Trie(error),
        }
    }
}

/// The nodes of a witness: of the state trie, or of the three tries of the commitment `layered`.
pub(super) enum WitnessTries {
    Mpt(WitnessNodes),
    Layered(Box<LayeredParts>),
}

impl BlockWitness {
    /// The parent's tries, whose root is `root`, and how many nodes are not linked from it.
    pub(super) fn tries(
        &self,
        rules: &StatelessRules<'_>,
        root: B256,
    ) -> Result<(WitnessTries, usize), StatelessError> {
        match (&self.layered, rules.merge_interval) {
            (None, None) => {
                let nodes = WitnessNodes::new(root, &self.witness.state)?;
                let unused = nodes.unused();
                Ok((WitnessTries::Mpt(nodes), unused))
            }
            (Some(layered), Some(_)) => {
                let bytes = layered.tries.clone();
                let parts = LayeredProof { bytes }.parts(root)?;
                // Decoded tries are linked, but there may be nodes beside them.
                Ok((
                    WitnessTries::Layered(Box::new(parts)),
                    self.witness.state.len(),
                ))
            }
            (Some(_), None) => Err(StatelessError::OtherCommitment(
                "the witness is of a chain with the commitment `layered`: give the number of blocks \
                 of an interval",
            )),
            (None, Some(_)) => Err(StatelessError::OtherCommitment(
                "the witness is not of a chain with the commitment `layered`",
            )),
        }
    }

    /// The state root after the changes of the block, and the root of the snapshot that it commits to if
    /// that does not follow from the witness.
    pub(super) fn root_after(
        &self,
        rules: &StatelessRules<'_>,
        tries: &mut WitnessTries,
        header: &Header,
        changes: &Changes,
    ) -> Result<(B256, Option<B256>), RootFault> {
        let parts = match tries {
            WitnessTries::Mpt(nodes) => {
                let (accounts, slots) = changes.counts();
                let mut trie = nodes.trie();
                let applied = trie.apply(changes.accounts(), &mut nodes.unfolder(accounts + slots));
                applied.map_err(|error| match error {
                    UpdateError::Resolve(UnfoldError::Missing(missing)) => {
                        RootFault::Gap(missing.into())
                    }
                    UpdateError::Resolve(UnfoldError::Witness(error)) => RootFault::Witness(error),
                    UpdateError::Trie(error) => RootFault::Trie(error),
                })?;
                commit(&mut [&mut trie], &mut Default::default());
                return Ok((trie.state_root().unwrap_or_default(), None));
            }
            WitnessTries::Layered(parts) => parts,
        };
        let net = parts.net_changes(changes)?;
        let before = parts.roots();
        let is_first = |blocks: NonZeroU64| {
            let above = header.number.saturating_sub(1);
            above > 0 && above.is_multiple_of(blocks.get())
        };
        if !rules.merge_interval.is_some_and(is_first) {
            let delta = parts.merge(&net)?;
            return Ok((LayeredRoots { delta, ..before }.root(), None));
        }
        // The delta becomes the intermediate trie, and the snapshot takes in the intermediate one.
        let mut delta = UpperTrie::new();
        delta.apply(&net).map_err(RootFault::Trie)?;
        let claimed = match before.intermediate {
            EMPTY_ROOT => None,
            _ => Some(
                self.layered
                    .as_ref()
                    .and_then(|layered| layered.next_snapshot),
            ),
        };
        let claimed = claimed.map(|root| root.ok_or(RootFault::Gap(WitnessGap::Snapshot)));
        let claimed = claimed.transpose()?;
        let roots = LayeredRoots {
            delta: delta.hash(&Alone),
            intermediate: before.delta,
            snapshot: claimed.unwrap_or(before.snapshot),
        };
        Ok((roots.root(), claimed))
    }
}

/// The part of a block's pre-state that its witness contains.
pub(super) struct WitnessState {
    pub(super) tries: WitnessTries,
    codes: HashMap<B256, Bytes>,
    hashes: HashMap<BlockNumber, Ancestor>,
    read: Mutex<Read>,
}

/// Keys and values read by execution.
#[derive(Default)]
struct Read {
    codes: HashSet<B256>,
    /// The oldest block whose hash was read.
    oldest: Option<BlockNumber>,
}

impl WitnessState {
    pub(super) fn new(
        tries: WitnessTries,
        codes: &[Bytes],
        hashes: HashMap<BlockNumber, Ancestor>,
    ) -> Self {
        let codes = codes.iter().map(|code| (keccak256(code), code.clone()));
        Self {
            tries,
            codes: codes.collect(),
            hashes,
            read: Mutex::default(),
        }
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of codes that were read.
    pub(super) fn codes_read(&self) -> usize {
        self.read().codes.len()
    }

    /// Number of headers from the parent to the oldest ancestor whose hash was read.
    pub(super) fn headers_read(&self, parent: BlockNumber) -> usize {
        let oldest = self.read().oldest.unwrap_or(parent);
        let used = self
            .hashes
            .iter()
            .filter(|(number, ancestor)| **number >= oldest && ancestor.has_header);
        used.count()
    }
}

impl DatabaseRef for WitnessState {
    type Error = WitnessGap;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, WitnessGap> {
        let path = keccak256(address);
        let account = match &self.tries {
            WitnessTries::Mpt(nodes) => nodes.account(&path)?,
            WitnessTries::Layered(parts) => parts.account(&path)?,
        };
        Ok(account.map(account_info))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, WitnessGap> {
        if hash == KECCAK256_EMPTY {
            return Ok(Bytecode::default());
        }
        let code = self.codes.get(&hash).ok_or(WitnessGap::Code(hash))?;
        self.read().codes.insert(hash);
        Ok(bytecode(code.clone()))
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, WitnessGap> {
        let (account, slot) = (keccak256(address), keccak256(index.to_be_bytes::<32>()));
        Ok(match &self.tries {
            WitnessTries::Mpt(nodes) => nodes.slot(&account, &slot)?,
            WitnessTries::Layered(parts) => parts.slot(&account, &slot)?,
        })
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, WitnessGap> {
        let ancestor = self.hashes.get(&number);
        let ancestor = ancestor.ok_or(WitnessGap::Header(number))?;
        let oldest = &mut self.read().oldest;
        *oldest = Some(oldest.map_or(number, |oldest| oldest.min(number)));
        Ok(ancestor.hash)
    }
}

impl StateRead for WitnessState {
    fn has_storage(&self, address: Address) -> Result<bool, WitnessGap> {
        let path = keccak256(address);
        Ok(match &self.tries {
            WitnessTries::Mpt(nodes) => nodes.has_storage(&path)?,
            WitnessTries::Layered(parts) => parts.has_storage(&path)?,
        })
    }
}
