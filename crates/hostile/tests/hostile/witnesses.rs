//! Witnesses as JSON with anything wrong in them: each byte, each value, each header field. A reader
//! refuses them with the place, or reads what the text says; and a block holds only if a database says
//! so as well.

use crate::ALONE;
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_rlp::Decodable;
use cambium_chain::{
    Block, BlockWitness, Chain, ChainSealer, StatelessError, StatelessReport, StatelessRules,
    WitnessForm,
};
use cambium_hostile::{Json, Watchdog, all_or, byte_changes, json_changes, mend_header};
use cambium_primitives::BlockId;
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{most_during, say};
use cambium_trie::{NodeRef, encode_branch};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::{fmt::Display, sync::Arc, time::Duration};

const FORMS: [WitnessForm; 4] = WitnessForm::ALL;
/// Changed texts of each form in the short form of the tests.
const CHANGES: usize = 2500;
/// Longer than any error message that helps.
const MESSAGE_BYTES_MAX: usize = 500;
/// Far more memory than the small block takes.
const MEMORY_MAX: usize = 16 << 20;
/// Longer than reading and executing takes, by far.
const STEP_MAX: Duration = Duration::from_secs(20);

/// A small chain and its last block's witness, which holds.
struct Honest {
    chain: Chain,
    witness: BlockWitness,
    parent: Header,
    report: StatelessReport,
}

impl Honest {
    fn new() -> Self {
        let params = WorkloadParams {
            accounts: 12,
            senders: Some(6),
            holders: Some(8),
            pools: 1,
            blocks: 2,
            block_size: BlockSize::Transactions(3),
            erc20_percent: 60,
            ..WorkloadParams::default()
        };
        let workload = Workload::new(params).unwrap();
        let options = Options {
            memory_bytes: 8 << 20,
            ..Options::default()
        };
        let disk = Arc::new(FaultyDisk::new(1));
        let chain = workload.init(disk, options, &mut |_| {}).unwrap();
        let genesis = chain.block(0).unwrap().header;
        let head = workload
            .generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))
            .unwrap();
        let witness = chain.witness(head.number).unwrap();
        let parent = chain.block(head.number - 1).unwrap().header;
        let report = witness.execute(&StatelessRules::of(chain.spec())).unwrap();
        assert_eq!(report.id, BlockId::new(head.number, head.hash_slow()));
        assert_eq!(report.unused_nodes, 0);
        Self {
            chain,
            witness,
            parent,
            report,
        }
    }

    fn rules(&self) -> StatelessRules<'_> {
        StatelessRules {
            parent: Some(self.report.parent.hash),
            ..StatelessRules::of(self.chain.spec())
        }
    }

    /// The text of a form, and the block that is given beside it.
    fn json(&self, form: WitnessForm) -> (String, Option<Bytes>) {
        let block = (form != WitnessForm::Own).then(|| self.witness.block.clone());
        (format!("{:#}", self.witness.to_json(form)), block)
    }

    /// Reads a text: an error, or a witness, which is examined in all ways.
    fn try_text(
        &self,
        text: &[u8],
        block: Option<Bytes>,
        case: &dyn Display,
        counts: &mut Counts,
    ) -> Option<String> {
        counts.tried += 1;
        // Bytes that are not text are rejected before.
        let text = std::str::from_utf8(text).ok()?;
        let given = block.clone();
        let (read, most) = most_during(|| BlockWitness::from_json(text, given));
        assert!(
            most <= (64 << 10) + 40 * text.len(),
            "{case}: {most} bytes of memory for {} bytes of text",
            text.len()
        );
        let witness = match read {
            Ok(witness) => witness,
            Err(error) => {
                let error = brief(&error, case);
                let is_placed = error.contains(" at line ");
                let is_named = error.contains("lacks the field `")
                    || error.contains(" block")
                    || error == "null";
                assert!(is_placed || is_named, "{case}: {error}");
                return Some(error);
            }
        };
        counts.read += 1;
        assert_is_what_the_text_says(&witness, text, block, case);
        let mut same = witness.clone();
        same.witness.keys = self.witness.witness.keys.clone();
        same.form = self.witness.form;
        if same == self.witness {
            counts.same += 1;
            return None;
        }
        let executed = witness.execute(&self.rules());
        self.check(&witness, executed.as_ref(), case, counts);
        None
    }

    /// A block that holds is one that the database takes, and a good block is never blamed.
    fn check(
        &self,
        witness: &BlockWitness,
        executed: Result<&StatelessReport, &StatelessError>,
        case: &dyn Display,
        counts: &mut Counts,
    ) {
        let report = match executed {
            Ok(report) => report,
            Err(error) => {
                let is_invalid = matches!(error, StatelessError::Invalid { .. });
                let is_good = witness.block == self.witness.block;
                assert!(
                    !(is_invalid && is_good),
                    "{case}: the block is blamed: {error}"
                );
                brief(error, case);
                return;
            }
        };
        counts.held += 1;
        let StatelessReport {
            unused_nodes,
            unused_codes,
            unused_headers,
            ..
        } = *report;
        if witness.block == self.witness.block {
            let expected = StatelessReport {
                unused_nodes,
                unused_codes,
                unused_headers,
                ..self.report
            };
            assert_eq!(*report, expected, "{case}");
            return;
        }
        counts.other_blocks += 1;
        let block: Block = alloy_rlp::decode_exact(&witness.block[..]).unwrap();
        let header = &block.header;
        assert_eq!(alloy_rlp::encode(&block), witness.block, "{case}");
        assert_eq!(report.id, BlockId::new(header.number, header.hash_slow()));
        assert_ne!(report.id, self.report.id, "{case}: of another block");
        let expected = StatelessReport {
            id: report.id,
            state_root: header.state_root,
            gas_used: header.gas_used,
            transactions: block.body.transactions.len(),
            unused_nodes,
            unused_codes,
            unused_headers,
            ..self.report
        };
        assert_eq!(*report, expected, "{case}");
        let prepared = self.chain.prepare(witness.block.clone(), None);
        let taken = prepared.and_then(|block| self.chain.execute(block, self.report.parent));
        let why = taken.err().map(|error| error.to_string());
        assert_eq!(
            why, None,
            "{case}: it holds, and the database says otherwise"
        );
    }
}

