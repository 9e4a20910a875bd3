//! Accounts, or slots of one, in the order of their paths, with a proof that none is missing.

use super::{
    args::proof::{ProveRangeArgs, VerifyArgs},
    error::{Failure, RANGE_PROOF},
    files, node,
    output::{Output, Report, Table, count},
};
use cambium::{
    B256, StateError, U256, keccak256,
    proof::{LeafRange, LeafValue, RangeProof, RangeProofError, TrieError},
    trie::Quantity,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Most leaves of a range that lists none, or fewer.
const LEAVES_MAX: usize = 1 << 20;

/// A proof of a range, and what is in it.
#[derive(Serialize, Deserialize)]
struct ListedRange {
    #[serde(flatten)]
    proof: RangeProof,
    /// Absent if the prover lists no leaves.
    leaves: Option<Vec<Leaf>>,
    #[serde(flatten)]
    beside: Beside,
}

/// Optional fields beside a proof that it does not cover.
#[derive(Serialize, Deserialize)]
struct Beside {
    /// Number and hash of the block with the state root.
    block: Option<Quantity>,
    hash: Option<B256>,
    state_root: Option<B256>,
    /// The first path beyond the range that has a leaf.
    next: Option<B256>,
}

impl Beside {
    /// Checks that it fits the proof: the error is for its reader.
    fn check(&self, root: B256, last: B256) -> Result<(), String> {
        match *self {
            Self {
                state_root: Some(own),
                ..
            } if own != root => Err(format!("it says that the state root is {own}")),
            Self {
                next: Some(next), ..
            } if next <= last => Err(format!(
                "its next path {next} is not beyond the range, which ends at {last}"
            )),
            Self {
                block: Some(_),
                hash: None,
                ..
            } => Err("it has the block's number and not its hash".to_owned()),
            Self {
                block: None,
                hash: Some(_),
                ..
            } => Err("it has the block's hash and not its number".to_owned()),
            _ => Ok(()),
        }
    }
}

/// A leaf, and its path.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Leaf {
    Account {
        path: B256,
        nonce: Quantity,
        balance: Quantity,
        code_hash: B256,
    },
    Slot {
        path: B256,
        value: Quantity,
    },
}

pub(crate) fn prove(args: &ProveRangeArgs, out: &Output) -> Result<Report, Failure> {
    let (first, last) = (args.from, args.to);
    if first > last {
        return Err(Failure::EmptyRange { first, last });
    }
    let node = node::of_accounts(&args.state.db, out)?;
    let view = node.provable_state_at(args.state.block)?;
    let asked = LeafRange {
        account: args.account.map(keccak256),
        first,
        last,
    };
    let extracted = view.extract_range(&asked, args.limit)?;
    let leaves = extracted.trie.leaves(&extracted.range).map_err(|missing| {
        let path = missing.path;
        StateError::Trie(TrieError::NoNode { path })
    })?;
    let listed = ListedRange {
        proof: RangeProof::new(args.account, &extracted),
        leaves: Some(listed(leaves)),
        beside: Beside {
            block: Some(Quantity(U256::from(view.block().number))),
            hash: Some(view.block().hash),
            state_root: Some(view.state_root()?),
            next: extracted.next,
        },
    };
    Ok(Report::of_json(json!(listed)))
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let root = args.root;
    let ListedRange {
        proof,
        leaves: claimed,
        beside,
    } = files::read_json(&args.proof, RANGE_PROOF, |text| serde_json::from_str(text))?;
    let fails = |why: String| Failure::Range { root, why };
    let listed_leaves = claimed.as_ref().map_or(0, Vec::len);
    let verified = proof.verify_up_to(root, listed_leaves.max(LEAVES_MAX));
    let (leaves, unused) = verified.map_err(|error| match error {
        RangeProofError::TooMany { .. } => Failure::OverLimit(error.to_string()),
        error => fails(error.to_string()),
    })?;
    let (range, leaves) = (proof.range(), listed(leaves));
    if let Some(claimed) = &claimed
        && *claimed != leaves
    {
        let at = claimed.iter().zip(&leaves).take_while(|(a, b)| a == b);
        let (at, claimed, proved) = (at.count(), claimed.len(), leaves.len());
        return Err(fails(format!(
            "of {claimed} leaves the one at position {at} is not what the nodes prove, which are {proved} leaves"
        )));
    }
    beside.check(root, proof.last).map_err(fails)?;
    let next = match proof.next() {
        None => "nothing: this was the last one".to_owned(),
        Some(next) => next.to_string(),
    };
    let table = Table::default()
        .row("state root", root)
        .row("first path", range.first)
        .row("last path", range.last)
        .row(
            if range.account.is_some() {
                "slots"
            } else {
                "accounts"
            },
            count(leaves.len() as u64),
        )
        .row("then comes", next);
    let json = json!({
        "holds": true,
        "root": root,
        "address": proof.address,
        "first": range.first,
        "last": range.last,
        "leaves": leaves,
        "next": proof.next(),
        "unused_nodes": unused,
        "not_covered": {
            "block": beside.block,
            "hash": beside.hash,
            "next": beside.next,
        },
    });
    let text = format!(
        "The proof holds: none is missing.\n{table}\nIt does not cover block, hash and next in the file."
    );
    Ok(Report::new(text, json))
}

fn listed(leaves: Vec<(B256, LeafValue)>) -> Vec<Leaf> {
    let leaf = |(path, value)| match value {
        LeafValue::Account(account) => Some(Leaf::Account {
            path,
            nonce: Quantity(U256::from(account.nonce)),
            balance: Quantity(account.balance),
            code_hash: account.code_hash,
        }),
        LeafValue::Slot(value) => Some(Leaf::Slot {
            path,
            value: Quantity(value),
        }),
        LeafValue::Storage(_) | LeafValue::Entry(_) => None,
    };
    leaves.into_iter().filter_map(leaf).collect()
}
