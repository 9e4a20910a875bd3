//! Accounts, or slots of one, in the order of their paths, with a proof that none is missing.

use super::{
    args::proof::{ProveRangeArgs, VerifyArgs},
    error::{Failure, RANGE_PROOF},
    files, history, open,
    output::{Output, Report, Table, count, quantity},
};
use alloy_primitives::U64;
use cambium::{B256, LeafRange, LeafValue, RangeProof, StateError, TrieError, U256, keccak256};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A proof of a range, and what is in it.
#[derive(Serialize, Deserialize)]
struct ListedRange {
    #[serde(flatten)]
    proof: RangeProof,
    /// Absent where whoever made the proof lists no leaves.
    leaves: Option<Vec<Leaf>>,
}

/// A leaf, and its path.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Leaf {
    Account {
        path: B256,
        nonce: U64,
        balance: U256,
        code_hash: B256,
    },
    Slot {
        path: B256,
        value: U256,
    },
}

pub(crate) fn prove(args: &ProveRangeArgs, out: &Output) -> Result<Report, Failure> {
    let (first, last) = (args.from, args.to);
    if first > last {
        return Err(Failure::EmptyRange { first, last });
    }
    let db = open::state_to_read(&args.state.db, out)?;
    let view = history::proving_view(&args.state.db, &db, args.state.block, out)?;
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
    };
    let mut json = json!(listed);
    json["block"] = quantity(view.block().number);
    json["hash"] = json!(view.block().hash);
    json["state_root"] = json!(view.state_root()?);
    json["next"] = json!(extracted.next);
    Ok(Report::of_json(json))
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let root = args.root;
    let ListedRange {
        proof,
        leaves: claimed,
    } = files::read_json(&args.proof, RANGE_PROOF, |text| serde_json::from_str(text))?;
    let fails = |why: String| Failure::Range { root, why };
    let verified = proof.verify(root);
    let (leaves, unused) = verified.map_err(|error| fails(error.to_string()))?;
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
        );
    let json = json!({
        "holds": true,
        "root": root,
        "address": proof.address,
        "first": range.first,
        "last": range.last,
        "leaves": leaves,
        "unused_nodes": unused,
    });
    Ok(Report::new(
        format!("The proof holds: none is missing.\n{table}"),
        json,
    ))
}

fn listed(leaves: Vec<(B256, LeafValue)>) -> Vec<Leaf> {
    let leaf = |(path, value)| match value {
        LeafValue::Account(account) => Some(Leaf::Account {
            path,
            nonce: U64::from(account.nonce),
            balance: account.balance,
            code_hash: account.code_hash,
        }),
        LeafValue::Slot(value) => Some(Leaf::Slot { path, value }),
        LeafValue::Storage(_) | LeafValue::Entry(_) => None,
    };
    leaves.into_iter().filter_map(leaf).collect()
}
