//! Writing an index to a checkpoint, shard by shard in any order.

use super::{
    blocks::{SplitShard, UnopenedBlocks, split},
    files::IndexChain,
    lookup::{Index, OpenedShard, Unopened},
    part_ref::PartRef,
    parts::{PartCache, PartFile, UnopenedParts},
    section::{CHANGED, CHANGES, INDEX, TOPS},
    shard::{Shard, copy},
};
use crate::base::error::StateError;
use cambium_disk::{Disk, WritePace};
use cambium_primitives::{ACCOUNT_NIBBLES, Path, put_varint};
use cambium_store::{CheckpointId, CheckpointWriter, PIECE_SUM_BYTES, PageAddr, put_piece};
use cambium_trie::{Link, NodeView, PartialTrie, SHARDS, Stub};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use std::{collections::HashSet, sync::Arc};

/// Maximum size of a part with its checksum, in bytes: one device read, about as fast as that of a
/// single block. Larger subtries are split at their topmost branch. In an evenly distributed state,
/// parts have at least a sixteenth of this size, and tops take at most a tenth of the index.
const PART_BYTES_MAX: usize = 8 * 1024;

/// Expanded nodes of a shard that a merge has added, or below which it has changed something.
pub type TouchedNodes = HashSet<Link, FxBuildHasher>;

/// Writes an index to a new checkpoint: the whole index, or its changes since the previous one. Any
/// number of threads may add shards.
pub struct IndexWriter<'a> {
    cache: Arc<PartCache>,
    /// The previous index, if only changes are written.
    before: Option<&'a Index>,
    state: Mutex<WriterState>,
}

/// The part of an [`IndexWriter`] that [`IndexWriter::put`] changes.
struct WriterState {
    checkpoint: CheckpointWriter,
    shards: Vec<Option<WrittenShard>>,
    /// Whether blocks are kept in memory, which they are while the index fits into its limit.
    keeps: bool,
    /// Memory of the blocks written so far, in bytes.
    kept_bytes: u64,
    copied: Vec<CopiedPart>,
}

/// A part that was copied as it was: its key in the cache, and its new offset, at first relative to
/// the first part of its shard.
type CopiedPart = ((u64, u64), u64);

/// A shard that [`IndexWriter::put`] has written.
struct WrittenShard {
    /// The top above parts. `None` if only changes are written.
    top: Option<PartialTrie>,
    /// The top above blocks. `None` if the index exceeds its memory limit.
    kept: Option<SplitShard>,
    /// Number of pages that the shard names.
    pages: u64,
    /// Offset of its parts or changes in the section, in bytes.
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
    copied: Vec<CopiedPart>,
    is_resident: bool,
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
        Ok(Self::new(checkpoint, cache, None, !is_too_large))
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
        Ok(Self::new(checkpoint, cache, Some(before), true))
    }

    fn new(
        checkpoint: CheckpointWriter,
        cache: Arc<PartCache>,
        before: Option<&'a Index>,
        keeps: bool,
    ) -> Self {
        let state = Mutex::new(WriterState {
            checkpoint,
            shards: (0..SHARDS).map(|_| None).collect(),
            keeps,
            kept_bytes: 0,
            copied: Vec::new(),
        });
        Self {
            cache,
            before,
            state,
        }
    }

    /// Writes a whole shard, 0 to 255, that names `pages` pages, to a checkpoint with a whole index.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if writing fails; [`StateError::Broken`] if a node of the shard is not
    /// hashed.
    pub fn put(&self, shard: usize, whole: &PartialTrie, pages: u64) -> Result<(), StateError> {
        let kept = self.keeps().then(|| split(whole)).transpose()?;
        self.add(
            shard,
            ShardBytes::Parts(split_into_parts(whole, None)?.into()),
            kept,
            pages,
        )
    }

    /// Writes a shard, 0 to 255, of which `index` is an edited copy of `before`. It names `pages`
    /// pages. Subtries whose root is not among the nodes `touched` are not compared with `before`; with
    /// `None` all are. What was not opened stays as it is: blocks are shared, and the bytes of parts
    /// copied.
    ///
    /// # Errors
    ///
    /// As [`IndexWriter::put`].
    pub fn put_edited(
        &self,
        shard: usize,
        before: &OpenedShard,
        index: &PartialTrie,
        touched: Option<&TouchedNodes>,
        pages: u64,
    ) -> Result<(), StateError> {
        let bytes = match (self.before, &before.unopened) {
            (Some(_), Unopened::Blocks(blocks)) => {
                ShardBytes::Changes(encode_edits(&before.trie, index, touched, blocks))
            }
            (_, Unopened::Blocks(blocks)) => {
                ShardBytes::Parts(split_into_parts(&blocks.joined(index), None)?.into())
            }
            (_, Unopened::Parts(parts)) => {
                ShardBytes::Parts(split_into_parts(index, parts.as_ref())?.into())
            }
        };
        let kept = match &before.unopened {
            Unopened::Blocks(blocks) if self.keeps() => Some(blocks.split(index)?),
            Unopened::Blocks(_) | Unopened::Parts(_) => None,
        };
        self.add(shard, bytes, kept, pages)
    }

    /// Writes that a shard, 0 to 255, is as it is in the index before, to a checkpoint with changes.
    /// Does nothing, and returns false, if the checkpoint has a whole index.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if writing fails.
    pub fn put_unchanged(&self, shard: usize) -> Result<bool, StateError> {
        let Some(before) = self.before else {
            return Ok(false);
        };
        let Shard {
            trie,
            blocks,
            pages,
            ..
        } = &before.shards[shard];
        let nothing = PartialTrie::new(*trie.base());
        let bytes = encode_edits(&nothing, &nothing, None, &UnopenedBlocks::default());
        let kept = SplitShard {
            top: trie.clone(),
            blocks: blocks.clone(),
        };
        self.add(shard, ShardBytes::Changes(bytes), Some(kept), *pages)?;
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
        let (top, bytes, copied) = match bytes {
            ShardBytes::Parts(split) => {
                let split = *split;
                (Some(split.top), split.parts, split.copied)
            }
            ShardBytes::Changes(bytes) => (None, bytes, Vec::new()),
        };
        let state = &mut *self.state.lock();
        let offset = match bytes.is_empty() {
            true => 0,
            false => state.checkpoint.section_len(),
        };
        state.checkpoint.write(&bytes)?;
        let copied = copied.into_iter().map(|(key, part)| (key, offset + part));
        state.copied.extend(copied);
        let kept_bytes = kept.as_ref().map_or(0, SplitShard::memory_bytes);
        state.kept_bytes += kept_bytes as u64;
        let outgrown = self.before.is_none() && state.kept_bytes > self.cache.bytes_max();
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
            len: bytes.len() as u64,
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
    /// | | | | its top: a trie whose stubs name pages or parts (`shard.rs`) |
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
            copied,
            ..
        } = self.state.into_inner();
        checkpoint.section(match self.before {
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
                top: Arc::new(shard.top.expect("a shard that is not kept has a top")),
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
            copied,
            is_resident: keeps,
            before: self.before.map(|before| before.files),
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
        let parts = match self.is_resident {
            true => None,
            false => {
                let parts = PartFile::new(finished.read_pieces(INDEX)?, self.cache);
                parts.take_over(&self.copied);
                Some(parts)
            }
        };
        Ok((Index::new(self.shards, parts, files), finished.bytes))
    }
}

