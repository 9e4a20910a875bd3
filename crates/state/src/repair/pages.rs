//! Repair of unreadable pages from the changes in the log and from older pages, and of parts of an index on disk from pages.
//!
//! A page is a subtrie of the state: all leaves under its prefix. The log has the leaves that any
//! block has written; older pages, in segments that are still there, may have the others. The index
//! has the hash of the subtrie, and a restored page counts only if it has that hash.

use super::report::{Repair, whole};
use crate::log::{log_state::ReadCheckpoint, records::BlockRecord};
use alloy_primitives::B256;
use alloy_primitives::KECCAK256_EMPTY;
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, AccountUpdate, BlockId, Changes, Path, SlotValue,
};
use cambium_snapshot::{
    Counters, IndexWriter, LoadedIndex, NamedPage, NamedPages, PartCache, StateError,
    addr_of_place, checkpoint, decode_leaf, place, restore_parts, shard_of, subtrie_of,
};
use cambium_store::{BlockIndex, BlockLog, Codes, Manifest, Page, PageAddr, PageBuilder, Segments};
use cambium_trie::{Commitment, LeafValue, PartialTrie, SHARDS, Stub};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

/// Pages that are read in one batch.
const PAGES_AT_ONCE: usize = 1024;
/// Most lost pages that are restored in one pass through the log.
const LOST_AT_ONCE: usize = 16 << 10;

/// The state whose pages are repaired, and the files that it is restored from.
pub(super) struct State<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) log: &'a BlockLog,
    pub(super) blocks: &'a BlockIndex,
    pub(super) genesis: BlockId,
    /// The codes that can be read, restored ones among them.
    pub(super) codes: Codes,
    /// Codes that accounts had and that are lost.
    pub(super) missing_codes: HashSet<B256>,
    pub(super) read: ReadCheckpoint,
}

/// Damaged parts of an index whose parts are in the segments.
#[derive(Default)]
struct Parts {
    is_any_restored: bool,
    /// Shards of those that could not be restored.
    left: BTreeSet<usize>,
}

/// An unreadable page.
struct LostPage {
    prefix: Path,
    stub: Stub,
    /// The account whose first storage page this is, if its leaf is in the index.
    owner: Option<Account>,
    why: String,
}

/// Leaves under the prefixes of lost pages, with their newest known values.
struct Leaves<'a> {
    /// Sorted by their prefixes.
    lost: &'a [LostPage],
    /// Leaves that blocks in the log have written; `None` for a deleted leaf.
    written: BTreeMap<Path, Option<Vec<u8>>>,
    /// Leaves in older pages, each from the newest such page.
    older: BTreeMap<Path, Vec<u8>>,
    /// Accounts whose storage a block of the log has wiped.
    wiped: HashSet<B256>,
}

