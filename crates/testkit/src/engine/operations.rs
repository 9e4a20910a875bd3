//! Operations of a run on the engine.

use super::{
    commitment::TestedCommitment,
    driver::{Ahead, EngineDriver, Failed, Known},
    heights::{is_near, meta},
};
use crate::{Model, random, wiped_by};
use alloy_primitives::{B256, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{BlockId, Changes};
use cambium_state::{Sealed, Session, Staged};
use cambium_trie::{NoResolve, PartialTrie, ProofTargets, commit};
use std::sync::Arc;

impl EngineDriver {
    /// A block on the head mostly, else on some earlier one, aside or as the head.
    pub(super) fn block(&mut self, at: &str) -> Result<(), Failed> {
        let parent = if self.random.percent(80) {
            self.head
        } else {
            self.buildable()
        };
        let aside = parent != self.head && self.random.percent(50);
        self.count(if parent == self.head {
            "block"
        } else {
            "side block"
        });
        let sealed = self.sealed(parent, at)?;
        let id = sealed.id();
        if aside {
            let committed = sealed.commit_side_branch();
            self.outcome(committed, at)?;
        } else {
            self.attempt_head(id.hash);
            let committed = sealed.commit();
            self.outcome(committed, at)?;
            self.is_the_head(id.hash);
        }
        self.is_durable(id.hash);
        Ok(())
    }

    /// Blocks that are executed on each other before any is durable, as an import does; merges
    /// and branches come in between.
    pub(super) fn blocks_ahead(&mut self, at: &str) -> Result<(), Failed> {
        self.count("blocks ahead");
        let mut ahead = self.ahead(self.head, at)?;
        if self.random.percent(60) {
            self.flush(at)?;
        }
        let lost = self.random.below(ahead.len() as u64 + 1) as usize;
        // Dropped, the last ones are as if they had not been.
        let dropped = ahead.split_off(ahead.len() - lost.min(ahead.len()));
        drop(dropped);
        let mut rest = ahead.into_iter().peekable();
        while rest.peek().is_some() {
            let group = self.random.below(3) as usize + 1;
            let group: Ahead = rest.by_ref().take(group).collect();
            let hashes: Vec<_> = group.iter().map(|sealed| sealed.id().hash).collect();
            let last = *hashes.last().expect("a group of at least one");
            // After a failure any of the group may be durable, and the head.
            for hash in &hashes {
                self.attempt_head(*hash);
            }
            let committed = self.db().commit_all(group);
            self.outcome(committed, at)?;
            self.head = last;
            self.head_moved();
            for hash in hashes {
                self.is_durable(hash);
            }
            if self.random.percent(30) {
                self.flush(at)?;
            }
        }
        Ok(())
    }

    /// Blocks sealed on a side branch, while the head moves on and is merged below them.
    pub(super) fn side_blocks_ahead(&mut self, at: &str) -> Result<(), Failed> {
        self.count("side blocks ahead");
        let parent = self.buildable();
        let ahead = self.ahead(parent, at)?;
        for _ in 0..self.random.below(3) {
            self.block(at)?;
        }
        if self.random.percent(70) {
            self.flush(at)?;
        }
        for sealed in ahead {
            let view = sealed.view();
            let hash = sealed.id().hash;
            match view {
                Ok(view) => self.compare(&view, hash, 8, at)?,
                // Given up with the branch that it is on, if that is not of the newest heights.
                Err(_) if !self.known[&parent].kept => return Ok(()),
                Err(error) => return self.outcome(Err(error), at),
            }
            let committed = sealed.commit_side_branch();
            self.outcome(committed, at)?;
            self.is_durable(hash);
        }
        Ok(())
    }

    /// One to four blocks, sealed on each other.
    fn ahead(&mut self, mut parent: B256, at: &str) -> Result<Ahead, Failed> {
        let mut ahead = Vec::new();
        for _ in 0..self.random.below(4) + 1 {
            let sealed = self.sealed(parent, at)?;
            parent = sealed.id().hash;
            ahead.push(sealed);
        }
        Ok(ahead)
    }

    /// A sealed block on `parent`.
    pub(super) fn sealed(&mut self, parent: B256, at: &str) -> Result<Sealed, Failed> {
        let (staged, model) = self.staged(parent, at)?;
        let root = staged.root();
        let wiped = wiped_by(staged.changes());
        let id = BlockId::new(self.known[&parent].id.number + 1, self.new_hash());
        let sealed = staged.seal(meta(id, parent, root));
        let sealed = self.outcome_at(parent, sealed, at)?;
        self.know(id, parent, model, root, wiped);
        Ok(sealed)
    }

    /// Remembers a block that is sealed.
    pub(super) fn know(
        &mut self,
        id: BlockId,
        parent: B256,
        model: Model,
        root: B256,
        wiped: Vec<B256>,
    ) {
        let known = Known {
            id,
            parent,
            model: Arc::new(model),
            root,
            wiped,
            durable: false,
            kept: is_near(id.number, self.known[&self.head].id.number),
        };
        self.known.insert(id.hash, known);
    }

    pub(super) fn staged(&mut self, parent: B256, at: &str) -> Result<(Staged, Model), Failed> {
        let (changes, mut model) = self.changes(parent);
        // Codes of earlier blocks need not come again, unless such a block may have left and the
        // code been lost since no account has it.
        let mut codes = random::codes(&changes);
        let may_be_lost = self.params.faults.rot && self.params.keep_blocks.is_some();
        codes.retain(|(hash, _)| may_be_lost || model.code(hash).is_none());
        model.add_codes(codes.iter().cloned());
        let mut session = self.session(parent, at)?;
        let is_partial = matches!(self.params.commitment, TestedCommitment::Partial);
        if self.random.percent(20) && !is_partial {
            self.roots_on_the_way(&mut session, parent, at)?;
        }
        if self.random.percent(5) {
            self.flush(at)?;
        }
        // Not at random, to keep the meaning of seeds.
        let root = self.root_after(parent, &model, &wiped_by(&changes));
        if self.next_hash.is_multiple_of(8) {
            match self.params.commitment {
                TestedCommitment::Mpt => self.witness(&session, &changes, root, at)?,
                // They have no witness of nodes.
                TestedCommitment::Partial | TestedCommitment::Layered { .. } => {}
                TestedCommitment::Entries(commitment) => {
                    self.entry_witness(&session, commitment, &changes, root, at)?;
                }
                TestedCommitment::LayeredEntries { interval } => {
                    self.layered_entry_witness(session.view(), interval, &changes, root, at)?;
                }
            }
        }
        let staged = match self.params.commitment {
            TestedCommitment::Partial => {
                let (changes, roots) = self.update(&changes, &model);
                session.finish_with_storage_roots(changes, codes, &roots)
            }
            _ => session.finish(changes, codes),
        };
        let staged = self.outcome(staged, at)?;
        let id = self.known[&parent].id;
        assert_eq!(staged.root(), root, "{at}: root of a block on {id}");
        Ok((staged, model))
    }

    /// The changes that lead to `after` as a partial database gets them: with the new storage roots, sometimes those of what it
    /// keeps as well, and without some of the slots that it does not keep.
    fn update(&self, changes: &Changes, after: &Model) -> (Changes, Vec<(B256, B256)>) {
        let given = self.next_hash;
        let mut roots = Vec::new();
        let mut stripped = Vec::new();
        for change in changes.accounts() {
            let mut change = change.clone();
            let is_kept = self.params.commitment.keeps(&change.path);
            let is_wanted = !change.slots.is_empty() || given.is_multiple_of(5);
            if let Some(account) = after.account(&change.path)
                && is_wanted
                && (!is_kept || given.is_multiple_of(3))
            {
                roots.push((change.path, account.storage_root()));
            }
            if !is_kept && given.is_multiple_of(2) {
                change.slots.clear();
            }
            stripped.push(change);
        }
        (Changes::new(stripped), roots)
    }

    /// From a witness alone follows the root after the changes; a view makes the same one.
    fn witness(
        &mut self,
        session: &Session,
        changes: &Changes,
        root: B256,
        at: &str,
    ) -> Result<(), Failed> {
        self.count("witness");
        let read = (0..20).map(|read| self.next_hash * 31 + read * 7);
        let read = read.map(|index| index % (self.params.accounts * 5 / 4));
        let key = |index| (random::account_path(index), vec![random::slot_path(index)]);
        let keys = ProofTargets::new(read.map(key).collect());
        let part = session.extract_for_changes(&keys, changes);
        let nodes = self.outcome(part, at)?.witness_nodes();
        let part = session.view().extract_for_changes(&keys, changes);
        let expected = self.outcome(part, at)?.witness_nodes();
        assert_eq!(
            nodes, expected,
            "{at}: witness of a session and of its view"
        );
        let before = session.view().state_root();
        let (mut trie, _) = PartialTrie::from_witness(before, &nodes)
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        trie.apply(changes.accounts(), &mut NoResolve)
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        commit(&mut [&mut trie], &mut Batch::new());
        assert_eq!(trie.state_root(), Some(root), "{at}: root by a witness");
        Ok(())
    }

    /// As a block before Byzantium does: roots on the way, of changes that don't last, while
    /// other blocks are executed and merged.
    fn roots_on_the_way(
        &mut self,
        session: &mut Session,
        parent: B256,
        at: &str,
    ) -> Result<(), Failed> {
        let mut there = (*self.known[&parent].model).clone();
        let mut wiped = Vec::new();
        for _ in 0..self.random.below(2) + 1 {
            let (detour, _) = self.changes_after(&there);
            there.apply(&detour);
            wiped.extend(wiped_by(&detour));
            let middle = session.intermediate_root(&detour);
            let middle = self.outcome(middle, at)?;
            let expected = self.root_after(parent, &there, &wiped);
            assert_eq!(middle, expected, "{at}: root on the way");
            if self.random.percent(30) {
                let other = self.recent();
                self.staged(other, at)?;
            }
        }
        Ok(())
    }

    /// A block that is staged or sealed, and then given up.
    pub(super) fn drop_block(&mut self, at: &str) -> Result<(), Failed> {
        self.count("dropped block");
        let parent = self.head;
        let (staged, _) = self.staged(parent, at)?;
        if self.random.percent(50) {
            let id = BlockId::new(self.known[&parent].id.number + 1, self.new_hash());
            let root = staged.root();
            let sealed = staged.seal(meta(id, parent, root));
            drop(self.outcome(sealed, at)?);
        }
        Ok(())
    }

    pub(super) fn change_head(&mut self, at: &str) -> Result<(), Failed> {
        let target = self.recent();
        self.count("set head");
        self.attempt_head(target);
        let set = self.db().set_head(self.known[&target].id);
        self.outcome_at(target, set, at)?;
        self.head = target;
        self.head_moved();
        Ok(())
    }

    pub(super) fn unwind(&mut self, at: &str) -> Result<(), Failed> {
        self.count("unwind");
        let far = self.random.percent(20);
        let depth = self.random.below(if far { 40 } else { 5 });
        let target = self.ancestor(depth);
        self.attempt_head(target);
        let number = self.known[&target].id.number;
        let unwound = self.db().unwind(number);
        assert_eq!(
            self.outcome_at(target, unwound, at)?.hash,
            target,
            "{at}: unwind to {number}"
        );
        self.head = target;
        self.head_moved();
        Ok(())
    }

    pub(super) fn flush(&mut self, at: &str) -> Result<(), Failed> {
        let keep = match self.random.percent(60) {
            true => 0,
            false => self.random.below(6) as usize,
        };
        self.count("flush");
        let flushed = self.db().flush(keep);
        if self.db().counters().index_blocks_opened > 0 {
            self.count("blocks of the index opened");
        }
        self.outcome(flushed, at)?;
        let stats = self.db().stats();
        let stats = self.outcome(stats, at)?;
        if stats.kept_from > 0 {
            let keep = self.params.keep_blocks.expect("all is kept");
            assert!(stats.kept_from + keep <= self.highest, "{at}: {stats:?}");
            self.count("not all is kept");
        }
        let first_file = self
            .disk
            .files()
            .into_iter()
            .find(|name| name.starts_with("log/"));
        if first_file.is_some_and(|name| name != "log/00000001.log") {
            self.count("files have left the log");
        }
        self.count(match stats.index_bytes_on_disk {
            0 => "index in memory",
            _ => "index on disk",
        });
        Ok(())
    }

    /// A block is durable and the head: that was acknowledged.
    pub(super) fn is_the_head(&mut self, hash: B256) {
        self.head = hash;
        self.head_moved();
        self.is_durable(hash);
    }

    pub(super) fn attempt_head(&mut self, hash: B256) {
        self.pending.push(hash);
        let head = self.known[&hash].id.number;
        self.highest = self.highest.max(head);
        for known in self.known.values_mut() {
            known.kept &= is_near(known.id.number, head);
        }
    }

    pub(super) fn is_durable(&mut self, hash: B256) {
        self.known.get_mut(&hash).expect("a block").durable = true;
    }

    /// Random changes to the state after `parent`, and the model after them.
    fn changes(&mut self, parent: B256) -> (Changes, Model) {
        let model = self.known[&parent].model.clone();
        self.changes_after(&model)
    }

    fn changes_after(&mut self, model: &Model) -> (Changes, Model) {
        let params = self.params;
        let leaves = params.commitment.leaves();
        let (accounts, changes_max) = (params.accounts, params.changes_max);
        random::changes(&mut self.random, leaves, model, accounts, changes_max)
    }

    pub(super) fn new_hash(&mut self) -> B256 {
        self.next_hash += 1;
        keccak256([self.params.seed.to_le_bytes(), self.next_hash.to_le_bytes()].concat())
    }
}
