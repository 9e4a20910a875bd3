//! Three small databases that are the same to the byte each time they are made: salts are counted, merges
//! are driven by hand, and all leaves are in one shard.

use alloy_consensus::{Eip658Value, Receipt, ReceiptEnvelope, ReceiptWithBloom};
use alloy_primitives::{Address, B256, Bytes, Log, LogData, U256, keccak256};
use cambium_history::{History, HistoryOptions, WholeNodes};
use cambium_index::{BlockPreimages, ChainIndex, IndexOptions, StoredBody, pack_receipts};
use cambium_preimages::{Preimages, PreimagesOptions};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, FaultyDisk, FileSizes, LeafKind, Loader, Options, View};
use cambium_testkit::TINY_FILES;
use cambium_trie::{Blake3, Commitment};
use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
};

/// Blocks of each database above the first one.
pub(crate) const BLOCKS: u64 = 10;
/// Accounts of the first state.
pub(crate) const ACCOUNTS: u64 = 16;
/// Slots of the first account: too many for one page.
pub(crate) const SLOTS: u64 = 90;
/// The same under the commitment `layered`, which has no other pages.
const LAYERED_SLOTS: u64 = 52;

pub(crate) const INDEX: IndexOptions = IndexOptions {
    memory_bytes: 1 << 20,
    data_file_bytes: 4 << 10,
};

/// Files of the block log so small that there are two.
const FILES: FileSizes = FileSizes {
    log_file_bytes_max: 8 << 10,
    log_extend_bytes: 4 << 10,
    segment_buffer_bytes: 4 << 10,
    ..TINY_FILES
};

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        files: FILES,
        ..Options::default()
    }
}

pub(crate) fn history_options() -> HistoryOptions {
    HistoryOptions {
        memory_bytes: 1 << 20,
        keep_blocks: NonZeroU64::new(1_000),
        ..HistoryOptions::default()
    }
}

pub(crate) fn address(index: u64) -> Address {
    Address::left_padding_from(&(index + 1).to_be_bytes())
}

/// The path of an account, or the key of an entry. All are in one shard.
pub(crate) fn path(index: u64) -> B256 {
    let mut path = keccak256(index.to_be_bytes());
    path[0] = 0x2a;
    path
}

pub(crate) fn slot(index: u64) -> B256 {
    keccak256(B256::from(U256::from(index)))
}

pub(crate) fn code() -> (B256, Bytes) {
    let code = Bytes::from_static(&[0x60, 0x01, 0x5b, 0x00]);
    (keccak256(&code), code)
}

pub(crate) fn block_hash(number: u64) -> B256 {
    keccak256(header(number))
}

/// An account after a block that changed it.
pub(crate) fn account(index: u64, number: u64) -> Account {
    Account {
        nonce: number,
        balance: U256::from(index + 1) << 70,
        code_hash: match index {
            0 => code().0,
            _ => Account::default().code_hash,
        },
    }
}

/// A state of accounts under Ethereum's root, with a history, an index and preimages.
pub(crate) fn accounts() -> FaultyDisk {
    let disk = counting_disk();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let preimages = Preimages::create(shared.clone(), PreimagesOptions::default()).unwrap();
    let db = create_accounts(&shared, options(), SLOTS);
    let keys = (0..SLOTS).map(|index| B256::from(U256::from(index)));
    preimages.add((0..ACCOUNTS).map(address), keys).unwrap();
    preimages.advance(db.genesis());
    preimages.flush().unwrap();

    let nodes = Some(WholeNodes {
        one_of: NonZeroU32::MIN.saturating_add(3),
    });
    let history = History::create(shared.clone(), &db, 0, nodes, history_options()).unwrap();
    let index = ChainIndex::create(shared, &db, 0, INDEX).unwrap();
    for number in 1..=BLOCKS {
        if number == 6 {
            let side = commit(&db, number, B256::repeat_byte(6), false);
            assert_eq!(db.block_id(number).unwrap(), None, "{side}");
        }
        let id = commit(&db, number, block_hash(number), true);
        let created = created(number);
        preimages.add(created.addresses, created.slots).unwrap();
        preimages.advance(id);
        if number % 2 == 0 {
            history.catch_up(&db, &mut |_| true).unwrap();
            history.flush().unwrap();
            index.catch_up(&db, None, &mut |_| true).unwrap();
            index.flush().unwrap();
            preimages.flush().unwrap();
        }
        match number {
            4 => db.flush(0).unwrap(),
            7 => {
                let finalized = db.block_id(4).unwrap();
                db.set_canonical(id, Some(BlockId::new(5, block_hash(5))), finalized)
                    .unwrap();
            }
            8 => {
                db.flush(0).unwrap();
                history.merge().unwrap();
                index.merge().unwrap();
                preimages.merge().unwrap();
            }
            _ => {}
        }
    }
    drop((history, index, preimages));
    db.close().unwrap();
    disk
}

