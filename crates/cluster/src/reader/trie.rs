//! The trie of a reader. A builder divides it by the first nibble of paths, so that threads load, read, change and prune
//! subtries at once.

use crate::helpers::each;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccountDiff, AccountUpdate, Path};
use cambium_trie::{
    BagLevels, BagMaker, BagNodes, Batch, Deletes, EMPTY_ROOT, Link, Lookup, NodeKind, NodeRef,
    NodeView, PartialTrie, ProofTargets, Stub, TrieError, UnfoldError, UpdateError, commit,
};
use std::num::NonZeroUsize;

type Targets = [(B256, Vec<B256>)];
type Update<T> = Result<T, UpdateError<UnfoldError>>;

/// Targets, or changes, for which one more thread is called: waking a thread takes about 50 us.
const OF_A_THREAD: usize = 64;

/// Work that one of several threads does.
pub(super) type Job<'j> = Box<dyn FnOnce() -> Update<()> + Send + 'j>;

/// A state trie, whole or divided.
#[derive(Clone, Debug)]
pub(super) struct StateTrie {
    /// The whole trie. If it is divided, its nodes at depths below 2, with blinded children.
    top: PartialTrie,
    /// Of a divided trie, whose root is a branch, the subtries below its sixteen children.
    parts: Vec<PartialTrie>,
    /// Number of nodes, blinded ones included, that the last pruning left of each of these tries.
    kept: Vec<usize>,
    threads: NonZeroUsize,
}

