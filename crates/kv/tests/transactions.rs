//! Snapshots of transactions, and their conflicts.

use crate::support::{all, key, options, store, store_of, store_with, value};
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_kv::{
    Conflict, ConflictWriter, KeyRange, KvError, KvOptions, ReadTarget, VALUE_BYTES_MAX,
    WriteBatch, verify,
};

fn conflict<T: std::fmt::Debug>(outcome: Result<T, KvError>) -> Conflict {
    match outcome {
        Err(KvError::Conflict(conflict)) => *conflict,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_reads_its_snapshot_and_its_own_writes() {
    let store = store_of(&[(1, "one"), (2, "two"), (3, "three")]);
    let mut transaction = store.begin().unwrap();
    transaction.put(key(2), value("mine")).unwrap();
    transaction.put(key(4), value("new")).unwrap();
    transaction.delete(key(3));
    let mut other = store.begin().unwrap();
    other.put(key(1), value("other")).unwrap();
    other.put(key(5), value("other")).unwrap();
    other.commit().unwrap();
    let expected = [(1, "one"), (2, "mine"), (4, "new")];
    let expected: Vec<_> = expected
        .iter()
        .map(|(at, text)| (key(*at), value(text)))
        .collect();
    assert_eq!(all(&transaction), expected);
    let many = transaction.get_many(&[key(4), key(1), key(3), key(5), key(2)]);
    let texts = [Some("new"), Some("one"), None, None, Some("mine")];
    assert_eq!(many.unwrap(), texts.map(|text| text.map(value)));
    assert!(transaction.contains(&key(1)).unwrap() && !transaction.contains(&key(3)).unwrap());
    assert_eq!(store.get(&key(1)).unwrap(), Some(value("other")));
    transaction.abort();
    assert_eq!(store.get(&key(2)).unwrap(), Some(value("two")));
}

#[test]
fn the_second_of_two_updates_of_what_both_read_loses_and_says_why() {
    let store = store_of(&[(1, "10")]);
    let (mut one, mut two) = (store.begin().unwrap(), store.begin().unwrap());
    for transaction in [&mut one, &mut two] {
        transaction.get(&key(1)).unwrap();
        transaction.put(key(1), value("11")).unwrap();
    }
    let commit = one.commit().unwrap();
    let root = store.root().unwrap();
    let error = two.commit().unwrap_err();
    assert!(error.is_retryable());
    let text = format!(
        "the transaction can't be committed: it had read the key {:#x}, which was written by commit \
         2; begin it again",
        key(1)
    );
    assert_eq!(error.to_string(), text);
    let found = conflict::<()>(Err(error));
    assert_eq!(found.read, ReadTarget::Key(key(1)));
    assert_eq!(found.by, ConflictWriter::Commit(commit.number()));
    assert_eq!(store.root().unwrap(), root);
}

#[test]
fn absence_that_was_read_is_a_conflict_once_the_key_is_there() {
    let store = store();
    let (mut one, mut two) = (store.begin().unwrap(), store.begin().unwrap());
    assert_eq!(one.get(&key(1)).unwrap(), None);
    one.put(key(2), value("x")).unwrap();
    two.put(key(1), value("y")).unwrap();
    two.commit().unwrap();
    assert_eq!(conflict(one.commit()).key, key(1));
}

#[test]
fn write_skew_is_impossible() {
    let store = store_of(&[(1, "on call"), (2, "on call")]);
    let (mut one, mut two) = (store.begin().unwrap(), store.begin().unwrap());
    for (transaction, doctor) in [(&mut one, 1), (&mut two, 2)] {
        let on_call = transaction.get_many(&[key(1), key(2)]).unwrap();
        assert_eq!(on_call.iter().flatten().count(), 2);
        transaction.delete(key(doctor));
    }
    one.commit().unwrap();
    conflict(two.commit());
    assert_eq!(all(&store.begin().unwrap()).len(), 1);
}

#[test]
fn a_cursor_visits_what_is_written_ahead_of_it_and_nothing_that_is_written_behind_it() {
    let store = store_of(&[(2, "two"), (4, "four"), (6, "six"), (8, "eight")]);
    let mut transaction = store.begin().unwrap();
    let mut cursor = transaction.cursor(key(2)..=key(8));
    assert_eq!(
        cursor.next(&transaction).unwrap(),
        Some((key(2), value("two")))
    );
    transaction.put(key(1), value("behind")).unwrap();
    transaction.put(key(2), value("behind")).unwrap();
    transaction.put(key(3), value("ahead")).unwrap();
    transaction.delete(key(4));
    transaction.put(key(6), value("other")).unwrap();
    transaction.put(key(9), value("outside")).unwrap();
    let mut rest = Vec::new();
    while let Some((at, text)) = cursor.next(&transaction).unwrap() {
        rest.push((at, text));
        transaction.put(key(5), value("behind or ahead")).unwrap();
    }
    let expected = [
        (3, "ahead"),
        (5, "behind or ahead"),
        (6, "other"),
        (8, "eight"),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(at, text)| (key(*at), value(text)))
        .collect();
    assert_eq!(rest, expected);
    assert_eq!(cursor.next(&transaction).unwrap(), None);
    assert_eq!(cursor.snapshot(), transaction.snapshot().id);
}

#[test]
fn no_phantom_appears_in_a_range_that_was_iterated_over() {
    let store = store_of(&[(1, "a"), (9, "z")]);
    for (change, range) in [(5, 2..8), (9, 2..10), (1, 0..3)] {
        let (mut counting, mut other) = (store.begin().unwrap(), store.begin().unwrap());
        let entries = counting.range(key(range.start)..key(range.end)).count();
        counting.put(key(200), value(&entries.to_string())).unwrap();
        match change {
            5 => other.put(key(change), value("phantom")).unwrap(),
            _ => other.delete(key(change)),
        }
        other.commit().unwrap();
        let conflict = conflict(counting.commit());
        assert_eq!(conflict.key, key(change));
        let read = KeyRange::within(key(range.start)..key(range.end)).unwrap();
        assert_eq!(conflict.read, ReadTarget::Range(read));
    }
}

#[test]
fn a_range_counts_as_read_exactly_as_far_as_the_iteration_got() {
    let entries: Vec<_> = (10..200).map(|at| (at, "x")).collect();
    let store = store_of(&entries);
    for (change, is_conflict) in [(0, true), (9, true), (14, true), (15, false), (250, false)] {
        let (mut reader, mut other) = (store.begin().unwrap(), store.begin().unwrap());
        assert_eq!(reader.range(..).take(5).count(), 5);
        reader.put(key(255), value("y")).unwrap();
        other.put(key(change), value("z")).unwrap();
        other.commit().unwrap();
        match reader.commit() {
            Err(KvError::Conflict(conflict)) => {
                let read = KeyRange::within(..=key(14)).unwrap();
                assert!(is_conflict, "{change}");
                assert_eq!(
                    (conflict.read, conflict.key),
                    (ReadTarget::Range(read), key(change))
                );
            }
            done => assert!(done.is_ok() && !is_conflict, "{change}: {done:?}"),
        }
        let mut undo = WriteBatch::new();
        let is_there = entries.iter().any(|(at, _)| *at == change);
        if !is_there {
            undo.delete(key(change));
            store.write(undo).unwrap();
        }
    }
}

#[test]
fn an_iteration_that_has_not_begun_reads_nothing() {
    let store = store_of(&[(1, "a")]);
    let mut reader = store.begin().unwrap();
    drop(reader.range(..));
    drop(reader.range(key(5)..key(5)).next());
    reader.put(key(2), value("b")).unwrap();
    let mut other = store.begin().unwrap();
    other.put(key(1), value("c")).unwrap();
    other.commit().unwrap();
    reader.commit().unwrap();
}

#[test]
fn writes_that_were_read_by_nobody_conflict_with_nothing() {
    let store = store_of(&[(1, "a")]);
    let (mut one, mut two) = (store.begin().unwrap(), store.begin().unwrap());
    one.put(key(1), value("one")).unwrap();
    two.put(key(1), value("two")).unwrap();
    // A value that the transaction wrote itself is not read.
    assert_eq!(two.get(&key(1)).unwrap(), Some(value("two")));
    one.commit().unwrap();
    two.commit().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(key(3), value("three")).unwrap().delete(key(1));
    store.write(batch).unwrap();
    assert_eq!(all(&store.begin().unwrap()), [(key(3), value("three"))]);
}

#[test]
fn warming_up_is_no_read() {
    let store = store_of(&[(1, "a")]);
    let mut one = store.begin().unwrap();
    one.warm_up(&[key(1), key(2)]).unwrap();
    one.put(key(2), value("b")).unwrap();
    let mut other = store.begin().unwrap();
    other.put(key(1), value("c")).unwrap();
    other.commit().unwrap();
    one.commit().unwrap();
}

#[test]
fn a_transaction_without_writes_never_fails_and_makes_no_commit() {
    let store = store_with(KvOptions {
        conflict_window_bytes: Some(0),
        ..options()
    });
    let reader = store.begin().unwrap();
    assert_eq!(reader.get(&key(1)).unwrap(), None);
    assert_eq!(reader.range(..).count(), 0);
    for round in 0..5 {
        let mut writer = store.begin().unwrap();
        writer.put(key(1), value(&round.to_string())).unwrap();
        writer.commit().unwrap();
    }
    let snapshot = reader.snapshot();
    assert_eq!(reader.commit().unwrap(), snapshot);
    assert_eq!(
        (snapshot.number(), store.newest().unwrap().number()),
        (0, 5)
    );
    let empty = store.write(WriteBatch::new()).unwrap();
    assert_eq!(empty, store.newest().unwrap());
}

#[test]
fn a_snapshot_older_than_what_is_kept_is_refused_by_name() {
    let store = store_with(KvOptions {
        conflict_window_bytes: Some(200),
        ..options()
    });
    let mut old = store.begin().unwrap();
    assert_eq!(old.get(&key(1)).unwrap(), None);
    old.put(key(2), value("x")).unwrap();
    let mut blind = store.begin().unwrap();
    blind.put(key(3), value("x")).unwrap();
    for _ in 0..5 {
        let mut batch = WriteBatch::new();
        batch.put(key(9), value("y")).unwrap();
        store.write(batch).unwrap();
    }
    let error = old.commit().unwrap_err();
    assert!(error.is_retryable());
    let KvError::SnapshotTooOld { snapshot, oldest } = error else {
        panic!("{error:?}")
    };
    assert!(snapshot == 0 && oldest > 0 && oldest < 5, "{oldest}");
    // One that began at the oldest commit is fine, and so is one that read nothing.
    let mut young = store.begin_at(oldest).unwrap();
    assert_eq!(young.get(&key(1)).unwrap(), None);
    young.put(key(2), value("x")).unwrap();
    young.commit().unwrap();
    blind.commit().unwrap();
}

#[test]
fn an_older_commit_is_read_by_number_and_found_by_root() {
    let store = store();
    let mut commits = vec![store.newest().unwrap()];
    for round in 0..10 {
        let mut writer = store.begin().unwrap();
        writer.put(key(1), value(&round.to_string())).unwrap();
        commits.push(writer.commit().unwrap());
    }
    for (at, commit) in commits.iter().enumerate() {
        assert_eq!(commit.number(), at as u64);
        let reader = store.begin_at(commit.number()).unwrap();
        assert_eq!((reader.snapshot(), reader.root()), (*commit, commit.root));
        let expected = at.checked_sub(1).map(|round| value(&round.to_string()));
        assert_eq!(reader.get(&key(1)).unwrap(), expected);
        assert_eq!(store.commit_with_root(commit.root).unwrap(), *commit);
    }
    let above = store.begin_at(11).err().unwrap();
    assert_eq!(above.to_string(), "no commit 11: the newest is 10");
    let unknown = store.commit_with_root(key(7)).unwrap_err();
    assert!(
        matches!(unknown, KvError::UnknownRoot { oldest: 0, .. }),
        "{unknown}"
    );
    // To write on an old snapshot, its reads must still be valid.
    let mut old = store.begin_at(3).unwrap();
    old.get(&key(2)).unwrap();
    old.put(key(2), value("x")).unwrap();
    old.commit().unwrap();
    let mut old = store.begin_at(3).unwrap();
    old.get(&key(1)).unwrap();
    old.put(key(2), value("x")).unwrap();
    assert_eq!(conflict(old.commit()).by, ConflictWriter::Commit(4));
}

#[test]
fn many_transactions_make_one_commit_and_each_loser_is_told_why() {
    let store = store_of(&[(1, "a"), (2, "b")]);
    let begin = |read: &[u8], write: u8| {
        let mut transaction = store.begin().unwrap();
        for at in read {
            transaction.get(&key(*at)).unwrap();
        }
        transaction
            .put(key(write), value(&format!("{read:?}")))
            .unwrap();
        transaction
    };
    let early = begin(&[1], 8);
    let mut batch = WriteBatch::new();
    batch.put(key(1), value("c")).unwrap();
    store.write(batch).unwrap();
    let reader = store.begin().unwrap();
    reader.get(&key(5)).unwrap();
    let group = vec![
        begin(&[1], 2),
        begin(&[2], 3),
        early,
        begin(&[3], 4),
        begin(&[4], 5),
        reader,
    ];
    let done = store.commit_all(group).unwrap();
    assert_eq!(done.commit, Some(store.newest().unwrap()));
    assert_eq!(done.commit.unwrap().number(), 3);
    let by: Vec<_> = done
        .outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(()) => None,
            lost => Some(conflict(lost).by),
        })
        .collect();
    // Writes of a loser conflict with no other transaction.
    let (commit, transaction) = (ConflictWriter::Commit, ConflictWriter::Transaction);
    let expected = [
        None,
        Some(transaction(0)),
        Some(commit(2)),
        None,
        Some(transaction(3)),
        None,
    ];
    assert_eq!(by, expected);
    let written: Vec<_> = all(&store.begin().unwrap())
        .into_iter()
        .map(|(key, _)| key[0])
        .collect();
    assert_eq!(written, [1, 2, 4]);
}

