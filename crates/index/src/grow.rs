//! Following the chain: blocks of the log are added, and those that have left it are taken back.

use crate::{
    IndexError, StoredBody,
    keeper::{Keeper, is_canonical, open_runs},
    list::RunList,
    recent::Recent,
};
use alloy_primitives::Bytes;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{BlockMeta, Db, StateError};
use std::sync::Arc;

/// Blocks in memory after which a reader that has no room for more looks whether they are in files now.
const LOOK_EVERY: usize = 64;
/// Memory for the newest blocks that a reader takes at most, as a multiple of what it was given: the others
/// are not in files yet.
const READER_FACTOR: u64 = 16;

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

/// What comes after the newest block.
enum Next {
    Block(BlockMeta),
    /// Blocks have left the log: it goes on at the given one.
    Gap(BlockNumber),
    /// The newest block is not canonical.
    Fork,
    Nothing,
}

impl Keeper {
    /// Adds blocks up to the head, until `progress` returns false. The caller has locked `growing`. Returns
    /// whether it is at the head.
    pub(crate) fn follow(
        &self,
        db: &Db,
        receipts: &mut ReceiptsOf<'_>,
        progress: &mut dyn FnMut(&IndexProgress) -> bool,
    ) -> Result<bool, IndexError> {
        loop {
            if self.is_full() {
                match self.lock {
                    Some(_) => self.flush()?,
                    None => self.make_room(db)?,
                }
            }
            match self.next_of(db)? {
                Next::Nothing => return Ok(true),
                Next::Fork => self.take_back(db)?,
                Next::Gap(oldest) => {
                    let next = self.next();
                    tracing::warn!(
                        next,
                        oldest,
                        "blocks have left the log before they were indexed"
                    );
                    self.flush_for_gap()?;
                    self.skip_to(oldest)?;
                }
                Next::Block(meta) => {
                    let (body, has_receipts) = with_receipts(&meta, receipts)?;
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

    fn next_of(&self, db: &Db) -> Result<Next, IndexError> {
        let upto = self.live.read().upto;
        if let Some(upto) = upto
            && !is_canonical(db, upto)?
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
            Err(error) => Err(error.into()),
        }
    }

    /// Blocks in memory become a run of their own, since the next ones don't follow them.
    fn flush_for_gap(&self) -> Result<(), IndexError> {
        match self.lock {
            Some(_) => self.flush(),
            None => {
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
        match self.lock {
            Some(_) => self.replace_list(&mut kept, list),
            None => {
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
        let before = self.list.lock().upto();
        let list = RunList::read(&*self.disk, db.genesis().hash)?;
        // What it has of another branch would be taken back again.
        if let Some(upto) = list.and_then(|list| list.upto())
            && Some(upto) > before
            && is_canonical(db, upto)?
        {
            return self.reload(db);
        }
        match bytes > READER_FACTOR.saturating_mul(self.options.memory_bytes) {
            true => Err(IndexError::Behind {
                upto: before.map_or(0, |upto| upto.number),
                head: db.head(),
            }),
            false => Ok(()),
        }
    }

    /// Reads the list again, which another process writes, and forgets the blocks in memory that it has.
    pub(crate) fn reload(&self, db: &Db) -> Result<(), IndexError> {
        let mut kept = self.list.lock();
        let list = RunList::read(&*self.disk, db.genesis().hash)?;
        let list = list.ok_or_else(|| IndexError::NoIndex {
            dir: self.disk.display_path(""),
        })?;
        let runs = open_runs(&*self.disk, &list, &self.counters)?;
        {
            let mut live = self.live.write();
            live.upto = list.upto();
            live.runs = Arc::new(runs);
            live.recent = Recent::default();
        }
        *kept = list;
        drop(kept);
        self.place_filters();
        Ok(())
    }
}

/// The body of a block, with its receipts if they can be made. And whether it has any.
fn with_receipts(
    meta: &BlockMeta,
    receipts: &mut ReceiptsOf<'_>,
) -> Result<(Bytes, bool), IndexError> {
    let body = StoredBody::decode(&meta.body).map_err(|error| IndexError::Unreadable {
        block: meta.id,
        why: error.to_string(),
    })?;
    if body.receipts.is_some() {
        return Ok((meta.body.clone(), true));
    }
    match receipts(meta.id, &body)? {
        None => {
            let has_none = body.transactions().is_ok_and(|all| all.is_empty());
            Ok((meta.body.clone(), has_none))
        }
        Some(packed) => {
            let StoredBody {
                total_difficulty,
                rlp,
                access_list,
                ..
            } = &body;
            let body = StoredBody::encode(*total_difficulty, rlp, access_list, Some(&packed));
            Ok((body, true))
        }
    }
}
