//! Invalid calls. The engine must reject each without effect.

use super::{
    driver::{EngineDriver, Failed},
    heights::meta,
};
use crate::{random, wiped_by};
use alloy_primitives::{Bytes, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{Staged, StateError};

impl EngineDriver {
    /// One mistake of a random kind.
    pub(super) fn mistake(&mut self, at: &str) -> Result<(), Failed> {
        self.count("mistake");
        let parent = self.known[&self.head].id;
        let kind = self.random.below(12);
        let error = match kind {
            0..5 => {
                let (staged, _) = self.staged(parent.hash, at)?;
                let good = meta(
                    BlockId::new(parent.number + 1, self.new_hash()),
                    parent.hash,
                    staged.root(),
                );
                let mut bad = good.clone();
                match kind {
                    0 => bad.parent = self.new_hash(),
                    1 => bad.id.number += self.random.below(3) + 1,
                    2 => bad.id.number = self.random.below(parent.number + 1),
                    3 => {
                        let depth = self.random.below(4);
                        bad.id.hash = self.ancestor(depth);
                    }
                    _ => bad.state_root = self.new_hash(),
                }
                self.refused(staged.seal(bad))
            }
            5 | 6 => {
                let code = Bytes::from_static(b"a code");
                let (hash, account) = (keccak256(&code), random::account_path(1));
                let put = Account {
                    code_hash: match kind {
                        5 => self.new_hash(),
                        _ => hash,
                    },
                    ..Account::default()
                };
                let change = AccountDiff {
                    path: account,
                    account: AccountUpdate::Put(put),
                    wipe: false,
                    slots: vec![],
                };
                let codes = match kind {
                    // An account with a code that does not exist; a code of another hash.
                    5 => vec![],
                    _ => vec![(self.new_hash(), code)],
                };
                let session = self.session(parent.hash, at)?;
                self.refused(session.finish(Changes::new(vec![change]), codes))
            }
            7 => {
                // A child before its parent.
                let first = self.sealed(parent.hash, at)?;
                let second = self.sealed(first.id().hash, at)?;
                let refused = self.refused(second.commit());
                drop(first);
                refused
            }
            8 => {
                let unknown = BlockId::new(self.random.below(parent.number + 3), self.new_hash());
                self.refused(self.db().view_of(unknown))
            }
            9 => {
                let unknown = BlockId::new(self.random.below(parent.number + 3), self.new_hash());
                self.refused(self.db().set_head(unknown))
            }
            10 => self.refused(self.db().unwind(parent.number + 1)),
            // The right hash with another number.
            _ => {
                let wrong = BlockId::new(parent.number + 1 + self.random.below(3), parent.hash);
                self.refused(self.db().set_head(wrong))
            }
        };
        match error {
            None => panic!("{at}: mistake {kind} was not refused"),
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => self.outcome(Err(error), at),
        }
    }

    /// Result of a mistake: `None` if it was accepted; the error if it is an unexpected one.
    fn refused<T>(&self, result: Result<T, StateError>) -> Option<Result<(), StateError>> {
        let error = result.err()?;
        let is_expected = matches!(
            error,
            StateError::NotAChild { .. }
                | StateError::BlockExists(_)
                | StateError::WrongRoot { .. }
                | StateError::WrongLeaf { .. }
                | StateError::UnknownCode { .. }
                | StateError::WrongCode { .. }
                | StateError::ParentNotCommitted(_)
                | StateError::UnknownBlock(_)
                | StateError::NoSuchBlock { .. }
        );
        Some(if is_expected { Ok(()) } else { Err(error) })
    }

    /// Two blocks that are sealed with one hash: the second is refused, the first goes on.
    pub(super) fn twin(&mut self, at: &str) -> Result<(), Failed> {
        self.count("twin");
        let parent = self.known[&self.head].id;
        let id = BlockId::new(parent.number + 1, self.new_hash());
        let (one, model) = self.staged(parent.hash, at)?;
        let root = one.root();
        let wiped = wiped_by(one.changes());
        let sealed = self.outcome(one.seal(meta(id, parent.hash, root)), at)?;
        let (two, _): (Staged, _) = self.staged(parent.hash, at)?;
        let root_of_two = two.root();
        match two.seal(meta(id, parent.hash, root_of_two)) {
            Err(StateError::BlockExists(_)) => {}
            other => return self.outcome(other.map(|_| panic!("{at}: a second block {id}")), at),
        }
        self.know(id, parent.hash, model, root, wiped);
        self.attempt_head(id.hash);
        let committed = sealed.commit();
        self.outcome(committed, at)?;
        self.is_the_head(id.hash);
        Ok(())
    }
}
