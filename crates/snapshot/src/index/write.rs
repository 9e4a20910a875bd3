//! Writing an index to a checkpoint, shard by shard in any order.

use super::{
    blocks::{SplitShard, UnopenedBlocks, split},
    files::IndexChain,
    lookup::{Index, Opened, OpenedShard},
    part_ref::PartRef,
    parts::{OpenedParts, PartCache, PartFile, parts_of_top},
    section::{CHANGED, CHANGES, INDEX, PART_BYTES_MAX, TOPS},
    shard::{Shard, copy},
};
use crate::{base::error::StateError, pages::Pages};
use cambium_disk::{Disk, WritePace};
use cambium_primitives::{ACCOUNT_NIBBLES, Path, put_varint};
use cambium_store::{
    CheckpointId, CheckpointWriter, PART_HEAD_BYTES, PIECE_SUM_BYTES, PageAddr, encode_part,
    put_piece,
};
use cambium_trie::{Link, NodeView, PartialTrie, SHARDS, Stub};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use std::{collections::HashSet, sync::Arc};

/// Expanded nodes of a shard that a merge has added, or below which it has changed something.
pub type TouchedNodes = HashSet<Link, FxBuildHasher>;

/// Writes an index to a new checkpoint: the whole index, its changes since the previous one, or its tops, with the parts
/// that have changed in the segments. Any number of threads may add shards.
pub struct IndexWriter<'a> {
    cache: Arc<PartCache>,
    form: Form<'a>,
    state: Mutex<WriterState>,
}

