//! What is remembered of blocks that are not in the database: those that are invalid, and those that wait for their
//! parents.

use super::payload::EncodedBlock;
use alloy_primitives::B256;
use std::collections::{HashMap, HashSet, VecDeque};

/// Most invalid blocks.
const INVALID_MAX: usize = 1024;
/// Most blocks that wait for their parents.
const WAITING_MAX: usize = 512;
/// Most bytes of blocks that wait for their parents.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// Why a block is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The newest valid ancestor; zero before the merge; `None` if it is not known.
    pub(super) valid: Option<B256>,
    pub(super) why: String,
}

#[derive(Default)]
pub(super) struct Remembered {
    invalid: HashMap<B256, Fault>,
    /// The oldest first.
    invalid_order: VecDeque<B256>,
    waiting: HashMap<B256, EncodedBlock>,
    /// Waiting blocks by their parents.
    children: HashMap<B256, HashSet<B256>>,
    /// The oldest first. Some of them wait no more.
    waiting_order: VecDeque<B256>,
    bytes: usize,
}

impl Remembered {
    pub(super) fn fault(&self, hash: &B256) -> Option<&Fault> {
        self.invalid.get(hash)
    }

    /// Remembers that a block is invalid, and with it all that wait for it.
    pub(super) fn reject(&mut self, hash: B256, fault: &Fault) {
        let mut all = vec![hash];
        while let Some(hash) = all.pop() {
            if self.invalid.insert(hash, fault.clone()).is_none() {
                self.invalid_order.push_back(hash);
            }
            self.take(&hash);
            all.extend(self.children_of(&hash));
        }
        while self.invalid.len() > INVALID_MAX
            && let Some(oldest) = self.invalid_order.pop_front()
        {
            self.invalid.remove(&oldest);
        }
    }

    /// Keeps a block until its parent comes, or others take its place.
    pub(super) fn wait(&mut self, block: EncodedBlock) {
        if self.waiting.contains_key(&block.hash) {
            return;
        }
        let block = block.detached();
        self.bytes += bytes_of(&block);
        self.children
            .entry(block.parent)
            .or_default()
            .insert(block.hash);
        self.waiting_order.push_back(block.hash);
        self.waiting.insert(block.hash, block);
        while (self.waiting.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX)
            && let Some(oldest) = self.waiting_order.pop_front()
        {
            self.take(&oldest);
        }
        if self.waiting_order.len() > 2 * WAITING_MAX {
            self.waiting_order
                .retain(|hash| self.waiting.contains_key(hash));
        }
    }

    /// Takes the blocks that wait for this one.
    pub(super) fn take_children(&mut self, parent: &B256) -> Vec<EncodedBlock> {
        let children = self.children_of(parent);
        children
            .iter()
            .filter_map(|child| self.take(child))
            .collect()
    }

    fn children_of(&self, parent: &B256) -> Vec<B256> {
        let children = self.children.get(parent);
        children.into_iter().flatten().copied().collect()
    }

    fn take(&mut self, hash: &B256) -> Option<EncodedBlock> {
        let block = self.waiting.remove(hash)?;
        self.bytes -= bytes_of(&block);
        if let Some(siblings) = self.children.get_mut(&block.parent) {
            siblings.remove(hash);
            if siblings.is_empty() {
                self.children.remove(&block.parent);
            }
        }
        Some(block)
    }
}

fn bytes_of(block: &EncodedBlock) -> usize {
    block.rlp.len() + block.access_list.as_ref().map_or(0, |list| list.len())
}