#[derive(Debug, Default)]
struct Counts {
    tried: usize,
    read: usize,
    same: usize,
    held: usize,
    other_blocks: usize,
}

impl Counts {
    fn say(&self, what: &str) {
        let Self {
            tried,
            read,
            same,
            held,
            other_blocks,
        } = self;
        say(&format!(
            "{what}: {tried} tried, {read} read, {same} of them the same witness, {held} others hold, \
             {other_blocks} of another block"
        ));
    }
}

/// An error's message, which must be short.
fn brief(error: &dyn Display, case: &dyn Display) -> String {
    let message = error.to_string();
    let begin: String = message.chars().take(MESSAGE_BYTES_MAX).collect();
    assert!(
        message.len() < MESSAGE_BYTES_MAX,
        "{case}: a message of {} bytes: {begin}",
        message.len()
    );
    message
}

/// Compares what was read with a model of JSON that shares no code with the reader.
fn assert_is_what_the_text_says(
    read: &BlockWitness,
    text: &str,
    given: Option<Bytes>,
    case: &dyn Display,
) {
    let json = Json::parse(text.as_bytes()).unwrap_or_else(|| panic!("{case}: no JSON is read"));
    let is_there = |json: &&Json| **json != Json::Null;
    let own = json
        .field("block")
        .filter(is_there)
        .map(|text| hex(text, case));
    assert_eq!(Some(&read.block), own.as_ref().or(given.as_ref()), "{case}");
    if let (Some(own), Some(given)) = (own, given) {
        assert_eq!(own, given, "{case}: two blocks");
    }
    let lists = json.field("witness").filter(is_there).unwrap_or(&json);
    let list = |name: &str| -> Vec<Json> {
        let list = lists.field(name).filter(is_there);
        list.map_or(Vec::new(), |list| {
            let elements = list.elements();
            let elements = elements.unwrap_or_else(|| panic!("{case}: {name} is no list"));
            elements.to_vec()
        })
    };
    for (name, got) in [
        ("state", &read.witness.state),
        ("codes", &read.witness.codes),
        ("keys", &read.witness.keys),
    ] {
        let said: Vec<_> = list(name).iter().map(|text| hex(text, case)).collect();
        assert_eq!(*got, said, "{case}: {name}");
    }
    let headers = list("headers");
    assert_eq!(read.witness.headers.len(), headers.len(), "{case}");
    for (got, said) in read.witness.headers.iter().zip(&headers) {
        match said {
            Json::Text(_) => assert_eq!(*got, hex(said, case), "{case}"),
            object => assert_header_says(got, object, case),
        }
    }
}

