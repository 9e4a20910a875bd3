//! A reference model of the `layered` commitment: three sorted maps, whose roots are computed from
//! scratch. It compares whole states, and shares no code with the engine.

use crate::{
    Model,
    model::{entry_leaf, root},
};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_rlp::Encodable;
use cambium_primitives::{Account, Changes};
use std::collections::BTreeMap;

/// A block of the model: the states before and after it.
pub struct LayeredBlock<'a> {
    /// The state before the block.
    pub before: &'a Model,
    /// The state after it.
    pub after: &'a Model,
    /// Accounts whose storage the block wiped: see [`wiped_by`].
    pub wiped: &'a [B256],
}

/// Returns the accounts whose storage `changes` wipe.
pub fn wiped_by(changes: &Changes) -> Vec<B256> {
    let wiped = changes.accounts().iter().filter(|change| change.wipe);
    wiped.map(|change| change.path).collect()
}

/// Changes of an account by the blocks of an interval.
#[derive(Clone, Default)]
struct Leaf {
    /// `None` if the fields are kept, `Some(None)` if the account is deleted.
    fields: Option<Option<Account>>,
    wiped: bool,
    slots: BTreeMap<B256, U256>,
}

/// The net changes of consecutive blocks.
#[derive(Clone, Default)]
struct Upper {
    accounts: BTreeMap<B256, Leaf>,
    /// `None` for deleted entries.
    entries: BTreeMap<B256, Option<Bytes>>,
}

impl Upper {
    fn merge(&mut self, block: &LayeredBlock<'_>) {
        let (old, new) = (block.before.entries(), block.after.entries());
        for key in old.keys().chain(new.keys()) {
            if old.get(key) != new.get(key) {
                self.entries.insert(*key, new.get(key).cloned());
            }
        }
        let paths = block.before.accounts().chain(block.after.accounts());
        let paths: std::collections::BTreeSet<_> = paths.map(|(path, _)| *path).collect();
        for path in paths {
            let (old, new) = (block.before.account(&path), block.after.account(&path));
            let is_wiped =
                block.wiped.contains(&path) && old.is_some_and(|old| !old.slots.is_empty());
            if old == new && !is_wiped {
                continue;
            }
            let fields = (old.map(|old| old.account) != new.map(|new| new.account))
                .then(|| new.map(|new| new.account));
            let mut slots = BTreeMap::new();
            if let Some(new) = new {
                let none = BTreeMap::new();
                let old = old.map_or(&none, |old| &old.slots);
                for slot in old.keys().chain(new.slots.keys()) {
                    let value = new.slots.get(slot).copied().unwrap_or_default();
                    let is_member = match is_wiped {
                        true => !value.is_zero(),
                        false => old.get(slot).copied().unwrap_or_default() != value,
                    };
                    if is_member {
                        slots.insert(*slot, value);
                    }
                }
            }
            let leaf = self.accounts.entry(path).or_default();
            if is_wiped || fields == Some(None) {
                leaf.wiped = true;
                leaf.slots.clear();
            }
            leaf.fields = fields.or(leaf.fields);
            leaf.slots.extend(slots);
        }
    }

    fn root(&self) -> B256 {
        let accounts = self.accounts.iter();
        let accounts = accounts.map(|(path, leaf)| (path, leaf.rlp()));
        let leaf =
            |value: &Option<Bytes>| value.as_ref().map_or(vec![34], |value| entry_leaf(value));
        let entries = self.entries.iter();
        // A database has leaves of one kind.
        root(accounts.chain(entries.map(|(key, value)| (key, leaf(value)))))
    }
}

impl Leaf {
    fn rlp(&self) -> Vec<u8> {
        let slots = self.slots.iter();
        let slots = root(slots.map(|(slot, value)| (slot, alloy_rlp::encode(value))));
        let wiped = if self.wiped { 4u8 } else { 0 };
        let mut items = Vec::new();
        match self.fields {
            None => {
                (1 + wiped).encode(&mut items);
                slots.encode(&mut items);
            }
            Some(Some(account)) => {
                (2 + wiped).encode(&mut items);
                account.nonce.encode(&mut items);
                account.balance.encode(&mut items);
                slots.encode(&mut items);
                account.code_hash.encode(&mut items);
            }
            Some(None) => (3 + wiped).encode(&mut items),
        }
        let mut rlp = Vec::new();
        alloy_rlp::Header {
            list: true,
            payload_length: items.len(),
        }
        .encode(&mut rlp);
        rlp.extend(items);
        rlp
    }
}

/// Computes the root after the last of `blocks`, which are all blocks of a chain since its first
/// state, or at least those of two intervals of `interval` blocks. The newest has the height
/// `height` above the first state, which is `first` if there are no blocks.
///
/// # Panics
///
/// Panics if there are too few blocks.
pub fn layered_model_root(
    interval: u64,
    height: u64,
    blocks: &[LayeredBlock<'_>],
    first: &Model,
) -> B256 {
    let q = height.saturating_sub(1) / interval;
    let (start, below) = (q * interval, q.saturating_sub(1) * interval);
    // The block of height `height` is the last one.
    let index = |height_of: u64| blocks.len() - (height - height_of) as usize;
    let upper = |from: u64, to: u64| {
        let mut upper = Upper::default();
        blocks[index(from)..index(to)]
            .iter()
            .for_each(|block| upper.merge(block));
        upper.root()
    };
    let snapshot = blocks.get(index(below)).map_or(first, |block| block.before);
    let roots = [upper(start, height), upper(below, start), snapshot.root()];
    keccak256(roots.map(|root| root.0).concat())
}