#[test]
fn of_several_writes_of_a_group_the_last_counts() {
    let store = store();
    let put = |text| {
        let mut transaction = store.begin().unwrap();
        transaction.put(key(1), value(text)).unwrap();
        transaction
    };
    let mut delete = store.begin().unwrap();
    delete.delete(key(1));
    store.commit_all(vec![put("a"), delete, put("b")]).unwrap();
    assert_eq!(store.get(&key(1)).unwrap(), Some(value("b")));
    let none = store.commit_all(vec![]).unwrap();
    assert!(none.commit.is_none() && none.outcomes.is_empty());
}

#[test]
fn transactions_are_built_on_prepared_ones() {
    let store = store_of(&[(1, "a")]);
    let mut first = store.begin().unwrap();
    first.put(key(2), value("b")).unwrap();
    let first = first.prepare().unwrap().unwrap();
    assert_eq!(store.get(&key(2)).unwrap(), None);
    let mut second = store.begin_on(&first).unwrap();
    assert_eq!(second.get(&key(2)).unwrap(), Some(value("b")));
    assert_eq!(second.root(), first.root());
    second.put(key(3), value("c")).unwrap();
    let second = second.prepare().unwrap().unwrap();
    let third = store.begin_on(&second).unwrap();
    assert_eq!(all(&third).len(), 3);
    let ids = [first.id(), second.id()];
    assert_eq!(second.parent(), first.id());
    let root = second.root();
    let done = store.commit_prepared(vec![first, second]).unwrap().unwrap();
    assert_eq!((done.id, done.root), (ids[1], root));
    assert_eq!(store.newest().unwrap(), done);
    // A transaction that began on it before it was durable is now like any other.
    let mut third = third;
    third.put(key(4), value("d")).unwrap();
    third.commit().unwrap();
    assert_eq!(store.newest().unwrap().number(), 4);
}

