//! Following the chain: committed, reverted and finalized blocks with their changes, in order.
//!
//! ```text
//!   subscriber was here ──v
//!             ┌─ 11' ─── 12'                          events: revert 12', revert 11',
//!   9 ─── 10 ─┤                                               commit 11, commit 12, commit 13,
//!             └─ 11 ──── 12 ──── 13 = head                    finalized 11
//!                         (11 is finalized)
//! ```
//!
//! A [`Subscription`] is a block that the subscriber has reached: the *cursor*. The next event follows from the
//! cursor and from the canonical chain of that moment, and its changes are read from the block log.
//! So there is no queue that a slow subscriber could fill, no commit waits for one, and a subscriber that stores its
//! cursor together with the data that it derives from the events loses nothing in a crash: every block that is
//! announced is durable before.
//!
//! Deliberately absent: blocks are not kept for subscribers. [`Options::keep_blocks`](crate::Options)
//! says how far one may fall behind, and [`Db::keep_log_above`] keeps more.

mod stale;
pub(crate) mod derived;

use crate::{
    db::handle::{CommittedBlock, Db},
    log::following::{FollowTo, NextStep},
};
use cambium_primitives::BlockId;
use cambium_snapshot::StateError;
use cambium_store::{LogPosition, StoreError};
use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

/// Blocks of which a subscription remembers the position in the log, so that it can undo them after
/// their branch was forgotten.
const REMEMBERED_MAX: usize = 4096;
/// Attempts of a reader to take a step, each after catching up with the writer, which removes old files.
const READER_ATTEMPTS: u32 = 4;
/// Time between two looks of a reader at the log that another process writes.
const READER_INTERVAL: Duration = Duration::from_millis(20);

/// A step of the canonical chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainEvent {
    /// The block became canonical, on the block that the subscriber had reached. Its changes have the
    /// values after it, and its reverts those before it.
    Committed(CommittedBlock),
    /// The block that the subscriber had reached is not canonical any more. Its reverts lead to the
    /// state after its parent.
    Reverted(CommittedBlock),
    /// This block and all its ancestors are finalized. The subscriber has got each of them as
    /// committed, or began above it. Only [`Db::set_head`] and [`Db::unwind`] can revert them.
    Finalized(BlockId),
}

/// Follows the canonical chain: see [`Db::subscribe`].
pub struct Subscription {
    db: Db,
    reached: BlockId,
    /// The finalized block that was announced last.
    finalized: Option<BlockId>,
    only_finalized: bool,
    /// Blocks up to the cursor that may have to be undone, oldest first.
    undoable: VecDeque<(BlockId, LogPosition)>,
}

