//! Look-ups in runs for the state at an old block.

use crate::{
    HistoryError,
    ahead::WantedPages,
    entry::{Key, ValueVisitor},
    run::{PagesAhead, reader::AtHand},
    runs::{LiveRun, Run, Runs},
};
use cambium_primitives::{ACCOUNT_NIBBLES, BlockId, BlockNumber, DecodeError, Path};
use cambium_trie::ProofTargets;
use std::sync::Arc;

/// Branches on one path that are read ahead, at most.
const PREFIXES_MAX: usize = 16;

/// An old block, and the runs with the changes since.
#[derive(Clone)]
pub(crate) struct Old {
    pub(crate) runs: Arc<Runs>,
    pub(crate) block: BlockId,
}

impl Old {
    /// The runs that have blocks above this one, oldest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = LiveRun> {
        let number = self.block.number;
        self.runs.all().filter(move |run| run.last > number)
    }

    /// The value of a key, if it has changed since.
    pub(crate) fn find<T>(
        &self,
        key: &Key,
        ahead: &PagesAhead,
        decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, HistoryError> {
        // An entry of a block that is not canonical any more has the value at the fork, which is the value here,
        // too: had it changed between, that entry would come first.
        self.first(key, ahead, |_, value| decode(value))
    }

    /// The first block since that changed a key.
    pub(crate) fn changed_by(&self, key: &Key) -> Result<Option<BlockNumber>, HistoryError> {
        self.first(key, &PagesAhead::NONE, |number, _| Ok(number))
    }

    /// What `look` finds in the block of a key's first change since, and the value before it.
    fn first<T>(
        &self,
        key: &Key,
        ahead: &PagesAhead,
        look: impl Fn(BlockNumber, &[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, HistoryError> {
        let from = self.block.number + 1;
        for LiveRun { run, .. } in self.runs() {
            match &run {
                Run::Memory(run) => {
                    if let Some((number, value)) = run.find(key, from) {
                        let found = look(number, value).map(Some);
                        return found.map_err(|error| bad_value(None, &error));
                    }
                }
                Run::File(run) => {
                    if let Some((number, value)) = run.find(key, from, ahead)? {
                        let found = look(number, &value).map(Some);
                        return found.map_err(|error| bad_value(Some(run.path()), &error));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Visits what a key had before each change since, oldest first, until `visit` breaks.
    pub(crate) fn each(
        &self,
        key: &Key,
        ahead: &PagesAhead,
        visit: ValueVisitor<'_>,
    ) -> Result<(), HistoryError> {
        let from = self.block.number + 1;
        for LiveRun { run, .. } in self.runs() {
            match &run {
                Run::Memory(run) => {
                    for (_, value) in run.find_all(key, from) {
                        let outcome = visit(value).map_err(|error| bad_value(None, &error))?;
                        if outcome.is_break() {
                            return Ok(());
                        }
                    }
                }
                Run::File(run) => {
                    if run.each(key, from, ahead, visit)?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// As [`Old::each`], with pages at hand. False if one is missing: the visit is then incomplete, and adds that page
    /// to `wanted`, and those in which `more` further runs would be looked up.
    pub(crate) fn each_at_hand(
        &self,
        key: &Key,
        ahead: &PagesAhead,
        (wanted, more): (&mut WantedPages, usize),
        visit: ValueVisitor<'_>,
    ) -> Result<bool, HistoryError> {
        let from = self.block.number + 1;
        let mut runs = self.runs();
        while let Some(LiveRun { run, .. }) = runs.next() {
            match &run {
                Run::Memory(run) => {
                    for (_, value) in run.find_all(key, from) {
                        let outcome = visit(value).map_err(|error| bad_value(None, &error))?;
                        if outcome.is_break() {
                            return Ok(true);
                        }
                    }
                }
                Run::File(run) => match run.each_at_hand(key, from, ahead, visit)? {
                    AtHand::Broken => return Ok(true),
                    AtHand::Continued => {}
                    AtHand::Missing(page, count) => {
                        wanted.add_pages(run, page, count);
                        let later = runs.filter_map(|run| match run.run {
                            Run::File(run) => run.may_have(key).then_some(run),
                            Run::Memory(_) => None,
                        });
                        later.take(more).for_each(|run| wanted.add(&run, key, from));
                        return Ok(false);
                    }
                },
            }
        }
        Ok(true)
    }

    /// Reads the pages in which look-ups on the paths to `keys` begin, in one batch.
    pub(crate) fn read_ahead(&self, keys: &ProofTargets) -> PagesAhead {
        let mut wanted = WantedPages::default();
        for (account, slots) in keys.accounts() {
            self.want(&Key::account(account), &mut wanted);
            self.want_nodes(&Path::account(account), 0, &mut wanted);
            for slot in slots {
                self.want(&Key::slot(account, slot), &mut wanted);
                self.want_nodes(&Path::slot(account, slot), ACCOUNT_NIBBLES, &mut wanted);
            }
        }
        wanted.read()
    }

    /// Wants the nodes on a path, from a depth on. Below a branch that has no entry nothing has changed,
    /// unless an extension is between: that is read when it shows.
    fn want_nodes(&self, path: &Path, depth: usize, wanted: &mut WantedPages) {
        for depth in depth..(depth + PREFIXES_MAX).min(path.len()) {
            if !self.want(&Key::node(&path.prefix(depth)), wanted) {
                return;
            }
        }
    }

    /// Wants the page in which the look-up of a key begins. False if it has no entry.
    fn want(&self, key: &Key, wanted: &mut WantedPages) -> bool {
        let from = self.block.number + 1;
        for LiveRun { run, .. } in self.runs() {
            match run {
                Run::Memory(run) => {
                    if run.find(key, from).is_some() {
                        return true;
                    }
                }
                Run::File(run) => {
                    if run.may_have(key) {
                        wanted.add(&run, key, from);
                        return true;
                    }
                }
            }
        }
        false
    }
}

/// The error for a value that is none, in a page whose checksum is right.
pub(crate) fn bad_value(file: Option<&str>, error: &DecodeError) -> HistoryError {
    HistoryError::Damaged {
        file: file.unwrap_or("a run in memory").to_owned(),
        offset: 0,
        what: error.what.to_owned(),
    }
}
