//! Input that is wrong: each kind ends in an error that names the file, block or field, a non-zero
//! exit code, and a database at the last good block that takes the good block next.

use crate::support;
use crate::support::Fixture;
use alloy_consensus::{EthereumTxEnvelope, Header, Signed, proofs::calculate_transaction_root};
use alloy_primitives::{Address, B64, B256, Bloom, Bytes, Signature, U256};
use alloy_rlp::Encodable;
use cambium::chain::{Block, Transaction};
use serde_json::Value;
use std::{fs, io::Write};

const BLOCKS: u64 = 8;
/// The block that is made wrong.
const BAD: u64 = 5;

fn fixture() -> Fixture {
    Fixture::generate(200, BLOCKS, 12)
}

fn encode(block: &Block) -> Vec<u8> {
    let mut rlp = Vec::new();
    block.encode(&mut rlp);
    rlp
}

fn bad_block(fixture: &Fixture, change: impl FnOnce(&mut Block)) -> Vec<u8> {
    let mut block = fixture.blocks()[BAD as usize - 1].decode().unwrap();
    let before = encode(&block);
    change(&mut block);
    let after = encode(&block);
    assert_ne!(before, after, "the block is not changed");
    after
}

/// Replaces the transactions, and the header's root of them: the fault is in them alone.
fn with_transactions(block: &mut Block, change: impl FnOnce(&mut Vec<Transaction>)) {
    change(&mut block.body.transactions);
    block.header.transactions_root = calculate_transaction_root(&block.body.transactions);
}

/// The blocks before the bad one, the bad one, and those after it.
fn around(fixture: &Fixture, bad: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    for (index, raw) in fixture.blocks().into_iter().enumerate() {
        let is_bad = index as u64 + 1 == BAD;
        file.extend_from_slice(if is_bad { bad } else { &raw.rlp });
    }
    file
}

/// Imports a chain with a bad block in it, and then the good chain.
#[track_caller]
fn is_refused(fixture: &Fixture, bad: &[u8], words: &[&str]) {
    let file = fixture.write("bad.rlp", &around(fixture, bad));
    let run = fixture.import(&file).fails(3, words);
    run.fails(
        3,
        &[
            "block 5 (0x",
            "is invalid",
            "The database is at block 4 (0x",
        ],
    );
    assert_eq!(fixture.head(), BAD - 1);
}

#[track_caller]
fn goes_on(fixture: &Fixture) {
    let summary = fixture.import(&fixture.chain()).done().json();
    assert_eq!(summary["head_number"], support::quantity(BLOCKS));
    let check = cambium!("db", "check", "--json", "--datadir", fixture.db())
        .done()
        .json();
    assert_eq!(check["sound"], true, "{check}");
}

#[test]
fn each_wrong_header_field_is_named() {
    let other = B256::repeat_byte(0x77);
    type Change = fn(&mut Header, B256);
    let cases: &[(&str, Change)] = &[
        ("parent", |header, other| header.parent_hash = other),
        ("sha3Uncles", |header, other| header.ommers_hash = other),
        // It gets the fees: the state is another.
        ("stateRoot", |header, other| {
            header.beneficiary = Address::from_word(other)
        }),
        ("stateRoot", |header, other| header.state_root = other),
        ("transactionsRoot", |header, other| {
            header.transactions_root = other
        }),
        ("receiptsRoot", |header, other| header.receipts_root = other),
        ("logsBloom", |header, _| {
            header.logs_bloom = Bloom::repeat_byte(1)
        }),
        ("difficulty", |header, _| header.difficulty = U256::from(1)),
        ("number is 7", |header, _| header.number += 2),
        ("gasLimit", |header, _| header.gas_limit *= 2),
        ("gasUsed", |header, _| header.gas_used += 1),
        ("gasUsed", |header, _| {
            header.gas_used = header.gas_limit + 1
        }),
        ("timestamp", |header, _| header.timestamp -= 12),
        // A contract keeps the beacon chain's roots by time.
        ("stateRoot", |header, _| header.timestamp += 1),
        ("extraData", |header, _| {
            header.extra_data = Bytes::from(vec![1; 33])
        }),
        ("nonce", |header, _| header.nonce = B64::repeat_byte(1)),
        ("baseFeePerGas", |header, _| {
            header.base_fee_per_gas = Some(1)
        }),
        ("withdrawalsRoot", |header, other| {
            header.withdrawals_root = Some(other)
        }),
        ("blobGasUsed", |header, _| {
            header.blob_gas_used = Some(131_072)
        }),
        ("excessBlobGas", |header, _| {
            header.excess_blob_gas = Some(131_072)
        }),
        ("stateRoot", |header, other| {
            header.parent_beacon_block_root = Some(other)
        }),
        ("requestsHash", |header, other| {
            header.requests_hash = Some(other)
        }),
        ("requestsHash is missing", |header, _| {
            header.requests_hash = None
        }),
        ("blockAccessListHash is present", |header, other| {
            header.block_access_list_hash = Some(other);
        }),
    ];
    let fixture = fixture();
    for (field, change) in cases {
        let bad = bad_block(&fixture, |block| change(&mut block.header, other));
        // A wrong number is in the message, too.
        let run = fixture.import(&fixture.write("bad.rlp", &around(&fixture, &bad)));
        // The validity of a block without its parent is unknown.
        let (code, told) = match run.stderr.contains("can't be validated") {
            true => (1, "its parent 0x7777"),
            false => (3, "is invalid"),
        };
        let words = ["block ", told, field, "The database is at block 4 (0x"];
        let run = run.fails(code, &words);
        if !field.starts_with("number") {
            run.fails(code, &["block 5 (0x"]);
        }
        assert_eq!(fixture.head(), BAD - 1, "{field}");
    }
    goes_on(&fixture);
}

