//! Where committed blocks are in the log: canonical ones by number, recent ones by hash.
//!
//! ```text
//!   number   0 ............ 90 | 91 ......... 100 | 101 102 103
//!            index on disk     | base chain       | head chain
//!                                             base^         head^
//! ```
//!
//! Each chain hides all that is before it from its lowest number on. The base chain is what a
//! merge under way has yet to put into the index; the head chain may begin below the base, at a
//! block that was brought back. *Recent* are all committed blocks of the newest heights, whatever
//! their branch, with their ancestors down to the base's chain: what can be built upon. *Orphans*
//! are blocks of the log of which an ancestor is missing, since its record was damaged: they are
//! recent once it is committed again.

use crate::log::kept::Kept;
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::StateError;
use cambium_store::{BlockEntry, BlockIndex, LogPosition};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};

/// Recent blocks are at most this many for each of the newest heights: enough for any chain that
/// is not made to fill memory.
const RECENT_PER_HEIGHT_MAX: usize = 64;

/// A committed block of one of the newest heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecentBlock {
    pub(crate) id: BlockId,
    pub(crate) parent: B256,
    pub(crate) position: LogPosition,
}

impl RecentBlock {
    pub(crate) const fn entry(&self) -> BlockEntry {
        BlockEntry {
            hash: self.id.hash,
            position: self.position,
        }
    }
}

/// See [`Blocks::find`].
pub(crate) enum FoundBlock {
    BaseAncestor,
    Recent(RecentBlock),
}

/// A chain's blocks by number.
pub(crate) type Chain = BTreeMap<BlockNumber, BlockEntry>;

struct State {
    /// The lowest that there is.
    genesis: BlockNumber,
    /// Of blocks before these even the hash may be lost.
    kept: Kept,
    base: BlockId,
    recent: HashMap<B256, RecentBlock>,
    /// By the hash of their parents.
    orphans: HashMap<B256, Vec<RecentBlock>>,
    base_chain: Chain,
    head_chain: Chain,
}

/// All committed blocks. Its lock is held for moments only, and never during a write.
pub(crate) struct Blocks {
    index: BlockIndex,
    state: RwLock<State>,
}

/// The heights whose blocks are recent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnfinalizedRange {
    pub(crate) base: BlockNumber,
    pub(crate) head: BlockNumber,
    /// So many heights below the base, itself included, and above the head.
    pub(crate) heights: u64,
    /// The head by the log, if it is not reached yet: it stays recent whatever its height.
    pub(crate) target_head: Option<BlockId>,
}

impl UnfinalizedRange {
    fn lowest(&self) -> BlockNumber {
        (self.base + 1).saturating_sub(self.heights)
    }

    const fn highest(&self) -> BlockNumber {
        self.head.saturating_add(self.heights)
    }

    fn has(&self, number: BlockNumber) -> bool {
        (self.lowest()..=self.highest()).contains(&number)
    }
}

/// What changes when the base moves.
pub(crate) struct BaseMove {
    to: BlockId,
    /// From the newest common ancestor of the old base and the new, up to the new.
    chain: Chain,
    recent: HashMap<B256, RecentBlock>,
    orphans: Vec<RecentBlock>,
}

impl BaseMove {
    /// The new base.
    pub(crate) const fn to(&self) -> BlockId {
        self.to
    }

    /// The blocks that stay recent, and orphans, which may become so.
    pub(crate) fn recent(&self) -> Vec<RecentBlock> {
        let orphans = self.orphans.iter().copied();
        self.recent.values().copied().chain(orphans).collect()
    }
}

impl Blocks {
    /// Of a database whose base is `base`, and whose index is whole. Of the `recent` blocks those
    /// are orphans that descend from no block that is known.
    pub(crate) fn new(
        index: BlockIndex,
        genesis: BlockNumber,
        kept: Kept,
        base: BlockId,
        mut recent: Vec<RecentBlock>,
    ) -> Result<Self, StateError> {
        let blocks = Self {
            index,
            state: RwLock::new(State {
                genesis,
                kept,
                base,
                recent: HashMap::new(),
                orphans: HashMap::new(),
                base_chain: Chain::new(),
                head_chain: Chain::new(),
            }),
        };
        recent.sort_unstable_by_key(|block| block.id.number);
        for block in recent {
            let is_ancestor = blocks.is_base_ancestor(&blocks.state.read(), block.id)?;
            if is_ancestor || blocks.is_parent_known(block.id.number, &block.parent)? {
                blocks.insert(block);
            } else {
                blocks.insert_orphan(block);
            }
        }
        Ok(blocks)
    }