impl Repair<'_> {
    /// Checks all pages, and restores unreadable ones where possible.
    pub(super) fn pages(
        &mut self,
        segments: &Segments,
        mut state: State<'_>,
    ) -> Result<(), StateError> {
        let parts = self.parts(segments, &mut state)?;
        let mut scan = PageScan {
            codes: &state.codes,
            lost: Vec::new(),
            missing_codes: state.missing_codes.clone(),
        };
        for shard in 0..SHARDS {
            self.report_step("pages", shard as u64, SHARDS as u64);
            if parts.left.contains(&shard) {
                continue;
            }
            let (index, _) = whole(&state.read.index, shard, segments)?;
            scan.scan_shard(&index, segments)?;
        }
        let PageScan {
            lost,
            missing_codes,
            ..
        } = scan;
        if let Some(first) = missing_codes.iter().min() {
            let damage = match missing_codes.len() {
                1 => format!("code {first} is missing"),
                all => format!("{all} codes are missing, code {first} one of them"),
            };
            let remedy = "loaded when the database was created, and in no file but codes.dat: \
                          restore that from a copy, or import the chain, from its first block, into \
                          a new directory";
            self.add_finding(damage, remedy, false);
        }
        if !parts.left.is_empty() {
            // A new checkpoint would have to name what is below the lost parts.
            if let Some(first) = lost.first() {
                let more = more_than(&lost.iter().collect::<Vec<_>>());
                let remedy = "not restored, since parts of the index above other pages are lost";
                self.add_finding(format!("{}{more}", first.why), remedy, false);
            }
            return Ok(());
        }
        if lost.is_empty() && !parts.is_any_restored {
            return Ok(());
        }
        let mut made = BTreeMap::new();
        for lost in lost.chunks(LOST_AT_ONCE) {
            let mut leaves = Leaves {
                lost,
                written: BTreeMap::new(),
                older: BTreeMap::new(),
                wiped: HashSet::new(),
            };
            self.older_pages(segments, &mut leaves)?;
            self.written_leaves(&state, &mut leaves)?;
            for one in lost {
                if let Some(page) = leaves.page_of(one, self.options.commitment)? {
                    made.insert(one.prefix, page);
                }
            }
        }
        let (mended, left): (Vec<_>, Vec<_>) = lost
            .iter()
            .partition(|lost| made.contains_key(&lost.prefix));
        if let Some(first) = mended.first() {
            let more = more_than(&mended);
            let remedy = "restored from the changes in the log";
            self.add_finding(format!("{}{more}", first.why), remedy, true);
        }
        if let Some(first) = left.first() {
            let more = more_than(&left);
            let remedy = "no block in the log has written all of their leaves, and no older page \
                          has the others: accounts and slots of these pages can't be read. \
                          Restore the directory from a copy, or import the chain, from its first \
                          block, into a new one";
            self.add_finding(format!("{}{more}", first.why), remedy, false);
        }
        if made.is_empty() && !parts.is_any_restored {
            return Ok(());
        }
        let dead: Vec<_> = mended
            .iter()
            .filter_map(|lost| Some(addr_of_place(lost.stub.place?)))
            .collect();
        self.put_pages(segments, state, &made, &dead)
    }

    /// Restores the damaged parts of an index whose parts are in the segments, in memory.
    fn parts(&mut self, segments: &Segments, state: &mut State<'_>) -> Result<Parts, StateError> {
        let mut parts = Parts::default();
        let LoadedIndex::InSegments(index) = &mut state.read.index else {
            return Ok(parts);
        };
        let mut lost = Vec::new();
        for shard in 0..SHARDS {
            self.report_step("parts of the index", shard as u64, SHARDS as u64);
            lost.extend(index.lost_parts(shard, segments)?);
        }
        if lost.is_empty() {
            return Ok(parts);
        }
        let (retired, commitment) = (&state.read.retired, self.options.commitment);
        let made = restore_parts(&lost, segments, retired, commitment)?;
        for (lost, made) in lost.iter().zip(made) {
            match made {
                Some(trie) => {
                    index.restore(lost, &trie);
                    parts.is_any_restored = true;
                    self.add_finding(&lost.why, "restored from the pages below it", true);
                }
                None => {
                    parts.left.insert(shard_of(&lost.path));
                    let remedy = "the pages in the segments do not make what was there: accounts and slots below it \
                                  can't be read. Restore the directory from a copy, or import the chain, from its first \
                                  block, into a new one";
                    self.add_finding(&lost.why, remedy, false);
                }
            }
        }
        Ok(parts)
    }

    /// Reads the lost leaves from older pages, in all segments that are still there.
    fn older_pages(
        &mut self,
        segments: &Segments,
        leaves: &mut Leaves<'_>,
    ) -> Result<(), StateError> {
        let mut all = segments.live();
        all.sort_unstable_by_key(|segment| segment.sequence);
        let of = all.len() as u64;
        for (done, segment) in all.iter().enumerate() {
            self.report_step("older pages", done as u64, of);
            let scan = segments.scan(segment.segment, 0).into_iter().flatten();
            for (_, page) in scan.filter_map(Result::ok) {
                for (path, value) in page.leaves() {
                    if leaves.is_lost(&path) {
                        leaves.older.insert(path, value.to_vec());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the lost leaves from the changes of the canonical chain, up to the block of the pages.
    fn written_leaves(
        &mut self,
        state: &State<'_>,
        leaves: &mut Leaves<'_>,
    ) -> Result<(), StateError> {
        let meta = &state.read.meta;
        let first = state.genesis.number.max(meta.log.kept.lowest);
        let last = meta.state.block.number;
        for number in first + 1..=last {
            if number % 100 == 0 {
                self.report_step("changes in the log", number - first, last - first);
            }
            let Some(entry) = state.blocks.get(number)? else {
                continue;
            };
            // If a lost block has written some of the leaves, the page's hash won't match.
            let Ok(record) = state.log.read(entry.position) else {
                continue;
            };
            if let Ok(block) = BlockRecord::decode(&record.payload) {
                leaves.take(&block.changes);
            }
        }
        Ok(())
    }

    /// Appends pages, and writes a checkpoint whose index names them.
    fn put_pages(
        &mut self,
        segments: &Segments,
        state: State<'_>,
        made: &BTreeMap<Path, Page>,
        dead: &[PageAddr],
    ) -> Result<(), StateError> {
        segments.settle()?;
        let mut places = BTreeMap::new();
        for (prefix, page) in made {
            places.insert(*prefix, place(segments.append(page.as_bytes())?));
        }
        segments.sync()?;
        let ReadCheckpoint {
            meta,
            retired,
            index,
            ..
        } = state.read;
        let counters = Arc::new(Counters::default());
        let parts = PartCache::new(
            self.options.index_bytes_max(),
            self.options.commitment,
            counters,
        );
        let (disk, parts) = (self.disk.clone(), Arc::new(parts));
        let writer = IndexWriter::whole(disk, Arc::default(), parts, None, false)?;
        for shard in 0..SHARDS {
            let (mut trie, pages) = whole(&index, shard, segments)?;
            let base = *trie.base();
            for (prefix, place) in places.range(base..) {
                if !prefix.starts_with(&base) {
                    break;
                }
                let trie = Arc::make_mut(&mut trie);
                let found = trie.find_or_stub(prefix).map(|(link, _)| link);
                if let Some(link) = found.filter(|link| link.is_stub())
                    && let Some(stub) = trie.as_stub(link)
                {
                    let place = Some(*place);
                    trie.set_stub(link, Stub { place, ..stub });
                }
            }
            writer.put(shard, &trie, pages)?;
        }
        // The checkpoint before this one still names the unreadable pages.
        let mut retired = [&retired[..], dead].concat();
        if let LoadedIndex::InSegments(index) = &index {
            retired.extend(index.parts());
        }
        let table = segments.encode_table(&[]);
        checkpoint::write_whole(writer, &meta, table, state.manifest, &retired)?;
        Ok(())
    }
}

/// The end of a message about the first of several lost pages.
fn more_than(lost: &[&LostPage]) -> String {
    match lost.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more pages can't be read"),
    }
}

/// A scan of all pages for unreadable ones.
struct PageScan<'a> {
    /// The codes that accounts may name.
    codes: &'a Codes,
    lost: Vec<LostPage>,
    missing_codes: HashSet<B256>,
}

impl PageScan<'_> {
    /// Checks that the account's code exists. An earlier repair may have left it out.
    fn account(&mut self, account: &Account) {
        let hash = account.code_hash;
        if hash != KECCAK256_EMPTY && !self.codes.contains(&hash) {
            self.missing_codes.insert(hash);
        }
    }

    /// Reads the pages of a shard in the order of their prefixes.
    fn scan_shard(&mut self, index: &PartialTrie, segments: &Segments) -> Result<(), StateError> {
        let mut pages = NamedPages::new(index);
        loop {
            let named = pages.next_batch(PAGES_AT_ONCE, |account| self.account(account));
            if named.is_empty() {
                return Ok(());
            }
            let placed = named.iter().filter_map(|named| named.stub.place);
            let addrs: Vec<_> = placed.map(addr_of_place).collect();
            for (named, read) in named.iter().zip(segments.read_batch(&addrs)) {
                let NamedPage {
                    stub,
                    prefix,
                    owner,
                } = named;
                let why = match read {
                    Ok(page) if page.prefix() == *prefix => {
                        self.accounts(&page)?;
                        continue;
                    }
                    Ok(_) => format!("the page of {prefix} is not where the index has it"),
                    Err(error) if error.is_corruption() => error.to_string(),
                    Err(error) => return Err(error.into()),
                };
                self.lost.push(LostPage {
                    prefix: *prefix,
                    stub: *stub,
                    owner: *owner,
                    why,
                });
            }
        }
    }

    /// Checks that the codes of a page's accounts exist.
    fn accounts(&mut self, page: &Page) -> Result<(), StateError> {
        for (path, bytes) in page.leaves() {
            if let LeafValue::Account(account) = decode_leaf(&path, bytes)? {
                self.account(&account);
            }
        }
        Ok(())
    }
}

impl Leaves<'_> {
    /// Whether a leaf belongs to a lost page.
    fn is_lost(&self, path: &Path) -> bool {
        let next = self.lost.partition_point(|lost| lost.prefix <= *path);
        let Some(lost) = next.checked_sub(1).map(|at| &self.lost[at]) else {
            return false;
        };
        // A page at an account's path has its storage; the account's leaf is in the index.
        let is_storage = lost.prefix.len() >= ACCOUNT_NIBBLES;
        path.starts_with(&lost.prefix) && (!is_storage || path.len() > ACCOUNT_NIBBLES)
    }

    /// Adds the leaves that a block has written. Blocks are added in ascending order.
    fn take(&mut self, changes: &Changes) {
        for change in changes.accounts() {
            let account = Path::account(&change.path);
            let is_gone = change.account == AccountUpdate::Delete;
            if change.wipe || is_gone {
                self.wiped.insert(change.path);
                let first = Path::slot(&change.path, &B256::ZERO);
                let last = Path::slot(&change.path, &B256::repeat_byte(0xff));
                for (_, value) in self.written.range_mut(first..=last) {
                    *value = None;
                }
            }
            if self.is_lost(&account) {
                let value = match &change.account {
                    AccountUpdate::Keep => None,
                    AccountUpdate::Entry(entry) => {
                        let mut value = Vec::new();
                        entry.encode_to(&mut value);
                        Some(Some(value))
                    }
                    AccountUpdate::Put(account) => {
                        let mut value = Vec::new();
                        account.encode_to(&mut value);
                        Some(Some(value))
                    }
                    AccountUpdate::Delete => Some(None),
                };
                if let Some(value) = value {
                    self.written.insert(account, value);
                }
            }
            for (slot, value) in &change.slots {
                let path = Path::slot(&change.path, slot);
                if self.is_lost(&path) {
                    let value = (!value.is_zero()).then(|| SlotValue::new(*value));
                    let value = value.map(|value| value.as_bytes().to_vec());
                    self.written.insert(path, value);
                }
            }
        }
    }

    /// Builds the page in place of a lost one, if its leaves have the right hash.
    fn page_of(&self, lost: &LostPage, commitment: Commitment) -> Result<Option<Page>, StateError> {
        let prefix = &lost.prefix;
        let under = |path: &Path| path.starts_with(prefix) && self.is_lost(path);
        let mut leaves: BTreeMap<Path, &[u8]> = BTreeMap::new();
        for (path, value) in self.older.range(*prefix..) {
            if !path.starts_with(prefix) {
                break;
            }
            // A slot that was set again after the wipe is in `written`.
            let wiped = path.slot_part().and(path.account_part());
            let is_wiped = wiped.is_some_and(|account| self.wiped.contains(&account));
            if under(path) && !is_wiped {
                leaves.insert(*path, value);
            }
        }
        for (path, value) in self.written.range(*prefix..) {
            if !path.starts_with(prefix) {
                break;
            }
            match value {
                Some(value) => _ = leaves.insert(*path, value),
                None => _ = leaves.remove(path),
            }
        }
        // Slots without their account make no subtrie.
        let is_storage = prefix.len() >= ACCOUNT_NIBBLES;
        let accounts: HashSet<_> = leaves
            .keys()
            .filter(|path| path.len() == ACCOUNT_NIBBLES)
            .filter_map(Path::account_part)
            .collect();
        leaves.retain(|path, _| {
            let account = path.account_part();
            is_storage || account.is_some_and(|account| accounts.contains(&account))
        });
        if leaves.is_empty() {
            return Ok(None);
        }
        let mut page = PageBuilder::new(prefix);
        for (path, value) in &leaves {
            if decode_leaf(path, value).is_err() {
                return Ok(None);
            }
            page.leaf(path, value);
        }
        if let Some(owner) = &lost.owner {
            let mut value = Vec::new();
            owner.encode_to(&mut value);
            page.owner(&value);
        }
        let page = page.build();
        let hashed = subtrie_of(&page, false, commitment, &Counters::default());
        let node = hashed.ok().and_then(|(trie, root)| trie.as_stub(root));
        Ok((node.map(|stub| stub.node) == Some(lost.stub.node)).then_some(page))
    }
}
