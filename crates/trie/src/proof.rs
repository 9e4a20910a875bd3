//! Proofs of one account and its slots, in the form of `eth_getProof` (EIP-1186).
//!
//! The verifier trusts nothing but the state root: each node must have the hash by which its parent
//! refers to it, every claimed value must equal the proved one, and nodes that are not on the path
//! are rejected.

use crate::{
    arena::{Key, Link, NodeId, nibble, shared_nibbles},
    error::UpdateError,
    extract::ProofTargets,
    node_ref::EMPTY_ROOT,
    partial::{Lookup, PartialTrie, key_at},
    resolve::Resolve,
    rlp::{Child, RawNode, decode_account, decode_slot},
};
use alloc::{vec, vec::Vec};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U256};
use cambium_keccak::keccak256;
use cambium_primitives::{Account, Path};

/// Claimed values of an account and some of its slots, with Merkle proofs. The JSON form is that of
/// `eth_getProof` (EIP-1186).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct AccountProof {
    /// Address of the account.
    pub address: Address,
    /// RLP of the nodes from the state root to the account, or to the node that proves its absence.
    pub account_proof: Vec<Bytes>,
    /// Balance in wei, zero for an absent account.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::proof_json::deserialize_quantity")
    )]
    pub balance: U256,
    /// Hash of the code. For an absent account it is the hash of empty code, or zero.
    pub code_hash: B256,
    /// Nonce, zero for an absent account.
    #[cfg_attr(feature = "serde", serde(with = "crate::proof_json::quantity"))]
    pub nonce: u64,
    /// Root of the storage trie. For an absent account it is [`EMPTY_ROOT`], or zero.
    pub storage_hash: B256,
    /// Proofs of the slots, in the order of the request.
    pub storage_proof: Vec<StorageProof>,
}

/// Claimed value of a slot, with its Merkle proof.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StorageProof {
    /// The slot, in the form of the request.
    pub key: StorageKey,
    /// Value of the slot, zero if the leaf is absent.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::proof_json::deserialize_quantity")
    )]
    pub value: U256,
    /// RLP of the nodes from the storage root to the slot, or to the node that proves its absence.
    pub proof: Vec<Bytes>,
}

/// A slot in the form of the request: as 32 bytes, or as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageKey {
    /// The slot, not hashed.
    pub slot: B256,
    /// Whether JSON has the slot as a number, without leading zeros.
    pub quantity: bool,
}

impl From<B256> for StorageKey {
    fn from(slot: B256) -> Self {
        Self {
            slot,
            quantity: false,
        }
    }
}

/// Verified values of an account and some of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAccount {
    /// The account, or `None` if it does not exist.
    pub account: Option<Account>,
    /// Root of the storage trie, [`EMPTY_ROOT`] if there is no storage.
    pub storage_root: B256,
    /// Slots, not hashed, with their values, zero where the leaf is absent.
    pub slots: Vec<(B256, U256)>,
}

/// Error of [`verify_account_proof`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The proof of the account is invalid.
    #[error("account {address}: {fault}")]
    Account {
        /// Address of the account.
        address: Address,
        /// Why the nodes do not prove it.
        fault: ProofFault,
    },
    /// The proof of a slot is invalid.
    #[error("slot {slot}: {fault}")]
    Slot {
        /// The slot, not hashed.
        slot: B256,
        /// Why the nodes do not prove it.
        fault: ProofFault,
    },
}

/// Reason why the proof of one leaf is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofFault {
    /// The last nodes of the proof are missing.
    #[error("node {index} of the proof, {hash}, is not there")]
    Incomplete {
        /// Position in the list of nodes.
        index: usize,
        /// The missing node's hash.
        hash: B256,
    },
    /// A node does not have the hash by which its parent refers to it.
    #[error("node {index} of the proof should have hash {expected}, but has {got}")]
    WrongNode {
        /// Position in the list of nodes.
        index: usize,
        /// Hash in the parent, or the root hash.
        expected: B256,
        /// Hash of the node.
        got: B256,
    },
    /// A node is malformed.
    #[error("node {index} of the proof: {what}")]
    Malformed {
        /// Position in the list of nodes.
        index: usize,
        /// Description of the fault.
        what: &'static str,
    },
    /// Nodes follow the end of the proof.
    #[error("{surplus} nodes after the end of the proof")]
    Surplus {
        /// Number of these nodes.
        surplus: usize,
    },
    /// A claimed value differs from the proved one.
    #[error("the {field} claimed is not the one proved")]
    Claim {
        /// Name of the claimed value in JSON.
        field: &'static str,
    },
}