/// What of an index is written.
enum Form<'a> {
    /// All parts, to the checkpoint.
    Whole,
    /// The changes since the previous index.
    Changes(&'a Index),
    /// Parts to the segments: those that the previous index has not, or all if it has its parts elsewhere.
    Segments(Arc<Pages>, &'a Index),
}

/// The part of an [`IndexWriter`] that [`IndexWriter::put`] changes.
struct WriterState {
    checkpoint: CheckpointWriter,
    shards: Vec<Option<WrittenShard>>,
    /// Whether blocks are kept in memory, which they are while the index fits into its limit.
    keeps: bool,
    /// Memory of the blocks written so far, in bytes.
    kept_bytes: u64,
}

/// A shard that [`IndexWriter::put`] has written.
struct WrittenShard {
    /// The top above parts. `None` if only changes are written.
    top: Option<Arc<PartialTrie>>,
    /// The top above blocks. `None` if the index exceeds its memory limit.
    kept: Option<SplitShard>,
    /// Number of pages that the shard names.
    pages: u64,
    /// Offset of its parts or changes in the section, in bytes. 0 if its parts are in the segments.
    offset: u64,
    /// Length of its parts or changes, in bytes.
    len: u64,
}

/// A written index, in a checkpoint whose other sections are still to be written.
pub struct WrittenIndex {
    /// The unfinished checkpoint, which contains only the sections of the index.
    pub checkpoint: CheckpointWriter,
    cache: Arc<PartCache>,
    shards: Vec<Shard>,
    is_resident: bool,
    /// The pages of the segments that its parts are in, if they are there.
    pages: Option<Arc<Pages>>,
    /// Checkpoints of the previous index, if only changes are written.
    before: Option<IndexChain>,
}

impl<'a> IndexWriter<'a> {
    /// Begins a checkpoint with a whole index, after the newest checkpoint of `after`. If that is
    /// `None`, the newest checkpoint is looked up on disk.
    ///
    /// If `is_too_large`, only tops are kept in memory from the start. An index that is too large
    /// stays on disk until the database is opened again, even if it shrinks: its size in memory is
    /// known only when all of it is there.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the checkpoint can't be created.
    pub fn whole(
        disk: Arc<dyn Disk>,
        pace: Arc<WritePace>,
        cache: Arc<PartCache>,
        after: Option<IndexChain>,
        is_too_large: bool,
    ) -> Result<Self, StateError> {
        let after = after.map(|files| files.newest);
        let mut checkpoint = CheckpointWriter::create(disk, after)?.with_pace(pace);
        checkpoint.section(INDEX)?;
        Ok(Self::new(checkpoint, cache, Form::Whole, !is_too_large))
    }

    /// Keeps all older checkpoints: the next one removes them.
    pub(crate) fn keep_older(&mut self) {
        self.state.get_mut().checkpoint.keep_older();
    }

    /// Begins a checkpoint of an index on disk, after that of the index `before`: it gets all tops, and the segments of
    /// `pages` the parts that have changed; all parts, if `before` has its own elsewhere.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the checkpoint can't be created.
    pub fn in_segments(
        disk: Arc<dyn Disk>,
        pages: Arc<Pages>,
        cache: Arc<PartCache>,
        before: &'a Index,
    ) -> Result<Self, StateError> {
        let pace = pages.segments.pace().clone();
        let checkpoint = CheckpointWriter::create(disk, Some(before.files.newest))?;
        let form = Form::Segments(pages, before);
        Ok(Self::new(checkpoint.with_pace(pace), cache, form, false))
    }

    /// Begins a checkpoint with only the changes since the index `before`, on that index's
    /// checkpoint. The whole index is kept in memory, even if it exceeds its limit.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the checkpoint can't be created.
    pub fn changes(
        disk: Arc<dyn Disk>,
        pace: Arc<WritePace>,
        cache: Arc<PartCache>,
        before: &'a Index,
    ) -> Result<Self, StateError> {
        let on = before.files.newest;
        let mut checkpoint = CheckpointWriter::create_incremental(disk, on)?.with_pace(pace);
        checkpoint.section(CHANGES)?;
        Ok(Self::new(checkpoint, cache, Form::Changes(before), true))
    }

    fn new(
        checkpoint: CheckpointWriter,
        cache: Arc<PartCache>,
        form: Form<'a>,
        keeps: bool,
    ) -> Self {
        let state = Mutex::new(WriterState {
            checkpoint,
            shards: (0..SHARDS).map(|_| None).collect(),
            keeps,
            kept_bytes: 0,
        });
        Self { cache, form, state }
    }

    /// Whether all parts are written, so that those that the previous index has in the segments are to be retired.
    pub const fn is_whole(&self) -> bool {
        matches!(self.form, Form::Whole)
    }

    /// Writes a whole shard, 0 to 255, that names `pages` pages, to a checkpoint with a whole index.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if writing fails; [`StateError::Broken`] if a node of the shard is not
    /// hashed.
    ///
    /// # Panics
    ///
    /// If the checkpoint does not get a whole index.
    pub fn put(&self, shard: usize, whole: &PartialTrie, pages: u64) -> Result<(), StateError> {
        assert!(
            self.is_whole(),
            "a whole shard for a checkpoint without parts"
        );
        let kept = self.keeps().then(|| split(whole)).transpose()?;
        let (top, parts) = split_into_section(whole)?;
        let bytes = ShardBytes::Parts(Arc::new(top), parts);
        self.add(shard, bytes, kept, pages)
    }

    /// Writes a shard, 0 to 255, of which `index` is an edited copy of `before`. It names `pages`
    /// pages. Subtries whose root is not among the nodes `touched` are not compared with `before`; with
    /// `None` all are. What was not opened stays as it is. Returns the parts in the segments that the shard no longer names.
    ///
    /// # Errors
    ///
    /// As [`IndexWriter::put`].
    ///
    /// # Panics
    ///
    /// If the index before is on disk, and this one is not written to the segments.
    pub fn put_edited(
        &self,
        shard: usize,
        before: &OpenedShard<'_>,
        index: &PartialTrie,
        touched: Option<&TouchedNodes>,
        pages: u64,
    ) -> Result<Vec<PageAddr>, StateError> {
        let whole;
        let index_with_all = match &before.opened {
            Opened::Blocks(blocks) if !matches!(self.form, Form::Changes(_)) => {
                whole = blocks.joined(index);
                &whole
            }
            Opened::Blocks(_) | Opened::Parts(_) => index,
        };
        let mut dead = Vec::new();
        let bytes = match (&self.form, &before.opened) {
            (Form::Changes(_), Opened::Blocks(blocks)) => {
                ShardBytes::Changes(encode_edits(&before.trie, index, touched, blocks))
            }
            (Form::Segments(to, _), opened) => {
                let none = OpenedParts::default();
                let (old, touched) = match opened {
                    Opened::Parts(parts) => (parts, touched),
                    Opened::Blocks(_) => (&none, None),
                };
                let (top, retired) = put_in_segments(index_with_all, old, touched, to)?;
                dead = retired;
                let parts = parts_of_top(&top).into_iter().filter_map(PartRef::addr);
                let len = parts.map(PageAddr::len).sum();
                ShardBytes::InSegments(Arc::new(top), len)
            }
            (Form::Whole, Opened::Blocks(_)) => {
                let (top, parts) = split_into_section(index_with_all)?;
                ShardBytes::Parts(Arc::new(top), parts)
            }
            (Form::Whole | Form::Changes(_), Opened::Parts(_)) => {
                panic!("an index on disk goes to the segments")
            }
        };
        let kept = match &before.opened {
            Opened::Blocks(blocks) if self.keeps() => Some(blocks.split(index)?),
            Opened::Blocks(_) | Opened::Parts(_) => None,
        };
        self.add(shard, bytes, kept, pages)?;
        Ok(dead)
    }

    /// Writes that a shard, 0 to 255, is as it is in the index before, to a checkpoint with changes, or to one whose parts are
    /// in the segments as those before. Does nothing else, and returns false.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if writing fails.
    pub fn put_unchanged(&self, shard: usize) -> Result<bool, StateError> {
        let (before, bytes) = match &self.form {
            Form::Changes(before) => {
                let before = &before.shards[shard];
                let nothing = PartialTrie::new(*before.trie.base());
                let none = UnopenedBlocks::default();
                let changes = encode_edits(&nothing, &nothing, None, &none);
                (before, ShardBytes::Changes(changes))
            }
            Form::Segments(_, before) if before.is_in_segments() => {
                let before = &before.shards[shard];
                (
                    before,
                    ShardBytes::InSegments(before.trie.clone(), before.len),
                )
            }
            Form::Whole | Form::Segments(..) => return Ok(false),
        };
        let kept = self.keeps().then(|| SplitShard {
            top: before.trie.clone(),
            blocks: before.blocks.clone(),
        });
        self.add(shard, bytes, kept, before.pages)?;
        Ok(true)
    }

    /// Memory limit of the index, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.cache.bytes_max()
    }

    fn keeps(&self) -> bool {
        self.state.lock().keeps
    }

    fn add(
        &self,
        shard: usize,
        bytes: ShardBytes,
        kept: Option<SplitShard>,
        pages: u64,
    ) -> Result<(), StateError> {
        let (top, bytes, len) = match bytes {
            ShardBytes::Parts(top, parts) => {
                let len = parts.len() as u64;
                (Some(top), parts, len)
            }
            ShardBytes::Changes(bytes) => {
                let len = bytes.len() as u64;
                (None, bytes, len)
            }
            ShardBytes::InSegments(top, len) => (Some(top), Vec::new(), len),
        };
        let state = &mut *self.state.lock();
        let offset = match bytes.is_empty() {
            true => 0,
            false => state.checkpoint.section_len(),
        };
        if !bytes.is_empty() {
            state.checkpoint.write(&bytes)?;
        }
        let kept_bytes = kept.as_ref().map_or(0, SplitShard::memory_bytes);
        state.kept_bytes += kept_bytes as u64;
        let outgrown = self.is_whole() && state.kept_bytes > self.cache.bytes_max();
        if state.keeps && outgrown {
            state.keeps = false;
            for shard in state.shards.iter_mut().flatten() {
                shard.kept = None;
            }
        }
        state.shards[shard] = Some(WrittenShard {
            top,
            kept: kept.filter(|_| state.keeps),
            pages,
            offset,
            len,
        });
        Ok(())
    }

    /// Writes the tops of all shards, or the positions of their changes.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if writing fails.
    ///
    /// # Panics
    ///
    /// If a shard was not put.
    ///
    /// # Format
    ///
    /// | section | offset | size | meaning |
    /// |---|---|---|---|
    /// | `index` | | | the parts of each shard side by side, shards in any order: pieces of at most 8 KiB, each a subtrie whose stubs name pages |
    /// | `tops` | | 256 times | of each shard in order: |
    /// | | | 1-10 | offset of its parts in `index`, LEB128 |
    /// | | | 1-10 | length of its parts, LEB128 |
    /// | | | 1-10 | number of pages that it names, LEB128 |
    /// | | | 1-10 | length of its top, LEB128 |
    /// | | | | its top: a trie whose stubs name pages or parts (`part_ref.rs`) |
    ///
    /// A checkpoint of an index on disk has no `index`: the stubs in its `tops` name parts in the segments
    /// (`cambium_store::encode_part`), and the offset of a shard's parts is 0.
    ///
    /// An incremental checkpoint has these sections instead:
    ///
    /// | section | offset | size | meaning |
    /// |---|---|---|---|
    /// | `changes` | | | a piece of each shard, in any order: its trie, encoded as changes to that in the checkpoint before |
    /// | `changed` | | 256 times | of each shard in order: |
    /// | | | 1-10 | offset of its piece in `changes`, LEB128 |
    /// | | | 1-10 | length of its piece, LEB128 |
    /// | | | 1-10 | number of pages that the shard names, LEB128 |
    pub fn finish(self) -> Result<WrittenIndex, StateError> {
        let WriterState {
            mut checkpoint,
            shards,
            keeps,
            ..
        } = self.state.into_inner();
        let (before, pages) = match self.form {
            Form::Whole => (None, None),
            Form::Changes(before) => (Some(before.files), None),
            Form::Segments(pages, _) => (None, Some(pages)),
        };
        checkpoint.section(match before {
            None => TOPS,
            Some(_) => CHANGED,
        })?;
        let mut kept = Vec::with_capacity(SHARDS);
        let (mut head, mut bytes) = (Vec::new(), Vec::new());
        for shard in shards {
            let shard = shard.expect("all shards are put");
            head.clear();
            bytes.clear();
            for number in [shard.offset, shard.len, shard.pages] {
                put_varint(&mut head, number);
            }
            if let Some(top) = &shard.top {
                top.encode_to(&mut bytes);
                put_varint(&mut head, bytes.len() as u64);
            }
            checkpoint.write(&head)?;
            checkpoint.write(&bytes)?;
            let top = || SplitShard {
                top: shard.top.expect("a shard that is not kept has a top"),
                blocks: Arc::default(),
            };
            let SplitShard { top, blocks } = shard.kept.unwrap_or_else(top);
            kept.push(Shard {
                trie: top,
                blocks,
                pages: shard.pages,
                offset: shard.offset,
                len: shard.len,
            });
        }
        Ok(WrittenIndex {
            checkpoint,
            cache: self.cache,
            shards: kept,
            is_resident: keeps,
            pages,
            before,
        })
    }
}

