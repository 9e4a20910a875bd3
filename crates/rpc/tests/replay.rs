//! The public blockchain tests through the Engine API: each block is a payload, handed over by JSON-RPC to one chain and as SSZ to
//! another, and each valid one becomes the head. Statuses are those of the fixture, and those of the other transport; the reason of
//! an invalid block, the head and the state at the end are the fixture's.
//!
//! Fixtures do not have what a payload has besides its block: requests are those of an execution, and so are access lists that do not
//! come with the block. Blocks before the merge are no payloads, and are imported; chains that have no others are left out.

use crate::common::{
    ask,
    consensus::{Consensus, Known, version_of},
    rest::name_of,
};
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::Decodable;
use cambium_chain::{AmsterdamRules, Block, ChainSpec, DryRun, Fork};
use cambium_conformance::{BlockchainCase, BlockchainSuite, Pack, Suite, run_suite};
use cambium_evm::{Hooks, Sequential};
use cambium_node::Node;
use cambium_primitives::{Account, Changes};
use cambium_rpc::{Limits, Served};
use cambium_state::{FaultyDisk, View};
use cambium_testkit::{Backend, EngineChain, genesis_chain, is_long, say};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

/// Most withdrawals, and most bytes of extra data, of a payload as SSZ.
const WITHDRAWALS_MAX: usize = 16;
const EXTRA_DATA_BYTES_MAX: usize = 32;

/// What became of the blocks of all cases.
#[derive(Debug, Default)]
struct Counts {
    valid: AtomicUsize,
    invalid: AtomicUsize,
    /// Their parents are unknown.
    syncing: AtomicUsize,
    /// Imported: before the merge.
    before_merge: AtomicUsize,
    /// The payload has not the block's hash: it has fields that a payload has not, or its requests are unknown.
    no_payload: AtomicUsize,
    /// The bytes are no block.
    no_block: AtomicUsize,
    /// SSZ may not have as many withdrawals, or as much extra data.
    not_in_ssz: AtomicUsize,
    /// Microseconds of the answers to payloads, execution included.
    json_micros: AtomicUsize,
    ssz_micros: AtomicUsize,
}

static COUNTS: Counts = Counts {
    valid: AtomicUsize::new(0),
    invalid: AtomicUsize::new(0),
    syncing: AtomicUsize::new(0),
    before_merge: AtomicUsize::new(0),
    no_payload: AtomicUsize::new(0),
    no_block: AtomicUsize::new(0),
    not_in_ssz: AtomicUsize::new(0),
    json_micros: AtomicUsize::new(0),
    ssz_micros: AtomicUsize::new(0),
};

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn timed<T>(counter: &AtomicUsize, answer: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answered = answer();
    counter.fetch_add(start.elapsed().as_micros() as usize, Ordering::Relaxed);
    answered
}

/// A chain that a consensus client drives by each transport, and the same by imports.
struct BothTransports {
    imported: EngineChain,
    json: Consensus,
    ssz: Consensus,
    /// Blocks that were invalid.
    invalid: HashSet<B256>,
}

impl BothTransports {
    /// The block with its requests, and its access list unless one comes with it.
    fn known(&self, block: Block, access_list: Option<&[u8]>) -> Known {
        let chain = self.imported.chain();
        let executed = || {
            let view = chain.db().view_of(chain.parent_of(&block.header)).ok()?;
            let senders = chain.senders_of(&block).ok()?;
            let run = DryRun {
                block: &block,
                post_merge: true,
                senders: &senders,
                access_list: None,
                pre_state: None,
            };
            chain.dry_run(run, view, &Sequential, Hooks::default()).ok()
        };
        let header = &block.header;
        let is_empty = header.requests_hash == Some(alloy_eips::eip7685::EMPTY_REQUESTS_HASH);
        let wants_requests = header.requests_hash.is_some() && !is_empty;
        let wants_list = header.block_access_list_hash.is_some() && access_list.is_none();
        let outcome = match wants_requests || wants_list {
            true => executed(),
            false => None,
        };
        let (requests, list) = outcome.map_or_else(Default::default, |outcome| {
            let list = outcome.access_list.map(|list| list.encode());
            (outcome.requests, list.unwrap_or_default())
        });
        Known {
            requests: match wants_requests {
                true => requests,
                false => Default::default(),
            },
            access_list: access_list.map_or(list.into(), Bytes::copy_from_slice),
            block,
        }
    }

