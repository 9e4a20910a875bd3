//! A partial database beside a full one: the same blocks, the same roots, the slots of what is kept, and no slot of anything
//! else.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_evm::{Executor, Hooks, Sequential};
use cambium_primitives::{
    Account, AccountDiff, AccountUpdate, BlockId, Changes, Path, STORAGE_ROOT_KEY,
};
use cambium_state::{
    BlockMeta, Db, Disk, FaultyDisk, KeptStorage, Loader, Options, StateError, StdDisk, StoreError,
    backup,
};
use cambium_store::Manifest;
use cambium_testkit::{Model, Random, RandomBlocks, TINY_FILES, say};
use cambium_trie::{
    Commitment, EMPTY_ROOT, LeafRange, NoResolve, PartialTrie, ProofTargets, StorageKey,
    verify_account_proof,
};
use std::{num::NonZeroUsize, ops::ControlFlow, sync::Arc, thread, time::Duration};

fn options() -> Options {
    Options {
        memory_bytes: 32 << 20,
        unfinalized_blocks: 16,
        files: TINY_FILES,
        ..Options::default()
    }
}

/// Adds a whole state to a loader.
fn load(mut loader: Loader, state: &Model) -> cambium_state::Loaded {
    for (path, entry) in state.accounts() {
        let slots = entry.slots.iter().map(|(slot, value)| (*slot, *value));
        loader.account(*path, &entry.account, slots).unwrap();
        let hash = entry.account.code_hash;
        if let Some(code) = state.code(&hash) {
            loader.code(hash, code).unwrap();
        }
    }
    loader.finish(&mut |_| {}).unwrap()
}

fn meta(number: u64, name: u64, parent: B256, state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(
            number,
            keccak256([number.to_le_bytes(), name.to_le_bytes()].concat()),
        ),
        parent,
        state_root,
        body: Bytes::new(),
    }
}

fn reopen(disk: &FaultyDisk) -> Db {
    loop {
        match Db::open(Arc::new(disk.clone()), options()) {
            Err(StateError::Store(StoreError::InUse { .. })) => {
                thread::sleep(Duration::from_millis(2));
            }
            opened => return opened.unwrap().0,
        }
    }
}

/// A full database and a partial one, with the model of each block's state.
struct Pair {
    disks: [FaultyDisk; 2],
    dbs: [Db; 2],
    kept: KeptStorage,
    blocks: Vec<(BlockMeta, Model)>,
    names: u64,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    blocks: u64,
    side_blocks: u64,
    unwinds: u64,
    reopened: u64,
    merges: u64,
    deletions: u64,
    wipes: u64,
    roots: u64,
    kept_slots: u64,
    refused: u64,
}

impl Pair {
    fn new(seed: u64, state: Model, kept: KeptStorage) -> Self {
        let disks = [FaultyDisk::new(seed), FaultyDisk::new(seed + 1)];
        let full = Loader::new(Arc::new(disks[0].clone()), options()).unwrap();
        let partial = Loader::partial(Arc::new(disks[1].clone()), options(), kept.clone());
        let loaded = [full, partial.unwrap()].map(|loader| load(loader, &state));
        let first = meta(0, 0, B256::ZERO, state.root());
        let dbs = loaded.map(|loaded| {
            assert_eq!(loaded.root(), state.root());
            loaded.create(first.clone(), vec![]).unwrap()
        });
        assert_eq!(dbs[0].kept_storage(), None);
        assert_eq!(dbs[1].kept_storage(), Some(&kept));
        Self {
            disks,
            dbs,
            kept,
            blocks: vec![(first, state)],
            names: 0,
            counts: Counts::default(),
        }
    }

    fn head(&self) -> &(BlockMeta, Model) {
        self.blocks.last().unwrap()
    }