impl Index {
    /// Begins a second checkpoint with this same index, so that either of the two may be lost. It
    /// contains empty changes to the first one if `on_the_first`, otherwise the whole index.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if reading or writing fails.
    pub fn write_again(
        &self,
        disk: &Arc<dyn Disk>,
        cache: &Arc<PartCache>,
        on_the_first: bool,
    ) -> Result<WrittenIndex, StateError> {
        let (disk, pace, cache) = (disk.clone(), Arc::default(), cache.clone());
        let writer = match on_the_first {
            true => IndexWriter::changes(disk, pace, cache, self)?,
            false => IndexWriter::whole(disk, pace, cache, Some(self.files), true)?,
        };
        for shard in 0..SHARDS {
            if !writer.put_unchanged(shard)? {
                writer.put(shard, &*self.whole(shard)?, self.pages_of(shard))?;
            }
        }
        writer.finish()
    }
}

impl WrittenIndex {
    /// Returns the checkpoint that the changes apply to, or `None` if the whole index is written.
    pub fn is_on(&self) -> Option<CheckpointId> {
        self.before.map(|before| before.newest)
    }

    /// Returns all pages that the index names, if only changes are written: the index is in memory then.
    pub fn pages(&self) -> Vec<PageAddr> {
        let mut pages = Vec::new();
        for shard in &self.shards {
            shard.each_page(&mut |addr| pages.push(addr));
        }
        pages
    }

