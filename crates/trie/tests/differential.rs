//! Random changes against a state rebuilt from scratch by alloy-trie, after every step, on four
//! tries at once: a whole one, one whose subtries come and go, one whose storage tries are divided
//! over threads besides, and one in 256 shards.

use crate::common::{Model, NodeByNode, Random, steps};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, Path};
use cambium_trie::{
    LeafValue, Link, Lookup, NodeRef, NodeView, PartialTrie, Resolve, SHARDS, SlotsJob,
    SpreadSlots, Stub, TopLevelsError, TrieError, UpdateError, commit, top_levels,
};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Loads from a whole trie and its model, in one of the ways in which the engine does.
struct FromWhole<'a> {
    whole: &'a PartialTrie,
    model: &'a Model,
    random: Random,
    loads: usize,
}

impl Resolve for FromWhole<'_> {
    type Error = TrieError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, TrieError> {
        self.loads += 1;
        let link = self
            .whole
            .find(path)
            .ok_or(TrieError::NoNode { path: *path })?;
        assert_eq!(
            self.whole.cached_ref(link),
            Some(stub.node),
            "a stale stub at {path}"
        );
        if self.random.one_in(2) {
            return into.graft_node(self.whole, link);
        }
        let mut leaves = self.model.leaves(path);
        if self.random.one_in(2) {
            self.storage_elsewhere(&mut leaves);
        }
        let mut digests = vec![];
        for (leaf, value) in &leaves {
            let odds = self.random.below(leaf.len() - path.len() + 1);
            let at = leaf.prefix(path.len() + odds);
            let storage_stubbed = matches!(value, LeafValue::Storage(_));
            let digest = self
                .whole
                .find(&at)
                .and_then(|link| self.whole.cached_ref(link));
            if let Some(digest) = digest.filter(|_| !storage_stubbed && at.len() < 64) {
                digests.push((at, digest));
            }
        }
        into.graft_leaves(path, leaves.into_iter(), digests.into_iter())
    }
}

impl FromWhole<'_> {
    /// Puts a stub in the place of some accounts' slots.
    fn storage_elsewhere(&mut self, leaves: &mut Vec<(Path, LeafValue)>) {
        let accounts: Vec<_> = leaves.iter().map(|(path, _)| *path).collect();
        for account in accounts.into_iter().filter(|path| path.len() == 64) {
            let Some(link) = self.whole.find(&account) else {
                continue;
            };
            let stub = self.whole.as_stub(link).expect("hashed");
            leaves.retain(|(path, _)| path.len() == 64 || !path.starts_with(&account));
            let at = leaves.partition_point(|(path, _)| *path <= account);
            leaves.insert(at, (account, LeafValue::Storage(stub)));
        }
    }
}

impl FromWhole<'_> {
    fn another(&mut self) -> Self {
        Self {
            random: Random(self.random.next()),
            loads: 0,
            ..*self
        }
    }
}

/// Divides storage tries with at least that many changed slots, on a thread for each job.
struct Divided {
    slots_min: usize,
    jobs: AtomicUsize,
}

impl<'a> SpreadSlots<FromWhole<'a>> for Divided {
    fn slots_min(&self) -> usize {
        self.slots_min
    }

    fn run(
        &self,
        jobs: &mut [SlotsJob<'_>],
        resolver: &mut FromWhole<'a>,
    ) -> Result<(), UpdateError<TrieError>> {
        self.jobs.fetch_add(jobs.len(), Ordering::Relaxed);
        std::thread::scope(|scope| {
            let threads: Vec<_> = jobs
                .iter_mut()
                .map(|job| {
                    let (mut own, hashes) = (resolver.another(), resolver.random.one_in(2));
                    scope.spawn(move || {
                        assert!(job.slots() > 0);
                        job.apply(&mut own)?;
                        if hashes {
                            commit(&mut [job.trie], &mut Batch::new());
                        }
                        Ok::<_, UpdateError<TrieError>>(own.loads)
                    })
                })
                .collect();
            for thread in threads {
                resolver.loads += thread.join().expect("a job without a panic")?;
            }
            Ok(())
        })
    }
}

/// Reads slots of one account through the detached parts of its storage trie, if it is large.
fn read_detached(
    trie: &mut PartialTrie,
    model: &Model,
    account: &B256,
    slots: &[B256],
    loader: &mut FromWhole<'_>,
) {
    let detached = trie.detach_storage(account, loader).expect("all is there");
    let Some(mut detached) = detached else {
        return;
    };
    for slot in slots.iter().filter(|slot| slot[0] % 3 == 0) {
        let part = &mut detached.tries()[usize::from(slot[0] >> 4)];
        let found = part.load_leaf(&Path::slot(account, slot), loader);
        let expected = match model.0[account].1.get(slot) {
            Some(value) => Lookup::Slot(*value),
            None => Lookup::Absent,
        };
        assert_eq!(found.expect("all is there"), expected);
    }
    trie.attach_storage(detached);
}

struct Shards(Vec<PartialTrie>);

impl Shards {
    fn new() -> Self {
        let base = |shard| Path::from_packed(&[shard], 2).expect("two nibbles");
        Self(
            (0..=255)
                .map(|shard| PartialTrie::new(base(shard)))
                .collect(),
        )
    }

