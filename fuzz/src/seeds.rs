//! Where a search begins: small inputs that are mostly right, made from nothing.

use crate::{
    block_record::HEAD_BYTES,
    database::{meta, path},
    index::SECTIONS,
    input::Output,
    links::unlinked,
    stateless::edit_of,
    witness::number_path,
};
use alloy_consensus::{BlockBody, EMPTY_OMMER_ROOT_HASH, Header};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_chain::{Block, Transaction};
use cambium_disk::FaultyDisk;
use cambium_primitives::{
    AccessList, AccessListLimits, Account, AccountChanges, AccountDiff, AccountUpdate,
    BalanceChange, BlockAccessIndex, Changes, CodeChange, NonceChange, Path, PreStateValues,
    SlotChanges, SlotValue, StorageChange, put_varint,
};
use cambium_store::{CheckpointWriter, PageBuilder};
use cambium_trie::{AccountProof, NoResolve, PartialTrie, Place, StorageKey, commit};
use std::sync::Arc;

/// The seeds of a target, each with its name. The same every time.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let seeds = match target {
        "page" => pages(),
        "checkpoint" => checkpoints(),
        "trie_part" => trie_parts(),
        "index" => indices(),
        "log" => logs(),
        "block_record" => block_records(),
        "changes" => changes(),
        "access_list" => access_lists(),
        "block_file" => block_files(),
        "era1" => era1_files(),
        "proof" => proofs(),
        "witness" => witnesses(),
        "stateless" => stateless(),
        "genesis" => genesis_files(),
        "witness_json" => witness_texts(),
        _ => Vec::new(),
    };
    let named = seeds.into_iter();
    named
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .collect()
}

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn account(nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(nonce) << 40,
        code_hash: match nonce % 2 {
            0 => Account::default().code_hash,
            _ => B256::repeat_byte(nonce as u8),
        },
    }
}

fn value_of(account: &Account) -> Vec<u8> {
    let mut bytes = Vec::new();
    account.encode_to(&mut bytes);
    bytes
}

fn slot_value(value: u64) -> Vec<u8> {
    SlotValue::new(U256::from(value)).as_bytes().to_vec()
}

/// A path under a first byte, of which a number decides the rest.
fn under(first: u8, number: u64) -> B256 {
    let mut path = keccak256(number.to_le_bytes());
    path[0] = first;
    path
}

fn pages() -> Seeds {
    let prefix = Path::from_nibbles(&[1, 2, 3]);
    let mut paths: Vec<_> = (0..6).map(|number| under(0x12, number)).collect();
    for path in &mut paths {
        path[1] = 0x30 | path[1] & 0xf;
    }
    paths.sort_unstable();
    let mut accounts = PageBuilder::new(&prefix);
    let mut mixed = PageBuilder::new(&prefix);
    for (number, path) in (0..).zip(&paths) {
        let value = value_of(&account(number));
        accounts.leaf(&Path::account(path), &value);
        mixed.leaf(&Path::account(path), &value);
        let mut slots: Vec<_> = (0..number % 4)
            .map(|slot| under(slot as u8, slot))
            .collect();
        slots.sort_unstable();
        for slot in slots {
            mixed.leaf(&Path::slot(path, &slot), &slot_value(number + 1));
        }
        mixed.digest(&Path::account(path).prefix(5), &[number as u8; 32]);
    }
    let owner = Path::account(&paths[0]);
    let mut slots = PageBuilder::new(&owner);
    for first in [1, 0x20, 0x21, 0xf0] {
        let slot = Path::slot(&paths[0], &under(first, first.into()));
        slots.leaf(&slot, &slot_value(first.into()));
    }
    slots.digest(&owner.child(2), &[7; 5]);
    slots.owner(&value_of(&account(3)));
    let deep = Path::slot(&paths[0], &B256::ZERO).prefix(70);
    let mut deep_slots = PageBuilder::new(&deep);
    deep_slots.leaf(&Path::slot(&paths[0], &B256::ZERO), &[1]);
    deep_slots.leaf(&Path::slot(&paths[0], &B256::with_last_byte(9)), &[2]);
    vec![
        ("empty", PageBuilder::new(&Path::EMPTY).finish()),
        ("accounts", accounts.finish()),
        ("mixed", mixed.finish()),
        ("slots", slots.finish()),
        ("deep", deep_slots.finish()),
    ]
}

