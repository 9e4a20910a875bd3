//! Checking a snapshot: everything is read and hashed again, from the leaves up.
//!
//! ```text
//!   each page   its leaves hash to what the index has of it, and to what it has cached itself
//!   each shard  its pages' references hash to its root, and the roots to the state root
//!   each code   its bytes have its hash, and those that accounts name are there
//! ```

use crate::{
    base::{
        error::StateError,
        hashing::hash,
        layout::{decode_leaf, digests_of, shard_prefix, subtrie_of},
        pool,
    },
    index::without_cached_refs,
    merge::first_page,
    pages::ReadFor,
    read::snapshot::Snapshot,
};
use alloy_primitives::keccak256;
use cambium_primitives::{Account, KECCAK_EMPTY, Path};
use cambium_store::{Codes, Page};
use cambium_trie::{LeafValue, Link, NodeView, PartialTrie, SHARDS, Stub};
use rayon::prelude::*;
use std::sync::Arc;

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckProgress {
    /// So many of the 256 parts of the snapshot are checked, with so many leaves.
    State {
        /// Parts done.
        parts: usize,
        /// Leaves seen.
        leaves: u64,
    },
    /// So many codes are checked, of so many.
    Codes {
        /// Codes done.
        done: usize,
        /// All of them.
        of: usize,
    },
    /// So many blocks of the log are checked, of so many.
    Blocks {
        /// Blocks done.
        done: u64,
        /// All of them.
        of: u64,
    },
}

/// What a check found. The database is sound if `damage` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Accounts in the snapshot.
    pub accounts: u64,
    /// Slots in the snapshot.
    pub slots: u64,
    /// Pages read.
    pub pages: u64,
    /// Codes hashed.
    pub codes: u64,
    /// Canonical blocks read from the log.
    pub blocks: u64,
    /// What is wrong, in words that name the file or the path: the first
    /// [`CheckReport::DAMAGE_MAX`] of it.
    pub damage: Vec<String>,
    /// How much more is.
    pub more_damage: u64,
}

impl CheckReport {
    /// So much of what is wrong is told in words.
    pub const DAMAGE_MAX: usize = 1000;

    /// Notes something that is wrong.
    pub fn damage(&mut self, what: impl ToString) {
        match self.damage.len() < Self::DAMAGE_MAX {
            true => self.damage.push(what.to_string()),
            false => self.more_damage += 1,
        }
    }
}

/// Pages that are read, and then hashed on all cores, at once.
const PAGES_AT_ONCE: usize = 256;

/// What is held against one page.
#[derive(Default)]
struct CheckedPage {
    accounts: u64,
    slots: u64,
    wrong: Vec<String>,
}

/// A page by the index.
struct NamedPage {
    stub: Stub,
    prefix: Path,
    /// The account of which this is the first page, if its leaf is in the index.
    owner: Option<Account>,
}

/// Reads all pages of `snapshot`, hashes the state from its leaves, and compares its root. The
/// codes of its accounts must be among `codes`.
pub fn check_state(
    snapshot: &Snapshot,
    codes: &Codes,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) {
    let mut tops = Vec::with_capacity(SHARDS);
    for shard in 0..SHARDS {
        match check_shard(snapshot, codes, shard, report) {
            Ok(top) => tops.extend(top),
            Err(error) => report.damage(error),
        }
        let leaves = report.accounts + report.slots;
        progress(CheckProgress::State {
            parts: shard + 1,
            leaves,
        });
    }
    if tops.len() == SHARDS {
        let crown = cambium_trie::crown(&tops.iter().collect::<Vec<_>>());
        let root = crown.ok().and_then(|crown| crown.state_root());
        if root != Some(snapshot.state_root) {
            let (block, expected) = (snapshot.block, snapshot.state_root);
            let got = root.unwrap_or_default();
            report.damage(StateError::WrongRoot {
                block,
                got,
                expected,
            });
        }
    }
}

/// Checks the pages of a shard, and its part of the index over them. Returns its root as a
/// crown is made from it, unless it is in a page that can't be read.
fn check_shard(
    snapshot: &Snapshot,
    codes: &Codes,
    shard: usize,
    report: &mut CheckReport,
) -> Result<Option<PartialTrie>, StateError> {
    let index = snapshot.index.whole(shard)?;
    let counters = &*snapshot.pages.counters;
    let mut top = PartialTrie::new(shard_prefix(shard));
    let mut root = None;
    let named = named_pages(&index, codes, report);
    for named in named.chunks(PAGES_AT_ONCE) {
        let stubs: Vec<_> = named.iter().map(|one| (&one.stub, one.prefix)).collect();
        let pages = snapshot.pages.read_batch(&stubs, ReadFor::Check);
        let check = |(named, page): (&NamedPage, Result<Arc<Page>, StateError>)| {
            let page = page?;
            let (trie, root) = subtrie_of(&page, false, counters)?;
            let checked = named.check(&page, &trie, root, codes)?;
            // Of a shard that is all in one page the crown needs the root itself.
            let is_root = named.prefix == *index.base();
            Ok((checked, is_root.then_some((trie, root))))
        };
        let checked: Vec<Result<_, StateError>> =
            pool::install(|| named.par_iter().zip(pages).map(check).collect());
        for checked in checked {
            match checked {
                Ok((checked, of_shard)) => {
                    report.pages += 1;
                    report.accounts += checked.accounts;
                    report.slots += checked.slots;
                    checked.wrong.iter().for_each(|wrong| report.damage(wrong));
                    root = root.or(of_shard);
                }
                Err(error) => report.damage(error),
            }
        }
    }
    let mut bare = without_cached_refs(&index)?;
    hash(&mut [&mut bare], counters);
    let reference = |trie: &PartialTrie| Some(trie.as_stub(trie.root())?.node);
    if reference(&bare) != reference(snapshot.index.top(shard)) {
        let prefix = shard_prefix(shard);
        let what = "its pages hash to another root than the index has";
        report.damage(format!("state below {prefix}: {what}"));
    }
    let link = match (bare.root().is_stub(), root) {
        (false, _) => top.graft_node(&bare, bare.root())?,
        (true, Some((trie, root))) => top.graft_node(&trie, root)?,
        (true, None) => return Ok(None),
    };
    top.set_root(link);
    Ok(Some(top))
}