/// A header's RLP says what its object says, field by field.
fn assert_header_says(rlp: &Bytes, object: &Json, case: &dyn Display) {
    let header = Header::decode(&mut &rlp[..]).unwrap_or_else(|error| panic!("{case}: {error}"));
    let said = |name: &str| object.field(name).filter(|said| **said != Json::Null);
    let bytes = |name: &str| {
        said(name).map(|said| match said.elements() {
            // Extra data may be a list of bytes.
            Some(bytes) => bytes
                .iter()
                .map(|byte| number(byte, case).to::<u8>())
                .collect(),
            None => hex(said, case),
        })
    };
    let of = |hash: B256| Bytes::copy_from_slice(hash.as_slice());
    for (name, got) in [
        ("parentHash", Some(of(header.parent_hash))),
        ("stateRoot", Some(of(header.state_root))),
        ("extraData", Some(header.extra_data)),
        ("withdrawalsRoot", header.withdrawals_root.map(of)),
        ("requestsHash", header.requests_hash.map(of)),
    ] {
        assert_eq!(got, bytes(name), "{case}: {name}");
    }
    for (name, got) in [
        ("number", Some(header.number)),
        ("timestamp", Some(header.timestamp)),
        ("gasLimit", Some(header.gas_limit)),
        ("baseFeePerGas", header.base_fee_per_gas),
        ("blobGasUsed", header.blob_gas_used),
        ("excessBlobGas", header.excess_blob_gas),
    ] {
        let number = said(name).map(|said| number(said, case));
        assert_eq!(got.map(U256::from), number, "{case}: {name}");
    }
}

/// A number in hex after 0x, in decimal without.
fn number(json: &Json, case: &dyn Display) -> U256 {
    let (Json::Text(text) | Json::Number(text)) = json else {
        panic!("{case}: {json} is no number");
    };
    let hex = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((text.as_str(), 10), |digits| (digits, 16));
    U256::from_str_radix(digits, radix).unwrap_or_else(|error| panic!("{case}: {text}: {error}"))
}

/// Bytes in hex, digit by digit.
fn hex(json: &Json, case: &dyn Display) -> Bytes {
    let text = json.text();
    let text = text.unwrap_or_else(|| panic!("{case}: {json} is no hex"));
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    let digits = digits.unwrap_or(text).as_bytes();
    assert!(
        digits.len().is_multiple_of(2),
        "{case}: odd digits are read"
    );
    let digit = |byte: u8| {
        (byte as char)
            .to_digit(16)
            .unwrap_or_else(|| panic!("{case}: no digit"))
    };
    let bytes = digits
        .chunks(2)
        .map(|pair| (digit(pair[0]) << 4 | digit(pair[1])) as u8);
    bytes.collect()
}