fn checkpoints() -> Seeds {
    let make = |is_on: bool, sections: &[(&str, &[u8])]| {
        let disk = FaultyDisk::new(1);
        let first = CheckpointWriter::create(Arc::new(disk.clone()), None).expect("a disk");
        let first = first.finish().expect("a disk that works");
        let shared = Arc::new(disk.clone());
        let mut writer = match is_on {
            true => CheckpointWriter::create_incremental(shared, first.id),
            false => CheckpointWriter::create(shared, None),
        }
        .expect("a disk that works");
        for (name, bytes) in sections {
            writer.section(name).expect("a disk that works");
            writer.write(bytes).expect("a disk that works");
        }
        writer.finish().expect("a disk that works");
        let mut seed = vec![0];
        seed.extend(disk.contents("checkpoint-00000002").expect("just written"));
        seed
    };
    let sections: [(&str, &[u8]); 3] = [("meta", b"what it is of"), ("empty", b""), ("x", b"y")];
    vec![
        ("no_sections", make(false, &[])),
        ("sections", make(false, &sections)),
        ("on_another", make(true, &sections)),
    ]
}

/// A trie with every kind of node, and the same with something else in it.
fn tries() -> (PartialTrie, PartialTrie) {
    let mut trie = PartialTrie::new(Path::EMPTY);
    let change = |number: u8, nonce: u64, slots: u8| AccountDiff {
        path: number_path(number),
        account: AccountUpdate::Put(account(nonce)),
        wipe: false,
        slots: {
            let slots = (0..slots).map(|slot| (number_path(slot), U256::from(slot + 1)));
            let mut slots: Vec<_> = slots.collect();
            slots.sort_unstable();
            slots
        },
    };
    let sorted = |mut changes: Vec<AccountDiff>| {
        changes.sort_by_key(|change| change.path);
        changes
    };
    let changes = (0..12)
        .map(|number| change(number, number.into(), number % 5))
        .collect();
    trie.apply(&sorted(changes), &mut NoResolve)
        .expect("nothing is missing");
    commit(&mut [&mut trie], &mut Default::default());
    let mut later = trie.clone();
    let changes = vec![change(3, 99, 2), change(200, 1, 0)];
    later
        .apply(&sorted(changes), &mut NoResolve)
        .expect("nothing is missing");
    commit(&mut [&mut later], &mut Default::default());
    (trie, later)
}

fn trie_parts() -> Seeds {
    let (before, after) = tries();
    let (mut whole, mut changed) = (Vec::new(), Vec::new());
    before.encode_to(&mut whole);
    after.encode_changes_to(&before, &mut changed);
    let mut stubs = before.clone();
    for number in 0..6 {
        let path = Path::account(&number_path(number)).prefix(1);
        let _ = stubs.replace_by_stub(&path, Place::new(u64::from(number) + 1));
    }
    let mut few = Vec::new();
    stubs.encode_to(&mut few);
    let at = Path::account(&number_path(4));
    let storage = before.find(&at).expect("an account with slots");
    let mut part = Vec::new();
    before.encode_subtrie_to(storage, &at, usize::MAX, &mut part);
    let seed = |before: &[u8], rest: &[u8]| {
        let mut out = Output::default();
        out.piece(before).bytes(rest);
        out.0
    };
    vec![
        ("whole", seed(&[], &whole)),
        ("stubs", seed(&[], &few)),
        ("storage", seed(&[], &part)),
        ("changes", seed(&whole, &changed)),
        ("changes_of_stubs", seed(&few, &few)),
    ]
}