impl Db {
    /// Follows the canonical chain from `cursor`, the block up to which the subscriber has everything:
    /// the block of the [`View`](crate::View) from which it began, or the stored
    /// [`Subscription::cursor`] of an earlier one. The first event comes after that block.
    ///
    /// If `cursor` is not canonical any more, the blocks on its branch are reverted first. Each event is delivered at
    /// least once: a subscriber that was stopped between handling an event and storing the cursor gets that event
    /// again. A slow or stopped subscriber misses nothing while the log keeps the blocks: see
    /// [`Options::keep_blocks`](crate::Options::keep_blocks).
    ///
    /// The subscription is a handle of the database, which [`Db::close`] waits for.
    ///
    /// ```
    /// # use alloy_primitives::{B256, Bytes, U256};
    /// # use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
    /// # use cambium_state::{BlockMeta, Loader, FaultyDisk, Options};
    /// use cambium_state::{ChainEvent, Db};
    /// use std::time::Duration;
    /// # let meta = |number, state_root, parent| BlockMeta {
    /// #     id: BlockId::new(number, B256::with_last_byte(number as u8 + 1)),
    /// #     parent,
    /// #     state_root,
    /// #     body: Bytes::new(),
    /// # };
    /// # let loaded = Loader::new(std::sync::Arc::new(FaultyDisk::new(1)), Options::default())?
    /// #     .finish(&mut |_| {})?;
    /// # let genesis = meta(0, loaded.root(), B256::ZERO);
    /// # let db: Db = loaded.create(genesis.clone(), vec![])?;
    /// # let put = AccountUpdate::Put(Account { balance: U256::ONE, ..Default::default() });
    /// # let changes = Changes::new(vec![AccountDiff {
    /// #     path: B256::repeat_byte(1), account: put, wipe: false, slots: vec![],
    /// # }]);
    ///
    /// let mut events = db.subscribe(db.genesis());
    /// # let staged = db.view()?.session().finish(changes, vec![])?;
    /// # let block = meta(1, staged.root(), genesis.id.hash);
    /// # staged.seal(block)?.commit()?;
    /// while let Some(event) = events.wait(Duration::from_millis(10))? {
    ///     match event {
    ///         ChainEvent::Committed(block) => println!("+{} {:?}", block.meta.id, block.changes),
    ///         ChainEvent::Reverted(block) => println!("-{} {:?}", block.meta.id, block.reverts),
    ///         ChainEvent::Finalized(block) => println!("finalized up to {block}"),
    ///     }
    ///     // Stored with what was made of the event, in one transaction.
    ///     let cursor = events.cursor();
    /// #   assert_eq!(cursor.number, 1);
    /// }
    /// # assert_eq!(events.cursor().number, 1);
    /// # Ok::<(), cambium_state::StateError>(())
    /// ```
    ///
    /// # Async
    ///
    /// A subscription blocks its thread, since it reads the disk. From tokio, give it a thread and a
    /// channel, whose limit makes the thread wait for a slow receiver:
    ///
    /// ```text
    /// let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
    /// tokio::task::spawn_blocking(move || -> Result<(), StateError> {
    ///     while !sender.is_closed() {
    ///         if let Some(event) = events.wait(Duration::from_secs(1))?
    ///             && sender.blocking_send((event, events.cursor())).is_err()
    ///         {
    ///             break;
    ///         }
    ///     }
    ///     Ok(())
    /// });
    /// while let Some((event, cursor)) = receiver.recv().await { /* .. */ }
    /// ```
    pub fn subscribe(&self, cursor: BlockId) -> Subscription {
        Subscription {
            db: self.clone(),
            reached: cursor,
            finalized: None,
            only_finalized: false,
            undoable: VecDeque::new(),
        }
    }

    /// Follows the finalized blocks from `cursor`, a finalized block: each is
    /// [committed](ChainEvent::Committed) once it is finalized, and there are no other events, unless
    /// [`Db::set_head`] or [`Db::unwind`] undo finalized blocks.
    pub fn subscribe_finalized(&self, cursor: BlockId) -> Subscription {
        Subscription {
            only_finalized: true,
            ..self.subscribe(cursor)
        }
    }
}

impl Subscription {
    /// The block up to which events were returned.
    pub const fn cursor(&self) -> BlockId {
        self.reached
    }

    /// Returns the next event, without waiting for one: `None` if the subscriber is at the head, and knows the
    /// finalized block. Reads the block log. A subscriber of a database that is [open for reading](Db::open_read_only)
    /// reads the writer's new records first.
    ///
    /// # Errors
    ///
    /// [`StateError::CannotFollow`] if the cursor is not in the database, if it is on a branch that was forgotten long
    /// ago, or if blocks after it have left the log: the subscriber's derived data must be made again, from the state
    /// at a newer block. [`StateError::Store`] and [`StateError::Damaged`] if the log can't be read; in a reader, also
    /// the errors of [`Db::catch_up`]. After an error the cursor is where it was.
    pub fn try_next(&mut self) -> Result<Option<ChainEvent>, StateError> {
        if !self.db.is_read_only() {
            return self.step();
        }
        // Without a block to add, this handle may be behind instead of the cursor: another subscriber may have followed
        // the writer further.
        if !matches!(self.look(), Ok(NextStep::Apply(_) | NextStep::Finalize(_))) {
            self.db.catch_up()?;
        }
        let mut attempt = 1;
        loop {
            match self.step() {
                // Blocks may have left the log during the read.
                Err(_) if attempt < READER_ATTEMPTS => {
                    attempt += 1;
                    self.db.catch_up()?;
                }
                event => return event,
            }
        }
    }

