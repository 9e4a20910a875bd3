//! Proofs of accounts under the commitment `layered`, as JSON.
//!
//! Beside the proof there are the values that it proves, as `eth_getProof` has them. None of them is trusted:
//! verification compares each with the proved one.

use super::{
    args::proof::ProveArgs,
    error::Failure,
    output::{Output, Report},
    proved,
};
use cambium::{
    Account, Address, B256, Bytes, ProofTargets, StateAt, StorageKey, U256, keccak256,
    proof::LayeredProof, trie::Quantity,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A proof of an account and some of its slots.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LayeredAccountProof {
    commitment: Commitment,
    roots: Roots,
    address: Address,
    /// The account; null if it does not exist.
    account: Option<Fields>,
    storage: Vec<Slot>,
    /// The encoding of a [`LayeredProof`] of the account and its slots, in hex.
    proof: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Commitment {
    Layered,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Roots {
    delta: B256,
    intermediate: B256,
    snapshot: B256,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields {
    /// A number of 64 bits.
    nonce: Quantity,
    balance: Quantity,
    code_hash: B256,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slot {
    key: StorageKey,
    value: Quantity,
}

impl From<Account> for Fields {
    fn from(account: Account) -> Self {
        Self {
            nonce: Quantity(U256::from(account.nonce)),
            balance: Quantity(account.balance),
            code_hash: account.code_hash,
        }
    }
}

pub(crate) fn prove(args: &ProveArgs, view: &StateAt, out: &Output) -> Result<Report, Failure> {
    let (block, root) = (view.block(), view.state_root()?);
    let targets = targets(args.address, args.slots.iter());
    let proof = view.prove_layered(&targets)?;
    let wrong = |why: String| Failure::Layered { root, why };
    let shown = Shown::of(&proof, root, args.address, &args.slots).map_err(wrong)?;
    let storage = args.slots.iter().zip(shown.slots);
    let proof = LayeredAccountProof {
        commitment: Commitment::Layered,
        roots: shown.roots,
        address: args.address,
        account: shown.account.map(Fields::from),
        storage: storage
            .map(|(key, (_, value))| Slot {
                key: *key,
                value: Quantity(value),
            })
            .collect(),
        proof: proof.bytes,
    };
    out.note(format_args!("the state root of block {block} is {root}"));
    Ok(Report::of_json(json!(proof)))
}

pub(crate) fn verify(proof: &LayeredAccountProof, root: B256) -> Result<Report, Failure> {
    let wrong = |why: String| Failure::Layered { root, why };
    let keys: Vec<_> = proof.storage.iter().map(|slot| slot.key).collect();
    let bytes = proof.proof.clone();
    let shown = Shown::of(&LayeredProof { bytes }, root, proof.address, &keys).map_err(wrong)?;
    shown.compare(proof).map_err(wrong)?;
    let Roots {
        delta,
        intermediate,
        snapshot,
    } = shown.roots;
    let roots = [
        ("delta_root", delta),
        ("intermediate_root", intermediate),
        ("snapshot_root", snapshot),
    ];
    let (account, slots) = (shown.account, &shown.slots);
    Ok(proved::report(root, proof.address, account, slots, &roots))
}

fn targets<'a>(address: Address, keys: impl Iterator<Item = &'a StorageKey>) -> ProofTargets {
    let slots = keys.map(|key| keccak256(key.slot)).collect();
    ProofTargets::new(vec![(keccak256(address), slots)])
}

/// Values that a proof shows.
struct Shown {
    roots: Roots,
    account: Option<Account>,
    /// Slots, not hashed, in the order in which they were asked for.
    slots: Vec<(B256, U256)>,
}

impl Shown {
    /// Verifies a proof. The error is for its reader.
    fn of(
        proof: &LayeredProof,
        root: B256,
        address: Address,
        keys: &[StorageKey],
    ) -> Result<Self, String> {
        let proved = proof.verify(root, &targets(address, keys.iter()));
        let proved = proved.map_err(|error| error.to_string())?;
        let roots = proof.roots().map_err(|error| error.to_string())?;
        let [proved] = &proved[..] else {
            return Err("it is not of one account".to_owned());
        };
        let value = |key: &StorageKey| {
            let path = keccak256(key.slot);
            let at = proved.slots.binary_search_by_key(&path, |(path, _)| *path);
            at.map(|at| (key.slot, proved.slots[at].1))
                .map_err(|_| format!("slot {} is not in it", key.slot))
        };
        Ok(Self {
            roots: Roots {
                delta: roots.delta,
                intermediate: roots.intermediate,
                snapshot: roots.snapshot,
            },
            account: proved.account,
            slots: keys.iter().map(value).collect::<Result<_, _>>()?,
        })
    }

    /// Compares the proved values with those claimed beside the proof.
    fn compare(&self, claimed: &LayeredAccountProof) -> Result<(), String> {
        if self.roots != claimed.roots {
            return Err("the roots beside it are not those of its tries".to_owned());
        }
        match (self.account.map(Fields::from), &claimed.account) {
            (None, None) => {}
            (Some(shown), Some(claimed)) if shown == *claimed => {}
            (None, Some(_)) => return Err("the account does not exist".to_owned()),
            (Some(_), None) => return Err("the account exists".to_owned()),
            (Some(shown), Some(claimed)) => {
                let fields = [
                    ("nonce", shown.nonce == claimed.nonce),
                    ("balance", shown.balance == claimed.balance),
                    ("codeHash", shown.code_hash == claimed.code_hash),
                ];
                let other = fields.into_iter().find(|(_, same)| !same);
                let field = other.map_or("account", |(field, _)| field);
                return Err(format!("the {field} of the account is another one"));
            }
        }
        for ((slot, value), claimed) in self.slots.iter().zip(&claimed.storage) {
            let other = claimed.value.0;
            if *value != other {
                return Err(format!(
                    "the value of slot {slot} is {value:#x}, not {other:#x}"
                ));
            }
        }
        Ok(())
    }
}