impl PartialTrie {
    /// Proves the values, or the absence, of the account at `address` and of some of its slots. The
    /// trie must be based at the empty path. Loads absent subtries.
    ///
    /// # Errors
    ///
    /// Returns an error if loading fails.
    pub fn prove_account<R: Resolve>(
        &mut self,
        address: Address,
        slots: &[StorageKey],
        resolver: &mut R,
    ) -> Result<AccountProof, UpdateError<R::Error>> {
        let account = keccak256(address.as_slice());
        let paths: Vec<_> = slots
            .iter()
            .map(|key| keccak256(key.slot.as_slice()))
            .collect();
        let way = self.extract(&ProofTargets::new(vec![(account, paths.clone())]), resolver)?;
        let path = Path::account(&account);
        let (account_proof, leaf) = way.nodes_to(way.root, &path, 0);
        let (fields, storage) = match leaf.id() {
            NodeId::Account(index) => (way.arena.account(index), way.arena.accounts[index].storage),
            _ => (Account::default(), Link::EMPTY),
        };
        let storage_proof = slots.iter().zip(&paths).map(|(key, slot)| {
            let path = Path::slot(&account, slot);
            let value = match way.lookup(&path) {
                Lookup::Slot(value) => value,
                _ => U256::ZERO,
            };
            StorageProof {
                key: *key,
                value,
                proof: way.nodes_to(storage, &path, 64).0,
            }
        });
        Ok(AccountProof {
            address,
            account_proof,
            balance: fields.balance,
            code_hash: fields.code_hash,
            nonce: fields.nonce,
            storage_hash: way.storage_root_at(storage).unwrap_or(EMPTY_ROOT),
            storage_proof: storage_proof.collect(),
        })
    }

    /// Returns the RLP of the nodes from `root` towards the leaf at `path`, whose key begins at
    /// `level`, and the link of the leaf, empty if it is absent.
    fn nodes_to(&self, root: Link, path: &Path, level: usize) -> (Vec<Bytes>, Link) {
        let key = key_at(path, level);
        let (mut nodes, mut link, mut depth) = (Vec::new(), root, 0);
        loop {
            if link.is_empty() || link.is_stub() {
                return (nodes, Link::EMPTY);
            }
            if link == root || !self.arena.cached_ref(link).is_inline() {
                let mut rlp = Vec::new();
                self.encode_node(link, &mut rlp);
                nodes.push(rlp.into());
            }
            match link.id() {
                NodeId::Branch(index) => {
                    link = self.arena.branches[index].children[nibble(&key, depth)];
                    depth += 1;
                }
                NodeId::Extension(index) => {
                    let node = &self.arena.extensions[index];
                    let end = usize::from(node.end) - level;
                    if shared_nibbles(&node.key, &key) < end {
                        return (nodes, Link::EMPTY);
                    }
                    (link, depth) = (node.child, end);
                }
                _ if *self.leaf_key(link) == key => return (nodes, link),
                _ => return (nodes, Link::EMPTY),
            }
        }
    }
}

/// Verifies every claim of `proof` against the state root `root`. Returns the verified values.
///
/// # Errors
///
/// Returns an error if a node is malformed, missing or not needed, or if a claim is wrong.
pub fn verify_account_proof(
    root: B256,
    proof: &AccountProof,
) -> Result<VerifiedAccount, ProofError> {
    let address = proof.address;
    let (account, storage_root) =
        verify_account(root, proof).map_err(|fault| ProofError::Account { address, fault })?;
    let mut slots = Vec::with_capacity(proof.storage_proof.len());
    for claim in &proof.storage_proof {
        let slot = claim.key.slot;
        let value =
            verify_slot(storage_root, claim).map_err(|fault| ProofError::Slot { slot, fault })?;
        slots.push((slot, value));
    }
    Ok(VerifiedAccount {
        account,
        storage_root,
        slots,
    })
}