#[test]
fn what_a_proposer_is_free_to_choose_makes_another_valid_block() {
    // No other field of a block depends on it: the block is another, and valid. Its child is not.
    let fixture = fixture();
    let free = bad_block(&fixture, |block| {
        block.header.mix_hash = B256::repeat_byte(0x77)
    });
    let file = fixture.write("free.rlp", &around(&fixture, &free));
    fixture.import(&file).fails(
        1,
        &[
            "block 6 (0x",
            "its parent",
            "is not in the database",
            "at block 5 (0x",
        ],
    );
    assert_eq!(fixture.head(), BAD);
    goes_on(&fixture);
}

#[test]
fn wrong_transactions_are_named() {
    let fixture = fixture();
    let no_signature = bad_block(&fixture, |block| {
        with_transactions(block, |transactions| {
            transactions[3] = resigned(
                &transactions[3],
                Signature::new(U256::ZERO, U256::ONE, false),
            );
        });
    });
    is_refused(
        &fixture,
        &no_signature,
        &["transaction 3 has an invalid signature"],
    );
    let forged = bad_block(&fixture, |block| {
        with_transactions(block, |transactions| {
            let one = U256::from(12_345);
            transactions[3] = resigned(&transactions[3], Signature::new(one, one, true));
        });
    });
    is_refused(&fixture, &forged, &["transaction 3"]);
    let again = bad_block(&fixture, |block| {
        with_transactions(block, |transactions| {
            transactions.push(transactions[0].clone())
        });
    });
    is_refused(&fixture, &again, &["transaction 12 is invalid", "nonce"]);
    let left_out = bad_block(&fixture, |block| {
        with_transactions(block, |transactions| drop(transactions.remove(0)));
    });
    is_refused(&fixture, &left_out, &["in the header"]);
    let hidden = bad_block(&fixture, |block| drop(block.body.transactions.pop()));
    is_refused(&fixture, &hidden, &["transactionsRoot"]);
    let ommer = bad_block(&fixture, |block| {
        block.body.ommers.push(block.header.clone())
    });
    is_refused(&fixture, &ommer, &["sha3Uncles"]);
    let withdrawals = bad_block(&fixture, |block| block.body.withdrawals = None);
    is_refused(&fixture, &withdrawals, &["withdrawals"]);
    goes_on(&fixture);
}

fn resigned(transaction: &Transaction, signature: Signature) -> Transaction {
    match transaction.clone() {
        EthereumTxEnvelope::Eip1559(signed) => {
            let (transaction, _, _) = signed.into_parts();
            Signed::new_unhashed(transaction, signature).into()
        }
        EthereumTxEnvelope::Legacy(signed) => {
            let (transaction, _, _) = signed.into_parts();
            Signed::new_unhashed(transaction, signature).into()
        }
        other => panic!("workloads have no transactions of type {}", other.tx_type()),
    }
}