    /// The base and its ancestors, on disk.
    pub(crate) const fn index(&self) -> &BlockIndex {
        &self.index
    }

    /// The canonical block of that height.
    pub(crate) fn canonical(&self, number: BlockNumber) -> Result<Option<BlockEntry>, StateError> {
        self.canonical_in(&self.state.read(), number)
    }

    fn canonical_in(
        &self,
        state: &State,
        number: BlockNumber,
    ) -> Result<Option<BlockEntry>, StateError> {
        match state.head_chain.first_key_value() {
            Some((lowest, _)) if number >= *lowest => Ok(state.head_chain.get(&number).copied()),
            _ => self.ancestor_in(state, number),
        }
    }

    /// The base, or its ancestor of that height.
    pub(crate) fn base_ancestor(
        &self,
        number: BlockNumber,
    ) -> Result<Option<BlockEntry>, StateError> {
        self.ancestor_in(&self.state.read(), number)
    }

    fn ancestor_in(
        &self,
        state: &State,
        number: BlockNumber,
    ) -> Result<Option<BlockEntry>, StateError> {
        match state.base_chain.first_key_value() {
            Some((lowest, _)) if number >= *lowest => Ok(state.base_chain.get(&number).copied()),
            _ if number > state.base.number || number < state.genesis => Ok(None),
            _ if number < state.kept.lowest => match self.index.expect(number) {
                Err(error) if error.is_corruption() => Err(StateError::NotKept {
                    oldest: state.kept.number,
                }),
                entry => Ok(Some(entry?)),
            },
            _ => Ok(Some(self.index.expect(number)?)),
        }
    }

    fn is_base_ancestor(&self, state: &State, id: BlockId) -> Result<bool, StateError> {
        let entry = self.ancestor_in(state, id.number)?;
        Ok(entry.is_some_and(|entry| entry.hash == id.hash))
    }

    /// Where a block is that can be built upon: recent, or an ancestor of the base.
    pub(crate) fn position_of(&self, id: BlockId) -> Result<Option<LogPosition>, StateError> {
        let state = self.state.read();
        if let Some(block) = state.recent.get(&id.hash) {
            return Ok((block.id == id).then_some(block.position));
        }
        let entry = self.ancestor_in(&state, id.number)?;
        let entry = entry.filter(|entry| entry.hash == id.hash);
        Ok(entry.map(|entry| entry.position))
    }

    /// Whether a block is the base or an ancestor of it, or else recent. `None` if it is neither.
    pub(crate) fn find(&self, id: BlockId) -> Result<Option<FoundBlock>, StateError> {
        // At one moment: when the base moves, what was recent may become an ancestor of it.
        let state = self.state.read();
        if self.is_base_ancestor(&state, id)? {
            return Ok(Some(FoundBlock::BaseAncestor));
        }
        let recent = state.recent.get(&id.hash).copied();
        Ok(recent.map(FoundBlock::Recent))
    }

    /// The recent block of that hash.
    pub(crate) fn recent(&self, hash: &B256) -> Option<RecentBlock> {
        self.state.read().recent.get(hash).copied()
    }

    /// Whether `hash` is that of `block` or of one of its ancestors, so many `heights` down. After
    /// the head went far down, these are in the index alone.
    pub(crate) fn is_near_ancestor(
        &self,
        hash: &B256,
        mut block: BlockId,
        heights: u64,
    ) -> Result<bool, StateError> {
        let state = self.state.read();
        for _ in 0..heights {
            if block.hash == *hash {
                return Ok(true);
            }
            let Some(below) = block.number.checked_sub(1) else {
                break;
            };
            let parent = match state.recent.get(&block.hash) {
                Some(block) => Some(block.parent),
                None => match self.ancestor_in(&state, below) {
                    // So old that even its name is gone.
                    Err(StateError::NotKept { .. }) => None,
                    entry => entry?.map(|entry| entry.hash),
                },
            };
            let Some(parent) = parent else {
                break;
            };
            block = BlockId::new(below, parent);
        }
        Ok(false)
    }

    /// Whether the parent of a block of that number is recent, or an ancestor of the base.
    pub(crate) fn is_parent_known(
        &self,
        number: BlockNumber,
        parent: &B256,
    ) -> Result<bool, StateError> {
        match number.checked_sub(1) {
            Some(below) => Ok(self.position_of(BlockId::new(below, *parent))?.is_some()),
            None => Ok(false),
        }
    }