    /// Finishes the checkpoint and makes it durable. Returns the index, and the size of the
    /// checkpoint in bytes.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if writing or syncing fails.
    pub fn seal(self) -> Result<(Index, u64), StateError> {
        let finished = self.checkpoint.finish()?;
        let files = IndexChain::new(finished.id, |name| finished.section_len(name), self.before);
        let parts = match (self.is_resident, self.pages) {
            (true, _) => None,
            (false, Some(pages)) => Some(PartFile::in_segments(pages, self.cache)),
            (false, None) => {
                let reader = finished.read_pieces(INDEX)?;
                Some(PartFile::in_checkpoint(reader, self.cache))
            }
        };
        Ok((Index::new(self.shards, parts, files), finished.bytes))
    }
}

/// A shard as it goes to a checkpoint.
enum ShardBytes {
    /// Its top, and all its parts.
    Parts(Arc<PartialTrie>, Vec<u8>),
    /// A piece with its changes.
    Changes(Vec<u8>),
    /// Its top, and the length of its parts, which are in the segments already.
    InSegments(Arc<PartialTrie>, u64),
}

/// Encodes the changes of a shard from `before` to `after`, whose blinded nodes name `blocks`.
fn encode_edits(
    before: &PartialTrie,
    after: &PartialTrie,
    touched: Option<&TouchedNodes>,
    blocks: &UnopenedBlocks<'_>,
) -> Vec<u8> {
    let is_touched = |link| touched.is_none_or(|touched| touched.contains(&link));
    let unfolds = |stub: &Stub, out: &mut Vec<u8>| blocks.encode_nodes_to(stub, out);
    let encode = |is_touched: &dyn Fn(Link) -> bool| {
        let mut piece = Vec::new();
        put_piece(&mut piece, |out| {
            after.encode_edits_to(before, is_touched, &unfolds, out);
        });
        piece
    };
    let piece = encode(&is_touched);
    debug_assert!(
        encode(&|_| true) == piece,
        "changes below nodes that are not touched"
    );
    piece
}