#[test]
fn a_block_over_its_gas_limit_is_refused() {
    let fixture = fixture();
    let mut genesis: Value = serde_json::from_slice(&fs::read(fixture.genesis()).unwrap()).unwrap();
    genesis["gasLimit"] = "0x7530".into();
    let file = fixture.write("small.json", genesis.to_string().as_bytes());
    let db = fixture.path("small");
    let made = cambium!("init", "--json", "--genesis", file, "--datadir", db)
        .done()
        .json();
    let mut block = fixture.blocks()[0].decode().unwrap();
    let is_payment =
        |transaction: &Transaction| alloy_consensus::Transaction::gas_limit(transaction) == 21_000;
    block.header.parent_hash = serde_json::from_value(made["genesis_hash"].clone()).unwrap();
    block.header.gas_limit = 30_000;
    block.header.gas_used = 30_000;
    block.header.base_fee_per_gas = Some(875_000_000);
    with_transactions(&mut block, |transactions| {
        transactions.retain(is_payment);
        transactions.truncate(2);
        assert_eq!(transactions.len(), 2);
    });
    let file = fixture.write("over.rlp", &encode(&block));
    cambium!("import", "--datadir", db, file).fails(
        3,
        &[
            "block 1 (0x",
            "transaction 1 is invalid",
            "over the 9000 gas left in the block",
        ],
    );
}

#[test]
fn files_that_are_cut_or_corrupt_are_named_with_the_place() {
    let fixture = fixture();
    let good = fs::read(fixture.chain()).unwrap();
    let cut = fixture.write("cut.rlp", &good[..good.len() - 10]);
    fixture.import(&cut).fails(
        3,
        &[
            "cut.rlp",
            "after block 7",
            "cut short",
            "The database is at block 7",
            "help: get the file",
        ],
    );
    assert_eq!(fixture.head(), 7);

    cambium!("unwind", "--to", "2", "-d", fixture.db()).done();
    let mut packed = flate2_pack(&good);
    packed.truncate(packed.len() / 2);
    let cut = fixture.write("cut.rlp.gz", &packed);
    fixture
        .import(&cut)
        .fails(3, &["cut.rlp.gz", "The database is at block"]);

    let garbage = fixture.write("garbage.rlp", b"These are no blocks.");
    fixture
        .import(&garbage)
        .fails(2, &["garbage.rlp: it is text, and blocks were expected"]);
    let garbage = fixture.write("garbage.rlp", b"\xc1\x80\x07");
    fixture
        .import(&garbage)
        .fails(2, &["garbage.rlp: it begins with something else"]);
    // A file that begins like a block, with its parent's hash, is an invalid block.
    let header = [&[0xe2, 0xe1, 0xa0][..], &[7; 32]].concat();
    let header = fixture.write("header.rlp", &header);
    fixture
        .import(&header)
        .fails(3, &["header.rlp", "byte 0", "invalid header"]);
    let huge = fixture.write("huge.rlp", &[0xff; 64]);
    fixture
        .import(&huge)
        .fails(3, &["huge.rlp", "byte 0", "over the limit of"]);
    let json = fixture.genesis();
    fixture.import(&json).fails(
        2,
        &[
            "genesis.json: it is JSON",
            "blocks were expected",
            "help: name a file of blocks",
        ],
    );
    let empty = fixture.write("empty.rlp", b"");
    fixture
        .import(&empty)
        .fails(3, &["empty.rlp: it is empty", "blocks were expected"]);
    fixture
        .import(&fixture.path("missing.rlp"))
        .fails(1, &["missing.rlp"]);
    // Of a directory, each file counts that may be one of blocks.
    let dir = fixture.path("files");
    fs::create_dir(&dir).unwrap();
    fs::copy(&huge, dir.join("huge.rlp")).unwrap();
    fixture
        .import(&dir)
        .fails(3, &["huge.rlp", "over the limit of"]);
    goes_on(&fixture);
}

