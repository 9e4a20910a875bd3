//! WriterState the index into a checkpoint, one shard after the other as they are made.

use super::{
    files::IndexFiles,
    lookup::Index,
    parts::{PartCache, PartFile},
    section::{CHANGED, CHANGES, INDEX, TOPS},
    shard::{PartRef, Shard, copy},
};
use crate::base::error::StateError;
use cambium_disk::Disk;
use cambium_primitives::{ACCOUNT_NIBBLES, Path, put_varint};
use cambium_store::{CheckpointId, CheckpointWriter, PIECE_SUM_BYTES, WritePace, put_piece};
use cambium_trie::{Link, NodeView, PartialTrie, SHARDS, Stub};
use parking_lot::Mutex;
use std::sync::Arc;

/// A part takes at most so many bytes with its checksum: one read of a device, which is about as
/// fast as a read of one block. What does not fit is split at its topmost branch: of a state spread
/// evenly, parts are of a sixteenth of this and up, and tops a tenth of the index at most.
const PART_BYTES_MAX: usize = 8 * 1024;

/// A new index, which a checkpoint is begun with: all of it, or what it changes in the one before.
/// Shards can be put by any number of threads.
pub struct IndexWriter<'a> {
    cache: Arc<PartCache>,
    /// The index that has the rest, if only changes are written.
    before: Option<&'a Index>,
    state: Mutex<WriterState>,
}

struct WriterState {
    checkpoint: CheckpointWriter,
    shards: Vec<Option<WrittenShard>>,
    /// Whether shards are kept whole: as long as the index fits into its memory.
    keeps: bool,
    /// Memory of the shards that are kept whole.
    kept_bytes: u64,
}

struct WrittenShard {
    /// None if only changes are written.
    top: Option<PartialTrie>,
    whole: Option<Arc<PartialTrie>>,
    pages: u64,
    offset: u64,
    len: u64,
}

/// An index that is written, in a checkpoint that lacks all else.
pub struct WrittenIndex {
    /// The checkpoint, begun with the sections of the index.
    pub checkpoint: CheckpointWriter,
    cache: Arc<PartCache>,
    shards: Vec<Shard>,
    is_resident: bool,
    /// Of the index that it changes.
    before: Option<IndexFiles>,
}

impl<'a> IndexWriter<'a> {
    /// Begins a checkpoint with a whole index, after the newest, if that is known. Of an index of
    /// which it is known that it is too large for its memory, nothing is kept but the tops. One
    /// that is too large stays so until the database is opened again, even if it shrinks: whether
    /// it fits is known only when all of it is in memory.
    pub fn whole(
        disk: Arc<dyn Disk>,
        pace: Arc<WritePace>,
        cache: Arc<PartCache>,
        after: Option<IndexFiles>,
        is_too_large: bool,
    ) -> Result<Self, StateError> {
        let after = after.map(|files| files.newest);
        let mut checkpoint = CheckpointWriter::create(disk, after)?.at_pace(pace);
        checkpoint.section(INDEX)?;
        Ok(Self::new(checkpoint, cache, None, !is_too_large))
    }