impl StateTrie {
    /// A trie of which the root alone is known.
    pub(super) fn new(root: B256, threads: NonZeroUsize) -> Self {
        let top = match root {
            EMPTY_ROOT => PartialTrie::new(Path::EMPTY),
            root => PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(root))),
        };
        Self {
            top,
            parts: Vec::new(),
            kept: Vec::new(),
            threads,
        }
    }

    /// The same trie without anything but its root, in case of an error halfway through a change.
    pub(super) fn forget(&mut self, root: B256) {
        *self = Self::new(root, self.threads);
    }

    pub(super) const fn threads(&self) -> NonZeroUsize {
        self.threads
    }

    pub(super) const fn set_threads(&mut self, threads: NonZeroUsize) {
        self.threads = threads;
    }

    pub(super) fn state_root(&self) -> B256 {
        self.top.state_root().unwrap_or_default()
    }

    /// The nodes at depths below 2, or more of them.
    pub(super) const fn top(&self) -> &PartialTrie {
        &self.top
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let parts = self.parts.iter().map(PartialTrie::memory_bytes);
        self.top.memory_bytes() + parts.sum::<usize>()
    }

    /// The trie that has the leaf at a path.
    fn of(&self, path: &B256) -> &PartialTrie {
        self.parts.get(first_nibble(path)).unwrap_or(&self.top)
    }

    pub(super) fn account(&self, path: &B256) -> Lookup<'_> {
        self.of(path).lookup(&Path::account(path))
    }

    pub(super) fn slot(&self, account: &B256, slot: &B256) -> Lookup<'_> {
        self.of(account).lookup(&Path::slot(account, slot))
    }

    pub(super) fn has_storage(&self, path: &B256) -> bool {
        self.of(path).has_storage(path)
    }

    pub(super) fn storage_root_of(&self, path: &B256) -> Option<B256> {
        self.of(path).storage_root_of(path)
    }

    /// Divides a hashed trie whose root is a branch that is loaded.
    pub(super) fn divide(&mut self) {
        let NodeView::Branch { children } = self.top.visit(self.top.root()) else {
            return;
        };
        if !self.parts.is_empty() || self.top.cached_ref(self.top.root()).is_none() {
            return;
        }
        let (top, children) = (&self.top, (0..).zip(*children).collect::<Vec<_>>());
        self.parts = each(self.threads, children, |(nibble, child)| {
            let mut part = PartialTrie::new(Path::from_nibbles(&[nibble]));
            let root = part.graft_subtrie(top, child);
            part.set_root(root);
            part
        });
        self.kept.clear();
        self.join_top();
    }

    /// Makes the top nodes of a divided trie, which is hashed, and hashes them.
    fn join_top(&mut self) {
        let mut top = PartialTrie::new(Path::EMPTY);
        let mut children = [Link::EMPTY; 16];
        for (child, part) in children.iter_mut().zip(&self.parts) {
            *child = top.graft_node(part, part.root()).expect(HASHED);
        }
        let root = top.push_branch(children);
        top.set_root(root);
        commit(&mut [&mut top], &mut Batch::new());
        self.top = top;
    }

    /// Ends the division.
    fn join(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        let mut whole = PartialTrie::new(Path::EMPTY);
        let mut children = [Link::EMPTY; 16];
        for (child, part) in children.iter_mut().zip(&self.parts) {
            *child = whole.graft_subtrie(part, part.root());
        }
        let root = whole.push_branch(children);
        whole.set_root(root);
        commit(&mut [&mut whole], &mut Batch::new());
        (self.top, self.parts) = (whole, Vec::new());
        self.kept.clear();
    }

    /// How many threads share work on this many targets or changes.
    fn threads_for(&self, count: usize) -> NonZeroUsize {
        let useful = NonZeroUsize::MIN.saturating_add(count / OF_A_THREAD);
        self.threads.min(useful)
    }

    /// Runs `task` on the tries that have some of these targets, with those.
    fn each_with<T: Send>(
        &mut self,
        targets: &Targets,
        task: impl Fn(&mut PartialTrie, &Targets) -> T + Sync,
    ) -> Vec<T> {
        if self.parts.is_empty() {
            return vec![task(&mut self.top, targets)];
        }
        let threads = self.threads_for(targets.len());
        let mut groups = by_part(targets, |(path, _)| path).peekable();
        let parts = self.parts.iter_mut().enumerate();
        let work = parts.filter_map(|(at, part)| {
            let (_, group) = groups.next_if(|(nibble, _)| *nibble == at)?;
            Some((part, group))
        });
        each(threads, work.collect(), |(part, group)| task(part, group))
    }

    /// As [`Self::each_with`], without changes.
    pub(super) fn read_with<T: Send>(
        &self,
        targets: &Targets,
        task: impl Fn(&PartialTrie, &Targets) -> T + Sync,
    ) -> Vec<T> {
        if self.parts.is_empty() {
            return vec![task(&self.top, targets)];
        }
        let work = by_part(targets, |(path, _)| path);
        let work = work.map(|(nibble, group)| (&self.parts[nibble], group));
        let threads = self.threads_for(targets.len());
        each(threads, work.collect(), |(part, group)| task(part, group))
    }

    /// Loads the nodes of a bag on the paths of targets: see [`PartialTrie::load`].
    pub(super) fn load(&mut self, targets: &ProofTargets, bag: &BagNodes) -> Update<()> {
        let loaded = self.each_with(targets.accounts(), |trie, group| {
            trie.load(&owned(group), &mut bag.unfolder(leaves(group)))
        });
        loaded.into_iter().collect()
    }

    /// Loads those of them that are there: see [`PartialTrie::load_known`].
    pub(super) fn load_known(&mut self, targets: &ProofTargets, bag: &BagNodes) -> Update<usize> {
        let missing = self.each_with(targets.accounts(), |trie, group| {
            trie.load_known(&owned(group), &mut bag.unfolder(leaves(group)))
        });
        missing.into_iter().sum()
    }

    /// Loads the nodes that would remain alone if targets were deleted: see [`PartialTrie::load_siblings`].
    pub(super) fn load_siblings(
        &mut self,
        targets: &ProofTargets,
        deletes: Deletes,
        bag: &BagNodes,
    ) -> Update<Vec<Path>> {
        let missing = self.each_with(targets.accounts(), |trie, group| {
            trie.load_siblings(&owned(group), deletes, &mut bag.unfolder(leaves(group)))
        });
        let missing = missing.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut missing = missing.concat();
        // At the root.
        let named: Vec<_> = by_part(targets.accounts(), |(path, _)| path).collect();
        let is_named = |nibble| named.iter().any(|(named, _)| *named == nibble);
        let parts = self.parts.iter_mut().enumerate();
        let mut rest = parts.filter(|(at, part)| !part.is_empty() && !is_named(*at));
        if deletes == Deletes::All
            && !named.is_empty()
            && let (Some((_, alone)), None) = (rest.next(), rest.next())
            && alone.root().is_stub()
            && alone.kind(alone.root()) != Some(NodeKind::Branch)
        {
            let path = *alone.base();
            match alone.load_node(&path, &mut bag.unfolder(1)) {
                Ok(_) => {}
                Err(UpdateError::Resolve(UnfoldError::Missing(_))) => missing.push(path),
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    /// The nodes on the paths of targets, from these levels on, for a bag. `None` if one is not loaded.
    pub(super) fn nodes(&self, targets: &ProofTargets, levels: BagLevels) -> Option<Vec<Bytes>> {
        let joined;
        let trie = match self.parts.is_empty() {
            true => &self.top,
            false => {
                let mut copy = self.clone();
                copy.join();
                joined = copy.top;
                &joined
            }
        };
        let mut maker = BagMaker::of_trie(trie, usize::MAX);
        maker.add(targets, levels).ok()?;
        Some(maker.finish())
    }

    /// The nodes that reading targets and applying changes need, and no others, sorted by hash.
    pub(super) fn witness(
        &mut self,
        targets: &ProofTargets,
        changes: &[AccountDiff],
    ) -> Update<Vec<Bytes>> {
        let all = targets.clone().and(&ProofTargets::of_changes(changes));
        let nothing = BagNodes::default();
        if self.parts.is_empty() || !self.stays_divided(changes) {
            self.join();
            let mut unfolder = nothing.unfolder(1);
            let nodes = self.top.nodes_for_changes(&all, changes, &mut unfolder)?;
            return Ok(nodes.into_iter().map(|(_, node)| node).collect());
        }
        let found = self.each_with(all.accounts(), |part, group| {
            let own = own_changes(changes, part);
            part.nodes_for_changes(&owned(group), own, &mut nothing.unfolder(1))
        });
        let mut nodes = found.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        if !all.accounts().is_empty() {
            let root = self.top.nodes_above(1);
            nodes.extend(root.into_iter().map(|node| (self.state_root(), node)));
        }
        // Runs that are sorted already.
        nodes.sort_by_key(|(hash, _)| *hash);
        nodes.dedup_by_key(|(hash, _)| *hash);
        Ok(nodes.into_iter().map(|(_, node)| node).collect())
    }

    /// Whether the root is surely a branch after these changes, by what deletions could leave of its children.
    fn stays_divided(&self, changes: &[AccountDiff]) -> bool {
        let survives = |part: &PartialTrie| {
            let is_deleted = |change: &&AccountDiff| change.account == AccountUpdate::Delete;
            let own = own_changes(changes, part);
            let leaves = match part.visit(part.root()) {
                NodeView::Empty => 0,
                NodeView::Branch { children } => {
                    children.iter().filter(|child| !child.is_empty()).count()
                }
                NodeView::Extension { .. } => 2,
                _ => 1,
            };
            own.iter().filter(is_deleted).count() < leaves
        };
        self.parts.iter().filter(|part| survives(part)).count() > 1
    }

    /// Applies changes, for which all was loaded, and hashes what changed; does other jobs beside. Returns the root.
    /// After an error, the trie must be discarded.
    pub(super) fn apply(&mut self, changes: &[AccountDiff], beside: Vec<Job<'_>>) -> Update<B256> {
        // They are checked as a whole: a division would hide that some are unsorted.
        let mut pairs = changes.windows(2);
        if let Some(pair) = pairs.find(|pair| pair[0].path >= pair[1].path) {
            let path = Path::account(&pair[1].path);
            return Err(TrieError::Unsorted { path }.into());
        }
        if !self.parts.is_empty() && !self.stays_divided(changes) {
            self.join();
        }
        let threads = match beside.is_empty() {
            true => self.threads_for(changes.len()),
            false => self.threads,
        };
        let (mut jobs, is_divided) = (beside, !self.parts.is_empty());
        let whole = std::slice::from_mut(&mut self.top);
        let tries = match is_divided {
            true => &mut self.parts[..],
            false => whole,
        };
        for trie in tries {
            let own = match is_divided {
                true => own_changes(changes, trie),
                false => changes,
            };
            if own.is_empty() {
                continue;
            }
            jobs.push(Box::new(move || {
                trie.apply(own, &mut BagNodes::default().unfolder(1))?;
                commit(&mut [trie], &mut Batch::new());
                Ok(())
            }));
        }
        let done = each(threads, jobs, |job| job());
        done.into_iter().collect::<Update<()>>()?;
        if is_divided {
            self.join_top();
        }
        Ok(self.state_root())
    }

    /// Prunes the hashed trie to these levels of the account trie and of storage tries. Where most nodes go, those that stay are
    /// copied: it takes less time than to free the others one by one, and leaves no holes.
    pub(super) fn prune(&mut self, [accounts, slots]: [u8; 2]) -> Result<(), TrieError> {
        let tries = match self.parts.is_empty() {
            true => std::slice::from_mut(&mut self.top),
            false => &mut self.parts[..],
        };
        self.kept.resize(tries.len(), 0);
        let work = tries.iter_mut().zip(&mut self.kept).collect();
        let pruned = each(self.threads, work, |(trie, kept): (&mut PartialTrie, _)| {
            let count = |trie: &PartialTrie| {
                let (nodes, blinded) = trie.counts();
                nodes + blinded
            };
            if count(trie) > 2 * *kept {
                *trie = trie.pruned(accounts, slots)?;
            } else {
                trie.prune(accounts, slots)?;
                if let Some(compacted) = trie.compacted() {
                    *trie = compacted;
                }
            }
            *kept = count(trie);
            Ok(())
        });
        pruned.into_iter().collect()
    }
}

const HASHED: &str = "the trie is hashed";

const fn first_nibble(path: &B256) -> usize {
    (path.0[0] >> 4) as usize
}

/// Groups sorted items by the first nibbles of their paths.
fn by_part<T>(
    items: &[T],
    path: impl Fn(&T) -> &B256 + Copy,
) -> impl Iterator<Item = (usize, &[T])> {
    let of = move |item: &T| first_nibble(path(item));
    let groups = items.chunk_by(move |one, next| of(one) == of(next));
    groups.map(move |group| (of(&group[0]), group))
}

/// The changes, which are sorted, below the root of a part.
fn own_changes<'c>(changes: &'c [AccountDiff], part: &PartialTrie) -> &'c [AccountDiff] {
    let nibble = usize::from(part.base().nibble(0));
    let start = changes.partition_point(|change| first_nibble(&change.path) < nibble);
    let rest = &changes[start..];
    let end = rest.partition_point(|change| first_nibble(&change.path) == nibble);
    &rest[..end]
}

fn owned(targets: &Targets) -> ProofTargets {
    ProofTargets::new(targets.to_vec())
}

/// Number of accounts and slots.
pub(super) fn leaves(targets: &Targets) -> usize {
    let slots = targets.iter().map(|(_, slots)| slots.len());
    targets.len() + slots.sum::<usize>()
}