/// Splits a whole shard into its top and its parts, which are side by side.
fn split_into_section(whole: &PartialTrie) -> Result<(PartialTrie, Vec<u8>), StateError> {
    let mut parts = Vec::new();
    let top = split_into_parts(whole, &mut |link, at| {
        let offset = parts.len();
        let mut fits = false;
        let len = put_piece(&mut parts, |out| {
            let bytes_max = PART_BYTES_MAX - PIECE_SUM_BYTES;
            fits = whole.encode_subtrie_to(link, at, bytes_max, out);
        });
        if !fits {
            parts.truncate(offset);
            return Ok(None);
        }
        Ok(Some(PartRef::in_section(offset as u64, len as u64)))
    })?;
    Ok((top, parts))
}

/// Splits a shard into its top and its parts, and appends those to the segments that were not opened and are not the same as
/// one of `old` at their place. Returns the top, and those of `old` that it does not name.
fn put_in_segments(
    index: &PartialTrie,
    old: &OpenedParts,
    touched: Option<&TouchedNodes>,
    to: &Pages,
) -> Result<(PartialTrie, Vec<PageAddr>), StateError> {
    let mut stay = HashSet::new();
    let top = split_into_parts(index, &mut |link, at| {
        let before = old.parts.get(at);
        let is_touched = touched.is_none_or(|touched| touched.contains(&link));
        let encoded = || {
            let mut fits = false;
            let record = encode_part(|out| {
                let bytes_max = PART_BYTES_MAX - PART_HEAD_BYTES;
                fits = index.encode_subtrie_to(link, at, bytes_max, out);
            });
            fits.then_some(record)
        };
        if let Some(before) = before.filter(|_| !is_touched) {
            debug_assert!(
                encoded().is_some_and(|record| before.is(&record)),
                "changes below nodes that are not touched"
            );
            stay.insert(before.addr);
            return Ok(Some(PartRef::at(before.addr)));
        }
        let Some(record) = encoded() else {
            return Ok(None);
        };
        if let Some(before) = before.filter(|before| before.is(&record)) {
            stay.insert(before.addr);
            return Ok(Some(PartRef::at(before.addr)));
        }
        let addr = to.segments.append(&record)?;
        to.counters.index_parts_written.add(1);
        to.counters.index_bytes_written.add(addr.len());
        Ok(Some(PartRef::at(addr)))
    })?;
    let parts = old.parts.values().map(|part| part.addr);
    let dead = parts.filter(|addr| !stay.contains(addr)).collect();
    Ok((top, dead))
}

