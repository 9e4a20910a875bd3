//! Real mainnet blocks with Merkle proofs. The proofs of each block become a witness, the block is
//! executed from it, and gas, receipts and state root must equal those in its header.
//!
//! Proofs of the pre-state may lack a node that the post-state root depends on: where a deletion
//! leaves a branch with one child, that child moves up, and its old node is in no proof. Its new
//! node is in a proof of the post-state, with a longer path. The old node is the new one without
//! some of the first nibbles of its path. If a witness lacks a node, all such candidates are added
//! to it; only those are used whose hash a parent has.

use crate::{Case, Pack, Suite, Verdict};
use alloy_consensus::{BlockBody, Header};
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{B256, Bytes, U256};
use alloy_rlp::{Decodable, Encodable};
use alloy_trie::nodes::{ExtensionNode, LeafNode, TrieNode};
use cambium_chain::{
    Block, BlockWitness, ChainSpec, Genesis, GenesisError, StatelessError, StatelessReport,
    StatelessRules, WitnessForm, WitnessGap,
};
use cambium_evm::Transaction;
use cambium_trie::{AccountProof, Witness, verify_account_proof};
use flate2::read::GzDecoder;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufReader, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Result of executing a block.
#[derive(Clone, Copy, Debug)]
pub struct ProvedBlock {
    /// Report of the execution.
    pub report: StatelessReport,
    /// Whether nodes had to be derived from proofs of the post-state.
    pub derived: bool,
}

/// A file that also has mainnet's fork rules.
const WITH_CONFIG: &str = "keth/test_data/22615247.json";

/// The blocks of pack 07.
pub struct MainnetProofs {
    folder: PathBuf,
    spec: ChainSpec,
    seen: Arc<Mutex<Vec<ProvedBlock>>>,
}

impl MainnetProofs {
    /// Returns all blocks, or `None` if the pack is missing. Panics if the pack's content is
    /// unexpected.
    pub fn new() -> Option<Self> {
        let folder = Pack::MainnetProofs.open(&["zeth", "keth"])?;
        let spec = read_spec(&folder.join(WITH_CONFIG)).expect("mainnet's fork rules");
        Some(Self {
            folder,
            spec,
            seen: Arc::default(),
        })
    }

    /// Returns the results of the blocks executed so far, sorted by block number.
    pub fn seen(&self) -> Vec<ProvedBlock> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.sort_by_key(|block| block.report.id.number);
        seen.clone()
    }
}

impl Suite for MainnetProofs {
    type Case = MainnetProof;

    fn name(&self) -> String {
        "mainnet blocks executed from proofs alone".to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = ["zeth", "keth/test_data"]
            .iter()
            .flat_map(|folder| fs::read_dir(self.folder.join(folder)))
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        files.sort();
        files
    }

    fn cases(&self, file: &Path) -> Result<Vec<MainnetProof>, String> {
        Ok(vec![MainnetProof {
            path: file.to_path_buf(),
            spec: self.spec.clone(),
            seen: self.seen.clone(),
        }])
    }
}

/// A block with its proofs.
pub struct MainnetProof {
    path: PathBuf,
    spec: ChainSpec,
    seen: Arc<Mutex<Vec<ProvedBlock>>>,
}