#[test]
fn a_prepared_commit_that_is_not_next_is_refused_and_leaves_nothing() {
    let store = store_of(&[(1, "a")]);
    let prepare = |on: Option<&cambium_kv::Prepared>, at: u8| {
        let transaction = match on {
            Some(parent) => store.begin_on(parent),
            None => store.begin(),
        };
        let mut transaction = transaction.unwrap();
        transaction.put(key(at), value("x")).unwrap();
        transaction.prepare().unwrap().unwrap()
    };
    let (one, other) = (prepare(None, 2), prepare(None, 3));
    let child = prepare(Some(&one), 4);
    let newest = store.newest().unwrap();
    // A child before its parent, and a commit on top of one that is only prepared.
    let error = child.commit().unwrap_err();
    assert!(
        matches!(error, KvError::NotNext { parent, .. } if parent == one.id().hash),
        "{error}"
    );
    let mut early = store.begin_on(&one).unwrap();
    early.put(key(5), value("x")).unwrap();
    let error = early.commit().unwrap_err();
    assert!(matches!(error, KvError::NotNext { .. }), "{error}");
    assert_eq!(store.newest().unwrap(), newest);
    let on_other = store.begin_on(&other).unwrap();
    let child_of_other = prepare(Some(&other), 6);
    let one = one.commit().unwrap();
    for late in [other, child_of_other] {
        let error = late.commit().unwrap_err();
        let is_late = matches!(error, KvError::NotNext { newest, .. } if newest == one.id);
        assert!(is_late, "{error}");
    }
    let mut lost = on_other;
    lost.get(&key(1)).unwrap();
    lost.put(key(7), value("x")).unwrap();
    let error = lost.commit().unwrap_err();
    assert!(matches!(error, KvError::SnapshotNotCommitted(_)), "{error}");
    assert_eq!(store.newest().unwrap(), one);
    let written: Vec<_> = all(&store.begin().unwrap())
        .into_iter()
        .map(|(key, _)| key[0])
        .collect();
    assert_eq!(written, [1, 2]);
}