#[test]
fn a_witness_with_any_byte_changed_says_what_it_says_or_is_refused() {
    let _alone = ALONE.lock();
    let honest = Honest::new();
    let watchdog = Watchdog::new(STEP_MAX);
    for form in FORMS {
        let (text, block) = honest.json(form);
        let mut counts = Counts::default();
        for changed in byte_changes(text.as_bytes(), all_or(CHANGES), 7) {
            let case = format!("{form:?}, {changed}");
            watchdog.step(&case, || {
                honest.try_text(&changed.bytes, block.clone(), &case, &mut counts);
            });
        }
        counts.say(&format!("{form:?}, {} bytes, each changed", text.len()));
        assert!(counts.read > counts.same, "{counts:?}");
        assert_eq!(
            counts.other_blocks > 0,
            form == WitnessForm::Own,
            "{counts:?}"
        );
    }
}

#[test]
fn a_witness_with_any_value_changed_says_what_it_says_or_is_refused() {
    let _alone = ALONE.lock();
    let honest = Honest::new();
    let watchdog = Watchdog::new(STEP_MAX);
    for form in FORMS {
        let (text, block) = honest.json(form);
        let json = Json::parse(text.as_bytes()).unwrap();
        let mut counts = Counts::default();
        for changed in json_changes(&json, all_or(CHANGES), 13) {
            let case = format!("{form:?}, {changed}");
            watchdog.step(&case, || {
                let text = changed.text.as_bytes();
                let error = honest.try_text(text, block.clone(), &case, &mut counts);
                let Some(error) = error else { return };
                // It is the whole header that does not fit together.
                let is_placed = changed.is_placed_by(&error).unwrap_or(true);
                let is_of_header = error.starts_with("headers: a header that lacks");
                assert!(is_placed || is_of_header, "{case}: {error}");
            });
        }
        counts.say(&format!("{form:?}, each value changed"));
        assert!(counts.same > 0 && counts.held > 0, "{counts:?}");
    }
}

/// RLP that claims a list of a thousand million bytes, a string of as many, and more than there can be.
const CLAIMS: [&[u8]; 5] = [
    &[0xfb, 0x3b, 0x9a, 0xca, 0x00, 0xc0],
    &[0xbb, 0x3b, 0x9a, 0xca, 0x00, 0x80],
    &[0xff; 9],
    &[0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0xf9, 0x02, 0x11, 0xfb, 0x3b, 0x9a, 0xca, 0x00, 0xc0],
];

/// Bytes of the lists, changed one by one.
#[test]
fn a_witness_with_any_byte_of_its_parts_changed_holds_for_no_other_block() {
    let _alone = ALONE.lock();
    let honest = Honest::new();
    let watchdog = Watchdog::new(STEP_MAX);
    let good = &honest.witness;
    let mut counts = Counts::default();
    let parts: [(&str, Part, &[Bytes]); 4] = [
        (
            "node",
            |made, at| &mut made.witness.state[at],
            &good.witness.state,
        ),
        (
            "code",
            |made, at| &mut made.witness.codes[at],
            &good.witness.codes,
        ),
        (
            "header",
            |made, at| &mut made.witness.headers[at],
            &good.witness.headers,
        ),
        (
            "block",
            |made, _| &mut made.block,
            std::slice::from_ref(&good.block),
        ),
    ];
    for (name, part, all) in parts {
        for (index, bytes) in all.iter().enumerate() {
            let changes = byte_changes(bytes, all_or(CHANGES / all.len()), 11);
            let changes = changes.map(|changed| (changed.to_string(), changed.bytes));
            let claims = CLAIMS.map(|claim| (format!("{claim:02x?} for all"), claim.to_vec()));
            for (change, bytes) in changes.chain(claims) {
                let case = format!("{name} {index}, {change}");
                let mut made = good.clone();
                *part(&mut made, index) = bytes.into();
                counts.tried += 1;
                watchdog.step(&case, || {
                    let (executed, most) = most_during(|| made.execute(&honest.rules()));
                    assert!(most < MEMORY_MAX, "{case}: {most} bytes of memory");
                    if executed.is_ok() {
                        assert_eq!(name, "block", "{case}: it holds all the same");
                    }
                    honest.check(&made, executed.as_ref(), &case, &mut counts);
                });
            }
        }
    }
    counts.say("bytes of nodes, codes, headers and block");
    assert!(counts.other_blocks > 0);
}

