//! Following the chain: blocks of the log are added, and those that have left it are taken back.

use crate::{
    IndexError, StoredBody,
    keeper::{Keeper, open_runs},
    list::RunList,
    recent::Recent,
};
use alloy_primitives::Bytes;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_runs::while_missing;
use cambium_state::{BlockMeta, Db, StateError};
use std::sync::Arc;

/// Blocks in memory after which a reader that has no room for more looks whether they are in files now.
const LOOK_EVERY: usize = 64;
/// Maximum memory of a reader for the newest blocks, as a multiple of its budget: the others are not in files yet.
const READER_FACTOR: u64 = 16;

/// Most blocks that a look-up adds in memory, however little of that there is.
const LOOKED_UP_MAX: u64 = 128;
/// The same in a reader, which may be behind an import.
const READER_LOOKED_UP_MAX: u64 = 4_096;
/// Attempts to read the list beside a process that merges runs and takes blocks back.
const RELOADS: usize = 16;

/// How far an index has got while it catches up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexProgress {
    /// The newest indexed block.
    pub upto: BlockId,
    /// The head of the database.
    pub head: BlockId,
    /// Whether the receipts of its transactions are known, if it has any: with the block, or by its execution.
    pub has_receipts: bool,
}

/// Makes the receipts of a block that was stored without them: the RLP of their list, as
/// [`pack_receipts`](crate::pack_receipts) compresses it. `None` if they can't be made.
pub type ReceiptsOf<'a> =
    dyn FnMut(BlockId, &StoredBody) -> Result<Option<Vec<u8>>, IndexError> + 'a;

/// Successor of the newest block.
enum Next {
    Block(BlockMeta),
    /// Blocks have left the log: it goes on at the given one.
    Gap(BlockNumber),
    /// The newest block is not canonical.
    Fork,
    Nothing,
}

/// Treatment of the blocks in memory when there is no room for more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// They go to files.
    Flush,
    /// They stay, and no more are added: a look-up writes nothing.
    Stop,
}