fn indices() -> Seeds {
    let seed = |how: u8, edits: &[(&str, u8, u16, &[u8])]| {
        let mut out = Output::default();
        out.u8(how);
        for (name, how, offset, piece) in edits {
            let number = SECTIONS.iter().position(|section| section == name);
            out.u8(number.expect("a section") as u8);
            out.u8(*how).u16(*offset).piece(piece);
        }
        out.0
    };
    let root = (72, &[0xab; 32][..]);
    vec![
        ("whole", seed(0, &[])),
        ("on_another", seed(1, &[])),
        ("on_disk", seed(2, &[])),
        ("on_another_on_disk", seed(3, &[])),
        (
            "tops",
            seed(0, &[("tops", 1, 6, &[0x40]), ("tops", 1, 40, &[1, 2])]),
        ),
        (
            "parts",
            seed(0, &[("index", 1, 10, &[9]), ("index", 2, 300, &[0; 9])]),
        ),
        ("parts_on_disk", seed(2, &[("index", 1, 30, &[0xff; 8])])),
        (
            "changes",
            seed(1, &[("changes", 1, 50, &[6]), ("changed", 1, 3, &[7])]),
        ),
        (
            "head",
            seed(0, &[("meta", 1, 112, &[9]), ("meta", 1, root.0, root.1)]),
        ),
        ("recent", seed(0, &[("recent", 0, 0, &[0])])),
        ("segments", seed(1, &[("segments", 1, 24, &[0, 0x20])])),
        ("retired", seed(1, &[("retired", 0, 0, &[1, 1, 2])])),
    ]
}

fn logs() -> Seeds {
    let record = |out: &mut Output, kind, how, durable, payload: &[u8]| {
        out.u8(kind).u8(how).u8(durable).piece(payload);
    };
    let mut one = Output::default();
    one.u8(0).u8(0).u8(3);
    record(&mut one, 1, 0, 0, b"first");
    record(&mut one, 0xf0, 0, 0xff, b"");
    record(&mut one, 2, 0, 0xff, b"second");
    one.u8(4);
    let mut torn = Output::default();
    torn.u8(0).u8(0).u8(3);
    record(&mut torn, 1, 0, 0, b"first");
    record(&mut torn, 1, 10, 1, b"torn");
    record(&mut torn, 1, 0, 0, b"behind");
    let mut rotten = Output::default();
    rotten.u8(0).u8(0).u8(3);
    record(&mut rotten, 1, 0, 0, b"first");
    record(&mut rotten, 1, 10, 0, b"rotten");
    record(&mut rotten, 1, 0, 0xff, b"behind");
    let files = |hows: [u8; 3]| {
        let mut out = Output::default();
        out.u8(2);
        for how in hows {
            out.u8(how).u8(2);
            record(&mut out, 1, 0, 1, b"in a file");
            record(&mut out, 3, 0, 0xff, b"in a file, too");
            out.u8(0);
        }
        out.0
    };
    vec![
        ("one_file", one.0),
        ("torn", torn.0),
        ("rotten", rotten.0),
        ("three_files", files([0; 3])),
        ("bad_header", files([0, 1, 0])),
        ("no_end", files([0, 4, 0])),
        ("missing", files([0, 0x10, 0])),
        ("made_ready", files([0, 0, 8])),
    ]
}