    /// Commits a block with these changes on the newest one, as the head or aside.
    fn commit(&mut self, changes: Changes, codes: Vec<(B256, Bytes)>, aside: bool) {
        let (parent, before) = self.head().clone();
        let mut after = before;
        after.apply(&changes);
        after.add_codes(codes.iter().cloned());
        self.names += 1;
        let meta = meta(
            parent.id.number + 1,
            self.names,
            parent.id.hash,
            after.root(),
        );
        let mut roots = Vec::new();
        for change in changes.accounts() {
            let is_deletion = change.account == AccountUpdate::Delete;
            self.counts.deletions += u64::from(is_deletion);
            self.counts.wipes += u64::from(change.wipe && !is_deletion);
            if !change.slots.is_empty() {
                let account = after.account(&change.path).unwrap();
                roots.push((change.path, account.storage_root()));
            }
        }
        self.counts.roots += roots.len() as u64;
        for db in &self.dbs {
            let session = db.view_of(parent.id).unwrap().session();
            let staged = session.finish_with_storage_roots(changes.clone(), codes.clone(), &roots);
            let staged = staged.unwrap();
            assert_eq!(staged.root(), after.root());
            let sealed = staged.seal(meta.clone()).unwrap();
            match aside {
                true => sealed.commit_side_branch().unwrap(),
                false => sealed.commit().unwrap(),
            };
        }
        if aside {
            self.counts.side_blocks += 1;
            let views = [0, 1].map(|at| self.dbs[at].view_of(meta.id).unwrap());
            assert_eq!(views[0].state_root(), views[1].state_root());
        } else {
            self.counts.blocks += 1;
            self.blocks.push((meta, after));
        }
    }

    fn unwind(&mut self, blocks: usize) {
        let left = self.blocks.len().saturating_sub(blocks).max(1);
        self.blocks.truncate(left);
        let to = self.head().0.id;
        for db in &self.dbs {
            assert_eq!(db.unwind(to.number).unwrap(), to);
        }
        self.counts.unwinds += 1;
    }

    fn merge(&mut self, keep: usize) {
        self.dbs.iter().for_each(|db| db.flush(keep).unwrap());
        self.counts.merges += 1;
    }

    fn reopen(&mut self) {
        for at in [0, 1] {
            // The last handle of a database closes it.
            let other = self.dbs[1 - at].clone();
            drop(std::mem::replace(&mut self.dbs[at], other));
            self.dbs[at] = reopen(&self.disks[at]);
        }
        assert_eq!(self.dbs[1].kept_storage(), Some(&self.kept));
        self.counts.reopened += 1;
    }

    /// Compares the state after a block: everything of it.
    fn compare(&mut self, at: usize) {
        let (meta, model) = &self.blocks[at];
        let [full, partial] = [0, 1].map(|db| self.dbs[db].view_of(meta.id).unwrap());
        assert_eq!(partial.state_root(), model.root());
        let mut accounts = Vec::new();
        partial
            .each_account(&B256::ZERO, |path, account| {
                accounts.push((path, account));
                ControlFlow::Continue(())
            })
            .unwrap();
        let expected = model.accounts().map(|(path, entry)| (*path, entry.account));
        assert_eq!(accounts, expected.collect::<Vec<_>>());
        for (path, entry) in model.accounts() {
            assert_eq!(
                partial.storage_root(path).unwrap(),
                Some(entry.storage_root())
            );
            assert_eq!(full.storage_root(path).unwrap(), Some(entry.storage_root()));
            assert_eq!(partial.has_storage(path).unwrap(), !entry.slots.is_empty());
            if !self.kept.keeps(path) {
                let told = partial.slots(path).unwrap_err().to_string();
                assert!(told.contains(&path.to_string()), "{told}");
                assert!(told.contains("is not kept"), "{told}");
                self.counts.refused += 1;
                continue;
            }
            let slots = partial.slots(path).unwrap();
            let expected: Vec<_> = entry
                .slots
                .iter()
                .map(|(slot, value)| (*slot, *value))
                .collect();
            assert_eq!(slots, expected);
            let targets = expected.iter().map(|(slot, _)| *slot).collect();
            let targets = ProofTargets::new(vec![(*path, targets)]);
            let nodes =
                [&full, &partial].map(|view| view.extract(&targets).unwrap().witness_nodes());
            assert_eq!(nodes[0], nodes[1], "proofs of {path}");
            self.counts.kept_slots += slots.len() as u64;
        }
    }