/// The pages that a shard names, in the order of their prefixes. Accounts whose leaves are in
/// the index are checked.
fn named_pages(index: &PartialTrie, codes: &Codes, report: &mut CheckReport) -> Vec<NamedPage> {
    let mut named = Vec::new();
    let mut owner = None;
    let mut todo: Vec<(Link, Path)> = vec![(index.root(), *index.base())];
    while let Some((link, at)) = todo.pop() {
        match index.visit(link) {
            NodeView::Empty => {}
            NodeView::Stub(stub) => named.push(NamedPage {
                stub: *stub,
                prefix: at,
                owner: owner
                    .take_if(|(first, _)| *first == link)
                    .map(|(_, owner)| owner),
            }),
            NodeView::Branch { children } => {
                let nibbles = children.iter().zip(0u8..16).rev();
                let there = nibbles.filter(|(child, _)| !child.is_empty());
                todo.extend(there.map(|(child, nibble)| (*child, at.child(nibble))));
            }
            NodeView::Extension { path, child } => todo.push((child, at.join(&path))),
            NodeView::Account {
                key,
                account,
                storage,
                ..
            } => {
                report.accounts += 1;
                if let Some(missing) = missing_code(&account, codes) {
                    report.damage(missing);
                }
                let path = Path::account(&key);
                let first = first_page(index, storage, &path);
                owner = first.map(|(first, _)| (first, account));
                todo.push((storage, path));
            }
            NodeView::Slot { .. } => report.slots += 1,
        }
    }
    named
}

/// Holds each code's bytes against its hash.
pub fn check_codes(
    codes: &Codes,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) {
    let hashes = codes.hashes();
    let of = hashes.len();
    for (done, hash) in hashes.into_iter().enumerate() {
        match codes.get(&hash) {
            Ok(Some(code)) if keccak256(&code) == hash => report.codes += 1,
            Ok(Some(_)) => report.damage(format!("code {hash}: its bytes hash to another")),
            Ok(None) => report.damage(StateError::MissingCode(hash)),
            Err(error) => report.damage(error),
        }
        progress(CheckProgress::Codes { done: done + 1, of });
    }
}

impl NamedPage {
    /// Holds a page against what the index has of it, and against its leaves, of which `trie` is.
    fn check(
        &self,
        page: &Page,
        trie: &PartialTrie,
        root: Link,
        codes: &Codes,
    ) -> Result<CheckedPage, StateError> {
        let mut checked = CheckedPage::default();
        let prefix = &self.prefix;
        let place = self.stub.place.map_or(0, |place| place.get());
        let got = trie.as_stub(root).map(|root| root.node);
        if got != Some(self.stub.node) {
            let what = "its leaves hash to another reference than the index has";
            let wrong = format!("page {place:#x} of {prefix}: {what}");
            checked.wrong.push(wrong);
        }
        for (path, digest) in digests_of(page)? {
            let node = trie.find_from(root, prefix.len(), &path);
            let node = node.and_then(|link| trie.memo(link));
            if node != Some(digest) {
                let what = format!("the reference that it has cached for {path} is wrong");
                checked
                    .wrong
                    .push(format!("page {place:#x} of {prefix}: {what}"));
            }
        }
        for (path, bytes) in page.leaves() {
            match decode_leaf(&path, bytes)? {
                LeafValue::Account(account) => {
                    checked.accounts += 1;
                    let missing = missing_code(&account, codes);
                    checked.wrong.extend(missing.map(|error| error.to_string()));
                }
                LeafValue::Slot(_) => checked.slots += 1,
                // Pages hold whole subtries: an account in one has its storage beside it.
                LeafValue::Storage(_) => {}
            }
        }
        if let Some(owner) = &self.owner {
            let mut value = Vec::new();
            owner.encode_to(&mut value);
            if page.owner() != Some(&value) {
                let what = "its copy of the account is not what the index has";
                checked
                    .wrong
                    .push(format!("page {place:#x} of {prefix}: {what}"));
            }
        }
        Ok(checked)
    }
}

/// What is wrong with an account whose code is not there.
fn missing_code(account: &Account, codes: &Codes) -> Option<StateError> {
    let hash = account.code_hash;
    let is_there = hash == KECCAK_EMPTY || codes.contains(&hash);
    (!is_there).then_some(StateError::MissingCode(hash))
}
