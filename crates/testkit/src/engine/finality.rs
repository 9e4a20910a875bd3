//! Safe and finalized blocks.

use super::driver::{EngineDriver, Failed};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, Changes};
use cambium_state::{Finality, StateError};

impl EngineDriver {
    /// Makes a block the head, mostly the one that is, with safe and finalized blocks below it.
    pub(super) fn canonical(&mut self, at: &str) -> Result<(), Failed> {
        let head = match self.random.percent(60) {
            true => self.head,
            false => self.recent(),
        };
        let asked = self.some_finality(head);
        let id = self.known[&head].id;
        let Some(expected) = self.finality_after(head, asked) else {
            self.count("refused finality");
            let finality = self.db().finality();
            match self.db().set_canonical(id, asked.safe, asked.finalized) {
                Err(
                    StateError::NotAnAncestor { .. }
                    | StateError::SafeBelowFinalized { .. }
                    | StateError::NotOnFinalized { .. },
                ) => {}
                Ok(()) => panic!("{at}: {asked:?} under {id} was not refused, after {finality:?}"),
                other => return self.outcome_at(head, other, at),
            }
            return Ok(());
        };
        self.count("canonical");
        self.attempt_head(head);
        self.pending_finality.push(expected);
        self.free_branches(expected);
        let set = self.db().set_canonical(id, asked.safe, asked.finalized);
        self.outcome_at(head, set, at)?;
        self.head = head;
        self.pending.clear();
        self.finality = expected;
        self.pending_finality.clear();
        match self.random.percent(50) {
            true => self.build_below_finality(at),
            false => Ok(()),
        }
    }

    /// Blocks that may be asked for beside a head: ancestors of it mostly, in any order.
    fn some_finality(&mut self, head: B256) -> Finality {
        let mut some = || match self.random.below(10) {
            0..3 => None,
            3 => {
                let other = self.recent();
                Some(self.known[&other].id)
            }
            _ => {
                let depth = self.random.below(6);
                Some(self.known[&self.ancestor_of(head, depth)].id)
            }
        };
        Finality {
            finalized: some(),
            safe: some(),
        }
    }

    /// Safe and finalized blocks once `head` is the head, with `asked`. `None` if that must be
    /// rejected.
    fn finality_after(&self, head: B256, asked: Finality) -> Option<Finality> {
        let is_on_chain = |block: &BlockId| self.is_ancestor(*block, head);
        if !asked.safe.iter().chain(&asked.finalized).all(is_on_chain) {
            return None;
        }
        let known = self.finality;
        let finalized = asked.finalized.or(known.finalized);
        if let (Some(before), Some(after)) = (known.finalized, finalized)
            && (!is_on_chain(&before) || after.number < before.number)
        {
            return None;
        }
        let lowest = finalized.map_or(0, |block| block.number);
        if asked.safe.is_some_and(|safe| safe.number < lowest) {
            return None;
        }
        let safe = asked.safe.or(known.safe.filter(is_on_chain));
        Some(Finality {
            safe: safe.filter(|safe| safe.number >= lowest).or(finalized),
            finalized,
        })
    }

    /// Blocks that do not descend from the finalized one, and are not its ancestors, need not be
    /// there any more.
    fn free_branches(&mut self, finality: Finality) {
        let Some(finalized) = finality.finalized else {
            return;
        };
        let is_on_same_branch = |id: BlockId| match id.number <= finalized.number {
            true => self.is_ancestor(id, finalized.hash),
            false => self.is_ancestor(finalized, id.hash),
        };
        let known = self.known.values().map(|known| known.id);
        let freed: Vec<_> = known.filter(|id| !is_on_same_branch(*id)).collect();
        for id in freed {
            self.known.get_mut(&id.hash).expect("a block").kept = false;
        }
    }

    /// Whether `ancestor` is `block`, or one of its ancestors.
    pub(super) fn is_ancestor(&self, ancestor: BlockId, block: B256) -> bool {
        let mut known = &self.known[&block];
        while known.id.number > ancestor.number {
            known = &self.known[&known.parent];
        }
        known.id == ancestor
    }

    /// A block on which others can be built, now that a block may be finalized.
    pub(super) fn buildable(&mut self) -> B256 {
        let block = self.recent();
        match self.finality.finalized {
            Some(finalized) if !self.is_ancestor(finalized, block) => self.head,
            _ => block,
        }
    }

    /// `finality` without blocks that are not on the chain of `head`.
    pub(super) fn retained(&self, finality: Finality, head: B256) -> Finality {
        let is_on_chain = |block: &BlockId| self.is_ancestor(*block, head);
        let finalized = finality.finalized.filter(is_on_chain);
        Finality {
            safe: finality.safe.filter(is_on_chain).or(finalized),
            finalized,
        }
    }

    /// The head has moved where safe and finalized blocks may not be canonical.
    pub(super) fn head_moved(&mut self) {
        self.finality = self.retained(self.finality, self.head);
        self.pending.clear();
    }

    /// After a failure of the disk: the safe and finalized blocks were acknowledged or attempted.
    pub(super) fn accept_finality(&mut self, at: &str) {
        let found = self.db().finality();
        let mut possible = std::mem::take(&mut self.pending_finality);
        possible.push(self.finality);
        let is_possible = |finality: &Finality| self.retained(*finality, self.head) == found;
        assert!(
            possible.iter().any(is_possible),
            "{at}: {found:?}, possible under {} was {possible:?}",
            self.known[&self.head].id
        );
        self.finality = found;
    }

    /// A block on a branch that was freed, or on an ancestor of the finalized block, is refused.
    fn build_below_finality(&mut self, at: &str) -> Result<(), Failed> {
        let Some(finalized) = self.finality.finalized else {
            return Ok(());
        };
        let known = self.known.values().filter(|known| known.durable);
        let mut parents: Vec<_> = known.map(|known| known.id).collect();
        parents.retain(|id| !self.is_ancestor(finalized, id.hash));
        parents.sort_unstable_by_key(|id| (id.number, id.hash));
        let newest = parents.len().saturating_sub(12);
        let parents = &parents[newest..];
        let parent = match parents.len() as u64 {
            0 => return Ok(()),
            len => parents[self.random.below(len) as usize],
        };
        // A state that is still in memory may be read where nothing can be built any more.
        let view = self.db().view_of(parent);
        let probe = view.and_then(|view| view.session().finish(Changes::default(), vec![]));
        match probe {
            Err(StateError::UnknownBlock(_) | StateError::TooFar { .. }) => {
                self.count("freed branch");
                return Ok(());
            }
            Err(StateError::NotKept { .. }) => return Ok(()),
            Err(error) => return self.outcome(Err(error), at),
            Ok(_) => {}
        }
        self.count("block below finality");
        let sealed = self.sealed(parent.hash, at)?;
        let id = sealed.id();
        let committed = match self.random.percent(50) {
            true => sealed.commit().map(drop),
            false => sealed.commit_side_branch().map(drop),
        };
        match committed {
            Err(StateError::NotOnFinalized { .. }) => {}
            Ok(()) => panic!("{at}: {id} on {parent} was committed, {finalized} is finalized"),
            Err(error) => return self.outcome(Err(error), at),
        }
        Ok(())
    }
}