fn block_records() -> Seeds {
    let change = AccountDiff {
        path: path(2),
        account: AccountUpdate::Put(account(4)),
        wipe: false,
        slots: vec![(path(1), U256::from(7))],
    };
    let back = AccountDiff {
        account: AccountUpdate::Keep,
        ..change.clone()
    };
    let (changes, reverts) = (Changes::new(vec![change]), Changes::new(vec![back]));
    let code = b"\x5b\x00";
    let block = |number: u64| {
        let meta = meta(number, B256::ZERO, B256::repeat_byte(3));
        let mut out = vec![1];
        out.extend(meta.id.number.to_le_bytes());
        for hash in [meta.id.hash, meta.parent, meta.state_root] {
            out.extend_from_slice(hash.as_slice());
        }
        assert_eq!(out.len(), HEAD_BYTES);
        out.extend([0; 8]);
        for part in [&meta.body[..], &changes.encode(), &reverts.encode()] {
            put_varint(&mut out, part.len() as u64);
            out.extend_from_slice(part);
        }
        put_varint(&mut out, 1);
        out.extend_from_slice(keccak256(code).as_slice());
        put_varint(&mut out, code.len() as u64);
        out.extend(code);
        out
    };
    let seed = |records: &[(u8, u8, Vec<u8>)]| {
        let mut out = Output::default();
        out.u8(1);
        for (kind, how, payload) in records {
            out.u8(*kind).u8(*how).piece(payload);
        }
        out.0
    };
    let mut head = meta(3, B256::ZERO, B256::ZERO)
        .id
        .number
        .to_le_bytes()
        .to_vec();
    head.extend_from_slice(meta(3, B256::ZERO, B256::ZERO).id.hash.as_slice());
    vec![
        ("block", seed(&[(1, 1, block(100))])),
        ("blocks", seed(&[(1, 1, block(100)), (1, 1, block(101))])),
        ("orphan", seed(&[(1, 0, block(102))])),
        ("head", seed(&[(2, 0, head.clone())])),
        ("branch", seed(&[(2, 0, head), (1, 1, block(103))])),
        ("unknown", seed(&[(9, 0, vec![1, 2, 3])])),
    ]
}

fn changes() -> Seeds {
    let change = |first: u8, account, slots: &[u8]| AccountDiff {
        path: B256::repeat_byte(first),
        account,
        wipe: account == AccountUpdate::Delete,
        slots: slots
            .iter()
            .map(|slot| (B256::repeat_byte(*slot), U256::from(*slot)))
            .collect(),
    };
    let some = Changes::new(vec![
        change(1, AccountUpdate::Keep, &[1, 2, 0]),
        change(2, AccountUpdate::Delete, &[]),
        change(3, AccountUpdate::Put(account(3)), &[5]),
    ]);
    let by_hand = [2, 0, 2, 1, 0, 0, 2, 1, 1, 2, 2, 1, 1, 0, 3, 1, 1, 0, 1, 2];
    vec![
        ("none", Changes::default().encode()),
        ("some", some.encode()),
        ("by_hand", by_hand.to_vec()),
    ]
}

fn access_lists() -> Seeds {
    let index = BlockAccessIndex;
    let account = |address: u8| AccountChanges::new(Address::repeat_byte(address));
    let mut changed = account(2);
    let slot = |slot: u64, changes| SlotChanges::new(U256::from(slot), changes);
    changed.storage_changes = vec![
        slot(1, vec![StorageChange::new(index(0), U256::from(9))]),
        slot(
            7,
            vec![
                StorageChange::new(index(1), U256::from(300)),
                StorageChange::new(index(2), U256::ZERO),
            ],
        ),
    ];
    changed.storage_reads = vec![U256::from(2), U256::MAX];
    changed.balance_changes = vec![BalanceChange::new(index(1), U256::from(1) << 90)];
    changed.nonce_changes = vec![NonceChange::new(index(1), 5)];
    changed.code_changes = vec![CodeChange::new(index(2), Bytes::from_static(b"\x5b\x00"))];
    let limits = AccessListLimits {
        index_max: 3,
        items_max: 20,
    };
    let seed = |accounts: Vec<AccountChanges>| {
        let list = AccessList::new(accounts, &limits).expect("a list");
        let account = |_| Ok::<_, ()>(Some(self::account(1)));
        let found = PreStateValues::read(&list, account, |_, slot| Ok(slot)).expect("values");
        let found = found.encode();
        let mut out = Output::default();
        out.u16(limits.index_max as u16)
            .u16(limits.items_max as u16);
        out.u16(found.len() as u16);
        out.bytes(&list.encode()).bytes(&found);
        out.0
    };
    vec![
        ("empty", seed(vec![])),
        ("read", seed(vec![account(1)])),
        ("changed", seed(vec![account(1), changed, account(9)])),
    ]
}

