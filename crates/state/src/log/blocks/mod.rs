//! Positions of committed blocks in the log: canonical ones by number, recent ones by hash.
//!
//! ```text
//!   number   0 ............ 90 | 91 ......... 100 | 101 102 103
//!            index on disk     | base chain       | head chain
//!                                             base^         head^
//! ```
//!
//! Each chain overrides everything to its left from its lowest number on. The base chain has the
//! blocks that the merge under way has yet to put into the index. The head chain may begin below
//! the base, at a restored block. *Recent* blocks are all committed blocks of the newest heights, on any branch, with
//! their ancestors down to the base's chain: new blocks can be built on them. *Orphans* are blocks of the log with a
//! missing ancestor, whose record was damaged; they become recent when that ancestor is committed again.

use crate::log::kept::Kept;
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::StateError;
use cambium_store::{BlockEntry, BlockIndex, LogPosition};
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
};

/// Most recent blocks for each of the newest heights, on average. Only a chain made to fill memory
/// has more.
const RECENT_PER_HEIGHT_MAX: usize = 64;

/// A committed block of one of the newest heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecentBlock {
    pub(crate) id: BlockId,
    pub(crate) parent: B256,
    pub(crate) position: LogPosition,
}

impl RecentBlock {
    /// The block's entry in the index.
    pub(crate) const fn entry(&self) -> BlockEntry {
        BlockEntry {
            hash: self.id.hash,
            position: self.position,
        }
    }
}

/// Where [`Blocks::find`] has found a block.
pub(crate) enum FoundBlock {
    BaseAncestor,
    Recent(RecentBlock),
}

/// Blocks of one chain by number.
pub(crate) type Chain = BTreeMap<BlockNumber, BlockEntry>;

/// The blocks in memory, and the ends of the index.
pub(super) struct State {
    /// The lowest number that has a block.
    pub(super) genesis: BlockNumber,
    /// Below `kept.lowest` the index may have lost even the hash of a block.
    pub(super) kept: Kept,
    pub(super) base: BlockId,
    recent: HashMap<B256, RecentBlock>,
    /// Orphans by the hash of their parent.
    orphans: HashMap<B256, Vec<RecentBlock>>,
    base_chain: Chain,
    pub(super) head_chain: Chain,
}

/// All committed blocks. Under the lock, the block index may be read from disk, but nothing is
/// written.
pub(crate) struct Blocks {
    index: BlockIndex,
    pub(super) state: RwLock<State>,
}

/// The heights whose blocks are recent: those that can still be reorganized, around base and head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnfinalizedRange {
    pub(crate) base: BlockNumber,
    pub(crate) head: BlockNumber,
    /// Number of heights from the base downwards, and from the head upwards.
    pub(crate) heights: u64,
    /// The head by the log, if the head in memory has not reached it yet. It stays recent at any height, and so do the
    /// blocks of the heights around it.
    pub(crate) target_head: Option<BlockId>,
    /// The finalized block, if there is one: no branches beside it are kept.
    pub(crate) finalized: Option<BlockId>,
}

impl UnfinalizedRange {
    /// The lowest height of the range around the base and the head in memory.
    fn lowest(&self) -> BlockNumber {
        self.lowest_below(self.base)
    }

    fn lowest_below(&self, number: BlockNumber) -> BlockNumber {
        (number + 1).saturating_sub(self.heights)
    }

    /// Whether the range contains a height. Heights near the head by the log stay while the head in memory moves there,
    /// even through much lower ones.
    fn has(&self, number: BlockNumber) -> bool {
        let is_between = |from: BlockNumber, head: BlockNumber| {
            let highest = head.saturating_add(self.heights);
            (self.lowest_below(from)..=highest).contains(&number)
        };
        let target = self.target_head.map(|target| target.number);
        is_between(self.base, self.head) || target.is_some_and(|to| is_between(to, to))
    }
}

/// A branch that is not canonical: see [`Db::side_branches`](crate::Db::side_branches).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideBranch {
    /// Its newest block.
    pub tip: BlockId,
    /// The newest canonical block below it; the oldest block of the branch that is known, if none is.
    pub fork: BlockId,
}

