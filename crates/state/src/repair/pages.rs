//! Pages that can't be read, made again from what the log and older pages tell.
//!
//! A page is the subtrie of a state: all leaves under its prefix. Of a leaf that any block has
//! written, the log has the value; of others an older page may, if its segment is still there. The
//! index has the hash of the subtrie: what is put together has that hash, or it is of no use.

use super::report::{Repair, whole};
use crate::log::{log_state::ReadCheckpoint, records::BlockRecord};
use alloy_primitives::B256;
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, AccountUpdate, BlockId, Changes, KECCAK_EMPTY, Path, SlotValue,
};
use cambium_snapshot::{
    Counters, IndexWriter, PartCache, StateError, checkpoint, decode_leaf, first_page, page_addr,
    place, subtrie_of,
};
use cambium_store::{BlockIndex, BlockLog, Codes, Manifest, Page, PageAddr, PageBuilder, Segments};
use cambium_trie::{LeafValue, Link, NodeView, PartialTrie, SHARDS, Stub};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// Pages that are read at once.
const PAGES_AT_ONCE: usize = 1024;
/// So many lost pages are made again in one go through the log.
const LOST_AT_ONCE: usize = 16 << 10;

/// What the pages are of.
pub(super) struct State<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) log: &'a BlockLog,
    pub(super) blocks: &'a BlockIndex,
    pub(super) genesis: BlockId,
    /// If some were lost: those that there are now.
    pub(super) codes: Option<Codes>,
    /// Those that accounts had once and that were lost.
    pub(super) missing_codes: HashSet<B256>,
    pub(super) read: ReadCheckpoint,
}

/// A page that can't be read.
struct Lost {
    prefix: Path,
    stub: Stub,
    /// The account whose first page this is, if its leaf is in the index.
    owner: Option<Account>,
    why: String,
}

/// Leaves under the prefixes of lost pages.
struct Leaves<'a> {
    /// In the order of their prefixes.
    lost: &'a [Lost],
    /// What the log says: `None` for a leaf that is gone.
    written: BTreeMap<Path, Option<Vec<u8>>>,
    /// What older pages say, the newest of them.
    older: BTreeMap<Path, Vec<u8>>,
    /// Accounts whose storage was cleared.
    wiped: HashSet<B256>,
}

impl Repair<'_> {
    /// Looks at all pages. Those that can't be read are made again where that can be.
    pub(super) fn pages(
        &mut self,
        segments: &Segments,
        state: State<'_>,
    ) -> Result<(), StateError> {
        let mut looked = Looked {
            codes: state.codes.as_ref(),
            lost: Vec::new(),
            missing_codes: state.missing_codes.clone(),
        };
        for shard in 0..SHARDS {
            self.tell("pages", shard as u64, SHARDS as u64);
            let (index, _) = whole(&state.read.index, shard)?;
            looked.look_at(&index, segments)?;
        }
        let Looked {
            lost,
            missing_codes,
            ..
        } = looked;
        if let Some(first) = missing_codes.iter().min() {
            let damage = match missing_codes.len() {
                1 => format!("code {first} is missing"),
                all => format!("{all} codes are missing, code {first} one of them"),
            };
            let remedy = "given when the database was made, and since then in codes.dat alone: \
                          restore that from a copy, or import the chain, from its first block, into \
                          a new directory";
            self.found(damage, remedy, false);
        }
        if lost.is_empty() {
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
                if let Some(page) = leaves.page_of(one)? {
                    made.insert(one.prefix, page);
                }
            }
        }
        let (mended, left): (Vec<_>, Vec<_>) = lost
            .iter()
            .partition(|lost| made.contains_key(&lost.prefix));
        if let Some(first) = mended.first() {
            let more = more_than(&mended);
            let remedy = "made again from the changes that the log has";
            self.found(format!("{}{more}", first.why), remedy, true);
        }
        if let Some(first) = left.first() {
            let more = more_than(&left);
            let remedy = "what was written there before the first block of the log, and never \
                          since, is in no other file: accounts and slots of these pages can't be \
                          read. Restore the directory from a copy, or import the chain, from its \
                          first block, into a new one";
            self.found(format!("{}{more}", first.why), remedy, false);
        }
        if made.is_empty() {
            return Ok(());
        }
        let dead: Vec<_> = mended
            .iter()
            .filter_map(|lost| Some(page_addr(lost.stub.place?)))
            .collect();
        self.put_pages(segments, state, &made, &dead)
    }

    /// What older pages have of the leaves: dead ones, of segments that are still there.
    fn older_pages(
        &mut self,
        segments: &Segments,
        leaves: &mut Leaves<'_>,
    ) -> Result<(), StateError> {
        let mut all = segments.live();
        all.sort_unstable_by_key(|segment| segment.sequence);
        let of = all.len() as u64;
        for (done, segment) in all.iter().enumerate() {
            self.tell("older pages", done as u64, of);
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

    /// What the blocks of the canonical chain, up to the state's, have written of the leaves.
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
                self.tell("changes in the log", number - first, last - first);
            }
            let Some(entry) = state.blocks.get(number)? else {
                continue;
            };
            // A block that is lost may have written some of them: their hash tells.
            let Ok(record) = state.log.read(entry.position) else {
                continue;
            };
            if let Ok(block) = BlockRecord::decode(&record.payload) {
                leaves.take(&block.changes);
            }
        }
        Ok(())
    }

    /// Appends pages, and writes a checkpoint whose index has them.
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
        let parts = PartCache::new(self.options.index_bytes_max(), counters);
        let (disk, parts) = (self.disk.clone(), Arc::new(parts));
        let writer = IndexWriter::whole(disk, Arc::default(), parts, None, false)?;
        for shard in 0..SHARDS {
            let (mut trie, pages) = whole(&index, shard)?;
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
            writer.put(shard, trie, pages)?;
        }
        // The checkpoint before this one names the pages that could not be read.
        let retired = [&retired[..], dead].concat();
        let table = segments.encode_table(&[]);
        checkpoint::write_whole(writer, &meta, table, state.manifest, &retired)?;
        Ok(())
    }
}