    fn apply(&mut self, changes: &[AccountDiff], batch: &mut Batch) -> B256 {
        for group in changes.chunk_by(|a, b| a.path[0] == b.path[0]) {
            let shard = &mut self.0[usize::from(group[0].path[0])];
            shard
                .apply(group, &mut cambium_trie::NoResolve)
                .expect("nothing is absent");
        }
        commit(&mut self.0.iter_mut().collect::<Vec<_>>(), batch);
        let top_levels = top_levels(&self.0.iter().collect::<Vec<_>>()).expect("all is loaded");
        top_levels.state_root().expect("a top_levels is hashed")
    }
}

/// Replaces up to three subtries of `trie` by stubs.
fn evict(trie: &mut PartialTrie, random: &mut Random, accounts: &[B256], slots: &[B256]) -> usize {
    let mut evicted = 0;
    for _ in 0..random.below(4) {
        let path = Path::slot(&random.pick(accounts), &random.pick(slots));
        let bound = if random.one_in(2) { 64 } else { 128 };
        let path = path.prefix(random.below(bound + 1));
        let there = trie.find(&path).is_some_and(|link| !link.is_stub());
        if there {
            evicted += usize::from(trie.replace_by_stub(&path, None).is_ok());
        }
    }
    if random.one_in(10) {
        for at in 0..64 {
            let path = Path::account(&random.pick(accounts)).prefix(at);
            if trie.find(&path).is_some_and(|link| !link.is_stub()) {
                evicted += usize::from(trie.replace_by_stub(&path, None).is_ok());
                break;
            }
        }
    }
    evicted
}

fn check_reads(trie: &PartialTrie, model: &Model, accounts: &[B256], slots: &[B256]) {
    for account in accounts {
        let expected = model.0.get(account);
        match trie.lookup(&Path::account(account)) {
            Lookup::Account(got) => assert_eq!(Some(&got), expected.map(|(account, _)| account)),
            Lookup::Absent => assert!(expected.is_none(), "{account}"),
            Lookup::Stub { depth, .. } => assert!(depth <= 63),
            Lookup::Slot(_) | Lookup::Entry(_) => panic!("no account at an account's path"),
        }
        for slot in slots {
            let expected = expected.and_then(|(_, slots)| slots.get(slot));
            match trie.lookup(&Path::slot(account, slot)) {
                Lookup::Slot(got) => assert_eq!(Some(&got), expected),
                Lookup::Absent => assert!(expected.is_none(), "{account} {slot}"),
                Lookup::Stub { depth, .. } => assert!(depth <= 128),
                Lookup::Account(_) | Lookup::Entry(_) => panic!("no slot at a slot's path"),
            }
        }
    }
}

fn run(seed: u64, steps: usize) {
    let mut random = Random(seed);
    let few = 2 + random.below(30);
    let accounts = random.close_keys(few);
    let few = 1 + random.below(20);
    let slots = random.close_keys(few);
    let mut model = Model::default();
    let (mut whole, mut partial) = (PartialTrie::new(Path::EMPTY), PartialTrie::new(Path::EMPTY));
    let mut divided = PartialTrie::new(Path::EMPTY);
    let mut shards = Shards::new();
    let mut batch = Batch::new();
    let (mut evicted, mut loads, mut jobs) = (0, 0, 0);
    for step in 0..steps {
        let changes = random.changes(&model, &accounts, &slots);
        evicted += evict(&mut partial, &mut random, &accounts, &slots);
        let random_of_loader = Random(random.next());
        let mut loader = FromWhole {
            whole: &whole,
            model: &model,
            random: random_of_loader,
            loads: 0,
        };
        partial
            .apply(changes.accounts(), &mut loader)
            .expect("the whole has all of it");
        if random.one_in(4) {
            evict(&mut divided, &mut random, &accounts, &slots);
        }
        if random.one_in(2) {
            let account = random.pick(&accounts);
            read_detached(&mut divided, &model, &account, &slots, &mut loader);
        }
        let spread = Divided {
            slots_min: 1 + random.below(4),
            jobs: AtomicUsize::new(0),
        };
        let spread_or_not = Some(&spread as &dyn SpreadSlots<_>).filter(|_| !random.one_in(4));
        divided
            .apply_with(changes.accounts(), &mut loader, spread_or_not)
            .expect("the whole has all of it");
        jobs += spread.jobs.into_inner();
        loads += loader.loads;
        whole
            .apply(changes.accounts(), &mut cambium_trie::NoResolve)
            .expect("nothing is absent");
        model.apply(&changes);
        commit(&mut [&mut whole, &mut partial, &mut divided], &mut batch);

        let root = model.root();
        let at = format!("seed {seed} step {step}");
        assert_eq!(whole.state_root(), Some(root), "{at}");
        assert_eq!(partial.state_root(), Some(root), "{at}, partial");
        assert_eq!(divided.state_root(), Some(root), "{at}, divided");
        assert_eq!(
            shards.apply(changes.accounts(), &mut batch),
            root,
            "{at}, shards"
        );
        if step % 16 == 0 {
            check_reads(&whole, &model, &accounts, &slots);
            check_reads(&partial, &model, &accounts, &slots);
            check_reads(&divided, &model, &accounts, &slots);
            partial = reencoded(&partial);
        }
    }
    assert!(
        evicted > steps / 50 && loads > steps / 50 && jobs > steps / 50,
        "{evicted} evicted, {loads} loaded, {jobs} jobs"
    );
    // Nothing leaks: every counted node is reachable from the root.
    assert_eq!(whole.counts(), count(&whole, whole.root()));
    assert_eq!(partial.counts(), count(&partial, partial.root()));
    assert_eq!(divided.counts(), count(&divided, divided.root()));
}

fn reencoded(trie: &PartialTrie) -> PartialTrie {
    let (mut bytes, mut again) = (vec![], vec![]);
    trie.encode_to(&mut bytes);
    let decoded = PartialTrie::decode(&bytes).expect("what was just encoded");
    decoded.encode_to(&mut again);
    assert_eq!(bytes, again);
    decoded
}

fn count(trie: &PartialTrie, link: Link) -> (usize, usize) {
    let below = |links: &[Link]| {
        links.iter().fold((1, 0), |(nodes, stubs), link| {
            let (more_nodes, more_stubs) = count(trie, *link);
            (nodes + more_nodes, stubs + more_stubs)
        })
    };
    match trie.visit(link) {
        NodeView::Empty => (0, 0),
        NodeView::Stub(_) => (0, 1),
        NodeView::Branch { children } => below(children),
        NodeView::Extension { child, .. } => below(&[child]),
        NodeView::Account { storage, .. } => below(&[storage]),
        NodeView::Slot { .. } | NodeView::Entry { .. } => below(&[]),
    }
}

#[test]
fn random_changes_give_the_root_of_a_trie_rebuilt_from_scratch() {
    let runs = steps(40, 10_000);
    let each = steps(100, 200);
    for seed in cambium_seeds::seeds!(0..runs as u64) {
        run(seed, each);
    }
    println!("{} steps", runs * each);
}

#[test]
fn a_shard_that_moves_up_is_asked_for_by_its_number() {
    let mut model = Model::default();
    let mut random = Random(7);
    let account = random.b256();
    model
        .0
        .insert(account, (random.account(), Default::default()));
    let mut shards = Shards::new();
    let changes = vec![AccountDiff {
        path: account,
        account: cambium_primitives::AccountUpdate::Put(model.0[&account].0),
        wipe: false,
        slots: vec![],
    }];
    assert_eq!(shards.apply(&changes, &mut Batch::new()), model.root());
    let shard = account[0];
    let lone = &mut shards.0[usize::from(shard)];
    assert_eq!(
        lone.root_ref_with_prefix(2).map(|node| node.root_hash()),
        Some(model.root())
    );
    let node = lone.cached_ref(lone.root()).expect("hashed");
    *lone = PartialTrie::from_stub(*lone.base(), Stub::bare(node));
    let refs: Vec<_> = shards.0.iter().collect();
    assert_eq!(refs.len(), SHARDS);
    assert_eq!(
        top_levels(&refs).unwrap_err(),
        TopLevelsError::Unresolved { shard }
    );
}

#[test]
fn what_is_loaded_must_be_what_the_stub_commits_to() {
    let mut random = Random(1);
    let (accounts, slots) = (random.close_keys(20), random.close_keys(5));
    let mut model = Model::default();
    let mut whole = PartialTrie::new(Path::EMPTY);
    for _ in 0..20 {
        let changes = random.changes(&model, &accounts, &slots);
        model.apply(&changes);
        whole
            .apply(changes.accounts(), &mut cambium_trie::NoResolve)
            .unwrap();
    }
    commit(&mut [&mut whole], &mut Batch::new());
    let wrong = Stub::bare(NodeRef::hash(B256::repeat_byte(1)));
    let mut partial = PartialTrie::from_stub(Path::EMPTY, wrong);
    let changes = random.changes(&model, &accounts, &slots);
    let error = partial
        .apply(changes.accounts(), &mut NodeByNode(&whole))
        .unwrap_err();
    assert!(error.to_string().contains("should be 0x0101"), "{error}");
    let path = Path::account(&changes.accounts()[0].path);
    assert!(
        matches!(partial.lookup(&path), Lookup::Stub { .. }),
        "readable after an error"
    );
}