    /// The hash of the ancestor at `number` of the block `id`, which is recent or an ancestor of
    /// the base. [`StateError::UnknownBlock`] if it is neither: its branch was given up.
    pub(crate) fn ancestor_hash(
        &self,
        mut id: BlockId,
        number: BlockNumber,
    ) -> Result<Option<B256>, StateError> {
        let state = self.state.read();
        let hash_of = |entry: Option<BlockEntry>| entry.map(|entry| entry.hash);
        while id.number > number {
            if hash_of(self.canonical_in(&state, id.number)?) == Some(id.hash) {
                return Ok(hash_of(self.canonical_in(&state, number)?));
            }
            if self.is_base_ancestor(&state, id)? {
                return Ok(hash_of(self.ancestor_in(&state, number)?));
            }
            let block = state.recent.get(&id.hash);
            let block = block.ok_or(StateError::UnknownBlock(id.hash))?;
            id = BlockId::new(id.number - 1, block.parent);
        }
        Ok(Some(id.hash))
    }

    /// The blocks from the newest that is the base or an ancestor of it, up to `id`; of the base
    /// itself only what comes after it. An error if a block between them is not known.
    pub(crate) fn chain_of(&self, id: BlockId) -> Result<Chain, StateError> {
        self.chain_in(&self.state.read(), id)
    }

    fn chain_in(&self, state: &State, id: BlockId) -> Result<Chain, StateError> {
        let mut chain = Chain::new();
        let mut next = id;
        while next != state.base {
            if let Some(entry) = self.ancestor_in(state, next.number)?
                && entry.hash == next.hash
            {
                chain.insert(next.number, entry);
                break;
            }
            let unknown = StateError::UnknownBlock(next.hash);
            let Some(block) = state.recent.get(&next.hash) else {
                return Err(unknown);
            };
            chain.insert(next.number, block.entry());
            let below = next.number.checked_sub(1).ok_or(unknown)?;
            next = BlockId::new(below, block.parent);
        }
        Ok(chain)
    }

    /// Takes a block that was committed, and with it the orphans that descend from it. Returns how
    /// many these are.
    pub(crate) fn insert(&self, block: RecentBlock) -> usize {
        let state = &mut *self.state.write();
        let (mut todo, mut count) = (vec![block], 0);
        while let Some(block) = todo.pop() {
            let orphans = state.orphans.remove(&block.id.hash).unwrap_or_default();
            // Nothing was held against the parent when the orphan came.
            let fits = |orphan: &RecentBlock| orphan.id.number == block.id.number + 1;
            todo.extend(orphans.into_iter().filter(fits));
            state.recent.insert(block.id.hash, block);
            count += 1;
        }
        count - 1
    }

    /// Takes a block of the log whose parent is not known.
    pub(crate) fn insert_orphan(&self, block: RecentBlock) {
        let state = &mut *self.state.write();
        let siblings = state.orphans.entry(block.parent).or_default();
        if !siblings.contains(&block) {
            siblings.push(block);
        }
    }

    /// How many orphans there are.
    pub(crate) fn orphans(&self) -> usize {
        self.state.read().orphans.values().map(Vec::len).sum()
    }

    /// The lowest height of an orphan: the block below it is not there.
    pub(crate) fn lowest_orphan(&self) -> Option<BlockNumber> {
        let state = self.state.read();
        let orphans = state.orphans.values().flatten();
        orphans.map(|block| block.id.number).min()
    }

    /// The head is `id`, a committed child of the head before.
    pub(crate) fn push_head(&self, id: BlockId) {
        let state = &mut *self.state.write();
        if let Some(block) = state.recent.get(&id.hash) {
            // A block that was brought back takes the place of those above it.
            state.head_chain.split_off(&id.number);
            state.head_chain.insert(id.number, block.entry());
        }
    }

    /// The head is the last block of `chain`, which is from [`Blocks::chain_of`].
    pub(crate) fn set_head(&self, chain: Chain) {
        self.state.write().head_chain = chain;
    }