    fn check(&self) {
        for db in &self.dbs {
            let report = db.check(&mut |_| {}).unwrap();
            assert_eq!(report.damage, Vec::<String>::new());
        }
    }
}

/// Contracts that are made, destroyed and made again, before EIP-6780 and after it.
#[test]
fn blocks_of_contracts_that_come_and_go_have_the_same_roots_on_both() {
    let mut all = Counts::default();
    for seed in cambium_seeds::seeds!(0..24) {
        let (mut random_blocks, state) = match seed % 2 {
            0 => RandomBlocks::new(seed),
            _ => RandomBlocks::of_mortals(seed),
        };
        let mut random = Random::new(seed);
        // One in two of the contracts, absent ones included.
        let kept = KeptStorage::new(
            state
                .accounts()
                .filter(|(_, account)| !account.slots.is_empty())
                .map(|(path, _)| *path)
                .filter(|path| path[0].is_multiple_of(2)),
        );
        let mut pair = Pair::new(seed, state, kept.unwrap());
        for _ in 0..12 {
            let model = pair.head().1.clone();
            let block = random_blocks.block(&model);
            let done = Sequential.execute(&block.input(), &model, Hooks::default());
            let Ok(done) = done else { continue };
            let aside = random.percent(15);
            pair.commit(done.changes, done.codes, aside);
            match random.below(10) {
                0 | 1 => pair.merge(0),
                2 => pair.merge(2),
                3 => pair.unwind(1 + random.below(4) as usize),
                4 => pair.reopen(),
                _ => {}
            }
            let at = random.below(pair.blocks.len() as u64) as usize;
            pair.compare(at);
            pair.compare(pair.blocks.len() - 1);
        }
        pair.check();
        let Counts {
            blocks,
            side_blocks,
            unwinds,
            reopened,
            merges,
            deletions,
            wipes,
            roots,
            kept_slots,
            refused,
        } = pair.counts;
        all.blocks += blocks;
        all.side_blocks += side_blocks;
        all.unwinds += unwinds;
        all.reopened += reopened;
        all.merges += merges;
        all.deletions += deletions;
        all.wipes += wipes;
        all.roots += roots;
        all.kept_slots += kept_slots;
        all.refused += refused;
    }
    say(&format!("  partial and full, {all:?}"));
    assert!(all.deletions > 0 && all.side_blocks > 0 && all.unwinds > 0 && all.reopened > 0);
    assert!(all.kept_slots > 0 && all.refused > 0);
}

const KEPT: Address = Address::repeat_byte(0xaa);
const OTHER: Address = Address::repeat_byte(0xbb);

fn slot(index: u64) -> B256 {
    keccak256(U256::from(index).to_be_bytes::<32>())
}

/// Two contracts with `slots` slots each, of which one is kept, and 300 accounts.
fn state(slots: u64) -> Model {
    let mut model = Model::default();
    let put = |path, nonce, slots: u64| AccountDiff {
        path,
        account: AccountUpdate::Put(Account {
            nonce,
            ..Account::default()
        }),
        wipe: false,
        slots: (0..slots)
            .map(|at| (slot(at), U256::from(at + 1)))
            .collect(),
    };
    let mut accounts: Vec<_> = (0..300u64)
        .map(|at| put(keccak256(at.to_le_bytes()), at, 0))
        .collect();
    accounts.extend([KEPT, OTHER].map(|address| put(keccak256(address), 1, slots)));
    model.apply(&Changes::new(accounts));
    model
}

fn pair() -> Pair {
    let kept = KeptStorage::new([keccak256(KEPT)]).unwrap();
    Pair::new(7, state(2000), kept)
}

fn set(address: Address, slots: &[(u64, u64)]) -> AccountDiff {
    AccountDiff {
        path: keccak256(address),
        account: AccountUpdate::Keep,
        wipe: false,
        slots: slots
            .iter()
            .map(|(at, value)| (slot(*at), U256::from(*value)))
            .collect(),
    }
}

