//! The checker of histories finds what it is for, and nothing in what is serializable.

use crate::support::{
    checker::{Dependency, Done, Observed, Violation, check},
    key, value,
};
use alloy_primitives::{B256, Bytes};
use std::collections::{BTreeMap, BTreeSet};

fn done(snapshot: u64, number: Option<u64>, reads: Vec<Observed>, writes: &[(u8, &str)]) -> Done {
    let write = |(at, text): &(u8, &str)| {
        let written = (!text.is_empty()).then(|| value(text));
        (key(*at), written)
    };
    Done {
        snapshot,
        place: number.map(|number| (number, 0)),
        reads,
        writes: writes.iter().map(write).collect(),
    }
}

fn read(at: u8, text: &str) -> Observed {
    Observed::Key(key(at), (!text.is_empty()).then(|| value(text)))
}

fn scan(from: u8, through: u8, found: &[(u8, &str)]) -> Observed {
    let found: BTreeMap<B256, Bytes> = found
        .iter()
        .map(|(at, text)| (key(*at), value(text)))
        .collect();
    Observed::Range(key(from), key(through), found, BTreeSet::new())
}

fn kinds(history: &[Done]) -> Vec<Dependency> {
    match check(history) {
        Err(Violation::Cycle(cycle)) => cycle.into_iter().map(|(_, kind)| kind).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn transactions_one_after_the_other_have_no_cycle() {
    let history = [
        done(0, Some(1), vec![read(1, "")], &[(1, "a"), (2, "b")]),
        done(
            1,
            Some(2),
            vec![read(1, "a"), scan(0, 9, &[(1, "a"), (2, "b")])],
            &[(1, "")],
        ),
        done(
            2,
            Some(3),
            vec![read(1, ""), scan(0, 9, &[(2, "b")])],
            &[(1, "c")],
        ),
        // Readers of old snapshots are as if they had run then.
        done(1, None, vec![scan(0, 9, &[(1, "a"), (2, "b")])], &[]),
        done(2, None, vec![read(1, "")], &[]),
    ];
    assert_eq!(check(&history), Ok(()));
}

#[test]
fn a_lost_update_is_a_cycle() {
    let history = [
        done(0, Some(1), vec![], &[(1, "10")]),
        done(1, Some(2), vec![read(1, "10")], &[(1, "11")]),
        done(1, Some(3), vec![read(1, "10")], &[(1, "12")]),
    ];
    let kinds = kinds(&history);
    assert_eq!(kinds.len(), 2);
    assert!(kinds.contains(&Dependency::ReadWrite) && kinds.contains(&Dependency::WriteWrite));
}

#[test]
fn write_skew_is_a_cycle_of_two_anti_dependencies() {
    let history = [
        done(0, Some(1), vec![], &[(1, "on"), (2, "on")]),
        done(
            1,
            Some(2),
            vec![read(1, "on"), read(2, "on")],
            &[(1, "off")],
        ),
        done(
            1,
            Some(3),
            vec![read(1, "on"), read(2, "on")],
            &[(2, "off")],
        ),
    ];
    assert_eq!(kinds(&history), [Dependency::ReadWrite; 2]);
}

#[test]
fn a_phantom_is_a_cycle() {
    let history = [
        done(0, Some(1), vec![scan(0, 9, &[])], &[(3, "a")]),
        done(0, Some(2), vec![scan(0, 9, &[])], &[(4, "b")]),
    ];
    assert_eq!(kinds(&history), [Dependency::ReadWrite; 2]);
    // Keys outside of both ranges are not phantoms.
    let history = [
        done(0, Some(1), vec![scan(0, 2, &[])], &[(3, "a")]),
        done(0, Some(2), vec![scan(0, 2, &[])], &[(4, "b")]),
    ];
    assert_eq!(check(&history), Ok(()));
}

#[test]
fn a_reader_between_two_writers_can_make_the_cycle() {
    // The read-only anomaly of Fekete, O'Neil and O'Neil (2004).
    let history = [
        done(0, Some(1), vec![read(1, ""), read(2, "")], &[(2, "20")]),
        done(1, None, vec![read(1, ""), read(2, "20")], &[]),
        done(0, Some(2), vec![read(1, ""), read(2, "")], &[(1, "-11")]),
    ];
    let cycle = kinds(&history);
    assert!(cycle.len() >= 2, "{cycle:?}");
}

#[test]
fn transactions_of_one_group_are_in_their_order() {
    let mut one = done(1, Some(2), vec![read(1, "a")], &[(2, "x")]);
    let mut two = done(1, Some(2), vec![read(2, "")], &[(1, "y")]);
    let first = done(0, Some(1), vec![], &[(1, "a")]);
    (one.place, two.place) = (Some((2, 0)), Some((2, 1)));
    assert_eq!(kinds(&[first, one, two]), [Dependency::ReadWrite; 2]);
}

#[test]
fn a_read_that_its_snapshot_does_not_have_is_found() {
    let history = [
        done(0, Some(1), vec![], &[(1, "a")]),
        done(1, Some(2), vec![], &[(1, "b")]),
        done(1, None, vec![read(1, "b")], &[]),
    ];
    let wrong = Violation::WrongRead {
        transaction: 2,
        key: key(1),
    };
    assert_eq!(check(&history), Err(wrong));
    let invented = done(1, None, vec![scan(0, 9, &[(1, "a"), (7, "z")])], &[]);
    let history = [history[0].clone(), invented];
    assert!(matches!(check(&history), Err(Violation::WrongRead { .. })));
}