type Part = fn(&mut BlockWitness, usize) -> &mut Bytes;

/// A parent of which any byte is another, and a block that names it: a verifier that does not know the parent gets its
/// hash.
#[test]
fn a_block_on_a_parent_that_never_was_holds_for_that_parent_alone() {
    let _alone = ALONE.lock();
    let honest = Honest::new();
    let watchdog = Watchdog::new(STEP_MAX);
    let (mut tried, mut held) = (0, 0);
    let rlp = &honest.witness.witness.headers[0];
    assert_eq!(alloy_rlp::encode(&honest.parent), *rlp);
    let mut try_parent = |case: String, rlp: Vec<u8>| {
        let parent_hash = keccak256(&rlp);
        let (made, executed) = watchdog.step(&case, || {
            let ((made, executed), most) =
                most_during(|| on_parent(&honest, honest.witness.clone(), rlp));
            assert!(most < MEMORY_MAX, "{case}: {most} bytes of memory");
            (made, executed)
        });
        tried += 1;
        match executed {
            Ok(report) => {
                held += 1;
                let parent = &made.witness.headers[0];
                let parent = Header::decode(&mut &parent[..]).unwrap();
                assert_eq!(
                    report.parent,
                    BlockId::new(parent.number, parent_hash),
                    "{case}"
                );
                assert_eq!(report.pre_root, parent.state_root, "{case}");
                assert_eq!(
                    Some(report.id.number),
                    parent.number.checked_add(1),
                    "{case}"
                );
                assert_ne!(report.id, honest.report.id, "{case}");
            }
            Err(error) => _ = brief(&error, &case),
        }
        let known = made.execute(&honest.rules());
        assert!(
            matches!(known, Err(StatelessError::OtherParent { .. })),
            "{case}: {known:?}"
        );
    };
    for changed in byte_changes(rlp, all_or(CHANGES), 5) {
        try_parent(format!("parent, {changed}"), changed.bytes);
    }
    for (name, change) in EXTREMES {
        for value in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let mut parent = honest.parent.clone();
            change(&mut parent, value);
            if parent != honest.parent {
                try_parent(
                    format!("parent's {name} is {value}"),
                    alloy_rlp::encode(&parent),
                );
            }
        }
    }
    say(&format!(
        "parents that never were: {tried} tried, {held} hold"
    ));
    assert!(held > 0);
}

/// The same block on another parent, which the witness has: the parent's header has the fields that the block needs to
/// be valid, where that is possible.
fn on_parent(
    honest: &Honest,
    mut made: BlockWitness,
    rlp: Vec<u8>,
) -> (BlockWitness, Result<StatelessReport, StatelessError>) {
    let mut block: Block = alloy_rlp::decode_exact(&made.block[..]).unwrap();
    block.header.parent_hash = keccak256(&rlp);
    made.witness.headers[0] = rlp.into();
    let rules = StatelessRules::of(honest.chain.spec());
    for _ in 0..12 {
        made.block = alloy_rlp::encode(&block).into();
        let executed = made.execute(&rules);
        let Err(StatelessError::Invalid { fault, .. }) = &executed else {
            return (made, executed);
        };
        if !mend_header(&mut block.header, fault) {
            return (made, executed);
        }
    }
    panic!("{:?} goes on being wrong", block.header);
}

type Extreme = fn(&mut Header, u64);

