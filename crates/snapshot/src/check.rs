//! Checking a snapshot: reads everything, and hashes it again from the leaves up.
//!
//! ```text
//!   each page   its leaves hash to its reference in the index, and to its own digests
//!   each shard  its pages' references hash to its root, and the roots to the state root
//!   each code   its bytes hash to its name, and all code that accounts name is present
//! ```

use crate::{
    base::{
        error::StateError,
        hashing::hash_tries,
        kept_storage::KeptStorage,
        layout::{decode_digests, decode_leaf, shard_prefix, subtrie_of},
        pool,
    },
    index::without_cached_refs,
    merge::{NamedPage, NamedPages},
    pages::ReadCause,
    read::snapshot::Snapshot,
};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::keccak256;
use cambium_primitives::{Account, STORAGE_ROOT_KEY};
use cambium_store::{Codes, Page};
use cambium_trie::{LeafValue, Link, PartialTrie, SHARDS};
use rayon::prelude::*;
use std::sync::Arc;

/// Progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckProgress {
    /// The accounts and slots of the snapshot are being checked.
    State {
        /// Number of shards checked, of 256.
        parts: usize,
        /// Number of accounts and slots checked.
        leaves: u64,
    },
    /// The contract codes are being checked.
    Codes {
        /// Number of codes checked.
        done: usize,
        /// Total number of codes.
        of: usize,
    },
    /// The blocks of the log are being checked.
    Blocks {
        /// Number of blocks checked.
        done: u64,
        /// Total number of blocks to check.
        of: u64,
    },
}

/// Result of a check. The database is intact if `damage` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of accounts read from the snapshot.
    pub accounts: u64,
    /// Number of slots read from the snapshot.
    pub slots: u64,
    /// Number of entries of a key-value database read from the snapshot.
    pub entries: u64,
    /// Number of pages read and hashed.
    pub pages: u64,
    /// Number of codes whose bytes have the right hash.
    pub codes: u64,
    /// Number of long values of a key-value database whose bytes were read.
    pub values: u64,
    /// Number of canonical blocks read from the log.
    pub blocks: u64,
    /// Descriptions of the damage, each with the file or the path: at most the first
    /// [`CheckReport::DAMAGE_MAX`].
    pub damage: Vec<String>,
    /// Number of further findings of damage, which are not described.
    pub more_damage: u64,
}

impl CheckReport {
    /// Maximum number of descriptions in `damage`.
    pub const DAMAGE_MAX: usize = 1000;

    /// Adds a description of damage, or only counts it if there are enough. One that is there already
    /// is not added: several checks may meet the same damage.
    pub fn damage(&mut self, what: impl ToString) {
        let what = what.to_string();
        if self.damage.contains(&what) {
            return;
        }
        match self.damage.len() < Self::DAMAGE_MAX {
            true => self.damage.push(what),
            false => self.more_damage += 1,
        }
    }
}

/// Number of pages that are read in one batch, and then hashed in parallel.
const PAGES_AT_ONCE: usize = 256;

/// Result of checking one page.
#[derive(Default)]
struct CheckedPage {
    /// Number of accounts in the page.
    accounts: u64,
    /// Number of slots in the page.
    slots: u64,
    /// Number of entries in the page.
    entries: u64,
    /// Descriptions of damage.
    wrong: Vec<String>,
}