#[test]
fn a_proof_of_a_partial_database_verifies_and_what_it_has_not_is_refused_by_address() {
    let mut pair = pair();
    pair.commit(
        Changes::new(vec![set(KEPT, &[(1, 9), (2, 0)]), set(OTHER, &[(1, 9)])]),
        vec![],
        false,
    );
    for merges in [false, true] {
        if merges {
            pair.merge(0);
        }
        let view = pair.dbs[1].view().unwrap();
        let root = view.state_root();
        let keys = [1u64, 2, 3, 9000].map(|at| StorageKey::from(B256::from(U256::from(at))));
        let proof = view.prove_account(KEPT, &keys).unwrap();
        let verified = verify_account_proof(root, &proof);
        verified.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            proof,
            pair.dbs[0]
                .view()
                .unwrap()
                .prove_account(KEPT, &keys)
                .unwrap()
        );
        // The account of a contract that is not kept, with its storage root.
        let proof = view.prove_account(OTHER, &[]).unwrap();
        verify_account_proof(root, &proof).unwrap();
        assert_eq!(
            proof,
            pair.dbs[0]
                .view()
                .unwrap()
                .prove_account(OTHER, &[])
                .unwrap()
        );
        let path = keccak256(OTHER);
        let some = NonZeroUsize::new(10).unwrap();
        let session = view.clone().session();
        let changes = Changes::new(vec![set(OTHER, &[(1, 3)])]);
        let nothing = ProofTargets::default();
        let refusals = [
            (
                "slot_at",
                view.slot_at(OTHER, U256::from(1)).map(drop),
                true,
            ),
            (
                "slots_at",
                view.slots_at(&[(KEPT, U256::ZERO), (OTHER, U256::ZERO)])
                    .map(drop),
                true,
            ),
            (
                "prove_account",
                view.prove_account(OTHER, &keys).map(drop),
                true,
            ),
            (
                "prove_slots",
                view.prove_slots(OTHER, B256::ZERO, some).map(drop),
                true,
            ),
            (
                "storage_ref",
                revm::DatabaseRef::storage_ref(&view, OTHER, U256::ZERO).map(drop),
                true,
            ),
            ("slot", view.slot(&path, &slot(1)).map(drop), false),
            (
                "the key of the root",
                view.slot(&path, &STORAGE_ROOT_KEY).map(drop),
                false,
            ),
            ("storage", view.storage(&[(path, slot(1))]).map(drop), false),
            ("slots", view.slots(&path).map(drop), false),
            (
                "session",
                session.storage(&[(path, slot(1))]).map(drop),
                false,
            ),
            (
                "extract",
                view.extract(&ProofTargets::new(vec![(path, vec![slot(1)])]))
                    .map(drop),
                false,
            ),
            (
                "witness of a view",
                view.extract_for_changes(&nothing, &changes).map(drop),
                false,
            ),
            (
                "witness of a session",
                session.extract_for_changes(&nothing, &changes).map(drop),
                false,
            ),
            (
                "range",
                view.extract_range(
                    &LeafRange::slots(path, B256::ZERO, B256::repeat_byte(255)),
                    some,
                )
                .map(drop),
                false,
            ),
        ];
        for (what, refused, has_address) in refusals {
            let error = refused.unwrap_err();
            let told = error.to_string();
            assert!(
                matches!(error, StateError::StorageNotKept { account, .. } if account == path),
                "{what}: {told}"
            );
            assert_eq!(
                told.contains(&OTHER.to_string()),
                has_address,
                "{what}: {told}"
            );
        }
        // All accounts are proved, in pages.
        let mut from = Some(B256::ZERO);
        let mut count = 0;
        while let Some(first) = from {
            let proof = view
                .prove_accounts(first, NonZeroUsize::new(50).unwrap())
                .unwrap();
            let page = proof.verify_accounts(root, first).unwrap();
            count += page.values.len();
            from = page.next;
        }
        assert_eq!(count, 302);
    }
    assert!(cambium_state::StateTrie::of(&pair.dbs[1].view().unwrap()).is_err());
}