    /// What both transports answer to a payload.
    fn status(&self, known: &Known, fork: Fork) -> Result<Value, String> {
        let version = version_of(fork);
        let method = format!("engine_newPayloadV{version}");
        let params = match fork {
            // A block without withdrawals has an empty list in its payload.
            Fork::Shanghai => {
                crate::common::consensus::params_of(&known.envelope(fork), 2, Vec::new())
            }
            _ => known.params(version),
        };
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = request.to_string();
        let answer = timed(&COUNTS.json_micros, || ask(&self.json.service, &request));
        let json = answer.get("result").ok_or_else(|| answer.to_string())?;
        let withdrawals = known.block.body.withdrawals.as_ref();
        let is_too_long = withdrawals.is_some_and(|all| all.len() > WITHDRAWALS_MAX)
            || known.block.header.extra_data.len() > EXTRA_DATA_BYTES_MAX;
        let body = known.envelope(fork).encode(fork);
        let answer = timed(&COUNTS.ssz_micros, || {
            self.ssz.post("payloads", Some(fork), body)
        });
        if is_too_long {
            count(&COUNTS.not_in_ssz);
            let problem = (400, "ssz-decode-error".to_owned());
            if answer.problem() != problem {
                return Err(format!("SSZ has too long a list: {}", answer.text()));
            }
            // The chain goes on all the same.
            self.ssz.call(&method, known.params(version));
            return Ok(json.clone());
        }
        if answer.status != 200 {
            let name = name_of(fork);
            return Err(format!("{name}: {} {}", answer.status, answer.text()));
        }
        let ssz = crate::common::rest::status(answer.ssz());
        // SSZ has at most 1024 bytes of an error.
        let mut cut = json.clone();
        if let Some(error) = json["validationError"].as_str() {
            cut["validationError"] = json!(error[..error.floor_char_boundary(1024)]);
        }
        match ssz == cut {
            true => Ok(json.clone()),
            false => Err(format!("{ssz} by SSZ, {json} by JSON")),
        }
    }

    /// Makes a block the head of both.
    fn choose(&self, fork: Fork, head: B256) -> Result<(), String> {
        let zero = B256::ZERO;
        let version = match fork {
            Fork::Paris => 1,
            Fork::Shanghai => 2,
            Fork::Amsterdam => 4,
            _ => 3,
        };
        let json = self.json.choose(version, head, zero, zero, Value::Null);
        let json = &json["result"]["payloadStatus"];
        let ssz = self.ssz.head_ssz(head);
        match json["status"] == "VALID" && *json == ssz {
            true => Ok(()),
            false => Err(format!("the head is not chosen: {json}, by SSZ {ssz}")),
        }
    }