const EXTREMES: [(&str, Extreme); 9] = [
    ("number", |header, value| header.number = value),
    ("timestamp", |header, value| header.timestamp = value),
    ("gas limit", |header, value| header.gas_limit = value),
    ("gas used", |header, value| header.gas_used = value),
    ("base fee", |header, value| {
        header.base_fee_per_gas = Some(value)
    }),
    ("blob gas used", |header, value| {
        header.blob_gas_used = Some(value)
    }),
    ("excess blob gas", |header, value| {
        header.excess_blob_gas = Some(value)
    }),
    ("difficulty", |header, value| {
        header.difficulty = U256::from(value) << 192;
    }),
    ("extra data", |header, value| {
        header.extra_data = vec![7; (value >> 44) as usize].into();
    }),
];

/// A root node that is another, with the parent that names it and the block that names that.
#[test]
fn a_root_node_that_never_was_is_refused_or_lacks_what_the_block_needs() {
    let _alone = ALONE.lock();
    let honest = Honest::new();
    let watchdog = Watchdog::new(STEP_MAX);
    let nodes = &honest.witness.witness.state;
    let is_root = |node: &Bytes| keccak256(node) == honest.parent.state_root;
    let root = nodes.iter().position(is_root).unwrap();
    let (mut tried, mut held) = (0, 0);
    for changed in byte_changes(&nodes[root], all_or(CHANGES), 3) {
        let case = format!("root node, {changed}");
        let mut parent = honest.parent.clone();
        parent.state_root = keccak256(&changed.bytes);
        let mut made = honest.witness.clone();
        made.witness.state[root] = changed.bytes.into();
        let rlp = alloy_rlp::encode(&parent);
        let (made, executed) = watchdog.step(&case, || on_parent(&honest, made, rlp));
        tried += 1;
        match executed {
            // Of children that are not there, and not needed, a block knows nothing but the hash.
            Ok(report) => {
                held += 1;
                assert_eq!(report.pre_root, parent.state_root, "{case}");
                assert_ne!(report.state_root, honest.report.state_root, "{case}");
            }
            Err(error) => _ = brief(&error, &case),
        }
        assert!(
            made.execute(&honest.rules()).is_err(),
            "{case}: the parent is known"
        );
    }
    say(&format!(
        "root nodes that never were: {tried} tried, {held} do for the block"
    ));
    assert!(held > 0);
}

/// A witness whose state is a tower of branches, each sixteen times the one below it, under a parent of its own: the
/// verifier does not know the parent.
#[test]
fn a_small_witness_takes_little_memory_whatever_its_nodes_refer_to() {
    let _alone = ALONE.lock();
    let honest = Honest::new();
    for (levels, junk) in [(7, 0), (63, 0), (7, 100_000), (40, 100_000)] {
        let (mut nodes, mut below) = (Vec::new(), B256::repeat_byte(7));
        for _ in 0..levels {
            let mut rlp = Vec::new();
            encode_branch(&[Some(NodeRef::hash(below)); 16], &[], &mut rlp);
            below = keccak256(&rlp);
            nodes.push(Bytes::from(rlp));
        }
        nodes.extend((0..junk).map(|_| Bytes::new()));
        let parent = alloy_rlp::encode(Header {
            state_root: below,
            ..honest.parent.clone()
        });
        let mut block: Block = alloy_rlp::decode_exact(&honest.witness.block[..]).unwrap();
        block.header.parent_hash = keccak256(&parent);
        let mut witness = honest.witness.clone();
        witness.block = alloy_rlp::encode(&block).into();
        witness.witness.headers = vec![parent.into()];
        witness.witness.state = nodes;
        let text = witness.to_json(WitnessForm::Own).to_string();
        let rules = StatelessRules::of(honest.chain.spec());
        let (refused, most) = most_during(|| {
            let witness = BlockWitness::from_json(&text, None).unwrap();
            witness.execute(&rules).unwrap_err()
        });
        assert!(matches!(refused, StatelessError::Lacks(_)), "{refused}");
        say(&format!(
            "{levels} levels, {junk} nodes beside them: {most} bytes of memory for {} of text",
            text.len()
        ));
        assert!(most <= MEMORY_MAX + 40 * text.len(), "{most}");
    }
}
