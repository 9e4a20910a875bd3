//! Writing the index into a checkpoint, one shard after the other as they are made.

use super::{
    INDEX, Index, PartCache, Shard, TOPS, copy,
    parts::{PartFile, PartRef},
};
use crate::error::StateError;
use cambium_disk::Disk;
use cambium_primitives::{ACCOUNT_NIBBLES, Path, put_varint};
use cambium_store::{CheckpointWriter, FinishedCheckpoint, PIECE_SUM_BYTES, put_piece};
use cambium_trie::{Link, NodeView, PartialTrie, SHARDS, Stub};
use parking_lot::Mutex;
use std::sync::Arc;

/// A part takes at most so many bytes with its checksum: one read of a device, which is about as
/// fast as a read of one block. What does not fit is split at its topmost branch: of a state spread
/// evenly, parts are of a sixteenth of this and up, and tops a tenth of the index at most.
const PART_BYTES_MAX: usize = 8 * 1024;

/// A new index, which a checkpoint is begun with, unless there is to be none. Shards can be put by
/// any number of threads.
pub(crate) struct IndexWriter {
    cache: Arc<PartCache>,
    state: Mutex<Writing>,
}

struct Writing {
    checkpoint: Option<CheckpointWriter>,
    shards: Vec<Option<WrittenShard>>,
    /// Whether shards are kept whole: as long as the index fits into its memory.
    keeps: bool,
    /// Memory of the shards that are kept whole.
    kept_bytes: u64,
}

struct WrittenShard {
    top: PartialTrie,
    whole: Option<Arc<PartialTrie>>,
    pages: u64,
    offset: u64,
    len: u64,
}

/// What becomes of an index writer.
pub(crate) enum IndexDone {
    /// No checkpoint was to be made.
    InMemory(Index),
    Written(Box<WrittenIndex>),
}

impl IndexDone {
    /// `None` if no checkpoint was to be made.
    pub(crate) fn written(self) -> Option<WrittenIndex> {
        match self {
            Self::InMemory(_) => None,
            Self::Written(index) => Some(*index),
        }
    }
}

/// An index that is written, in a checkpoint that lacks all else.
pub(crate) struct WrittenIndex {
    pub(crate) checkpoint: CheckpointWriter,
    cache: Arc<PartCache>,
    shards: Vec<Shard>,
    is_resident: bool,
}

impl IndexWriter {
    /// Begins a checkpoint. Of an index of which it is known that it is too large for its memory,
    /// nothing is kept but the tops. One that is too large stays so until the database is opened
    /// again, even if it shrinks: whether it fits is known only when all of it is in memory.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        cache: Arc<PartCache>,
        is_too_large: bool,
    ) -> Result<Self, StateError> {
        let mut checkpoint = CheckpointWriter::create(disk)?;
        checkpoint.section(INDEX)?;
        Ok(Self::new(Some(checkpoint), cache, !is_too_large))
    }

    /// Makes no checkpoint: all is kept in memory, even if it outgrows its limit meanwhile.
    pub(crate) fn in_memory(cache: Arc<PartCache>) -> Self {
        Self::new(None, cache, true)
    }

    fn new(checkpoint: Option<CheckpointWriter>, cache: Arc<PartCache>, keeps: bool) -> Self {
        let state = Mutex::new(Writing {
            checkpoint,
            shards: (0..SHARDS).map(|_| None).collect(),
            keeps,
            kept_bytes: 0,
        });
        Self { cache, state }
    }

    /// Writes the parts of a shard that names so many pages.
    pub(crate) fn put(
        &self,
        shard: usize,
        whole: Arc<PartialTrie>,
        pages: u64,
    ) -> Result<(), StateError> {
        let is_written = self.state.lock().checkpoint.is_some();
        let (top, parts) = match is_written {
            true => cut(&whole)?,
            false => (PartialTrie::new(*whole.base()), Vec::new()),
        };
        let state = &mut *self.state.lock();
        let mut offset = 0;
        if let Some(checkpoint) = &mut state.checkpoint {
            if !parts.is_empty() {
                offset = checkpoint.section_len();
            }
            checkpoint.write(&parts)?;
            state.kept_bytes += whole.memory_bytes() as u64;
            if state.keeps && state.kept_bytes > self.cache.bytes_max() {
                state.keeps = false;
                for shard in state.shards.iter_mut().flatten() {
                    shard.whole = None;
                }
            }
        }
        state.shards[shard] = Some(WrittenShard {
            top,
            whole: state.keeps.then_some(whole),
            pages,
            offset,
            len: parts.len() as u64,
        });
        Ok(())
    }

    /// Writes the tops. Panics unless all shards are put.
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
    pub(crate) fn finish(self) -> Result<IndexDone, StateError> {
        let Writing {
            mut checkpoint,
            shards,
            keeps,
            ..
        } = self.state.into_inner();
        if let Some(checkpoint) = &mut checkpoint {
            checkpoint.section(TOPS)?;
        }
        let mut kept = Vec::with_capacity(SHARDS);
        let (mut head, mut bytes) = (Vec::new(), Vec::new());
        for shard in shards {
            let shard = shard.expect("all shards are put");
            if let Some(checkpoint) = &mut checkpoint {
                head.clear();
                bytes.clear();
                shard.top.encode_to(&mut bytes);
                for number in [shard.offset, shard.len, shard.pages, bytes.len() as u64] {
                    put_varint(&mut head, number);
                }
                checkpoint.write(&head)?;
                checkpoint.write(&bytes)?;
            }
            kept.push(Shard {
                trie: shard.whole.unwrap_or_else(|| Arc::new(shard.top)),
                pages: shard.pages,
                offset: shard.offset,
                len: shard.len,
            });
        }
        Ok(match checkpoint {
            None => IndexDone::InMemory(Index::resident(kept)),
            Some(checkpoint) => IndexDone::Written(Box::new(WrittenIndex {
                checkpoint,
                cache: self.cache,
                shards: kept,
                is_resident: keeps,
            })),
        })
    }
}

impl WrittenIndex {
    /// Finishes the checkpoint. Returns the index, and the size of the checkpoint.
    pub(crate) fn seal(self) -> Result<(Index, u64), StateError> {
        let finished = self.checkpoint.finish()?;
        let bytes = finished.bytes;
        let index = match self.is_resident {
            true => Index::resident(self.shards),
            false => Index::on_disk(self.shards, &finished, self.cache)?,
        };
        Ok((index, bytes))
    }
}

impl Index {
    pub(super) const fn resident(shards: Vec<Shard>) -> Self {
        let parts = None;
        Self { shards, parts }
    }

    fn on_disk(
        shards: Vec<Shard>,
        checkpoint: &FinishedCheckpoint,
        cache: Arc<PartCache>,
    ) -> Result<Self, StateError> {
        let reader = checkpoint.read_pieces(INDEX)?;
        Ok(Self::over(shards, PartFile::new(reader, cache)))
    }
}

/// Cuts a shard: its top, and its parts.
fn cut(whole: &PartialTrie) -> Result<(PartialTrie, Vec<u8>), StateError> {
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
        let part = put_part(whole, link, at, &mut parts);
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
fn put_part(whole: &PartialTrie, link: Link, at: &Path, parts: &mut Vec<u8>) -> Option<PartRef> {
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