fn header(number: u64) -> Header {
    Header {
        number,
        difficulty: U256::from(number + 1),
        ommers_hash: EMPTY_OMMER_ROOT_HASH,
        extra_data: Bytes::from_static(b"seed"),
        ..Header::default()
    }
}

fn block_files() -> Seeds {
    let body = BlockBody::<Transaction> {
        ommers: vec![header(1)],
        ..BlockBody::default()
    };
    let mut row = Vec::new();
    for number in 1..3 {
        row.extend(alloy_rlp::encode(Block::new(
            header(number),
            BlockBody::default(),
        )));
    }
    let with_ommer = alloy_rlp::encode(Block::new(header(5), body));
    let list = {
        let hash = header(5).hash_slow();
        let fields: [&dyn alloy_rlp::Encodable; 2] = [&5u64, &hash];
        let mut payload = Vec::new();
        for field in fields {
            field.encode(&mut payload);
        }
        payload.push(0xc0);
        let mut record = Vec::new();
        let head = alloy_rlp::Header {
            list: true,
            payload_length: payload.len(),
        };
        head.encode(&mut record);
        record.extend(payload);
        record
    };
    let seed = |how: u8, lists: &[u8], file: &[u8]| {
        let mut out = Output::default();
        out.u8(how);
        if how & 1 != 0 {
            out.piece(lists);
        }
        out.bytes(file);
        out.0
    };
    vec![
        ("two_blocks", seed(0, &[], &row)),
        ("ommer", seed(4, &[], &with_ommer)),
        ("packed", seed(2, &[], &row)),
        ("lists", seed(1, &list, &with_ommer)),
        ("lists_packed", seed(3, &list, &with_ommer)),
    ]
}

fn era1_files() -> Seeds {
    let blocks = |out: &mut Output, how: u8, first: u64, count: u64| {
        out.u8(count as u8);
        let mut total = U256::ZERO;
        for number in first..first + count {
            total += header(number).difficulty;
            out.u8(how);
            out.piece(&alloy_rlp::encode(header(number)));
            out.piece(&[0xc2, 0xc0, 0xc0]).piece(&[0xc0]);
            out.piece(&total.to_le_bytes::<32>());
        }
    };
    let seed = |how: u8, file_how: u8, first: u64, count: u64| {
        let mut out = Output::default();
        blocks(&mut out, how, first, count);
        out.u8(file_how).u64(first);
        out.0
    };
    vec![
        ("one", seed(0, 0, 0, 1)),
        ("three", seed(0, 0, 77, 3)),
        ("unknown_records", seed(1, 0, 77, 2)),
        ("not_packed", seed(2, 0, 77, 1)),
        ("wrong_accumulator", seed(0, 1, 77, 2)),
        ("wrong_index", seed(0, 2, 77, 2)),
    ]
}