fn verify_account(root: B256, proof: &AccountProof) -> Result<(Option<Account>, B256), ProofFault> {
    let key = keccak256(proof.address.as_slice());
    let found = walk(root, &key.0, &proof.account_proof)?;
    let malformed = |what| ProofFault::Malformed {
        index: proof.account_proof.len() - 1,
        what,
    };
    let (account, storage_root) = match found {
        Some(value) => {
            let (account, root) = decode_account(value).map_err(malformed)?;
            (Some(account), root)
        }
        None => (None, EMPTY_ROOT),
    };
    let fields = account.unwrap_or_default();
    // For an absent account some clients claim hashes of zero.
    let claimed =
        |claim: B256, proved: B256| claim == proved || (account.is_none() && claim.is_zero());
    let checks = [
        ("nonce", fields.nonce == proof.nonce),
        ("balance", fields.balance == proof.balance),
        ("codeHash", claimed(proof.code_hash, fields.code_hash)),
        ("storageHash", claimed(proof.storage_hash, storage_root)),
    ];
    debug_assert!(account.is_some() || fields.code_hash == KECCAK256_EMPTY);
    match checks.into_iter().find(|(_, holds)| !holds) {
        Some((field, _)) => Err(ProofFault::Claim { field }),
        None => Ok((account, storage_root)),
    }
}

fn verify_slot(storage_root: B256, claim: &StorageProof) -> Result<U256, ProofFault> {
    let key = keccak256(claim.key.slot.as_slice());
    let value = match walk(storage_root, &key.0, &claim.proof)? {
        Some(value) => decode_slot(value).map_err(|what| ProofFault::Malformed {
            index: claim.proof.len() - 1,
            what,
        })?,
        None => U256::ZERO,
    };
    if value == claim.value {
        Ok(value)
    } else {
        Err(ProofFault::Claim { field: "value" })
    }
}

/// Walks `nodes` from the root along `key`. Returns the value of the leaf, or `None` if the nodes
/// prove its absence.
fn walk<'a>(root: B256, key: &Key, nodes: &'a [Bytes]) -> Result<Option<&'a [u8]>, ProofFault> {
    // The proof of an empty trie: no node, or the empty string as the only one.
    if root == EMPTY_ROOT && nodes.len() < 2 && nodes.iter().all(|node| node[..] == [0x80]) {
        return Ok(None);
    }
    let (mut next, mut depth) = (Child::Hash(root), 0);
    let mut used = 0;
    let found = loop {
        let rlp: &'a [u8] = match next {
            Child::Empty => break None,
            Child::Inline(rlp) => rlp,
            Child::Hash(expected) => {
                let index = used;
                let incomplete = ProofFault::Incomplete {
                    index,
                    hash: expected,
                };
                let rlp = nodes.get(index).ok_or(incomplete)?;
                let got = keccak256(rlp);
                if got != expected {
                    return Err(ProofFault::WrongNode {
                        index,
                        expected,
                        got,
                    });
                }
                used += 1;
                rlp
            }
        };
        let malformed = |what| ProofFault::Malformed {
            index: used - 1,
            what,
        };
        match RawNode::decode(rlp).map_err(malformed)? {
            RawNode::Branch(_) if depth == 64 => return Err(malformed("a branch too deep")),
            RawNode::Branch(children) => {
                next = children[nibble(key, depth)];
                depth += 1;
            }
            RawNode::Extension(path, _) if depth + path.len() >= 64 => {
                return Err(malformed("an extension too deep"));
            }
            RawNode::Extension(path, child) => {
                if !is_at(&path, key, depth) {
                    break None;
                }
                (next, depth) = (child, depth + path.len());
            }
            RawNode::Leaf(path, _) if depth + path.len() != 64 => {
                return Err(malformed("a leaf whose path is not whole"));
            }
            RawNode::Leaf(path, value) => break is_at(&path, key, depth).then_some(value),
        }
    };
    match nodes.len() - used {
        0 => Ok(found),
        surplus => Err(ProofFault::Surplus { surplus }),
    }
}

fn is_at(path: &Path, key: &Key, depth: usize) -> bool {
    path.nibbles()
        .enumerate()
        .all(|(at, it)| nibble(key, depth + at) == usize::from(it))
}