    /// Begins a checkpoint, on the one that has `before`, with what is not the same there. All is
    /// kept in memory, even if it outgrows its limit meanwhile.
    pub fn changes(
        disk: Arc<dyn Disk>,
        pace: Arc<WritePace>,
        cache: Arc<PartCache>,
        before: &'a Index,
    ) -> Result<Self, StateError> {
        let on = before.files.newest;
        let mut checkpoint = CheckpointWriter::create_on(disk, on)?.at_pace(pace);
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
        });
        Self {
            cache,
            before,
            state,
        }
    }

    /// Writes the parts of a shard that names so many pages, or its changes.
    pub fn put(&self, shard: usize, whole: Arc<PartialTrie>, pages: u64) -> Result<(), StateError> {
        let (top, bytes) = match self.before {
            None => {
                let (top, parts) = split_into_parts(&whole)?;
                (Some(top), parts)
            }
            Some(before) => {
                let before = before.whole(shard)?;
                let mut piece = Vec::new();
                put_piece(&mut piece, |out| whole.encode_changes_to(&before, out));
                (None, piece)
            }
        };
        let state = &mut *self.state.lock();
        let offset = match bytes.is_empty() {
            true => 0,
            false => state.checkpoint.section_len(),
        };
        state.checkpoint.write(&bytes)?;
        state.kept_bytes += whole.memory_bytes() as u64;
        let outgrown = self.before.is_none() && state.kept_bytes > self.cache.bytes_max();
        if state.keeps && outgrown {
            state.keeps = false;
            for shard in state.shards.iter_mut().flatten() {
                shard.whole = None;
            }
        }
        state.shards[shard] = Some(WrittenShard {
            top,
            whole: state.keeps.then_some(whole),
            pages,
            offset,
            len: bytes.len() as u64,
        });
        Ok(())
    }

    /// Writes where each shard is. Panics unless all shards are put.
    ///
    /// | section | offset | size | meaning |
    /// |---|---|---|---|
    /// | `index` | | | the parts of each shard side by side, shards in any order: pieces of at most 8 KiB, each a subtrie whose stubs name pages |
    /// | `tops` | | 256 times | of each shard in order: |
    /// | | | 1-10 | where its parts begin in `index`, LEB128 |
    /// | | | 1-10 | bytes of these, LEB128 |
    /// | | | 1-10 | number of pages that it names, LEB128 |
    /// | | | 1-10 | length of its top, LEB128 |
    /// | | | | its top: a trie whose stubs name pages or parts (`parts.rs`) |
    ///
    /// Of a checkpoint that is on another instead of these:
    ///
    /// | section | offset | size | meaning |
    /// |---|---|---|---|
    /// | `changes` | | | a piece of each shard, in any order: a trie, as what changed since the other |
    /// | `changed` | | 256 times | of each shard in order: |
    /// | | | 1-10 | where its piece begins in `changes`, LEB128 |
    /// | | | 1-10 | bytes of it, LEB128 |
    /// | | | 1-10 | number of pages that the shard names, LEB128 |
    pub fn finish(self) -> Result<WrittenIndex, StateError> {
        let WriterState {
            mut checkpoint,
            shards,
            keeps,
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
            let top = || Arc::new(shard.top.expect("a shard that is not kept has a top"));
            kept.push(Shard {
                trie: shard.whole.unwrap_or_else(top),
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
            before: self.before.map(|before| before.files),
        })
    }
}

impl Index {
    /// Begins a checkpoint after the one that this index is in, with the same index: on that one,
    /// or whole, too.
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
            writer.put(shard, self.whole(shard)?, self.pages_of(shard))?;
        }
        writer.finish()
    }
}

impl WrittenIndex {
    /// The checkpoint that this one is on, if it has only changes.
    pub fn is_on(&self) -> Option<CheckpointId> {
        self.before.map(|before| before.newest)
    }

    /// The tries of all shards: whole, if only changes are written.
    pub fn tries(&self) -> impl Iterator<Item = &PartialTrie> {
        self.shards.iter().map(|shard| &*shard.trie)
    }

    /// Finishes the checkpoint. Returns the index, and the size of the checkpoint.
    pub fn seal(self) -> Result<(Index, u64), StateError> {
        let finished = self.checkpoint.finish()?;
        let files = IndexFiles::new(finished.id, |name| finished.section_len(name), self.before);
        let parts = match self.is_resident {
            true => None,
            false => Some(PartFile::new(finished.read_pieces(INDEX)?, self.cache)),
        };
        Ok((Index::new(self.shards, parts, files), finished.bytes))
    }
}

/// Cuts a shard: its top, and its parts.
fn split_into_parts(whole: &PartialTrie) -> Result<(PartialTrie, Vec<u8>), StateError> {
    let base = *whole.base();
    let mut parts = Vec::new();
    let mut part_of = |top: &mut PartialTrie, link: Link, at: &Path| {
        let view = whole.visit(link);
        let is_account = matches!(view, NodeView::Account { .. });
        let has_none_below = match view {
            NodeView::Account { storage, .. } => storage.is_empty() || storage.is_stub(),
            NodeView::Slot { .. } | NodeView::Stub(_) | NodeView::Empty => true,
            NodeView::Branch { .. } | NodeView::Extension { .. } => false,
        };
        if has_none_below {
            return Ok(None);
        }
        let node = whole.memo(link).ok_or(StateError::Broken {
            path: *at,
            what: "a hashed node in the index",
        })?;
        // What sits at an account's path is taken for its storage.
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
    let mut top = PartialTrie::new(base);
    let root = copy(whole, whole.root(), &base, &mut top, &mut part_of)?;
    top.set_root(root);
    top.shrink_to_fit();
    Ok((top, parts))
}

/// Makes a part of the subtrie at `link`, which sits at `at`, unless it is too large.
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