    /// What it takes to make `to` the base.
    pub(crate) fn plan_move(
        &self,
        to: BlockId,
        range: UnfinalizedRange,
    ) -> Result<BaseMove, StateError> {
        let state = self.state.read();
        let chain = self.chain_in(&state, to)?;
        // Up to here the ancestors of the base stay the same.
        let fork = match chain.first_key_value() {
            Some((lowest, _)) => state.base.number.min(*lowest),
            None => state.base.number,
        };
        let mut newest: Vec<_> = state.recent.values().copied().collect();
        newest.retain(|block| range.has(block.id.number));
        let replaced = (fork + 1).max(range.lowest())..=state.base.number.min(range.highest());
        for number in replaced {
            if let Some(entry) = self.ancestor_in(&state, number)? {
                newest.extend(self.known_in(&state, BlockId::new(number, entry.hash))?);
            }
        }
        newest.sort_unstable_by_key(|block| std::cmp::Reverse(block.position));
        if let Some(target_head) = range.target_head {
            let block = self.known_in(&state, target_head)?;
            newest.splice(0..0, block);
        }
        let max = RECENT_PER_HEIGHT_MAX.saturating_mul((range.heights as usize).saturating_add(1));
        let mut recent = HashMap::new();
        for block in newest {
            let is_below_head = state.head_chain.get(&block.id.number) == Some(&block.entry());
            if recent.len() >= max && !is_below_head {
                continue;
            }
            // With its ancestors, down to those of the new base.
            let mut next = Some(block);
            while let Some(block) = next.take() {
                let (number, entry) = (block.id.number, block.entry());
                let is_ancestor = match number > fork {
                    true => chain.get(&number) == Some(&entry),
                    false => self.ancestor_in(&state, number)? == Some(entry),
                };
                if recent.insert(block.id.hash, block).is_none()
                    && !is_ancestor
                    && let Some(below) = number.checked_sub(1)
                {
                    next = self.known_in(&state, BlockId::new(below, block.parent))?;
                }
            }
        }
        let orphans = state.orphans.values().flatten().copied();
        let mut orphans: Vec<_> = orphans.filter(|block| range.has(block.id.number)).collect();
        orphans.truncate(max);
        Ok(BaseMove {
            to,
            chain,
            recent,
            orphans,
        })
    }

    /// Whether a block can be built upon once `plan` is done.
    pub(crate) fn stays(&self, plan: &BaseMove, id: BlockId) -> Result<bool, StateError> {
        if let Some(block) = plan.recent.get(&id.hash) {
            return Ok(block.id == id);
        }
        let entry = match plan.chain.first_key_value() {
            Some((lowest, _)) if id.number >= *lowest => plan.chain.get(&id.number).copied(),
            _ if id.number > plan.to.number => None,
            _ => self.base_ancestor(id.number)?,
        };
        Ok(entry.is_some_and(|entry| entry.hash == id.hash))
    }

    /// A recent block, or an ancestor of the base.
    fn known_in(&self, state: &State, id: BlockId) -> Result<Option<RecentBlock>, StateError> {
        if let Some(block) = state.recent.get(&id.hash) {
            return Ok(Some(*block));
        }
        let entry = self.ancestor_in(state, id.number)?;
        let parent = match id.number.checked_sub(1) {
            // So old that even its name is gone.
            Some(below) => match self.ancestor_in(state, below) {
                Err(StateError::NotKept { .. }) => None,
                entry => entry?,
            },
            None => None,
        };
        Ok(match (entry, parent) {
            (Some(entry), Some(parent)) if entry.hash == id.hash => Some(RecentBlock {
                id,
                parent: parent.hash,
                position: entry.position,
            }),
            _ => None,
        })
    }

    /// Makes another block the base, in memory: [`Blocks::extend_index`] follows. The head chain
    /// is what it had above the new base.
    pub(crate) fn move_base(&self, plan: BaseMove) {
        let state = &mut *self.state.write();
        state.base = plan.to;
        if let Some((lowest, _)) = plan.chain.first_key_value() {
            state.base_chain.split_off(lowest);
            state.base_chain.extend(plan.chain);
        }
        state.head_chain = state.head_chain.split_off(&(plan.to.number + 1));
        state.recent = plan.recent;
        state.orphans.clear();
        for block in plan.orphans {
            state.orphans.entry(block.parent).or_default().push(block);
        }
    }

    /// Puts the base's new ancestors into the index, and makes that durable.
    pub(crate) fn extend_index(&self) -> Result<(), StateError> {
        let chain = self.state.read().base_chain.clone();
        let Some((&last, _)) = chain.last_key_value() else {
            return Ok(self.index.sync()?);
        };
        let mut new = chain.into_iter().peekable();
        // What can't be read is written again.
        let is_there = |number, entry: &BlockEntry| {
            let found = self.index.get(number);
            matches!(found, Ok(Some(found)) if found == *entry)
        };
        while let Some((number, entry)) = new.peek()
            && is_there(*number, entry)
        {
            new.next();
        }
        let keep = new.peek().map_or(last + 1, |(number, _)| *number);
        if keep < self.index.numbers() {
            // Blocks of another branch go, durably, before any of this one comes: a crash in
            // between must not find both.
            self.index.truncate(keep)?;
            self.index.sync()?;
        }
        for (number, entry) in new {
            self.index.set(number, entry)?;
        }
        self.index.sync()?;
        self.state.write().base_chain.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