/// Accounts under the commitment `layered`, of which intervals end and merges have roots.
pub(crate) fn layered() -> FaultyDisk {
    let disk = counting_disk();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let db = create_accounts(&shared, options().layered(3), LAYERED_SLOTS);
    for number in 1..=BLOCKS {
        commit(&db, number, block_hash(number), true);
        if number == 4 || number == 8 {
            db.flush(0).unwrap();
        }
    }
    db.close().unwrap();
    disk
}

pub(crate) fn entries_options() -> Options {
    Options {
        leaves: LeafKind::Entries,
        commitment: Commitment::Binary(&Blake3),
        keep_blocks: Some(100),
        ..options()
    }
}

/// An entry after a block that changed it: every fifth one is a long value.
pub(crate) fn value(index: u64, number: u64) -> Bytes {
    let len = match index % 5 {
        0 => 520 + index as usize,
        _ => 20,
    };
    vec![(16 * index + number) as u8; len].into()
}

/// Number of the newest block up to `number` that has changed an account or an entry of the first state.
pub(crate) fn changed_by(index: u64, number: u64) -> u64 {
    (1..=number)
        .rev()
        .find(|number| changed(*number).contains(&index))
        .unwrap_or(0)
}

/// What a block changes of the first state.
fn changed(number: u64) -> [u64; 3] {
    [number, number + 5, 1 + 2 * number % (ACCOUNTS - 1)]
}

/// A key-value database with long values under a binary trie.
pub(crate) fn entries() -> FaultyDisk {
    let disk = counting_disk();
    let mut loader = Loader::new(Arc::new(disk.clone()), entries_options()).unwrap();
    for index in 0..ACCOUNTS {
        let value = loader.value(&path(index), value(index, 0)).unwrap();
        loader.entry(path(index), &value).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let first = first_block(loaded.root());
    let db = loaded.create(first, vec![]).unwrap();
    for number in 1..=BLOCKS {
        let session = db.view().unwrap().session();
        let put = |index: u64| AccountDiff {
            path: path(index),
            account: AccountUpdate::Entry(
                session.value(&path(index), value(index, number)).unwrap(),
            ),
            wipe: false,
            slots: vec![],
        };
        let mut changes: Vec<_> = indices(number).into_iter().map(put).collect();
        changes.push(remove(ACCOUNTS + 1 + number));
        let staged = session.finish(Changes::new(changes), vec![]).unwrap();
        let meta = BlockMeta {
            id: BlockId::new(number, block_hash(number)),
            parent: db.head().hash,
            state_root: staged.root(),
            body: Bytes::new(),
        };
        staged.seal(meta).unwrap().commit().unwrap();
        if number == 4 || number == 8 {
            db.flush(0).unwrap();
        }
    }
    db.close().unwrap();
    disk
}

fn counting_disk() -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    disk.count_salts();
    disk
}