fn more_than(lost: &[&Lost]) -> String {
    match lost.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more pages can't be read"),
    }
}

/// What a look at all pages finds.
struct Looked<'a> {
    /// Codes to hold accounts against.
    codes: Option<&'a Codes>,
    lost: Vec<Lost>,
    missing_codes: HashSet<B256>,
}

impl Looked<'_> {
    fn account(&mut self, account: &Account) {
        let hash = account.code_hash;
        let is_missing = |codes: &Codes| hash != KECCAK_EMPTY && !codes.contains(&hash);
        if self.codes.is_some_and(is_missing) {
            self.missing_codes.insert(hash);
        }
    }

    /// Looks at the pages of a shard, in the order of their prefixes.
    fn look_at(&mut self, index: &PartialTrie, segments: &Segments) -> Result<(), StateError> {
        let mut named: Vec<(Stub, Path, Option<Account>)> = Vec::new();
        let mut owner: Option<(Link, Account)> = None;
        let mut todo = vec![(index.root(), *index.base())];
        while let Some((link, at)) = todo.pop() {
            match index.visit(link) {
                NodeView::Stub(stub) => {
                    let first = owner.take_if(|(first, _)| *first == link);
                    named.push((*stub, at, first.map(|(_, owner)| owner)));
                }
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
                    self.account(&account);
                    let path = Path::account(&key);
                    let first = first_page(index, storage, &path);
                    owner = first.map(|(first, _)| (first, account));
                    todo.push((storage, path));
                }
                NodeView::Slot { .. } | NodeView::Empty => {}
            }
        }
        for named in named.chunks(PAGES_AT_ONCE) {
            let placed = named.iter().filter_map(|(stub, ..)| stub.place);
            let addrs: Vec<_> = placed.map(page_addr).collect();
            for ((stub, prefix, owner), read) in named.iter().zip(segments.read_batch(&addrs)) {
                let why = match read {
                    Ok(page) if page.prefix() == prefix => {
                        self.accounts(&page)?;
                        continue;
                    }
                    Ok(_) => format!("the page of {prefix} is not where the index has it"),
                    Err(error) if error.is_corruption() => error.to_string(),
                    Err(error) => return Err(error.into()),
                };
                self.lost.push(Lost {
                    prefix: *prefix,
                    stub: *stub,
                    owner: *owner,
                    why,
                });
            }
        }
        Ok(())
    }

    /// Holds the accounts of a page against the codes, if some were lost.
    fn accounts(&mut self, page: &Page) -> Result<(), StateError> {
        if self.codes.is_none() {
            return Ok(());
        }
        for (path, bytes) in page.leaves() {
            if let LeafValue::Account(account) = decode_leaf(&path, bytes)? {
                self.account(&account);
            }
        }
        Ok(())
    }
}

impl Leaves<'_> {
    /// Whether a leaf is in a lost page.
    fn is_lost(&self, path: &Path) -> bool {
        let next = self.lost.partition_point(|lost| lost.prefix <= *path);
        let Some(lost) = next.checked_sub(1).map(|at| &self.lost[at]) else {
            return false;
        };
        // At an account's path is its storage: its own leaf is in the index then.
        let is_storage = lost.prefix.len() >= ACCOUNT_NIBBLES;
        path.starts_with(&lost.prefix) && (!is_storage || path.len() > ACCOUNT_NIBBLES)
    }

    /// Takes what a block has written. Blocks come in order.
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
                let value = match change.account {
                    AccountUpdate::Keep => None,
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

    /// The page in the place of a lost one, if the leaves have the hash that it had.
    fn page_of(&self, lost: &Lost) -> Result<Option<Page>, StateError> {
        let prefix = &lost.prefix;
        let under = |path: &Path| path.starts_with(prefix) && self.is_lost(path);
        let mut leaves: BTreeMap<Path, &[u8]> = BTreeMap::new();
        for (path, value) in self.older.range(*prefix..) {
            if !path.starts_with(prefix) {
                break;
            }
            // One that came back after its storage was cleared was written then.
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
        // Without their account slots make no subtrie.
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
        let hashed = subtrie_of(&page, false, &Counters::default());
        let node = hashed.ok().and_then(|(trie, root)| trie.as_stub(root));
        Ok((node.map(|stub| stub.node) == Some(lost.stub.node)).then_some(page))
    }
}
