//! The block that a child process executes: the parent process writes all its parts to files once.

use crate::{bal::block::BalBlock, state::stores::Failure};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, Keccak256};
use alloy_rlp::{Decodable, Encodable};
use cambium_chain::{Block, Chain, ChainSpec, DryRun};
use cambium_evm::Outcome;
use cambium_primitives::{AccessList, AccessListLimits, PreStateValues};
use std::{error::Error, fs, path::Path};

const BLOCK: &str = "block.rlp";
const SENDERS: &str = "senders.rlp";
const CODES: &str = "codes.rlp";
const SPEC: &str = "spec.json";
const LIST: &str = "list.rlp";
const CHANGES: &str = "changes.rlp";
const FOUND: &str = "found.rlp";

/// The form of the access list that comes with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListGiven {
    None,
    /// The list of EIP-7928.
    Whole,
    /// The list without keys that are only read.
    Changes,
}

/// A block with its access list, senders and codes.
pub(crate) struct ChildBlock {
    block: Block,
    senders: Vec<Address>,
    list: Option<AccessList>,
    pub(crate) spec: ChainSpec,
    /// Codes of all contracts that the block touches.
    pub(crate) codes: Vec<Bytes>,
}

/// Writes a block on the genesis state of `chain` to `dir`.
pub(crate) fn write(dir: &Path, block: &BalBlock, chain: &Chain) -> Result<(), Box<dyn Error>> {
    let view = chain.db().view()?;
    let hashes = block.given.found.accounts().iter();
    let hashes = hashes.map(|found| found.account.code_hash);
    let codes = hashes.filter(|hash| *hash != KECCAK256_EMPTY);
    let codes: Vec<_> = codes
        .map(|hash| view.code(&hash))
        .collect::<Result<_, _>>()?;
    let files = [
        (BLOCK, alloy_rlp::encode(&block.block)),
        (SENDERS, alloy_rlp::encode(&block.senders)),
        (CODES, alloy_rlp::encode(codes)),
        (SPEC, serde_json::to_vec(chain.spec())?),
        (LIST, block.given.list.encode()),
        (CHANGES, block.given.changes.encode()),
        (FOUND, block.given.found.encode()),
    ];
    fs::create_dir_all(dir)?;
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes)?;
    }
    Ok(())
}

impl ChildBlock {
    /// Reads a block that [`write`] wrote.
    pub(crate) fn read(dir: &Path, list: ListGiven) -> Result<Self, Failure> {
        let block: Block = decode(dir, BLOCK)?;
        let list = match list {
            ListGiven::None => None,
            ListGiven::Whole => Some(read_list(dir, LIST, &block)?),
            ListGiven::Changes => Some(read_list(dir, CHANGES, &block)?),
        };
        Ok(Self {
            senders: decode(dir, SENDERS)?,
            list,
            spec: serde_json::from_slice(&fs::read(dir.join(SPEC))?)?,
            codes: decode(dir, CODES)?,
            block,
        })
    }

    /// Reads the whole list and its pre-state values.
    pub(crate) fn found(&self, dir: &Path) -> Result<(AccessList, PreStateValues), Failure> {
        let list = read_list(dir, LIST, &self.block)?;
        let found = PreStateValues::decode(&fs::read(dir.join(FOUND))?, &list)?;
        Ok((list, found))
    }

    /// Returns the hash of the parent.
    pub(crate) const fn genesis(&self) -> B256 {
        self.block.header.parent_hash
    }

    pub(crate) fn run(&self) -> DryRun<'_> {
        DryRun {
            block: &self.block,
            post_merge: true,
            senders: &self.senders,
            access_list: self.list.as_ref(),
            pre_state: None,
        }
    }
}

fn decode<T: Decodable>(dir: &Path, name: &str) -> Result<T, Failure> {
    let bytes = fs::read(dir.join(name))?;
    let decoded = T::decode(&mut &bytes[..]);
    decoded.map_err(|error| format!("{name}: {error}").into())
}

fn read_list(dir: &Path, name: &str, block: &Block) -> Result<AccessList, Failure> {
    let bytes = fs::read(dir.join(name))?;
    let limits = AccessListLimits::of_transactions(block.body.transactions.len());
    Ok(AccessList::decode(&bytes, &limits)?)
}

/// Returns a hash of all parts of an outcome: receipts, gas, requests, changes, codes, access list.
pub(crate) fn digest(outcome: &Outcome) -> B256 {
    let mut hasher = Keccak256::new();
    let mut bytes = Vec::new();
    for receipt in &outcome.receipts {
        bytes.clear();
        receipt.encode(&mut bytes);
        hasher.update(&bytes);
    }
    hasher.update(outcome.gas_used.to_be_bytes());
    hasher.update(outcome.blob_gas_used.to_be_bytes());
    hasher.update(outcome.requests.requests_hash());
    hasher.update(outcome.changes.encode());
    for (hash, _) in &outcome.codes {
        hasher.update(hash);
    }
    if let Some(list) = &outcome.access_list {
        hasher.update(list.hash());
    }
    hasher.finalize()
}