#[test]
fn a_group_is_built_on_a_prepared_commit_if_all_of_it_began_there() {
    let store = store_of(&[(1, "a")]);
    let mut first = store.begin().unwrap();
    first.put(key(2), value("b")).unwrap();
    let first = first.prepare().unwrap().unwrap();
    let write = |mut transaction: cambium_kv::Transaction, at: u8| {
        transaction.get(&key(2)).unwrap();
        transaction.put(key(at), value("x")).unwrap();
        transaction
    };
    let begin_on = |at| write(store.begin_on(&first).unwrap(), at);
    let strange = write(store.begin().unwrap(), 7);
    let group = store
        .prepare_all(vec![begin_on(5), strange, begin_on(6), begin_on(2)])
        .unwrap();
    let outcomes: Vec<_> = group.outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(outcomes, [true, false, true, true]);
    assert!(matches!(
        group.outcomes[1],
        Err(KvError::OtherParent { .. })
    ));
    let prepared = group.prepared.unwrap();
    assert_eq!(prepared.parent(), first.id());
    store.commit_prepared(vec![first, prepared]).unwrap();
    assert_eq!(all(&store.begin().unwrap()).len(), 4);
    assert_eq!(store.newest().unwrap().number(), 3);
}

#[test]
fn a_reader_of_a_prepared_commit_waits_for_it_and_keeps_nobody_from_committing() {
    let store = store_of(&[(1, "a")]);
    let mut first = store.begin().unwrap();
    first.put(key(2), value("b")).unwrap();
    let first = first.prepare().unwrap().unwrap();
    let begin_reader = || {
        let reader = store.begin_on(&first).unwrap();
        reader.get(&key(2)).unwrap();
        reader
    };
    let (early, late, preparing) = (begin_reader(), begin_reader(), begin_reader());
    assert!(preparing.prepare().unwrap().is_none());
    let error = early.commit().unwrap_err();
    assert!(
        matches!(error, KvError::SnapshotNotCommitted(id) if id == first.id()),
        "{error}"
    );
    let first = first.commit().unwrap();
    assert_eq!(late.commit().unwrap(), first);
    // Of a group the writers decide what it is built on.
    let mut next = store.begin().unwrap();
    next.put(key(3), value("c")).unwrap();
    let next = next.prepare().unwrap().unwrap();
    let reader = store.begin_on(&next).unwrap();
    let mut writer = store.begin().unwrap();
    writer.put(key(4), value("d")).unwrap();
    let done = store.commit_all(vec![reader, writer]).unwrap();
    let outcomes: Vec<_> = done.outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(outcomes, [false, true]);
    assert_eq!(done.commit, Some(store.newest().unwrap()));
}

