//! Losses by rot in values, missing files, and rejected values.

use super::database::{Entries, create, key, open, options, overwrite, seal, segments, value_of};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue, StoredValue};
use cambium_state::{Db, Disk, FaultyDisk, StateError};
use cambium_testkit::plain::wait_until_closed;
use cambium_trie::{Blake3, Commitment, Sha256};
use std::num::NonZeroU64;
use std::sync::Arc;

#[test]
fn a_missing_or_short_value_file_is_named_with_the_way_back() {
    let disk = FaultyDisk::new(11);
    let entries: Entries = (0..20).map(|at| (key(at), value_of(at, 5_000))).collect();
    let options = options(Commitment::Binary(&Sha256));
    drop(create(&disk, options, &entries));
    wait_until_closed(&disk);
    let file = segments(&disk).remove(0);
    let is_named = |damaged: &FaultyDisk| {
        let error = Db::open(Arc::new(damaged.clone()), options).err().unwrap();
        let text = error.to_string();
        assert!(
            error.is_damage() && text.contains(&file) && text.contains("backup"),
            "{text}"
        );
    };
    let damaged = disk.duplicate();
    damaged.remove(&file).unwrap();
    is_named(&damaged);
    let damaged = disk.duplicate();
    damaged.open(&file).unwrap().set_len(20_000).unwrap();
    is_named(&damaged);
    // With the file put back, the directory is whole.
    let put_back = damaged.open(&file).unwrap();
    put_back
        .write_at(&disk.contents(&file).unwrap(), 0)
        .unwrap();
    let db = open(&damaged, options);
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
}

#[test]
fn rot_in_a_value_is_named_and_costs_nothing_else() {
    let disk = FaultyDisk::new(3);
    let entries: Entries = (0..10).map(|at| (key(at), value_of(at, 3_000))).collect();
    let mut db = create(&disk, options(Commitment::Binary(&Blake3)), &entries);
    overwrite(&db, 5_000, 3);
    db.flush(0).unwrap();
    drop(db);
    wait_until_closed(&disk);
    let file = segments(&disk).remove(0);
    let wanted = &entries[&key(4)];
    let bytes = disk.contents(&file).unwrap();
    let at = bytes
        .windows(100)
        .position(|part| *part == wanted[..100])
        .unwrap();
    disk.flip_bit(&file, at as u64 + 1_234, 3);
    db = open(&disk, options(Commitment::Binary(&Blake3)));
    let view = db.view().unwrap();
    let named = |error: &str| error.contains(&key(4).to_string()) && error.contains(&file);
    let error = view.entry(&key(4)).unwrap_err();
    assert!(error.is_damage() && named(&error.to_string()), "{error}");
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    assert!(named(&report.damage[0]), "{:?}", report.damage);
    for (one, value) in &entries {
        if ![key(1), key(4)].contains(one) {
            assert!(view.entry(one).unwrap().as_ref() == Some(value));
        }
    }
    assert!(view.entry(&key(1)).unwrap() == Some(value_of(2, 5_000)));
    // It can be put again.
    let writes = [(key(4), Some(wanted.clone()))].into();
    seal(view, 99, &writes).unwrap().commit().unwrap();
    db.flush(0).unwrap();
    assert!(db.view().unwrap().entry(&key(4)).unwrap().as_ref() == Some(wanted));
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
}

#[test]
fn values_that_no_leaf_can_have_are_refused() {
    let disk = FaultyDisk::new(4);
    let db = create(&disk, options(Commitment::Mpt), &Entries::new());
    let finish = |value: EntryValue| {
        let changes = Changes::new(vec![AccountDiff {
            path: key(1),
            account: AccountUpdate::Entry(value),
            wipe: false,
            slots: vec![],
        }]);
        let session = db.view().unwrap().session();
        session.finish(changes, vec![]).map(drop)
    };
    let long = finish(EntryValue::Inline(value_of(1, 513)));
    assert!(
        matches!(long, Err(StateError::LongValue { len: 513, .. })),
        "{long:?}"
    );
    let session = db.view().unwrap().session();
    let EntryValue::Stored(stored) = session.value(&key(1), value_of(1, 600)).unwrap() else {
        panic!("a long value in its leaf")
    };
    for wrong in [
        StoredValue { len: 512, ..stored },
        StoredValue {
            len: 601 + 8,
            ..stored
        },
        StoredValue {
            len: u32::MAX,
            ..stored
        },
        StoredValue {
            place: NonZeroU64::MIN,
            ..stored
        },
        StoredValue {
            place: NonZeroU64::MAX,
            ..stored
        },
        StoredValue {
            place: stored.place.saturating_add(1 << 32),
            ..stored
        },
    ] {
        let refused = finish(EntryValue::Stored(wrong));
        assert!(
            matches!(refused, Err(StateError::MissingValue { .. })),
            "{refused:?}"
        );
    }
    finish(EntryValue::Stored(stored)).unwrap();
    let error = session
        .value(&key(1), value_of(1, (16 << 20) + 1))
        .unwrap_err();
    assert!(error.to_string().contains("16777216"), "{error}");
    finish(EntryValue::Inline(value_of(1, 512))).unwrap();
}
