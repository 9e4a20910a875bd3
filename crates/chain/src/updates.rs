//! State updates of stored blocks, for databases that do not execute them.
//!
//! ```text
//!   block log   changes of block N                          already there
//!   state trie  after block N - 1, of which the changed     one trie, which moves from block to block
//!               paths are loaded
//!     -> storage roots after block N                        StateUpdate
//! ```

use crate::{Chain, ChainError, StateUpdate};
use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY};
use cambium_primitives::{AccountUpdate, BlockId, BlockNumber, Changes, Path};
use cambium_state::{CommittedBlock, StateError, StateTrie};
use cambium_trie::{Batch, EMPTY_ROOT, Link, NodeRef, PartialTrie, Stub, UpdateError, commit};

/// Largest and smallest memory of the trie that moves from block to block, in bytes: an eighth of the engine's between these.
/// A larger trie is begun anew at the block that was reached.
const TRIE_BYTES: (u64, u64) = (16 << 20, 1 << 30);

/// State updates of canonical blocks, in their order. See [`Chain::state_updates`].
pub struct StateUpdates<'a> {
    chain: &'a Chain,
    next: BlockNumber,
    last: BlockNumber,
    state: Option<MovingState>,
    batch: Batch,
}

/// The state trie after a block.
struct MovingState {
    /// The state from which absent nodes are loaded.
    base: StateTrie,
    /// The trie, in which what has changed since then is not blinded.
    trie: PartialTrie,
    block: BlockId,
}

impl Chain {
    /// Returns the state updates of the canonical blocks from `first` to `last`, which a partial database applies with
    /// these blocks. The blocks must be in the log, and the state before the first one is restored from it.
    ///
    /// # Errors
    ///
    /// [`StateError::NotOnPartial`] for a partial database, which has not all storage.
    pub fn state_updates(
        &self,
        first: BlockNumber,
        last: BlockNumber,
    ) -> Result<StateUpdates<'_>, ChainError> {
        if self.db().kept_storage().is_some() {
            return Err(StateError::NotOnPartial("making state updates").into());
        }
        Ok(StateUpdates {
            chain: self,
            next: first,
            last,
            state: None,
            batch: Batch::new(),
        })
    }
}

impl StateUpdates<'_> {
    fn update(&mut self, number: BlockNumber) -> Result<(BlockId, StateUpdate), ChainError> {
        let db = self.chain.db();
        let head = db.head();
        let no_block = |number| ChainError::NoSuchBlock { number, head };
        let block = db.committed_block(number)?;
        let block = block.ok_or_else(|| no_block(number))?;
        let parent = number.checked_sub(1).ok_or_else(|| no_block(number))?;
        let bytes_max = (db.options().memory_bytes / 8).clamp(TRIE_BYTES.0, TRIE_BYTES.1);
        self.state.take_if(|state| {
            let is_large = state.trie.memory_bytes() as u64 > bytes_max;
            is_large || state.block.hash != block.meta.parent
        });
        let state = match &mut self.state {
            Some(state) => state,
            none => {
                let view = db.view_of(BlockId::new(parent, block.meta.parent))?;
                none.insert(MovingState::new(StateTrie::of(&view)?))
            }
        };
        state.apply(&block, &mut self.batch)?;
        let storage_roots = storage_roots(&state.trie, &block.changes)?;
        let codes = self.new_codes(&block)?;
        let update = StateUpdate {
            changes: block.changes,
            codes,
            storage_roots,
        };
        Ok((block.meta.id, update))
    }

    /// Codes of accounts that did not have them before.
    fn new_codes(&self, block: &CommittedBlock) -> Result<Vec<Bytes>, ChainError> {
        let view = self.chain.db().view()?;
        let mut hashes: Vec<B256> = Vec::new();
        for change in block.changes.accounts() {
            let AccountUpdate::Put(account) = &change.account else {
                continue;
            };
            let before = block.reverts.account(&change.path);
            let is_old = before.is_some_and(|before| {
                matches!(&before.account, AccountUpdate::Put(before) if before.code_hash == account.code_hash)
            });
            if account.code_hash != KECCAK256_EMPTY && !is_old {
                hashes.push(account.code_hash);
            }
        }
        hashes.sort_unstable();
        hashes.dedup();
        let codes = hashes.iter().map(|hash| view.code(hash));
        Ok(codes.collect::<Result<_, StateError>>()?)
    }
}

impl Iterator for StateUpdates<'_> {
    type Item = Result<(BlockId, StateUpdate), ChainError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next > self.last {
            return None;
        }
        let made = self.update(self.next);
        self.next = match (&made, self.next.checked_add(1)) {
            (Ok(_), Some(next)) => next,
            _ => {
                self.last = 0;
                BlockNumber::MAX
            }
        };
        Some(made)
    }
}

impl MovingState {
    fn new(base: StateTrie) -> Self {
        let trie = match base.root() {
            EMPTY_ROOT => PartialTrie::new(Path::EMPTY),
            root => PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(root))),
        };
        let block = base.block();
        Self { base, trie, block }
    }

    /// Moves to `block`, a child of the block where it is.
    fn apply(&mut self, block: &CommittedBlock, batch: &mut Batch) -> Result<(), StateError> {
        let changes = block.changes.accounts();
        let paths = changes.iter().flat_map(|change| {
            let slots = change.slots.iter();
            let slots = slots.map(|(slot, _)| Path::slot(&change.path, slot));
            std::iter::once(Path::account(&change.path)).chain(slots)
        });
        self.base.prefetch(paths)?;
        let applied = self.trie.apply(changes, &mut self.base.reader());
        applied.map_err(|error| match error {
            UpdateError::Resolve(error) => error,
            UpdateError::Trie(error) => error.into(),
        })?;
        commit(&mut [&mut self.trie], batch);
        self.block = block.meta.id;
        let (got, expected) = (self.trie.state_root(), block.meta.state_root);
        match got == Some(expected) {
            true => Ok(()),
            false => Err(StateError::WrongRoot {
                block: block.meta.id,
                got: got.unwrap_or_default(),
                expected,
            }),
        }
    }
}

/// Storage roots, in a trie that has the changes, of accounts whose slots they change.
fn storage_roots(trie: &PartialTrie, changes: &Changes) -> Result<Vec<(B256, B256)>, StateError> {
    let changed = changes.accounts().iter().filter(|change| {
        let is_there = change.account != AccountUpdate::Delete;
        is_there && (change.wipe || !change.slots.is_empty())
    });
    let root = |path: B256| {
        let path = Path::account(&path);
        let storage = trie.find(&path).unwrap_or(Link::EMPTY);
        let what = "the root of a storage";
        trie.storage_root_at(storage)
            .ok_or(StateError::Broken { path, what })
    };
    changed
        .map(|change| Ok((change.path, root(change.path)?)))
        .collect()
}
