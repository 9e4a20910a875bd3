//! Promises about blocks, branches and views, each of which was once broken.

use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{
    CheckProgress, Db, Disk, FaultyDisk, Loader, Options, Sealed, StateError, StdDisk, View, repair,
};
use cambium_testkit::plain::{
    self, account, change, first_block, make, path, put, remove, tiny_options,
};
use std::sync::Arc;

const ACCOUNTS: u64 = 300;

fn database_with(options: Options, number: u64) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(7);
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for index in 0..ACCOUNTS {
        let slots = (0..index % 3).map(|at| (path(at), U256::from(at + 1)));
        loader.account(path(index), &account(0), slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let mut meta = first_block(loaded.root());
    meta.id.number = number;
    (loaded.create(meta, vec![]).unwrap(), disk)
}

fn database() -> (Db, FaultyDisk) {
    database_with(tiny_options(), 0)
}

/// A child of the block of `view`, whose hash is made from `name`.
fn seal_codes(
    view: View,
    name: &str,
    changes: Vec<AccountDiff>,
    codes: Vec<(B256, Bytes)>,
) -> Result<Sealed, StateError> {
    plain::seal(view, name, Changes::new(changes), codes)
}

fn seal(view: View, name: &str, nonce: u64) -> Sealed {
    seal_codes(view, name, vec![put(path(1), nonce)], vec![]).unwrap()
}

fn commit(view: View, name: &str, nonce: u64) -> BlockId {
    seal(view, name, nonce).commit().unwrap().id()
}

fn nonce(view: &View) -> u64 {
    view.account(&path(1)).unwrap().unwrap().nonce
}

/// `commit_all`: "in order, each after its parent; the last is the head then".
#[test]
fn commit_all_of_two_branches_leaves_the_head_with_its_own_ancestors() {
    let (db, _disk) = database();
    let a1 = seal(db.view().unwrap(), "a1", 1);
    let b1 = seal(db.view().unwrap(), "b1", 2);
    let a2 = seal(a1.view().unwrap(), "a2", 3);
    let (a1_id, head) = (a1.id(), a2.id());
    // Each after its parent.
    db.commit_all(vec![a1, b1, a2]).unwrap();
    assert_eq!(db.head(), head);
    assert_eq!(db.block_id(1).unwrap(), Some(a1_id));
    // The value of BLOCKHASH for the next block.
    let hash = db.view().unwrap().block_hash(1).unwrap();
    assert_eq!(hash, Some(a1_id.hash));
}

#[test]
fn commit_all_of_two_branches_has_no_block_over_the_head() {
    let (db, _disk) = database();
    let a1 = seal(db.view().unwrap(), "a1", 1);
    let a2 = seal(a1.view().unwrap(), "a2", 3);
    let b1 = seal(db.view().unwrap(), "b1", 2);
    let head = b1.id();
    db.commit_all(vec![a1, a2, b1]).unwrap();
    assert_eq!(db.head(), head);
    assert_eq!(
        db.block_id(2).unwrap(),
        None,
        "a block over the head is canonical"
    );
}

/// "immutable"; ARCHITECTURE "It is never changed".
#[test]
fn a_view_of_a_block_that_is_given_up_stays_what_it_was() {
    let (db, _disk) = database();
    let sealed = seal(db.view().unwrap(), "a1", 7);
    let view = sealed.view().unwrap();
    let root = view.state_root();
    assert_eq!(nonce(&view), 7);
    drop(sealed);
    assert_eq!(view.state_root(), root);
    assert_eq!(nonce(&view), 7, "the view has changed under its reader");
}

/// As above, below the layers of a committed child? A sealed child is given up with its parent.
#[test]
fn a_stale_sealed_block_takes_nothing_of_another_away() {
    let (db, _disk) = database();
    let a1 = seal(db.view().unwrap(), "a1", 1);
    let a2 = seal(a1.view().unwrap(), "a2", 2);
    // Takes both away.
    drop(a1);
    // Executed again, as after an error of the caller's.
    let a1_again = seal(db.view().unwrap(), "a1", 1);
    let a2_again = seal(a1_again.view().unwrap(), "a2", 2);
    // The rest of the first attempt is dropped.
    drop(a2);
    a1_again.commit().unwrap();
    a2_again.commit().unwrap();
    assert_eq!(db.head().number, 2);
}

/// A hash is the right one, or an error: never none.
fn right_or_unknown(got: Result<Option<B256>, StateError>, expected: B256) {
    match got {
        Ok(got) => assert_eq!(got, Some(expected)),
        Err(error) => assert!(matches!(error, StateError::UnknownBlock(_)), "{error}"),
    }
}

/// `block_hash`: "The hash of an ancestor, or of this block itself; `None` above it."
#[test]
fn a_view_knows_the_hashes_of_its_ancestors() {
    let options = Options {
        unfinalized_blocks: 4,
        ..tiny_options()
    };
    let (db, _disk) = database_with(options, 0);
    for number in 1..=3 {
        commit(db.view().unwrap(), &format!("a{number}"), number);
    }
    let view = db.view().unwrap();
    let (two, genesis) = (keccak256("a2"), db.genesis().hash);
    assert_eq!(view.block_hash(2).unwrap(), Some(two));
    assert_eq!(view.block_hash(0).unwrap(), Some(genesis));
    // Another branch becomes the chain, and grows.
    db.unwind(0).unwrap();
    for number in 1..=20 {
        commit(db.view().unwrap(), &format!("b{number}"), 100 + number);
    }
    db.flush(0).unwrap();
    assert_eq!(nonce(&view), 3);
    for (number, hash) in [(2, two), (0, genesis)] {
        right_or_unknown(view.block_hash(number), hash);
    }
}

/// The same of a view of a block that is sealed, on one that is given up.
#[test]
fn a_view_knows_the_hashes_of_ancestors_that_were_given_up() {
    let (db, _disk) = database();
    let a1 = seal(db.view().unwrap(), "a1", 1);
    let a2 = seal(a1.view().unwrap(), "a2", 2);
    let view = a2.view().unwrap();
    assert_eq!(view.block_hash(0).unwrap(), Some(db.genesis().hash));
    drop((a1, a2));
    right_or_unknown(view.block_hash(0), db.genesis().hash);
}

/// "Blocks of so many of the newest heights can be built upon".
#[test]
fn all_blocks_can_be_kept_to_be_built_upon() {
    let options = Options {
        unfinalized_blocks: usize::MAX,
        ..tiny_options()
    };
    let (db, disk) = database_with(options, 0);
    let aside = seal(db.view().unwrap(), "aside", 1)
        .commit_side_branch()
        .unwrap();
    for number in 1..=3 {
        commit(db.view().unwrap(), &format!("a{number}"), number);
    }
    db.flush(0).unwrap();
    assert!(db.has(aside.id()).unwrap());
    drop(db);
    drop(disk);
}

fn genesis_at(number: u64) {
    let (db, disk) = database_with(tiny_options(), number);
    assert_eq!(db.head().number, number);
    assert_eq!(db.genesis().number, number);
    assert_eq!(db.view_at(number).unwrap().block(), db.genesis());
    if let Some(next) = number.checked_add(1) {
        commit(db.view().unwrap(), "a1", 1);
        db.flush(0).unwrap();
        assert_eq!(db.head().number, next);
        db.unwind(number).unwrap();
        db.flush(0).unwrap();
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    drop(db);
    let disk = disk.duplicate();
    let (db, recovery) = Db::open(Arc::new(disk), tiny_options()).unwrap();
    assert_eq!(db.head().number, number);
    assert!(recovery.notes.is_empty(), "{:?}", recovery.notes);
}

#[test]
fn a_first_block_of_number_1000() {
    genesis_at(1000);
}

#[test]
fn a_first_block_of_a_number_without_end_is_refused() {
    // The disk of a test has no holes.
    genesis_at(1 << 16);
    for number in [(1 << 38) + 1, u64::MAX - 1, u64::MAX] {
        let disk = FaultyDisk::new(1);
        let loader = Loader::new(Arc::new(disk.clone()), tiny_options()).unwrap();
        let loaded = loader.finish(&mut |_| {}).unwrap();
        let mut meta = first_block(loaded.root());
        meta.id.number = number;
        let refused = loaded.create(meta, vec![]).err();
        assert!(
            matches!(refused, Some(StateError::BadStart(_))),
            "{refused:?}"
        );
        assert!(Loader::new(Arc::new(disk), tiny_options()).is_ok());
    }
}

/// "a caller's mistake leaves the engine as it was; damage on the disk names the file",
/// `is_damage`: "bytes on the disk are not what was written".
#[test]
fn slots_of_an_account_that_is_not_there_are_no_damage() {
    let (db, _disk) = database();
    let slots = AccountDiff {
        slots: vec![(path(1), U256::from(1))],
        ..change(path(ACCOUNTS + 5), AccountUpdate::Keep)
    };
    let staged = db
        .view()
        .unwrap()
        .session()
        .finish(Changes::new(vec![slots]), vec![]);
    let error = staged.err().expect("no account, no slots");
    assert!(!error.is_damage(), "a caller's mistake as damage: {error}");
}

#[test]
fn wipes_of_an_account_that_is_not_there_change_nothing() {
    let (db, _disk) = database();
    let root = db.view().unwrap().state_root();
    let wipe = AccountDiff {
        wipe: true,
        ..change(path(ACCOUNTS + 5), AccountUpdate::Keep)
    };
    let sealed = seal_codes(
        db.view().unwrap(),
        "a1",
        vec![wipe, remove(path(ACCOUNTS + 6))],
        vec![],
    )
    .unwrap();
    sealed.commit().unwrap();
    assert_eq!(db.view().unwrap().state_root(), root);
    db.flush(0).unwrap();
    assert_eq!(db.view().unwrap().state_root(), root);
    db.unwind(0).unwrap();
    assert_eq!(db.view().unwrap().state_root(), root);
}

fn with_code(nonce: u64, code_hash: B256) -> AccountUpdate {
    AccountUpdate::Put(Account {
        nonce,
        code_hash,
        ..account(0)
    })
}

/// "a committed block survives kill -9 and power loss"; session.rs `finish`: `UnknownCode`
/// "for an account whose code is neither given nor in the database".
#[test]
fn a_code_that_a_dropped_block_brought_is_there_after_a_crash_or_refused() {
    for seed in cambium_seeds::seeds!(0..20) {
        let (db, disk) = database();
        let code = Bytes::from(vec![seed as u8 + 1; 3000]);
        let hash = keccak256(&code);
        let deploy = change(path(5), with_code(1, hash));
        let dropped = seal_codes(
            db.view().unwrap(),
            "a1",
            vec![deploy],
            vec![(hash, code.clone())],
        );
        drop(dropped.unwrap());
        let other = change(path(6), with_code(1, hash));
        match seal_codes(db.view().unwrap(), "b1", vec![other], vec![]) {
            Ok(sealed) => {
                sealed.commit().unwrap();
            }
            Err(StateError::UnknownCode { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(db.view().unwrap().code(&hash).unwrap(), code);
        let crashed = disk.crash();
        drop(db);
        let (db, _) = Db::open(Arc::new(crashed), tiny_options()).unwrap();
        assert_eq!(db.head().number, 1);
        let view = db.view().unwrap();
        let there = view.account(&path(6)).unwrap().unwrap();
        assert_eq!(there.code_hash, hash);
        view.code(&hash).unwrap_or_else(|error| {
            panic!("{seed}: an acknowledged block lacks its code: {error}")
        });
    }
}

/// The codes of accounts alone, in the forms that empty code has.
#[test]
fn empty_codes() {
    let (db, disk) = database();
    let empty = (KECCAK256_EMPTY, Bytes::new());
    let deploy = change(path(5), with_code(1, KECCAK256_EMPTY));
    let code = Bytes::from_static(b"twice");
    let twice = (keccak256(&code), code);
    let sealed = seal_codes(
        db.view().unwrap(),
        "a1",
        vec![deploy],
        vec![empty.clone(), empty, twice.clone(), twice],
    );
    sealed.unwrap().commit().unwrap();
    db.flush(0).unwrap();
    assert!(
        db.view()
            .unwrap()
            .code(&KECCAK256_EMPTY)
            .unwrap()
            .is_empty()
    );
    let zero = change(path(6), with_code(1, B256::ZERO));
    let refused = seal_codes(db.view().unwrap(), "b1", vec![zero], vec![]);
    assert!(matches!(refused, Err(StateError::UnknownCode { .. })));
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
    drop(db);
    let (db, recovery) = Db::open(Arc::new(disk.duplicate()), tiny_options()).unwrap();
    assert!(recovery.notes.is_empty());
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
}

/// "blocks can be committed meanwhile".
#[test]
fn a_check_finds_no_damage_where_blocks_are_committed_meanwhile() {
    let (db, _disk) = database();
    for number in 1..=10 {
        commit(db.view().unwrap(), &format!("a{number}"), number);
    }
    let mut done_once = false;
    let report = db
        .check(&mut |progress| {
            if let CheckProgress::Blocks { done: 5, .. } = progress
                && !done_once
            {
                done_once = true;
                // A block that was executed on block 2 elsewhere arrives.
                commit(db.view_at(2).unwrap(), "b3", 77);
            }
        })
        .unwrap();
    assert!(done_once);
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

/// Of each height 64 blocks on average can be built upon, the newest first, however many there are.
#[test]
fn of_many_siblings_the_newest_can_be_built_upon() {
    let options = Options {
        unfinalized_blocks: 2,
        ..tiny_options()
    };
    let (db, _disk) = database_with(options, 0);
    let mut siblings = Vec::new();
    let genesis = db.genesis();
    for number in 0..400 {
        let view = db.view_of(genesis).unwrap();
        let sealed = seal(view, &format!("s{number}"), number);
        siblings.push(sealed.commit_side_branch().unwrap().id());
    }
    commit(db.view().unwrap(), "a1", 1);
    db.flush(0).unwrap();
    for id in &siblings[siblings.len() - 64..] {
        assert!(
            db.has(*id).unwrap(),
            "{id} of the newest height is forgotten"
        );
    }
}

#[test]
fn a_database_that_was_closed_can_be_opened_at_once() {
    let (mut db, disk) = database();
    for number in 1..=30 {
        let view = db.view().unwrap();
        commit(view, &format!("closed {number}"), number);
        let view = db.view().unwrap();
        let other = db.clone();
        let closed = db.close();
        assert!(
            matches!(closed, Err(StateError::StillUsed { users: 2 })),
            "{closed:?}"
        );
        let head = view.block();
        drop(view);
        other.flush(number as usize % 3).unwrap();
        other.close().unwrap();
        db = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap().0;
        assert_eq!(db.head(), head);
    }
}

/// "If it is open for writing already": the error names the holder in this process.
#[test]
fn a_second_opening_in_one_process_says_what_keeps_the_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let none = Arc::new(StdDisk::new(dir.path().join("none")));
    let told = Db::open(none.clone(), Options::default())
        .err()
        .unwrap()
        .to_string();
    assert!(
        told.contains("there is no database in") && told.contains("`Chain::init`"),
        "{told}"
    );
    let told = Db::open_read_only(none, Options::default())
        .err()
        .unwrap()
        .to_string();
    assert!(told.contains("there is no database in"), "{told}");
    // Opening creates nothing in an empty directory.
    let empty = Arc::new(StdDisk::new(dir.path()));
    assert!(Db::open(empty, Options::default()).is_err());
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);

    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path().join("db")));
    let db = make(disk.clone(), tiny_options(), 20, |_| 0);
    let view = db.view().unwrap();
    let again = || {
        Db::open(disk.clone(), tiny_options())
            .err()
            .map(|error| error.to_string())
    };
    let words = "is open in this process already: 2 handles, views, sessions or blocks of it are still in use";
    assert!(again().unwrap().contains(words), "{:?}", again());
    drop(db);
    let words =
        "is open in this process already: one handle, view, session or block of it is still in use";
    assert!(again().unwrap().contains(words), "{:?}", again());
    let repaired = repair(&disk, tiny_options(), true, &mut |_| {});
    let told = repaired.unwrap_err().to_string();
    assert!(told.contains("is open in this process already"), "{told}");
    drop(view);
    assert_eq!(again(), None);
}