#[test]
fn a_flipped_bit_anywhere_in_a_block_is_found() {
    let fixture = fixture();
    let good = fixture.blocks()[BAD as usize - 1].clone();
    // The good block must not be there already: one of its hash is not looked at again.
    let first: Vec<u8> = fixture.blocks()[..BAD as usize - 1]
        .iter()
        .flat_map(|raw| raw.rlp.to_vec())
        .collect();
    fixture.import(&fixture.write("first.rlp", &first)).done();
    let (steps, len) = (48, good.rlp.len());
    let mut valid = 0;
    for step in 0..steps {
        let mut bytes = good.rlp.to_vec();
        bytes[step * len / steps] ^= 1 << (step % 8);
        let file = fixture.write("flipped.rlp", &bytes);
        let run = fixture.import(&file);
        if run.code == 0 {
            // A field that the proposer is free to choose: another valid block.
            valid += 1;
            let good = good.decode().unwrap();
            let mut block: Block = alloy_rlp::Decodable::decode(&mut &bytes[..]).unwrap();
            block.header.mix_hash = good.header.mix_hash;
            block.header.extra_data = good.header.extra_data.clone();
            block.header.gas_limit = good.header.gas_limit;
            assert_eq!(block, good, "flip {step}");
            cambium!("unwind", "--to", (BAD - 1).to_string(), "-d", fixture.db()).done();
        } else {
            run.fails(3, &["The database is at block 4 (0x"]);
        }
        assert_eq!(fixture.head(), BAD - 1, "flip {step}");
    }
    support::say(&format!(
        "{steps} flips: {valid} other valid blocks, the rest refused"
    ));
    assert!(valid < steps / 4);
    goes_on(&fixture);
}

fn flate2_pack(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

#[test]
fn blocks_and_genesis_files_of_another_chain_are_refused() {
    let fixture = fixture();
    let other = tempfile::tempdir().unwrap();
    cambium!(
        "workload",
        "--out",
        other.path(),
        "--accounts",
        "30",
        "--blocks",
        "2",
        "--seed",
        "8"
    )
    .done();
    fixture.import(&fixture.chain()).done();
    let head = fixture.head();

    let chain = other.path().join("chain.rlp");
    fixture.import(&chain).fails(
        1,
        &[
            "block 1 (0x",
            "its parent 0x",
            "is not in the database",
            "The database is at block 8",
        ],
    );
    let genesis = other.path().join("genesis.json");
    let words = [
        "the database is of the chain with genesis 0x",
        "a separate data directory",
    ];
    cambium!("init", "--genesis", genesis, "-d", fixture.db()).fails(1, &words);
    cambium!("import", "--genesis", genesis, "-d", fixture.db(), chain).fails(1, &words);
    // The same fields, one account more.
    let text = fs::read_to_string(fixture.genesis()).unwrap();
    let more = text.replace(
        "\"alloc\": {",
        "\"alloc\": { \"0x00000000000000000000000000000000000000ff\": {\"balance\": \"1\"},",
    );
    assert_ne!(text, more);
    let more = fixture.write("more.json", more.as_bytes());
    cambium!("init", "--genesis", more, "-d", fixture.db()).fails(1, &words);
    assert_eq!(fixture.head(), head);

    let fresh = fixture.path("fresh");
    let tail: Vec<u8> = fixture.blocks()[2..]
        .iter()
        .flat_map(|raw| raw.rlp.to_vec())
        .collect();
    let tail = fixture.write("tail.rlp", &tail);
    cambium!("import", "--genesis", fixture.genesis(), "-d", fresh, tail).fails(
        1,
        &[
            "block 3 (0x",
            "its parent 0x",
            "import the blocks before it first",
        ],
    );
    cambium!("import", "-d", fresh, fixture.chain()).done();
}

#[test]
fn bad_genesis_files_are_named_and_leave_no_database() {
    let fixture = fixture();
    let text = fs::read_to_string(fixture.genesis()).unwrap();
    let twice = "\"0x00000000000000000000000000000000000000ff\": {\"balance\": \"1\"},";
    let twice = text.replace("\"alloc\": {", &format!("\"alloc\": {{{twice}{twice}"));
    for (name, bytes, word) in [
        ("cut.json", &text[..text.len() / 2], "EOF"),
        ("list.json", "[]", "list.json"),
        (
            "rules.json",
            "{\"difficulty\": \"0x1\", \"gasLimit\": \"0x1388\", \"alloc\": {}}",
            "has no `config`",
        ),
        (
            "twice.json",
            &twice,
            "has account 0x00000000000000000000000000000000000000ff twice",
        ),
    ] {
        let file = fixture.write(name, bytes.as_bytes());
        cambium!("init", "--genesis", file, "-d", fixture.db()).fails(1, &[name, word]);
        cambium!("db", "stats", "-d", fixture.db()).fails(1, &["there is no database in"]);
    }
    let missing = fixture.path("missing.json");
    cambium!("init", "--genesis", missing, "-d", fixture.db()).fails(1, &["missing.json"]);
    fixture.import(&fixture.chain()).done();
    goes_on(&fixture);
}