/// A planned move of the base.
pub(crate) struct BaseMove {
    to: BlockId,
    /// The new base's chain, from the newest common ancestor of both bases up to the new base.
    chain: Chain,
    recent: HashMap<B256, RecentBlock>,
    orphans: Vec<RecentBlock>,
}

impl BaseMove {
    /// The new base.
    pub(crate) const fn to(&self) -> BlockId {
        self.to
    }

    /// The blocks that stay recent, and the orphans that may become recent, in the order of the log: a
    /// checkpoint is the same whenever it is made.
    pub(crate) fn recent(&self) -> Vec<RecentBlock> {
        let orphans = self.orphans.iter().copied();
        let mut recent: Vec<_> = self.recent.values().copied().chain(orphans).collect();
        recent.sort_unstable_by_key(|block| block.position);
        recent
    }
}

impl Blocks {
    /// The blocks of a database with the given base, whose index is complete. Those of the `recent`
    /// blocks that descend from no known block become orphans.
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

    /// The index on disk of the base and its ancestors.
    pub(crate) const fn index(&self) -> &BlockIndex {
        &self.index
    }

    /// The canonical block at `number`.
    pub(crate) fn canonical(&self, number: BlockNumber) -> Result<Option<BlockEntry>, StateError> {
        self.canonical_in(&self.state.read(), number)
    }

    pub(super) fn canonical_in(
        &self,
        state: &State,
        number: BlockNumber,
    ) -> Result<Option<BlockEntry>, StateError> {
        match state.head_chain.first_key_value() {
            Some((lowest, _)) if number >= *lowest => Ok(state.head_chain.get(&number).copied()),
            _ => self.ancestor_in(state, number),
        }
    }

    /// The number of a block with this hash on the chain of the head or of the base, `lowest` or above.
    pub(crate) fn search(
        &self,
        hash: &B256,
        lowest: BlockNumber,
    ) -> Result<Option<BlockNumber>, StateError> {
        let state = self.state.read();
        let mut known = state.head_chain.iter().chain(&state.base_chain);
        if let Some((number, _)) = known.find(|(_, entry)| entry.hash == *hash) {
            return Ok(Some(*number));
        }
        let numbers = lowest.max(state.genesis)..state.base.number.saturating_add(1);
        Ok(self.index.search(hash, numbers)?)
    }

    /// The base, or its ancestor, at `number`.
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

    /// Position of a block that can be built upon: a recent block or an ancestor of the base.
    pub(crate) fn position_of(&self, id: BlockId) -> Result<Option<LogPosition>, StateError> {
        let state = self.state.read();
        if let Some(block) = state.recent.get(&id.hash) {
            return Ok((block.id == id).then_some(block.position));
        }
        let entry = self.ancestor_in(&state, id.number)?;
        let entry = entry.filter(|entry| entry.hash == id.hash);
        Ok(entry.map(|entry| entry.position))
    }

