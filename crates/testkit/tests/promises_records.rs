//! The promise that no record of the log, with any content, keeps a database closed.

use crate::small_database::{append, check, commit_and_merge, database, open, some_changes};
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes, put_varint};
use cambium_state::{BlockMeta, Db};
use cambium_testkit::{
    Random,
    plain::{change, commit, path, tiny_options, wait_until_closed},
};
use std::sync::Arc;

/// The payload of a record, as the table at `BlockRecord::encode` has it.
fn record(
    is_head: bool,
    meta: &BlockMeta,
    changes: &[u8],
    reverts: &[u8],
    codes: &[u8],
) -> Vec<u8> {
    let mut out = vec![is_head.into()];
    out.extend_from_slice(&meta.id.number.to_le_bytes());
    for hash in [meta.id.hash, meta.parent, meta.state_root] {
        out.extend_from_slice(hash.as_slice());
    }
    out.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&out).to_le_bytes());
    for part in [&meta.body[..], changes, reverts] {
        put_varint(&mut out, part.len() as u64);
        out.extend_from_slice(part);
    }
    out.extend_from_slice(codes);
    out
}

/// Records that can't be on top of block `head`: the fault of each, its kind and its payload.
fn bad_records(head: BlockId, parent: B256, root: B256) -> Vec<(&'static str, u8, Vec<u8>)> {
    let meta = |number, hash, parent, state_root| BlockMeta {
        id: BlockId::new(number, hash),
        parent,
        state_root,
        body: Bytes::new(),
    };
    let new = B256::repeat_byte(0xcc);
    let next = head.number + 1;
    let none = Changes::default().encode();
    let lone_slot = Changes::new(vec![AccountDiff {
        path: path(0),
        account: AccountUpdate::Keep,
        wipe: false,
        slots: vec![(path(0), U256::from(5))],
    }]);
    let of = |meta: &BlockMeta| record(true, meta, &none, &none, &[0]);
    let head_record =
        |number: u64, hash: B256| [&number.to_le_bytes()[..], hash.as_slice()].concat();
    let own = |hash| meta(next, hash, head.hash, root);
    vec![
        ("its parent's hash", 1, of(&own(head.hash))),
        ("its grandparent's hash", 1, of(&own(parent))),
        (
            "a gap in heights",
            1,
            of(&meta(next + 1, new, head.hash, root)),
        ),
        (
            "a height below",
            1,
            of(&meta(head.number, new, head.hash, root)),
        ),
        (
            "the last height",
            1,
            of(&meta(u64::MAX, new, head.hash, root)),
        ),
        (
            "an unknown parent",
            1,
            of(&meta(next, new, B256::repeat_byte(0xdd), root)),
        ),
        ("itself as its parent", 1, of(&meta(next, new, new, root))),
        ("an unknown flag", 1, {
            let mut bytes = of(&own(new));
            bytes[0] = 7;
            bytes
        }),
        ("a bad head checksum", 1, {
            let mut bytes = of(&own(new));
            bytes[110] ^= 1;
            bytes
        }),
        (
            "malformed changes",
            1,
            record(true, &own(new), b"nonsense", &none, &[0]),
        ),
        (
            "malformed reverts",
            1,
            record(true, &own(new), &none, b"nonsense", &[0]),
        ),
        (
            "too many codes",
            1,
            record(true, &own(new), &none, &none, &[0xff; 10]),
        ),
        (
            "something behind",
            1,
            record(true, &own(new), &none, &none, &[0, 1]),
        ),
        ("a cut", 1, of(&own(new))[..50].to_vec()),
        ("an unknown head", 2, head_record(next, new)),
        (
            "a head of another number",
            2,
            head_record(next + 5, head.hash),
        ),
        ("a malformed head", 2, vec![1, 2, 3]),
        ("an unknown kind", 77, vec![1, 2, 3]),
        ("another root", 1, {
            let meta = meta(next, new, head.hash, B256::repeat_byte(0xab));
            record(true, &meta, &lone_slot.encode(), &none, &[0])
        }),
        ("code of another hash", 1, {
            let mut codes = vec![1];
            codes.extend_from_slice(B256::repeat_byte(9).as_slice());
            codes.extend_from_slice(&[1, 0xfe]);
            record(true, &own(new), &none, &none, &codes)
        }),
        ("an account whose code nobody has", 1, {
            let put = Account {
                code_hash: B256::repeat_byte(9),
                ..Account::default()
            };
            let changes = Changes::new(vec![change(path(0), AccountUpdate::Put(put))]);
            record(true, &own(new), &changes.encode(), &none, &[0])
        }),
    ]
}

#[test]
fn no_record_of_the_log_keeps_a_database_closed() {
    let (db, disk) = database();
    let mut random = Random::new(12);
    commit_and_merge(&db, &mut random);
    let root = commit(&db, some_changes(&mut random, 60), vec![]);
    let head = db.head();
    let parent = db.block(head.number).unwrap().unwrap().parent;
    drop(db);
    wait_until_closed(&disk);
    for (what, kind, payload) in bad_records(head, parent, root) {
        let copy = disk.duplicate();
        append(&copy, kind, &payload);
        let (db, recovery) = Db::open(Arc::new(copy.clone()), tiny_options())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let is_taken = db.head() != head;
        if is_taken {
            // Faults that a record does not show by itself are found by its root, or its code.
            assert!(
                [
                    "another root",
                    "an account whose code nobody has",
                    "code of another hash"
                ]
                .contains(&what),
                "{what}: the head is {}",
                db.head()
            );
        } else {
            assert!(!recovery.notes.is_empty(), "{what}: nothing is said of it");
            // The database goes on as if the record had not been.
            let mut random = Random::new(13);
            commit_and_merge(&db, &mut random);
            commit_and_merge(&db, &mut random);
            check(&db);
        }
        let head = db.head();
        drop(db);
        wait_until_closed(&copy);
        assert_eq!(open(&copy).unwrap().head(), head, "{what}");
    }
}