#[test]
fn changes_without_their_roots_and_false_roots_are_refused_and_change_nothing() {
    let mut pair = pair();
    let (kept, other) = (keccak256(KEPT), keccak256(OTHER));
    let changes = Changes::new(vec![set(KEPT, &[(1, 9)]), set(OTHER, &[(1, 10)])]);
    let mut after = pair.head().1.clone();
    after.apply(&changes);
    let right = |path: &B256| after.account(path).unwrap().storage_root();
    let finish = |roots: &[(B256, B256)], changes: &Changes| {
        let session = pair.dbs[1].view().unwrap().session();
        session
            .finish_with_storage_roots(changes.clone(), vec![], roots)
            .map(|staged| staged.root())
    };
    let sorted = |roots: &[(B256, B256)]| {
        let mut roots = roots.to_vec();
        roots.sort_unstable();
        roots
    };
    assert_eq!(
        finish(&[(other, right(&other))], &changes).unwrap(),
        after.root()
    );
    let both = sorted(&[(other, right(&other)), (kept, right(&kept))]);
    assert_eq!(finish(&both, &changes).unwrap(), after.root());
    // The slots of what is not kept need not be given.
    let stripped = Changes::new(vec![set(KEPT, &[(1, 9)])]);
    assert_eq!(finish(&both, &stripped).unwrap(), after.root());
    // A false root of what is not kept leads to another state root.
    for false_root in [right(&kept), EMPTY_ROOT, B256::repeat_byte(1)] {
        assert_ne!(
            finish(&[(other, false_root)], &changes).unwrap(),
            after.root()
        );
    }
    // Of what is kept it is compared.
    let false_both = sorted(&[(other, right(&other)), (kept, right(&other))]);
    let error = finish(&false_both, &changes).unwrap_err();
    assert!(
        matches!(error, StateError::WrongStorageRoot { account, .. } if account == kept),
        "{error}"
    );
    let plain = pair.dbs[1]
        .view()
        .unwrap()
        .session()
        .finish(changes.clone(), vec![]);
    let error = plain.map(drop).unwrap_err();
    assert!(
        matches!(error, StateError::StorageRoot { account, .. } if account == other),
        "{error}"
    );
    let reserved = |address| {
        Changes::new(vec![AccountDiff {
            slots: vec![(STORAGE_ROOT_KEY, right(&other).into())],
            ..set(address, &[])
        }])
    };
    for (changes, roots) in [
        (reserved(KEPT), vec![]),
        (reserved(OTHER), vec![(other, right(&other))]),
    ] {
        let error = finish(&roots, &changes).unwrap_err();
        assert!(matches!(error, StateError::StorageRoot { .. }), "{error}");
    }
    let ghost = keccak256([1]);
    let error = finish(&[(ghost, right(&other))], &Changes::default()).unwrap_err();
    assert!(matches!(error, StateError::BadChanges(_)), "{error}");
    pair.compare(0);
    pair.commit(changes, vec![], false);
    pair.merge(0);
    pair.compare(0);
    pair.compare(1);
    pair.check();
}

/// To a full database, and to verifiers, a slot with the reserved key is a slot as any other.
#[test]
fn only_a_partial_trie_takes_a_leaf_for_a_storage_root() {
    let forged = |commitment| {
        let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
        let account = AccountDiff {
            account: AccountUpdate::Put(Account::default()),
            slots: vec![(STORAGE_ROOT_KEY, B256::repeat_byte(7).into())],
            ..set(OTHER, &[])
        };
        trie.apply(&[account], &mut NoResolve).unwrap();
        cambium_trie::commit(&mut [&mut trie], &mut cambium_trie::Batch::new());
        let storage = trie.find(&Path::account(&keccak256(OTHER))).unwrap();
        trie.storage_root_at(storage).unwrap()
    };
    assert_eq!(forged(Commitment::PartialMpt), B256::repeat_byte(7));
    assert_ne!(forged(Commitment::Mpt), B256::repeat_byte(7));
    let mut model = Model::default();
    model.apply(&Changes::new(vec![AccountDiff {
        account: AccountUpdate::Put(Account::default()),
        slots: vec![(STORAGE_ROOT_KEY, B256::repeat_byte(7).into())],
        ..set(OTHER, &[])
    }]));
    let full = Loader::new(Arc::new(FaultyDisk::new(1)), options()).unwrap();
    assert_eq!(load(full, &model).root(), model.root());
    let kept = KeptStorage::new([]).unwrap();
    let mut partial = Loader::partial(Arc::new(FaultyDisk::new(1)), options(), kept).unwrap();
    let slots = [(STORAGE_ROOT_KEY, U256::from(7))];
    let error = partial
        .account(keccak256(OTHER), &Account::default(), slots)
        .unwrap_err();
    assert!(matches!(error, StateError::StorageRoot { .. }), "{error}");
}