fn proofs() -> Seeds {
    let address = Address::with_last_byte(5);
    let mut trie = PartialTrie::new(Path::EMPTY);
    let mut changes: Vec<_> = (0..20)
        .map(|number| {
            let slots = (0..number % 8).map(|slot| {
                let path = keccak256(B256::with_last_byte(slot));
                (path, U256::from(slot) << 200 | U256::ONE)
            });
            let mut slots: Vec<_> = slots.collect();
            slots.sort_unstable();
            AccountDiff {
                path: keccak256(Address::with_last_byte(number)),
                account: AccountUpdate::Put(account(number.into())),
                wipe: false,
                slots,
            }
        })
        .collect();
    changes.sort_by_key(|change| change.path);
    trie.apply(&changes, &mut NoResolve)
        .expect("nothing is missing");
    commit(&mut [&mut trie], &mut Default::default());
    let root = trie.state_root().expect("hashed");
    let mut seed = |claims: u8, address: u8, slots: &[u8]| {
        let keys = slots
            .iter()
            .map(|slot| StorageKey::from(B256::with_last_byte(*slot)));
        let keys: Vec<_> = keys.collect();
        let proof = trie.prove_account(Address::with_last_byte(address), &keys, &mut NoResolve);
        linked_proof(claims, root, &proof.expect("nothing is missing"))
    };
    let mut seeds = vec![
        ("account", seed(0, 5, &[])),
        ("absent", seed(1, 200, &[])),
        ("slots", seed(2, 5, &[1, 2])),
        ("absent_slot", seed(4, 7, &[3, 100])),
        ("no_storage", seed(3, 8, &[1])),
    ];
    let proof = trie.prove_account(address, &[StorageKey::from(B256::ZERO)], &mut NoResolve);
    let mut json = vec![0xff, 5];
    json.extend(serde_json::to_vec(&proof.expect("nothing is missing")).expect("its form"));
    seeds.push(("json", json));
    seeds
}

/// A proof as an input has it.
fn linked_proof(claims: u8, root: B256, proof: &AccountProof) -> Vec<u8> {
    let lists = proof.storage_proof.iter().map(|slot| &slot.proof);
    let lists: Vec<_> = std::iter::once(&proof.account_proof).chain(lists).collect();
    // Nodes of proofs are in an order in which each names the next.
    let mut all: Vec<Vec<u8>> = Vec::new();
    for list in &lists {
        all.extend(list.iter().map(|node| node.to_vec()));
    }
    debug_assert!(all.first().is_none_or(|first| keccak256(first) == root));
    let hashes: Vec<_> = all.iter().map(keccak256).collect();
    for (number, node) in all.iter_mut().enumerate() {
        for at in 0..node.len().saturating_sub(31) {
            let found = hashes.iter().position(|hash| hash[..] == node[at..at + 32]);
            if let Some(named) = found.filter(|named| *named > number) {
                node[at..at + 32].copy_from_slice(crate::links::mark(named).as_slice());
            }
        }
    }
    let mut nodes = all.into_iter();
    let mut take = |count: usize| nodes.by_ref().take(count).collect::<Vec<_>>();
    let mut out = Output::default();
    out.u8(claims).u8(proof.address[19]);
    out.pieces(&take(proof.account_proof.len()));
    out.u8(proof.storage_proof.len() as u8);
    for slot in &proof.storage_proof {
        out.u8(slot.key.slot[31]).pieces(&take(slot.proof.len()));
    }
    out.0
}