    /// Hands a block over. The outcome of the import is what is expected.
    fn hand_over(
        &mut self,
        block: Block,
        access_list: Option<&[u8]>,
        imported: &Result<(), String>,
        is_parent_known: bool,
    ) -> Result<(), String> {
        let chain = self.imported.chain();
        let fork = chain.spec().fork_at(u64::MAX, block.header.timestamp, true);
        let known = self.known(block, access_list);
        let (hash, parent) = (known.hash(), known.block.header.parent_hash);
        let status = self.status(&known, fork)?;
        let name = status["status"].as_str().unwrap_or_default();
        let error = status["validationError"].as_str().unwrap_or_default();
        let unexpected = || {
            Err(format!(
                "{hash} at {fork:?} is {status}, imported {imported:?}"
            ))
        };
        let same = block_of(&known, fork, chain.spec());
        if same.as_ref() != Some(&known.block) {
            count(&COUNTS.no_payload);
            // Either it has another hash, or it has what the block lacks for its header.
            let is_of_header = same.is_some_and(|same| same.header == known.block.header);
            let is_refused = name == "INVALID" && status["latestValidHash"].is_null();
            return match imported.is_err() && (is_of_header || is_refused) {
                true => Ok(()),
                false => unexpected(),
            };
        }
        match name {
            "VALID" if imported.is_ok() => {
                count(&COUNTS.valid);
                self.choose(fork, hash)
            }
            "SYNCING" if imported.is_err() && !is_parent_known => {
                count(&COUNTS.syncing);
                Ok(())
            }
            "INVALID" => {
                let Err(reason) = imported else {
                    return unexpected();
                };
                count(&COUNTS.invalid);
                self.invalid.insert(hash);
                let is_of_parent = self.invalid.contains(&parent);
                let ancestor = &status["latestValidHash"];
                let is_right = ancestor.is_null()
                    || *ancestor == json!(parent)
                    || *ancestor == json!(B256::ZERO)
                    || is_of_parent;
                // Of an access list that did not come with the block, the import knows nothing.
                let is_of_list = access_list.is_none() && error.contains("access list");
                match is_right && (is_of_parent || is_of_list || reason.contains(error)) {
                    true => Ok(()),
                    false => unexpected(),
                }
            }
            _ => unexpected(),
        }
    }

    fn view(&self) -> View {
        self.json.served.node().db().view().unwrap()
    }
}

/// The block that the payload is of.
fn block_of(known: &Known, fork: Fork, spec: &ChainSpec) -> Option<Block> {
    let envelope = known.envelope(fork);
    let mut block: Block = envelope.payload.try_into_block().ok()?;
    block.header.parent_beacon_block_root = envelope.parent_beacon_block_root;
    block.header.requests_hash = (fork >= Fork::Prague).then(|| known.requests.requests_hash());
    if spec.amsterdam_rules == AmsterdamRules::Lists {
        block.header.slot_number = None;
    }
    Some(block)
}

impl Backend for BothTransports {
    fn name() -> &'static str {
        "Engine API by JSON-RPC and by SSZ"
    }

    fn new(
        spec: ChainSpec,
        genesis: Header,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
    ) -> Result<Self, String> {
        let consensus = |seed| {
            let disk = Arc::new(FaultyDisk::new(seed));
            let chain = genesis_chain(disk, spec.clone(), genesis.clone(), &changes, &codes);
            let chain = chain.map_err(|error| error.to_string())?;
            let node = Arc::new(Node::of_chain(chain));
            let served = Served::new(node, Limits::of_engine());
            Ok::<_, String>(Consensus::new(Arc::new(served)))
        };
        let (json, ssz) = (consensus(1)?, consensus(2)?);
        Ok(Self {
            imported: EngineChain::new(spec, genesis, changes, codes)?,
            json,
            ssz,
            invalid: HashSet::new(),
        })
    }

    fn import(&mut self, rlp: &[u8], access_list: Option<&[u8]>) -> Result<(), String> {
        let mut rest = rlp;
        let block = Block::decode(&mut rest).ok().filter(|_| rest.is_empty());
        let parent = block.as_ref().map(|block| block.header.parent_hash);
        let known = parent.map(|hash| self.imported.chain().db().search(&hash).unwrap());
        let is_parent_known = known.flatten().is_some();
        let imported = self.imported.import(rlp, access_list);
        let Some(block) = block else {
            count(&COUNTS.no_block);
            return imported;
        };
        if !block.header.difficulty.is_zero() && imported.is_ok() {
            count(&COUNTS.before_merge);
            for consensus in [&self.json, &self.ssz] {
                let node = consensus.served.node();
                let rlp = Bytes::copy_from_slice(rlp);
                node.chain().unwrap().import_block(rlp, None).unwrap();
            }
            return imported;
        }
        if let Err(why) = self.hand_over(block, access_list, &imported, is_parent_known) {
            panic!("{why}");
        }
        imported
    }

    fn head(&self) -> B256 {
        let head = self.json.served.node().db().head().hash;
        assert_eq!(self.ssz.served.node().db().head().hash, head);
        head
    }

    fn access_list(&self) -> Bytes {
        let node = self.ssz.served.node();
        let list = node
            .chain()
            .unwrap()
            .kept_access_list(node.db().head().number);
        list.unwrap().unwrap_or_default()
    }

    fn account(&self, address: Address) -> Option<Account> {
        self.view().account(&keccak256(address)).unwrap()
    }

    fn slot(&self, address: Address, slot: U256) -> U256 {
        let slot = keccak256(slot.to_be_bytes::<32>());
        self.view().slot(&keccak256(address), &slot).unwrap()
    }

    fn state_root(&self) -> B256 {
        let root = self.view().state_root();
        let ssz = self.ssz.served.node().db().view().unwrap();
        assert_eq!(ssz.state_root(), root);
        root
    }
}