#[test]
fn a_dropped_prepared_commit_takes_what_is_built_on_it_along() {
    let store = store_of(&[(1, "a")]);
    let mut first = store.begin().unwrap();
    first.put(key(2), value("b")).unwrap();
    let first = first.prepare().unwrap().unwrap();
    let mut second = store.begin_on(&first).unwrap();
    second.put(key(3), value("c")).unwrap();
    let reader = store.begin_on(&first).unwrap();
    assert_eq!(reader.get(&key(2)).unwrap(), Some(value("b")));
    drop(first);
    // It read a commit that was never made.
    let error = reader.commit().unwrap_err();
    assert!(matches!(error, KvError::SnapshotNotCommitted(_)), "{error}");
    let error = second.commit().unwrap_err();
    assert!(matches!(error, KvError::SnapshotNotCommitted(_)), "{error}");
    assert_eq!(all(&store.begin().unwrap()).len(), 1);
    // The same commit can be made again.
    let mut again = store.begin().unwrap();
    again.put(key(2), value("b")).unwrap();
    again.commit().unwrap();
}

#[test]
fn commits_are_rolled_back_and_made_again() {
    let store = store();
    let write = |text: &str| {
        let mut transaction = store.begin().unwrap();
        transaction.put(key(1), value(text)).unwrap();
        transaction.commit().unwrap()
    };
    let commits: Vec<_> = ["a", "b", "c", "d"].map(write).into();
    let gone = store.begin().unwrap();
    let mut writer = store.begin().unwrap();
    writer.put(key(2), value("x")).unwrap();
    let mut early = store.begin_at(2).unwrap();
    early.get(&key(1)).unwrap();
    early.put(key(3), value("x")).unwrap();
    assert_eq!(store.roll_back(2).unwrap(), commits[1]);
    assert_eq!(store.newest().unwrap(), commits[1]);
    assert_eq!(store.get(&key(1)).unwrap(), Some(value("b")));
    // Readers of removed commits go on; writers fail.
    assert_eq!(gone.get(&key(1)).unwrap(), Some(value("d")));
    assert_eq!(gone.commit().unwrap(), commits[3]);
    let error = writer.commit().unwrap_err();
    assert!(
        matches!(error, KvError::SnapshotNotCommitted(id) if id == commits[3].id),
        "{error}"
    );
    // The same changes on the same parent have the same root, and are another commit.
    let again = write("c");
    assert_eq!((again.number(), again.root), (3, commits[2].root));
    assert_ne!(again.id.hash, commits[2].id.hash);
    assert_eq!(conflict(early.commit()).by, ConflictWriter::Commit(3));
    let error = store.roll_back(4).unwrap_err();
    assert!(
        matches!(
            error,
            KvError::RollbackTooFar {
                commits: 4,
                newest: 3
            }
        ),
        "{error}"
    );
    assert_eq!(store.roll_back(0).unwrap(), again);
    assert_eq!(store.roll_back(3).unwrap().number(), 0);
    assert!(all(&store.begin().unwrap()).is_empty());
}