    /// Whether a block is an ancestor of the base (or the base itself), or else recent. `None` if
    /// neither.
    pub(crate) fn find(&self, id: BlockId) -> Result<Option<FoundBlock>, StateError> {
        // Under one lock: when the base moves, a recent block may become its ancestor.
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

    /// Whether `hash` is the hash of `block` or of one of the `heights - 1` ancestors below it.
    /// After the head has moved far down, only the index knows these ancestors.
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
                    // Too old: even its hash may have left the index.
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

    /// Whether the parent of a block with that number is recent, or an ancestor of the base.
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

    /// The hash of the ancestor at `number` of block `id`, which is recent or an ancestor of the
    /// base.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if it is neither, because its branch was dropped.
    pub(crate) fn ancestor_hash(
        &self,
        id: BlockId,
        number: BlockNumber,
    ) -> Result<Option<B256>, StateError> {
        self.ancestor_hash_in(&self.state.read(), id, number)
    }

    fn ancestor_hash_in(
        &self,
        state: &State,
        mut id: BlockId,
        number: BlockNumber,
    ) -> Result<Option<B256>, StateError> {
        // Blocks below the first one are unknown.
        if number < state.genesis {
            return Ok(None);
        }
        let hash_of = |entry: Option<BlockEntry>| entry.map(|entry| entry.hash);
        while id.number > number {
            if hash_of(self.canonical_in(state, id.number)?) == Some(id.hash) {
                return Ok(hash_of(self.canonical_in(state, number)?));
            }
            if self.is_base_ancestor(state, id)? {
                return Ok(hash_of(self.ancestor_in(state, number)?));
            }
            let block = state.recent.get(&id.hash);
            let block = block.ok_or(StateError::UnknownBlock(id.hash))?;
            id = BlockId::new(id.number - 1, block.parent);
        }
        Ok(Some(id.hash))
    }

    /// The chain that leads up to `id`, beginning with the newest block that is an ancestor of the
    /// base, included, or with the base's child.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if a block of that chain is not known.
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

    /// Adds a committed block, and makes the orphans that descend from it recent. Returns the
    /// number of these orphans.
    pub(crate) fn insert(&self, block: RecentBlock) -> usize {
        let state = &mut *self.state.write();
        let (mut todo, mut count) = (vec![block], 0);
        while let Some(block) = todo.pop() {
            let orphans = state.orphans.remove(&block.id.hash).unwrap_or_default();
            // An orphan's number was not compared with its parent's when it was added.
            let fits = |orphan: &RecentBlock| orphan.id.number == block.id.number + 1;
            todo.extend(orphans.into_iter().filter(fits));
            state.recent.insert(block.id.hash, block);
            count += 1;
        }
        count - 1
    }

    /// Adds a block of the log whose parent is not known.
    pub(crate) fn insert_orphan(&self, block: RecentBlock) {
        let state = &mut *self.state.write();
        let siblings = state.orphans.entry(block.parent).or_default();
        if !siblings.contains(&block) {
            siblings.push(block);
        }
    }

    /// Number of orphans.
    pub(crate) fn orphans(&self) -> usize {
        self.state.read().orphans.values().map(Vec::len).sum()
    }

    /// The lowest height of an orphan. The block below it is missing.
    pub(crate) fn lowest_orphan(&self) -> Option<BlockNumber> {
        let state = self.state.read();
        let orphans = state.orphans.values().flatten();
        orphans.map(|block| block.id.number).min()
    }

    /// Makes `id`, a committed child of the head, the head.
    pub(crate) fn push_head(&self, id: BlockId) {
        let state = &mut *self.state.write();
        if let Some(block) = state.recent.get(&id.hash) {
            // A restored block below the head chain replaces all blocks above it.
            state.head_chain.split_off(&id.number);
            state.head_chain.insert(id.number, block.entry());
        }
    }

    /// Makes the last block of `chain`, which [`Blocks::chain_of`] returned, the head. Returns the lowest
    /// number that may have another canonical block than before, or none any more.
    pub(crate) fn set_head(&self, chain: Chain) -> Option<BlockNumber> {
        let state = &mut *self.state.write();
        let before = mem::replace(&mut state.head_chain, chain);
        let after = &state.head_chain;
        let hash = |chain: &Chain, number| chain.get(number).map(|entry| entry.hash);
        let numbers = before.keys().chain(after.keys());
        let changed = numbers.filter(|number| hash(&before, number) != hash(after, number));
        changed.min().copied()
    }

    /// Plans the move of the base to `to`, with the recent blocks of `range`.
    pub(crate) fn plan_move(
        &self,
        to: BlockId,
        range: UnfinalizedRange,
    ) -> Result<BaseMove, StateError> {
        let state = self.state.read();
        let chain = self.chain_in(&state, to)?;
        // Up to this number the ancestors of the base stay the same.
        let fork = match chain.first_key_value() {
            Some((lowest, _)) => state.base.number.min(*lowest),
            None => state.base.number,
        };
        let mut newest: Vec<_> = state.recent.values().copied().collect();
        newest.retain(|block| range.has(block.id.number));
        let replaced = (fork + 1).max(range.lowest())..=state.base.number;
        for number in replaced.filter(|number| range.has(*number)) {
            if let Some(entry) = self.ancestor_in(&state, number)? {
                newest.extend(self.known_in(&state, BlockId::new(number, entry.hash))?);
            }
        }
        if let Some(finalized) = range.finalized {
            let mut kin = Vec::with_capacity(newest.len());
            for block in newest {
                if self.is_on_same_branch_in(&state, block.id, finalized)? {
                    kin.push(block);
                }
            }
            newest = kin;
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
            // Its ancestors are recent too, down to those of the new base.
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

    /// The newest block of each branch that is not canonical, with the newest canonical block below it.
    /// Sorted by height.
    pub(crate) fn side_branches(&self) -> Result<Vec<SideBranch>, StateError> {
        let state = &*self.state.read();
        let is_canonical = |id: BlockId| -> Result<bool, StateError> {
            let canonical = self.canonical_in(state, id.number)?;
            Ok(canonical.is_some_and(|entry| entry.hash == id.hash))
        };
        let parents: HashSet<B256> = state.recent.values().map(|block| block.parent).collect();
        let mut branches = Vec::new();
        for block in state.recent.values() {
            let tip = block.id;
            if parents.contains(&tip.hash) || is_canonical(tip)? {
                continue;
            }
            let mut fork = tip;
            while !is_canonical(fork)? {
                // None on the base's own chain, if the head is on another branch.
                let parent = state.recent.get(&fork.hash).map(|block| block.parent);
                let below = fork.number.checked_sub(1).zip(parent);
                let Some((number, parent)) = below else { break };
                fork = BlockId::new(number, parent);
            }
            branches.push(SideBranch { tip, fork });
        }
        branches.sort_unstable_by_key(|branch| (branch.tip.number, branch.tip.hash));
        Ok(branches)
    }

    /// Whether `block` is the canonical block `finalized`, or one of its ancestors or descendants: other
    /// blocks can't be built upon any more. `block` is known.
    pub(crate) fn is_on_same_branch(
        &self,
        block: BlockId,
        finalized: BlockId,
    ) -> Result<bool, StateError> {
        self.is_on_same_branch_in(&self.state.read(), block, finalized)
    }

    fn is_on_same_branch_in(
        &self,
        state: &State,
        block: BlockId,
        finalized: BlockId,
    ) -> Result<bool, StateError> {
        let (high, low) = match block.number > finalized.number {
            true => (block, finalized),
            false => (finalized, block),
        };
        match self.ancestor_hash_in(state, high, low.number) {
            // So old that only one chain has it.
            Err(StateError::NotKept { .. }) => Ok(true),
            hash => Ok(hash? == Some(low.hash)),
        }
    }

    /// Forgets the recent blocks and orphans on branches other than that of the canonical block `finalized`: see
    /// [`Blocks::is_on_same_branch`]. Ancestors of the base stay.
    pub(crate) fn forget_branches(&self, finalized: BlockId) -> Result<(), StateError> {
        let state = &mut *self.state.write();
        let mut forgotten = Vec::new();
        for block in state.recent.values() {
            let id = block.id;
            if !self.is_base_ancestor(state, id)?
                && !self.is_on_same_branch_in(state, id, finalized)?
            {
                forgotten.push(id.hash);
            }
        }
        for hash in forgotten {
            state.recent.remove(&hash);
        }
        let is_above = |block: &RecentBlock| block.id.number > finalized.number;
        for orphans in state.orphans.values_mut() {
            orphans.retain(is_above);
        }
        state.orphans.retain(|_, orphans| !orphans.is_empty());
        Ok(())
    }

    /// Whether a block can be built upon after the move `plan`.
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

    /// A recent block, or an ancestor of the base, with its parent's hash.
    fn known_in(&self, state: &State, id: BlockId) -> Result<Option<RecentBlock>, StateError> {
        if let Some(block) = state.recent.get(&id.hash) {
            return Ok(Some(*block));
        }
        let entry = self.ancestor_in(state, id.number)?;
        let parent = match id.number.checked_sub(1) {
            // Too old: even its hash may have left the index.
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

    /// Moves the base in memory; [`Blocks::extend_index`] follows. The head chain keeps its blocks
    /// above the new base.
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

    /// Writes the base's new ancestors into the index, and syncs it.
    pub(crate) fn extend_index(&self) -> Result<(), StateError> {
        let chain = self.state.read().base_chain.clone();
        let Some((&last, _)) = chain.last_key_value() else {
            return Ok(self.index.sync()?);
        };
        let mut new = chain.into_iter().peekable();
        // An entry that can't be read is written again.
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
            // Entries of another branch are removed durably first: a crash in between must not
            // leave both branches in the index.
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