impl Keeper {
    /// Adds blocks up to the head, until `progress` returns false. The caller has locked `growing`. Returns
    /// whether it is at the head. With `receipts`, blocks in memory that lack theirs are taken back first.
    pub(crate) fn follow(
        &self,
        db: &Db,
        mut receipts: Option<&mut ReceiptsOf<'_>>,
        when_full: WhenFull,
        progress: &mut dyn FnMut(&IndexProgress) -> bool,
    ) -> Result<bool, IndexError> {
        if receipts.is_some() {
            self.take_back_without_receipts();
        }
        let mut attempt = 1;
        loop {
            if self.is_full() {
                match (when_full, self.folder.is_writer()) {
                    (WhenFull::Stop, _) => {
                        let blocks = self.live.read().recent.blocks().len() as u64;
                        if blocks >= self.looked_up_max() {
                            return Ok(false);
                        }
                    }
                    (WhenFull::Flush, true) => self.flush()?,
                    (WhenFull::Flush, false) => self.make_room(db)?,
                }
            } else if when_full == WhenFull::Flush && self.is_due() {
                self.flush()?;
            }
            match self.next_of(db)? {
                Next::Nothing => return Ok(true),
                Next::Fork => match (self.take_back(db), self.folder.is_writer()) {
                    // The other process has taken them back already, and removed files.
                    (Err(IndexError::Missing { .. }), false) if attempt < RELOADS => {
                        attempt += 1;
                        self.reload()?;
                    }
                    (taken, _) => taken?,
                },
                Next::Gap(oldest) => {
                    let next = self.next();
                    tracing::info!(
                        next,
                        oldest,
                        "blocks have left the log before they were indexed"
                    );
                    self.flush_for_gap()?;
                    self.skip_to(oldest)?;
                }
                Next::Block(meta) => {
                    let (body, has_receipts) = with_receipts(&meta, receipts.as_deref_mut())?;
                    self.append(meta.id, body)?;
                    let progressed = IndexProgress {
                        upto: meta.id,
                        head: db.head(),
                        has_receipts,
                    };
                    if !progress(&progressed) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Most blocks that a look-up adds.
    pub(crate) const fn looked_up_max(&self) -> u64 {
        match self.folder.is_writer() {
            true => LOOKED_UP_MAX,
            false => READER_LOOKED_UP_MAX,
        }
    }

    fn next_of(&self, db: &Db) -> Result<Next, IndexError> {
        let upto = self.live.read().upto;
        if let Some(upto) = upto
            && !db.is_canonical(upto)?
        {
            return Ok(Next::Fork);
        }
        let number = self.next().max(db.genesis().number);
        match db.block(number) {
            Ok(None) => Ok(Next::Nothing),
            Ok(Some(meta)) => {
                let follows =
                    upto.is_none_or(|upto| upto.number + 1 < number || upto.hash == meta.parent);
                Ok(if follows {
                    Next::Block(meta)
                } else {
                    Next::Fork
                })
            }
            Err(StateError::NotKept { oldest }) => Ok(Next::Gap(oldest.max(number + 1))),
            Err(error) if error.is_lost_record() => Ok(Next::Gap(after_lost(db, number)?)),
            Err(error) => Err(error.into()),
        }
    }

    /// Blocks in memory become a run of their own, since the next ones don't follow them.
    fn flush_for_gap(&self) -> Result<(), IndexError> {
        match self.folder.is_writer() {
            true => self.flush(),
            false => {
                let mut live = self.live.write();
                live.recent = Recent::default();
                Ok(())
            }
        }
    }

    /// Goes on at a later block than the next one.
    fn skip_to(&self, number: BlockNumber) -> Result<(), IndexError> {
        let mut kept = self.list.lock();
        let list = RunList {
            first: number,
            ..kept.clone()
        };
        match self.folder.is_writer() {
            true => self.replace_list(&mut kept, list),
            false => {
                *kept = list;
                Ok(())
            }
        }
    }

    /// Forgets blocks in memory that another process has written to files meanwhile.
    fn make_room(&self, db: &Db) -> Result<(), IndexError> {
        let (blocks, bytes) = {
            let live = self.live.read();
            (live.recent.blocks().len(), live.recent.bytes() as u64)
        };
        if !blocks.is_multiple_of(LOOK_EVERY) {
            return Ok(());
        }
        if self.reload_newer(db)? {
            return Ok(());
        }
        let before = self.list.lock().upto();
        match bytes > READER_FACTOR.saturating_mul(self.options.memory_bytes) {
            true => Err(IndexError::Behind {
                upto: before.map_or(0, |upto| upto.number),
                head: db.head(),
            }),
            false => Ok(()),
        }
    }

    /// Takes back the blocks in memory from the first one on whose receipts are not known.
    fn take_back_without_receipts(&self) {
        let list = self.list.lock();
        let mut live = self.live.write();
        let Some(first) = live.recent.first_without_receipts() else {
            return;
        };
        live.recent.cut(first.checked_sub(1));
        let recent = live.recent.blocks().last().map(|block| block.id);
        live.upto = recent.or_else(|| list.upto());
    }

    /// Reads the list again, which another process writes, if it has later blocks of this chain. False if not.
    pub(crate) fn reload_newer(&self, db: &Db) -> Result<bool, IndexError> {
        let (before, genesis) = {
            let list = self.list.lock();
            (list.upto(), list.genesis)
        };
        let list = RunList::read(&*self.disk, genesis)?;
        // Blocks of another branch would be taken back again.
        match list.and_then(|list| list.upto()) {
            Some(upto) if Some(upto) > before && db.is_canonical(upto)? => {
                self.reload()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Reads the list again, which another process writes, and forgets the blocks in memory.
    pub(crate) fn reload(&self) -> Result<(), IndexError> {
        let mut kept = self.list.lock();
        // The other process may merge a run after its list was read.
        let is_missing = |error: &IndexError| matches!(error, IndexError::Missing { .. });
        let (list, runs) = while_missing(RELOADS, is_missing, || {
            let list = RunList::read(&*self.disk, kept.genesis)?;
            let list = list.ok_or_else(|| IndexError::NoIndex {
                dir: self.disk.display_path(""),
            })?;
            let runs = open_runs(&*self.disk, &list, &self.counters)?;
            Ok((list, runs))
        })?;
        if list.seed != kept.seed {
            // The index was made again: its files have the names of others.
            self.data.close_all();
        }
        {
            let mut live = self.live.write();
            live.upto = list.upto();
            live.runs = Arc::new(runs);
            live.recent = Recent::default();
            live.seed = list.seed;
        }
        *kept = list;
        drop(kept);
        self.place_filters();
        Ok(())
    }
}

/// The first block after `lost` that the log has, or the next one to come.
fn after_lost(db: &Db, lost: BlockNumber) -> Result<BlockNumber, StateError> {
    let mut number = lost;
    loop {
        number += 1;
        match db.block(number) {
            Err(error) if error.is_lost_record() => {}
            found => return found.map(|_| number),
        }
    }
}

/// The body of a block as the index has it: with its receipts if they can be made, and without preimages, which are
/// never looked up by block. Also returns whether it has receipts.
fn with_receipts(
    meta: &BlockMeta,
    receipts: Option<&mut ReceiptsOf<'_>>,
) -> Result<(Bytes, bool), IndexError> {
    let body = StoredBody::decode(&meta.body).map_err(|error| IndexError::Unreadable {
        block: meta.id,
        why: error.to_string(),
    })?;
    let made = match (&body.receipts, receipts) {
        (None, Some(receipts)) => receipts(meta.id, &body)?,
        _ => None,
    };
    let has_none = || body.transactions().is_ok_and(|all| all.is_empty());
    let has_receipts = body.receipts.is_some() || made.is_some() || has_none();
    let kept = match (&made, &body.preimages) {
        (None, None) => meta.body.clone(),
        (made, _) => {
            let own = body.receipts.as_ref().map(AsRef::as_ref);
            body.with_receipts(made.as_deref().or(own))
        }
    };
    Ok((kept, has_receipts))
}
