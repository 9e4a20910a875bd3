//! The thread that commits blocks.

use super::shared::{IN_UPDATE, Known, Refused, Shared};
use crate::{
    Model, Random,
    engine::{is_near, meta},
    random,
};
use alloy_primitives::{B256, keccak256};
use cambium_primitives::BlockId;
use cambium_state::{Db, LeafKind, Sealed, StateError};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Commits blocks, branches and unwinds, and records which were acknowledged.
pub(super) struct Writer {
    shared: Arc<Shared>,
    random: Random,
    /// Hash of the newest head whose commit returned.
    pub(super) head: B256,
    /// Other possible heads, after a failure during their commit.
    pub(super) pending: Vec<B256>,
    /// Earlier heads from which the head was moved, the newest last.
    heads: Vec<B256>,
    next_hash: u64,
}

impl Writer {
    pub(super) const fn new(shared: Arc<Shared>, random: Random, head: B256) -> Self {
        Self {
            shared,
            random,
            head,
            pending: Vec::new(),
            heads: Vec::new(),
            next_hash: 0,
        }
    }

    pub(super) fn step(&mut self, db: &Db, at: &str) -> Result<(), Refused> {
        let done = match self.random.below(100) {
            0..56 => self.block(db, self.head, at),
            56..66 => {
                let parent = self.recent();
                self.block(db, parent, at)
            }
            66..76 => self.blocks_ahead(db, at),
            76..80 => self.dropped(db, at),
            80..92 => {
                let target = self.recent();
                self.move_head(db, target, at)
            }
            _ => {
                let far = self.random.percent(20);
                let depth = self.random.below(if far { 40 } else { 6 });
                let target = self.shared.ancestor(&self.head, depth).id.hash;
                self.move_head(db, target, at)
            }
        };
        match done {
            Err(Refused::Memory) => {
                // The operation had no effect.
                self.shared.count("refused for want of memory", 1);
                self.pending.clear();
                Ok(())
            }
            Err(Refused::Unknown) => panic!("{at}: a block is not there that must be kept"),
            done => done,
        }
    }

    /// Commits a block on `parent`, as the head or on a side branch.
    pub(super) fn block(&mut self, db: &Db, parent: B256, at: &str) -> Result<(), Refused> {
        let aside = parent != self.head && self.random.percent(50);
        let sealed = self.sealed(db, parent, at)?;
        let hash = sealed.id().hash;
        if aside {
            self.shared.count("blocks aside", 1);
            self.shared.outcome(sealed.commit_side_branch(), at)?;
            self.is_durable(hash);
        } else {
            self.shared.count("blocks", 1);
            if parent != self.head {
                self.heads.push(self.head);
            }
            self.attempt_head(hash);
            self.shared.outcome(sealed.commit(), at)?;
            self.is_the_head(hash);
        }
        Ok(())
    }

    /// Seals blocks on each other before any is durable, and commits them together.
    fn blocks_ahead(&mut self, db: &Db, at: &str) -> Result<(), Refused> {
        let (mut ahead, mut parent) = (Vec::new(), self.head);
        for _ in 0..self.random.below(4) + 1 {
            let sealed = self.sealed(db, parent, at)?;
            parent = sealed.id().hash;
            ahead.push(sealed);
        }
        let lost = self.random.below(2) as usize;
        ahead.truncate(ahead.len().saturating_sub(lost));
        let hashes: Vec<_> = ahead.iter().map(|sealed| sealed.id().hash).collect();
        let Some(last) = hashes.last() else {
            return Ok(());
        };
        self.shared.count("blocks ahead", hashes.len() as u64);
        for hash in &hashes {
            self.attempt_head(*hash);
        }
        self.shared.outcome(db.commit_all(ahead), at)?;
        for hash in &hashes {
            self.is_durable(*hash);
        }
        self.is_the_head(*last);
        Ok(())
    }

    /// Seals a block and drops it.
    fn dropped(&mut self, db: &Db, at: &str) -> Result<(), Refused> {
        self.shared.count("blocks dropped", 1);
        let parent = self.recent();
        drop(self.sealed(db, parent, at)?);
        Ok(())
    }

    fn move_head(&mut self, db: &Db, target: B256, at: &str) -> Result<(), Refused> {
        self.shared.count("heads set", 1);
        let lowest = self.lowest_on_the_way(db, target);
        self.attempt_head(target);
        // Where readers have taken the memory, the head moves in steps, each of which is the head
        // for a moment: down to where the branches of the base and of the target part.
        self.forget_far_from(lowest);
        let target = self.shared.known(&target).id;
        self.shared.outcome(db.set_head(target), at)?;
        self.head = target.hash;
        self.pending.clear();
        Ok(())
    }