    /// Returns the next event, and waits for one up to `timeout`. `None` if there was none.
    ///
    /// # Errors
    ///
    /// Those of [`Subscription::try_next`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ChainEvent>, StateError> {
        // Too far for the clock is as good as for ever.
        const LONGEST: Duration = Duration::from_secs(1 << 30);
        let deadline = Instant::now() + timeout.min(LONGEST);
        loop {
            let seen = self.db.inner.news.count();
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            if self.db.is_read_only() {
                // Writes of another process wake no subscriber.
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(None);
                }
                thread::sleep(left.min(READER_INTERVAL));
            } else if !self.db.inner.news.wait(seen, deadline) {
                return Ok(None);
            }
        }
    }

    /// The next step from the cursor on the present chain.
    fn look(&self) -> Result<NextStep, StateError> {
        let finalized = self.db.finality().finalized;
        let to = match self.only_finalized {
            true => FollowTo::Finalized(finalized),
            false => FollowTo::Head(finalized.filter(|block| Some(*block) != self.finalized)),
        };
        let next = self.db.inner.journal.blocks.next_step(self.reached, to);
        next.map_err(|error| self.explain(error))
    }

    fn step(&mut self) -> Result<Option<ChainEvent>, StateError> {
        if self.db.finality().finalized.is_none() {
            // If it is finalized once more, that is announced again.
            self.finalized = None;
        }
        match self.look()? {
            NextStep::Wait => Ok(None),
            NextStep::Finalize(block) => {
                self.finalized = Some(block);
                Ok(Some(ChainEvent::Finalized(block)))
            }
            NextStep::Apply(entry) => {
                let id = BlockId::new(self.reached.number + 1, entry.hash);
                let block = self.read(id, entry.position)?;
                if self.undoable.len() == REMEMBERED_MAX {
                    self.undoable.pop_front();
                }
                self.undoable.push_back((id, entry.position));
                self.reached = id;
                Ok(Some(ChainEvent::Committed(block)))
            }
            NextStep::Undo => {
                let position = self.position_to_undo()?;
                let block = self.read(self.reached, position)?;
                self.undoable.pop_back();
                self.reached = BlockId::new(self.reached.number - 1, block.meta.parent);
                Ok(Some(ChainEvent::Reverted(block)))
            }
        }
    }

    /// Position of the block at the cursor, which is not canonical.
    fn position_to_undo(&mut self) -> Result<LogPosition, StateError> {
        if let Some((block, position)) = self.undoable.back()
            && *block == self.reached
        {
            return Ok(*position);
        }
        self.undoable.clear();
        let journal = &self.db.inner.journal;
        let found = journal.blocks.position_of(self.reached);
        if let Some(position) = found.map_err(|error| self.explain(error))? {
            self.undoable.push_back((self.reached, position));
            return Ok(position);
        }
        let branch = stale::branch_of(journal, self.reached);
        self.undoable = branch.map_err(|error| self.explain(error))?;
        match self.undoable.back() {
            // Nothing is below the first block.
            Some((block, position)) if block.number > self.db.genesis().number => Ok(*position),
            _ => Err(self
                .cannot_follow("it is not in the database, or on a branch that was left long ago")),
        }
    }

    fn read(&self, id: BlockId, position: LogPosition) -> Result<CommittedBlock, StateError> {
        let record = self.db.inner.journal.record_of(id, position);
        let record = record.map_err(|error| self.explain(error))?;
        Ok(CommittedBlock {
            meta: record.meta,
            changes: record.changes,
            reverts: record.reverts,
        })
    }

    /// Says what to do about blocks that are not kept.
    fn explain(&self, error: StateError) -> StateError {
        match error {
            StateError::NotKept { .. } | StateError::Store(StoreError::NotKept { .. }) => {
                self.cannot_follow("blocks that it needs have left the block log")
            }
            error => error,
        }
    }

    fn cannot_follow(&self, why: &'static str) -> StateError {
        let journal = &self.db.inner.journal;
        StateError::CannotFollow {
            cursor: self.reached,
            why,
            oldest: journal.kept().number.max(self.db.genesis().number),
            head: self.db.head(),
        }
    }
}