/// The bytes of a shard in a checkpoint.
enum ShardBytes {
    Parts(Box<PartedShard>),
    /// A piece with its changes.
    Changes(Vec<u8>),
}

/// Encodes the changes of a shard from `before` to `after`, whose blinded nodes name `blocks`.
fn encode_edits(
    before: &PartialTrie,
    after: &PartialTrie,
    touched: Option<&TouchedNodes>,
    blocks: &UnopenedBlocks,
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

/// A shard that was split into its top and its parts.
struct PartedShard {
    top: PartialTrie,
    /// The encoding of all its parts.
    parts: Vec<u8>,
    copied: Vec<CopiedPart>,
}

/// Splits a shard into its top and its parts. Those that are blinded in it are copied from `unopened`.
fn split_into_parts(
    whole: &PartialTrie,
    unopened: Option<&UnopenedParts>,
) -> Result<PartedShard, StateError> {
    let base = *whole.base();
    let (mut parts, mut copied) = (Vec::new(), Vec::new());
    let mut above_unopened = HashSet::default();
    if unopened.is_some() {
        find_above_parts(whole, whole.root(), &mut above_unopened);
    }
    let mut part_of = |top: &mut PartialTrie, link: Link, at: &Path| {
        let view = whole.visit(link);
        let is_account = matches!(view, NodeView::Account { .. });
        let has_none_below = match view {
            NodeView::Account { storage, .. } => storage.is_empty() || storage.is_stub(),
            NodeView::Stub(stub) => {
                let Some(part) = PartRef::of(stub) else {
                    return Ok(None);
                };
                let part = unopened.and_then(|unopened| unopened.part(part));
                let (bytes, key) = part.ok_or(StateError::Broken {
                    path: *at,
                    what: "a part of the index that a merge has left as it was",
                })?;
                let part = PartRef {
                    offset: parts.len() as u64,
                    len: bytes.len() as u64,
                };
                copied.push((key, part.offset));
                parts.extend_from_slice(bytes);
                let place = Some(part.to_place());
                return Ok(Some(top.push_stub(Stub { place, ..*stub })));
            }
            NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => true,
            NodeView::Branch { .. } | NodeView::Extension { .. } => false,
        };
        if has_none_below || above_unopened.contains(&link) {
            return Ok(None);
        }
        let node = whole.cached_ref(link).ok_or(StateError::Broken {
            path: *at,
            what: "a hashed node in the index",
        })?;
        // A part at an account's path would be taken for the account's storage.
        if is_account && at.len() == ACCOUNT_NIBBLES {
            return Ok(None);
        }
        let part = encode_part(whole, link, at, &mut parts);
        Ok(part.map(|part| {
            top.push_stub(Stub {
                node,
                kind: whole.kind(link),
                place: Some(part.to_place()),
            })
        }))
    };
    let mut top = PartialTrie::new(base).committed_by(whole.commitment());
    let root = copy(whole, whole.root(), &base, &mut top, &mut part_of)?;
    top.set_root(root);
    top.shrink_to_fit();
    Ok(PartedShard { top, parts, copied })
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

/// Appends the subtrie at `link`, whose path is `at`, to `parts`, unless it is larger than
/// [`PART_BYTES_MAX`].
fn encode_part(whole: &PartialTrie, link: Link, at: &Path, parts: &mut Vec<u8>) -> Option<PartRef> {
    let offset = parts.len();
    let mut fits = false;
    let len = put_piece(parts, |out| {
        let bytes_max = PART_BYTES_MAX - PIECE_SUM_BYTES;
        fits = whole.encode_subtrie_to(link, at, bytes_max, out);
    });
    if !fits {
        parts.truncate(offset);
        return None;
    }
    Some(PartRef {
        offset: offset as u64,
        len: len as u64,
    })
}