/// Reads all pages of `snapshot`, hashes the state from its leaves, and compares the state root.
/// Also checks that `codes` contains the code of each account, and that a partial database has the slots of the contracts
/// in `kept`, and of others the storage roots. Adds counts and damage to `report`.
pub fn check_state(
    snapshot: &Snapshot,
    codes: &Codes,
    kept: Option<&KeptStorage>,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) {
    let mut tops = Vec::with_capacity(SHARDS);
    for shard in 0..SHARDS {
        match check_shard(snapshot, codes, kept, shard, report) {
            Ok(top) => tops.extend(top),
            Err(error) => report.damage(error),
        }
        let leaves = report.accounts + report.slots + report.entries;
        progress(CheckProgress::State {
            parts: shard + 1,
            leaves,
        });
    }
    if tops.len() == SHARDS {
        let top_levels = cambium_trie::top_levels(&tops.iter().collect::<Vec<_>>()).ok();
        let root = top_levels.and_then(|top_levels| top_levels.state_root());
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

/// Checks the pages of a shard, and the index above them. Returns the shard's root node over
/// blinded children, or `None` if the root node is in a page that can't be read.
fn check_shard(
    snapshot: &Snapshot,
    codes: &Codes,
    kept: Option<&KeptStorage>,
    shard: usize,
    report: &mut CheckReport,
) -> Result<Option<PartialTrie>, StateError> {
    let index = snapshot.index.whole(shard)?;
    let counters = &*snapshot.pages.counters;
    let mut top = PartialTrie::new(shard_prefix(shard)).committed_by(index.commitment());
    let mut root = None;
    let mut pages = NamedPages::new(&index);
    loop {
        let named = pages.next_batch(PAGES_AT_ONCE, |account| {
            report.accounts += 1;
            if let Some(missing) = missing_code(account, codes) {
                report.damage(missing);
            }
        });
        if named.is_empty() {
            break;
        }
        let stubs: Vec<_> = named.iter().map(|one| (&one.stub, one.prefix)).collect();
        let pages = snapshot.pages.read_batch(&stubs, ReadCause::Check);
        let check = |(named, page): (&NamedPage, Result<Arc<Page>, StateError>)| {
            let page = page?;
            let (trie, root) = subtrie_of(&page, false, index.commitment(), counters)?;
            let mut checked = named.check(&page, &trie, root, codes)?;
            if let Some(kept) = kept {
                checked.wrong.extend(misplaced_slots(kept, &page));
            }
            // The top levels of the trie need the root node itself, which is in the page if the
            // shard is a single page.
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
                    report.entries += checked.entries;
                    checked.wrong.iter().for_each(|wrong| report.damage(wrong));
                    root = root.or(of_shard);
                }
                Err(error) => report.damage(error),
            }
        }
    }
    report.slots += pages.slots();
    let mut bare = without_cached_refs(&index)?;
    hash_tries(&mut [&mut bare], counters);
    let reference = |trie: &PartialTrie| Some(trie.as_stub(trie.root())?.node);
    if reference(&bare) != reference(snapshot.index.top(shard)) {
        let prefix = shard_prefix(shard);
        let what = "its pages hash to another root than that in the index";
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

/// Reads all codes, and compares the hashes of their bytes. Adds counts and damage to `report`.
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
            Ok(Some(_)) => report.damage(format!("code {hash}: its bytes have another hash")),
            Ok(None) => report.damage(StateError::MissingCode(hash)),
            Err(error) => report.damage(error),
        }
        progress(CheckProgress::Codes { done: done + 1, of });
    }
}

impl NamedPage {
    /// Compares a page's digests, and its reference and owner in the index, with its leaves. `trie`
    /// is hashed from the leaves alone, and `root` is its root.
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
            let what = "its leaves hash to another reference than that in the index";
            let wrong = format!("page {place:#x} of {prefix}: {what}");
            checked.wrong.push(wrong);
        }
        for (path, digest) in decode_digests(page)? {
            let node = trie.find_from(root, prefix.len(), &path);
            let node = node.and_then(|link| trie.cached_ref(link));
            if node != Some(digest) {
                let what = format!("its cached reference of {path} is wrong");
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
                LeafValue::Entry(_) => checked.entries += 1,
                // A page contains whole subtries, so an account's storage is in the same page.
                LeafValue::Storage(_) => {}
            }
        }
        if let Some(owner) = &self.owner {
            let mut value = Vec::new();
            owner.encode_to(&mut value);
            if page.owner() != Some(&value) {
                let what = "its copy of the account differs from that in the index";
                checked
                    .wrong
                    .push(format!("page {place:#x} of {prefix}: {what}"));
            }
        }
        Ok(checked)
    }
}

/// Slots of a partial database that are not kept, and storage roots in place of slots that are.
fn misplaced_slots(kept: &KeptStorage, page: &Page) -> Vec<String> {
    let wrong = page.leaves().filter_map(|(path, _)| {
        let (account, slot) = (path.account_part()?, path.slot_part()?);
        let is_root = slot == STORAGE_ROOT_KEY;
        match (kept.keeps(&account), is_root) {
            (true, false) | (false, true) => None,
            (true, true) => Some(format!(
                "the storage of the account with address hash {account} is to be kept, and only its root is there"
            )),
            (false, false) => Some(format!(
                "the storage of the account with address hash {account} is not to be kept, and slot {slot} is there"
            )),
        }
    });
    wrong.collect()
}

/// Returns the error for an account whose code is missing.
fn missing_code(account: &Account, codes: &Codes) -> Option<StateError> {
    let hash = account.code_hash;
    let is_there = hash == KECCAK256_EMPTY || codes.contains(&hash);
    (!is_there).then_some(StateError::MissingCode(hash))
}