#[test]
fn a_roll_back_leaves_prepared_commits_without_their_place() {
    let store = store_of(&[(1, "a")]);
    let mut next = store.begin().unwrap();
    next.put(key(2), value("b")).unwrap();
    let next = next.prepare().unwrap().unwrap();
    store.roll_back(1).unwrap();
    let error = next.commit().unwrap_err();
    assert!(matches!(error, KvError::NotNext { .. }), "{error}");
}

#[test]
fn values_of_any_size_up_to_the_largest_are_kept() {
    let store = store();
    let sizes = [
        0,
        1,
        31,
        32,
        33,
        127,
        128,
        511,
        512,
        513,
        100_000,
        VALUE_BYTES_MAX,
    ];
    let of = |size: usize| Bytes::from(vec![size as u8 ^ 0x5a; size]);
    let expected: Vec<_> = (0u8..).map(key).zip(sizes.map(of)).collect();
    let mut transaction = store.begin().unwrap();
    for (key, value) in &expected {
        transaction.put(*key, value.clone()).unwrap();
        assert!(transaction.get(key).unwrap().as_ref() == Some(value));
    }
    let error = transaction.put(key(77), of(VALUE_BYTES_MAX + 1));
    let KvError::ValueTooLarge { key: at, len, max } = error.unwrap_err() else {
        panic!("another error")
    };
    assert_eq!(
        (at, len, max),
        (key(77), VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX)
    );
    transaction.commit().unwrap();
    let read = store.begin().unwrap();
    assert!(all(&read) == expected);
    let (last, value) = expected.last().unwrap();
    assert!(read.get(last).unwrap().as_ref() == Some(value));
}