    fn sealed(&mut self, db: &Db, parent: B256, at: &str) -> Result<Sealed, Refused> {
        let shared = self.shared.clone();
        let parent = shared.known(&parent);
        let (accounts, changes_max) = (shared.params.accounts, shared.params.changes_max);
        let (changes, mut model): (_, Model) = random::changes(
            &mut self.random,
            LeafKind::Accounts,
            &parent.model,
            accounts,
            changes_max,
        );
        let mut codes = random::codes(&changes);
        codes.retain(|(hash, _)| model.code(hash).is_none());
        model.add_codes(codes.iter().cloned());
        let view = shared.outcome(db.view_of(parent.id), at)?;
        let session = view.session();
        if self.random.percent(20) {
            // As an executor that uses the block's access list does.
            let paths: Vec<_> = changes.accounts().iter().map(|one| one.path).collect();
            let found = shared.outcome(session.accounts(&paths), at)?;
            for (path, found) in paths.iter().zip(found) {
                let expected = parent.model.account(path).map(|entry| entry.account);
                assert_eq!(found, expected, "{at}: account {path} in a session");
            }
        }
        let staged = shared.outcome(session.finish(changes, codes), at)?;
        let root = model.root();
        assert_eq!(
            staged.root(),
            root,
            "{at}: root of a block on {}",
            parent.id
        );
        let id = BlockId::new(parent.id.number + 1, self.new_hash());
        let head = shared.known(&self.head).id.number;
        // Readers may meet it from here on.
        shared.know(Known {
            id,
            parent: parent.id.hash,
            model,
            root,
            durable: AtomicBool::new(false),
            kept: AtomicBool::new(is_near(id.number, head)),
        });
        shared.outcome(staged.seal(meta(id, parent.id.hash, root)), at)
    }

    /// Returns a block on which others can be built.
    fn recent(&mut self) -> B256 {
        let depth = self.random.below(WAY_BACK);
        let low = self.shared.ancestor(&self.head, depth).id.hash;
        if self.random.percent(30) {
            return low;
        }
        let blocks = self.shared.blocks.read();
        let newest = blocks.in_order.iter().rev().take(64);
        let newest: Vec<_> = newest.filter(|known| known.must_be_there()).collect();
        match newest.len() {
            0 => low,
            len => newest[self.random.below(len as u64) as usize].id.hash,
        }
    }

    /// Records that this block may become the head.
    fn attempt_head(&mut self, hash: B256) {
        self.pending.push(hash);
        self.forget_far_from(self.shared.known(&hash).id.number);
    }

    /// Marks blocks far from the head's height, which may be removed.
    fn forget_far_from(&self, head: u64) {
        for known in &self.shared.blocks.read().in_order {
            if !is_near(known.id.number, head) {
                known.kept.store(false, Ordering::SeqCst);
            }
        }
    }

    /// Returns the lowest height at which the branch of `target` forks off from a block that may be
    /// the base: a recent ancestor of the head.
    fn lowest_on_the_way(&mut self, db: &Db, target: B256) -> u64 {
        if self.heads.last() != Some(&self.head) {
            self.heads.push(self.head);
        }
        let bases = self.heads.iter().rev().take(HEADS_BACK).copied();
        let bases = bases.chain([db.snapshot_block().hash]);
        let forks = bases.map(|base| self.shared.fork(base, target));
        forks.min().expect("the head is one")
    }

    fn is_the_head(&mut self, hash: B256) {
        self.head = hash;
        self.pending.clear();
        self.is_durable(hash);
    }

    fn is_durable(&self, hash: B256) {
        let known = self.shared.known(&hash);
        known.durable.store(true, Ordering::SeqCst);
    }

    fn new_hash(&mut self) -> B256 {
        self.next_hash += 1;
        let seed = self.shared.params.seed;
        keccak256([seed.to_le_bytes(), self.next_hash.to_le_bytes()].concat())
    }

    /// Returns whether the engine still works after a fault.
    pub(super) fn goes_on(&mut self, db: &Db, at: &str) -> bool {
        // A flush fails if the engine has stopped.
        let kept = self.shared.guarded(IN_UPDATE, || {
            let flushed = db.flush(usize::MAX);
            self.shared.outcome(flushed, at)
        });
        if kept.is_err() {
            return false;
        }
        self.shared.count("went on after a fault", 1);
        let head = db.head();
        assert!(
            head.hash == self.head || self.pending.contains(&head.hash),
            "{at}: after a fault the head is {head}"
        );
        self.head = head.hash;
        self.is_durable(head.hash);
        // The log may still have the attempted operations, until another commit is acknowledged.
        true
    }

    /// Checks that an engine that has stopped rejects all changes.
    pub(super) fn nothing_is_committed(&mut self, db: &Db, at: &str) {
        self.shared.count("stopped", 1);
        if let Err(StateError::Poisoned(why)) = db.flush(0)
            && why.contains("a merge panicked")
        {
            self.shared.count("panics in a merge", 1);
        }
        for _ in 0..4 {
            let head = self.shared.known(&self.head).id;
            let stopped = |result: Result<(), StateError>| match result {
                Err(StateError::Poisoned(_) | StateError::Store(_)) => {}
                other => panic!("{at}: an engine that has stopped says {other:?}"),
            };
            stopped(db.set_head(head).map(drop));
            stopped(db.flush(0));
        }
    }
}

/// Number of earlier heads that may be descendants of the base, since merges take time.
const HEADS_BACK: usize = 10;
/// Number of blocks below the head on which blocks are built.
const WAY_BACK: u64 = 12;

impl Known {
    /// Whether the block must still exist: it is durable, and no head was far from it since.
    pub(super) fn must_be_there(&self) -> bool {
        self.durable.load(Ordering::SeqCst) && self.kept.load(Ordering::SeqCst)
    }
}