fn witnesses() -> Seeds {
    let (trie, _) = tries();
    let root = trie.state_root().expect("hashed");
    let seed = |changes: &[u8]| {
        let nodes = unlinked(root, &trie.witness_nodes());
        let mut out = Output::default();
        out.pieces(&nodes).bytes(changes);
        out.0
    };
    // Of each change: the account, what becomes of it, its slots with their values.
    let changes = [3, 3, 2, 9, 1, 1, 2, 4, 1, 0, 77, 2, 1, 0];
    let deletions = [2, 4, 1, 0, 8, 1, 0];
    let mut json = vec![0];
    json.extend(br#"{"state":["0x80"],"codes":["0x"],"keys":[],"headers":["0xc0"]}"#);
    vec![
        ("nothing_changed", seed(&[])),
        ("changes", seed(&changes)),
        ("deletions", seed(&deletions)),
        ("json", json),
    ]
}

fn stateless() -> Seeds {
    vec![
        ("good", vec![0]),
        ("as_it_was", vec![1]),
        ("node", edit_of(0, 1, 0, 9, &[1])),
        ("short_node", edit_of(0, 0, 2, 40, &[0; 9])),
        ("code", edit_of(1, 0, 1, 0, &[0x5b])),
        ("other_code", edit_of(1, 0, 3, 0, &[0x60, 0, 0x60, 0, 0xf3])),
        ("parent", edit_of(2, 0, 0, 100, &[7])),
        ("raw_block", edit_of(3, 0, 0, 50, &[7])),
        ("later", vec![0, 4, 1, 7, 0, 0, 0, 0, 0, 0, 0]),
        ("fewer_transactions", vec![0, 5, 0]),
        ("twice", vec![0, 5, 2]),
    ]
}

fn genesis_files() -> Seeds {
    let least = r#"{"alloc":{},"difficulty":1,"gasLimit":5000}"#;
    let accounts = r#"{"gasLimit":"0x1388","difficulty":"131072","mixhash":"0x05","stateRoot":"0x00",
        "alloc":{"00000000000000000000000000000000000000bb":{"balance":"0x1","nonce":"3","code":"6001",
        "storage":{"0x1":"0x02","":"","abc":"ff"},"comment":{"a":[1]}},
        "0x00000000000000000000000000000000000000aA":{"balance":58750000000000000000000,"nonce":null}}}"#;
    let config = r#"{"config":{"chainId":1337,"homesteadBlock":0,"daoForkSupport":true,"daoForkBlock":null,
        "londonBlock":"0x0","terminalTotalDifficulty":5.875e22,"terminalTotalDifficultyPassed":true,
        "shanghaiTime":0,"cancunTime":"0","pragueTime":7,"bpo1Time":9,"amsterdamTime":10,"verkleTime":7,
        "depositContractAddress":"0x4242424242424242424242424242424242424242","ethash":{},"clique":{"period":0},
        "blobSchedule":{"cancun":{"target":3,"max":"0x6","baseFeeUpdateFraction":3338477},"bpo9":{}}},
        "timestamp":"10","extraData":"0x00","gasUsed":0,"number":0,"baseFeePerGas":7,"excessBlobGas":"0x1",
        "blobGasUsed":null,"slotNumber":5,"parentBeaconBlockRoot":"0x07","coinbase":
        "0xc0ba00000000000000000000000000000000c0ba","gasLimit":1,"difficulty":"","alloc":{}}"#;
    let lines = |text: &str| text.lines().map(str::trim).collect::<String>().into_bytes();
    vec![
        ("least", lines(least)),
        ("accounts", lines(accounts)),
        ("config", lines(config)),
        ("null", b"null".to_vec()),
    ]
}

fn witness_texts() -> Seeds {
    let rlp = Bytes::from(alloy_rlp::encode(header(7)));
    let lists = format!(r#""state":["0x80","0xC0"],"codes":["","0x6001"],"headers":["{rlp}"]"#);
    let witness = cambium_chain::BlockWitness {
        block: Bytes::from_static(&[0xc1, 0xc0]),
        witness: cambium_trie::Witness {
            state: vec![Bytes::from_static(&[0x80])],
            headers: vec![rlp, Bytes::from_static(&[0xc0])],
            ..Default::default()
        },
    };
    let geth = witness
        .to_json(cambium_chain::WitnessForm::Geth)
        .to_string();
    let own = format!(r#"{{"block":"0xc1c0","witness":{{{lists},"keys":["0x07"]}}}}"#);
    let seed = |given: u8, text: &str| [&[given], text.as_bytes()].concat();
    vec![
        ("own", seed(0, &own)),
        ("reth", seed(1, &format!("{{{lists},\"other\":[{{}}]}}"))),
        ("geth", seed(1, &geth)),
        ("null", seed(1, r#"{"witness":null,"state":null}"#)),
    ]
}