#[test]
fn a_commit_is_named_by_what_it_is_built_on() {
    let store = store_of(&[(1, "a")]);
    let first = store.begin_at(0).unwrap().snapshot();
    let second = store.newest().unwrap();
    let name = |number: u64, parent: B256, root: B256| {
        let parts = [&number.to_be_bytes()[..], &parent[..], &root[..], &[0; 8]];
        keccak256(parts.concat())
    };
    assert_eq!(first.id.hash, name(0, B256::ZERO, first.root));
    assert_eq!(second.id.hash, name(1, first.id.hash, second.root));
}

#[test]
fn an_old_snapshot_is_warmed_up_and_read_like_any_other() {
    let store = store_of(&[(1, "a"), (2, "b")]);
    for round in 0..5 {
        let mut writer = store.begin().unwrap();
        writer.put(key(1), value(&round.to_string())).unwrap();
        writer.commit().unwrap();
        if round % 2 == 0 {
            store.flush().unwrap();
        }
    }
    for number in 1..=6 {
        let mut old = store.begin_at(number).unwrap();
        old.warm_up(&[key(1), key(2), key(3)]).unwrap();
        let expected = match number {
            1 => value("a"),
            number => value(&(number - 2).to_string()),
        };
        assert_eq!(old.get(&key(1)).unwrap(), Some(expected));
        assert_eq!(old.range(..).count(), 2);
        let proved = old.prove(&[key(1), key(3)]).unwrap();
        assert_eq!(verify(old.root(), store.commitment(), &proved), Ok(()));
        old.put(key(9), value("x")).unwrap();
        assert_eq!(old.commit().is_ok(), number == 6, "{number}");
    }
}

#[test]
fn what_belongs_to_another_store_is_refused() {
    let (one, other) = (store(), store());
    let mut transaction = one.begin().unwrap();
    transaction.put(key(1), value("a")).unwrap();
    let refused = other.commit_all(vec![transaction]);
    assert!(matches!(refused, Err(KvError::OtherStore(_))));
    let mut transaction = one.begin().unwrap();
    transaction.put(key(1), value("a")).unwrap();
    let prepared = transaction.prepare().unwrap().unwrap();
    assert!(matches!(
        other.begin_on(&prepared),
        Err(KvError::OtherStore(_))
    ));
    let refused = other.commit_prepared(vec![prepared]);
    assert!(matches!(refused, Err(KvError::OtherStore(_))));
    assert_eq!(other.newest().unwrap().number(), 0);
}

#[test]
fn a_store_and_its_transactions_can_go_to_other_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<cambium_kv::Store>();
    is_shared::<cambium_kv::Transaction>();
    is_shared::<cambium_kv::Prepared>();
    is_shared::<KvError>();
}