/// Puts a subtrie somewhere, given its root and its path. Returns where it is, or `None` if it is too large for a part.
type PutPart<'a> = dyn FnMut(Link, &Path) -> Result<Option<PartRef>, StateError> + 'a;

/// Returns the top of a shard. `put` is called for the root of each subtrie that may become a part, with its path, and returns
/// where that is, or `None` if it is too large. Blinded parts stay as they are.
fn split_into_parts(index: &PartialTrie, put: &mut PutPart<'_>) -> Result<PartialTrie, StateError> {
    let base = *index.base();
    let mut above_unopened = HashSet::default();
    find_above_parts(index, index.root(), &mut above_unopened);
    let mut part_of = |top: &mut PartialTrie, link: Link, at: &Path| {
        let view = index.visit(link);
        let is_account = matches!(view, NodeView::Account { .. });
        let has_none_below = match view {
            NodeView::Account { storage, .. } => storage.is_empty() || storage.is_stub(),
            NodeView::Stub(_)
            | NodeView::Slot { .. }
            | NodeView::Entry { .. }
            | NodeView::Empty => true,
            NodeView::Branch { .. } | NodeView::Extension { .. } => false,
        };
        if has_none_below || above_unopened.contains(&link) {
            return Ok(None);
        }
        let node = index.cached_ref(link).ok_or(StateError::Broken {
            path: *at,
            what: "a hashed node in the index",
        })?;
        // A part at an account's path would be taken for the account's storage.
        if is_account && at.len() == ACCOUNT_NIBBLES {
            return Ok(None);
        }
        let part = put(link, at)?;
        Ok(part.map(|part| {
            top.push_stub(Stub {
                node,
                kind: index.kind(link),
                place: Some(part.to_place()),
            })
        }))
    };
    let mut top = PartialTrie::new(base).committed_by(index.commitment());
    let root = copy(index, index.root(), &base, &mut top, &mut part_of)?;
    top.set_root(root);
    top.shrink_to_fit();
    Ok(top)
}

/// Adds the nodes of the subtrie at `link` that have a blinded part below them to `above`. Returns
/// whether its root is such a part, or has one below.
fn find_above_parts(trie: &PartialTrie, link: Link, above: &mut TouchedNodes) -> bool {
    let is_above = match trie.visit(link) {
        NodeView::Stub(stub) => return PartRef::of(stub).is_some(),
        NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => return false,
        NodeView::Branch { children } => {
            let are_above = children.map(|child| find_above_parts(trie, child, above));
            are_above.contains(&true)
        }
        NodeView::Extension { child, .. } => find_above_parts(trie, child, above),
        NodeView::Account { storage, .. } => find_above_parts(trie, storage, above),
    };
    if is_above {
        above.insert(link);
    }
    is_above
}