fn create_accounts(disk: &Arc<dyn Disk>, options: Options, first_slots: u64) -> Db {
    let mut loader = Loader::new(disk.clone(), options).unwrap();
    loader.code(code().0, &code().1).unwrap();
    for index in 0..ACCOUNTS {
        let slots = match index {
            0 => first_slots,
            _ => index % 3,
        };
        let slots = (0..slots).map(|at| (slot(at), U256::from(at + 1)));
        let account = account(index, 0);
        loader.account(path(index), &account, slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let first = first_block(loaded.root());
    loaded.create(first, vec![]).unwrap()
}

fn first_block(state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(0, block_hash(0)),
        parent: B256::ZERO,
        state_root,
        body: body(0),
    }
}

fn indices(number: u64) -> Vec<u64> {
    let mut indices = changed(number).to_vec();
    // One is new, and goes again two blocks later.
    indices.push(ACCOUNTS + number + 3);
    indices.sort_unstable();
    indices.dedup();
    indices
}

fn remove(index: u64) -> AccountDiff {
    AccountDiff {
        path: path(index),
        account: AccountUpdate::Delete,
        wipe: true,
        slots: vec![],
    }
}

fn changes(number: u64) -> Changes {
    let put = |index| AccountDiff {
        path: path(index),
        account: AccountUpdate::Put(account(index, number)),
        wipe: index == number && number > 8,
        slots: vec![(slot(number), U256::from(1_000 * number + index))],
    };
    let mut changes: Vec<_> = indices(number).into_iter().map(put).collect();
    // The slots of the first account change without it.
    changes.push(AccountDiff {
        path: path(0),
        account: AccountUpdate::Keep,
        wipe: false,
        slots: vec![
            (slot(number), U256::from(number) << 100),
            (slot(50 + number), U256::ZERO),
        ],
    });
    changes.push(remove(ACCOUNTS + 1 + number));
    Changes::new(changes)
}

fn commit(db: &Db, number: u64, hash: B256, becomes_head: bool) -> BlockId {
    let view: View = db.view().unwrap();
    let (block_code, code_hash) = (Bytes::from(vec![number as u8; 40]), [number as u8; 40]);
    let codes = vec![(keccak256(code_hash), block_code)];
    let staged = view.session().finish(changes(number), codes).unwrap();
    let meta = BlockMeta {
        id: BlockId::new(number, hash),
        parent: db.head().hash,
        state_root: staged.root(),
        body: body(number),
    };
    let id = meta.id;
    let sealed = staged.seal(meta).unwrap();
    match becomes_head {
        true => drop(sealed.commit().unwrap()),
        false => drop(sealed.commit_side_branch().unwrap()),
    }
    id
}

fn created(number: u64) -> BlockPreimages {
    BlockPreimages {
        addresses: vec![address(ACCOUNTS + number + 3)],
        slots: vec![B256::from(U256::from(SLOTS + number))],
    }
}

/// The hash of a block's only transaction.
pub(crate) fn transaction_hash(number: u64) -> B256 {
    keccak256(transaction(number))
}

fn transaction(number: u64) -> Vec<u8> {
    rlp_list(&[
        alloy_rlp::encode(number),
        alloy_rlp::encode(number * number),
    ])
}

fn header(number: u64) -> Vec<u8> {
    let parent = match number {
        0 => B256::ZERO,
        number => keccak256(header(number - 1)),
    };
    rlp_list(&[
        alloy_rlp::encode(parent.as_slice()),
        alloy_rlp::encode(number),
    ])
}

/// The log of a block's transaction.
pub(crate) fn log(number: u64) -> Log {
    Log {
        address: address(number % 3),
        data: LogData::new_unchecked(vec![slot(number % 2)], Bytes::from_static(b"data")),
    }
}

/// A block of one transaction with one log, its access list, receipts and preimages.
fn body(number: u64) -> Bytes {
    if number == 0 {
        let rlp = rlp_list(&[header(0), rlp_list(&[]), rlp_list(&[])]);
        return StoredBody::encode(U256::ZERO, &rlp, &[], None, None);
    }
    let rlp = rlp_list(&[
        header(number),
        rlp_list(&[transaction(number)]),
        rlp_list(&[]),
    ]);
    let receipt = ReceiptWithBloom::from(Receipt {
        status: Eip658Value::Eip658(true),
        cumulative_gas_used: number,
        logs: vec![log(number)],
    });
    let mut receipts = Vec::new();
    alloy_rlp::encode_list(&[ReceiptEnvelope::Legacy(receipt)], &mut receipts);
    let list = rlp_list(&[alloy_rlp::encode(number)]);
    let (receipts, preimages) = (pack_receipts(&receipts), created(number).pack());
    let difficulty = U256::from(number);
    StoredBody::encode(difficulty, &rlp, &list, Some(&receipts), Some(&preimages))
}

fn rlp_list(items: &[Vec<u8>]) -> Vec<u8> {
    let payload = items.concat();
    let mut out = Vec::new();
    let header = alloy_rlp::Header {
        list: true,
        payload_length: payload.len(),
    };
    header.encode(&mut out);
    out.extend_from_slice(&payload);
    out
}