#[test]
fn a_partial_database_is_copied_and_read_beside_its_writer_and_says_what_it_is() {
    let mut pair = pair();
    for number in 0..5 {
        pair.commit(
            Changes::new(vec![set(OTHER, &[(number, 3)]), set(KEPT, &[(number, 4)])]),
            vec![],
            false,
        );
    }
    pair.merge(2);
    let dir = tempfile::tempdir().unwrap();
    let to: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path().join("copy")));
    let from: Arc<dyn Disk> = Arc::new(pair.disks[1].clone());
    backup(&from, &to, options(), &mut |_| {}).unwrap();
    let (copy, _) = Db::open(to, options()).unwrap();
    let (reader, _) = Db::open_read_only(from, options()).unwrap();
    for db in [&copy, &reader] {
        assert_eq!(db.kept_storage(), Some(&pair.kept));
        assert_eq!(db.options().commitment, Commitment::PartialMpt);
        let view = db.view().unwrap();
        assert_eq!(view.state_root(), pair.head().0.state_root);
        assert_eq!(view.slot_at(KEPT, U256::from(3)).unwrap(), U256::from(4));
        assert!(view.slot_at(OTHER, U256::from(3)).is_err());
        assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
    }
    let is_partial = |options| {
        Loader::new(Arc::new(FaultyDisk::new(1)), options)
            .map(drop)
            .is_err()
    };
    assert!(is_partial(Options {
        commitment: Commitment::PartialMpt,
        ..options()
    }));
    assert!(!is_partial(options()));
}

/// The list in the manifest is held against what is there.
#[test]
fn a_check_reports_a_list_that_is_not_that_of_the_storage() {
    let mut pair = pair();
    pair.commit(Changes::new(vec![set(OTHER, &[(1, 3)])]), vec![], false);
    pair.merge(0);
    let disk = pair.disks[1].clone();
    drop(pair);
    drop(reopen(&disk));
    let manifest = Manifest::open(&disk).unwrap();
    let properties = ["genesis_number", "genesis_hash", "commitment"];
    let properties = properties.map(|name| {
        let value = manifest.property(name).unwrap();
        (name.to_owned(), value.to_vec())
    });
    let list = |kept: &[Address]| {
        let kept = KeptStorage::new(kept.iter().map(keccak256)).unwrap();
        Some(("kept_storage".to_owned(), kept.encode()))
    };
    let with = |list: Option<(String, Vec<u8>)>| {
        let made = FaultyDisk::new(3);
        let properties = properties.iter().cloned().chain(list);
        Manifest::create(&made, manifest.salt(), properties).unwrap();
        let bytes = made.contents("cambium.db").unwrap();
        let other = disk.duplicate();
        let file = other.open("cambium.db").unwrap();
        file.set_len(0).unwrap();
        file.write_at(&bytes, 0).unwrap();
        Db::open(Arc::new(other), options()).map(|(db, _)| db)
    };
    let damage = |kept: &[Address]| with(list(kept)).unwrap().check(&mut |_| {}).unwrap().damage;
    assert_eq!(damage(&[KEPT]), Vec::<String>::new());
    let missing = damage(&[KEPT, OTHER]).join("\n");
    let other = keccak256(OTHER).to_string();
    assert!(
        missing.contains("is to be kept, and only its root is there"),
        "{missing}"
    );
    assert!(missing.contains(&other), "{missing}");
    let surplus = damage(&[]).join("\n");
    assert!(surplus.contains("is not to be kept, and slot"), "{surplus}");
    assert!(surplus.contains(&keccak256(KEPT).to_string()), "{surplus}");
    let bad = Some(("kept_storage".to_owned(), vec![1; 33]));
    for (list, told) in [(None, "no list"), (bad, "malformed list")] {
        let error = with(list).map(drop).unwrap_err();
        assert!(error.is_damage(), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}