/// Cases whose chains get past the merge, of every n-th file.
struct PastTheMerge {
    suite: BlockchainSuite<BothTransports>,
    every: usize,
    left_out: AtomicUsize,
}

impl Suite for PastTheMerge {
    type Case = BlockchainCase<BothTransports>;

    fn name(&self) -> String {
        self.suite.name()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.suite.files().into_iter().step_by(self.every).collect()
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        let mut cases = self.suite.cases(file)?;
        let all = cases.len();
        cases.retain(|case| {
            case.spec().is_none_or(|spec| {
                spec.terminal_total_difficulty.is_some() || spec.merge_netsplit_block.is_some()
            })
        });
        self.left_out
            .fetch_add(all - cases.len(), Ordering::Relaxed);
        Ok(cases)
    }
}

/// Runs the cases of a folder: of every n-th file, or of all in a long run, where there are at least so many.
fn run(pack: Pack, folder: &'static str, every: usize, at_least: usize) {
    let Some(suite) = BlockchainSuite::new(pack, folder) else {
        return;
    };
    let start = Instant::now();
    let suite = PastTheMerge {
        suite,
        every: if is_long() { 1 } else { every },
        left_out: AtomicUsize::new(0),
    };
    let report = run_suite(&suite);
    let at_least = if is_long() { at_least } else { 1 };
    say(&format!(
        "{folder}: {} cases in {:.1} s, {} before the merge left out; so far {COUNTS:?}",
        report.run_count(),
        start.elapsed().as_secs_f64(),
        suite.left_out.load(Ordering::Relaxed)
    ));
    report.conclude(at_least);
}

#[test]
fn ethereum_tests_go_through_both_transports() {
    run(
        Pack::EthereumTests,
        "ethereum-tests/BlockchainTests",
        16,
        577,
    );
}

#[test]
fn legacy_tests_go_through_both_transports() {
    run(
        Pack::EthereumTests,
        "legacytests/Cancun/BlockchainTests",
        16,
        1693,
    );
}

#[test]
fn execution_spec_tests_go_through_both_transports() {
    run(Pack::Eest, "eest-erigon/blockchain_tests", 16, 5366);
}

#[test]
fn block_access_list_tests_go_through_both_transports() {
    run(
        Pack::Amsterdam,
        "eest-fixtures/amsterdam-bal/blockchain_tests",
        16,
        602,
    );
}

#[test]
fn block_access_list_benchmarks_go_through_both_transports() {
    run(
        Pack::Amsterdam,
        "eest-fixtures/amsterdam-bal-benchmark-compute/blockchain_tests",
        16,
        22,
    );
}

#[test]
fn amsterdam_devnet_tests_go_through_both_transports() {
    run(
        Pack::AmsterdamDevnet,
        "eest-amsterdam-devnet/for_amsterdam",
        16,
        4188,
    );
}