impl Case for MainnetProof {
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.into_owned()
    }

    fn run(&self) -> Verdict {
        match self.check() {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}

impl MainnetProof {
    fn check(&self) -> Result<(), String> {
        let file = fs::read(&self.path).map_err(|error| error.to_string())?;
        let zipped = self.path.extension().is_some_and(|end| end == "gz");
        let input = match zipped {
            true => from_zeth(file_json(GzDecoder::new(&file[..]))?)?,
            false => from_keth(file_json(&file[..])?)?,
        };
        let (mut witness, header) = (input.witness, input.header);
        let rules = StatelessRules {
            parent: Some(header.parent_hash),
            parent_total_difficulty: input.parent_total_difficulty,
            ..StatelessRules::of(&self.spec)
        };
        let (report, derived) = match witness.execute(&rules) {
            Err(StatelessError::Lacks(WitnessGap::Node(_))) => {
                witness.witness.state.extend(input.derived);
                (witness.execute(&rules), true)
            }
            done => (done, false),
        };
        let report = report.map_err(|error| error.to_string())?;
        let got = (report.id.hash, report.state_root, report.gas_used);
        let wanted = (header.hash_slow(), header.state_root, header.gas_used);
        if got != wanted {
            return Err(format!("hash, root and gas are {got:?}, not {wanted:?}"));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(ProvedBlock { report, derived });
        Ok(())
    }
}

/// Reads the fork rules in a file's `chainConfig`, in the format of a genesis file.
fn read_spec(path: &Path) -> Result<ChainSpec, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut json: Value = file_json(file)?;
    let config = json["chainConfig"].take();
    let genesis = json!({"config": config, "alloc": {}, "difficulty": 0, "gasLimit": 0});
    let genesis = genesis.to_string();
    let read = Genesis::stream_from("chainConfig", genesis.as_bytes(), |_| {
        Ok::<_, GenesisError>(())
    });
    let genesis = read.map_err(|error| error.to_string())?;
    genesis.config.ok_or("no chainConfig".to_owned())
}

/// A block to execute.
struct Input {
    witness: BlockWitness,
    /// Candidates for nodes that moved up, used if the witness lacks a node.
    derived: Vec<Bytes>,
    header: Header,
    parent_total_difficulty: Option<U256>,
}

fn file_json<T: DeserializeOwned>(file: impl Read) -> Result<T, String> {
    serde_json::from_reader(BufReader::new(file)).map_err(|error| error.to_string())
}

/// A block and its header in the format of JSON-RPC, with the hash.
#[derive(Deserialize)]
struct RpcHeader {
    hash: B256,
    #[serde(flatten)]
    header: Header,
}

impl RpcHeader {
    fn checked(self) -> Result<Header, String> {
        let got = self.header.hash_slow();
        match got == self.hash {
            true => Ok(self.header),
            false => Err(format!("the header hashes to {got}, not {}", self.hash)),
        }
    }
}

fn encoded(value: &impl Encodable) -> Bytes {
    let mut rlp = Vec::new();
    value.encode(&mut rlp);
    rlp.into()
}

fn block_rlp(
    header: &Header,
    transactions: Vec<Transaction>,
    withdrawals: Option<Vec<Withdrawal>>,
) -> Bytes {
    let body = BlockBody {
        transactions,
        ommers: vec![],
        withdrawals: withdrawals.map(Into::into),
    };
    encoded(&Block::new(header.clone(), body))
}

/// Zeth's file format: the responses of a node, each with its request.
#[derive(Deserialize)]
struct Zeth {
    full_blocks: Vec<(Asked, ZethBlock)>,
    proofs: Vec<(Asked, AccountProof)>,
    code: Vec<(Asked, Bytes)>,
}

#[derive(Deserialize)]
struct Asked {
    block_no: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ZethBlock {
    total_difficulty: U256,
    transactions: Vec<Transaction>,
    withdrawals: Option<Vec<Withdrawal>>,
    uncles: Vec<B256>,
    #[serde(flatten)]
    header: RpcHeader,
}

fn from_zeth(zeth: Zeth) -> Result<Input, String> {
    let mut blocks = zeth.full_blocks.into_iter().map(|(_, block)| block);
    let (Some(parent), Some(block)) = (blocks.next(), blocks.next()) else {
        return Err("not two blocks".to_owned());
    };
    if !block.uncles.is_empty() {
        return Err("uncles, which are not there".to_owned());
    }
    let parent_total_difficulty = parent.total_difficulty;
    let (parent, header) = (parent.header.checked()?, block.header.checked()?);

    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    for (asked, proof) in zeth.proofs {
        let (root, nodes) = match asked.block_no {
            number if number == parent.number => (parent.state_root, &mut before),
            _ => (header.state_root, &mut after),
        };
        verify_account_proof(root, &proof).map_err(|error| error.to_string())?;
        nodes.extend(proof.account_proof);
        nodes.extend(proof.storage_proof.into_iter().flat_map(|slot| slot.proof));
    }
    let mut derived = Vec::new();
    for node in after.difference(&before) {
        derived.extend(shortened(node)?);
    }
    let codes: BTreeSet<_> = zeth.code.into_iter().map(|(_, code)| code).collect();
    let witness = BlockWitness {
        form: WitnessForm::Own,
        block: block_rlp(&header, block.transactions, block.withdrawals),
        witness: Witness {
            state: before.into_iter().collect(),
            codes: codes.into_iter().collect(),
            keys: vec![],
            headers: vec![encoded(&parent)],
        },
        layered: None,
    };
    Ok(Input {
        witness,
        derived,
        header,
        parent_total_difficulty: Some(parent_total_difficulty),
    })
}

/// Returns what a node of the post-state may have been before it moved up: a leaf or an extension
/// with a shorter path.
fn shortened(node: &Bytes) -> Result<Vec<Bytes>, String> {
    let mut all = vec![node.clone()];
    let decoded = TrieNode::decode(&mut &node[..]).map_err(|error| error.to_string())?;
    match decoded {
        TrieNode::Leaf(leaf) => all.extend(
            (1..=leaf.key.len())
                .map(|from| encoded(&LeafNode::new(leaf.key.slice(from..), leaf.value.clone()))),
        ),
        TrieNode::Extension(extension) => all.extend((1..extension.key.len()).map(|from| {
            let (key, child) = (extension.key.slice(from..), extension.child.clone());
            encoded(&ExtensionNode::new(key, child))
        })),
        TrieNode::Branch(_) | TrieNode::EmptyRoot => {}
    }
    Ok(all)
}

/// Keth's file format: a block with its witness.
#[derive(Deserialize)]
struct Keth {
    blocks: Vec<KethBlock>,
    witness: KethWitness,
}

#[derive(Deserialize)]
struct KethBlock {
    header: RpcHeader,
    transaction: Vec<BTreeMap<String, Value>>,
    withdrawals: Vec<Withdrawal>,
}

#[derive(Deserialize)]
struct KethWitness {
    state: Vec<Bytes>,
    ancestors: Vec<RpcHeader>,
    codes: Vec<Bytes>,
}

fn from_keth(keth: Keth) -> Result<Input, String> {
    let block = keth.blocks.into_iter().next().ok_or("no block")?;
    let header = block.header.checked()?;
    // Fields that the type of a transaction does not have are present as null.
    let transactions = block.transaction.into_iter().map(|fields| {
        let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
        serde_json::from_value(Value::Object(fields.collect()))
    });
    let transactions: Result<Vec<Transaction>, _> = transactions.collect();
    let transactions = transactions.map_err(|error| error.to_string())?;
    let ancestors = keth.witness.ancestors.into_iter().map(RpcHeader::checked);
    let ancestors = ancestors.collect::<Result<Vec<_>, _>>()?;
    let witness = BlockWitness {
        form: WitnessForm::Own,
        block: block_rlp(&header, transactions, Some(block.withdrawals)),
        witness: Witness {
            state: keth.witness.state,
            codes: keth.witness.codes,
            keys: vec![],
            headers: ancestors.iter().map(encoded).collect(),
        },
        layered: None,
    };
    Ok(Input {
        witness,
        derived: vec![],
        header,
        parent_total_difficulty: None,
    })
}
