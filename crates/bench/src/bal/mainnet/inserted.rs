//! Real blocks from end to end: each is inserted into a chain of its own, as a consensus client's blocks are. Senders, header,
//! execution, root and durable commit are all in it.
//!
//! The chain begins with the part of the state that the block touches, among other accounts, so that paths through the trie have a
//! length. Its first block is a parent made up so that the real block's fees follow from it. Nothing of the block is
//! changed but what that makes different: the parent's hash, the state root, and what the two lead to.

use super::block::load;
use alloy_consensus::{Header, proofs::calculate_transaction_root};
use alloy_primitives::{B256, Bytes, keccak256};
use alloy_rlp::Encodable;
use cambium_chain::{
    AmsterdamRules, Block, BlockExecutor, Chain, ChainSealer, ChainSpec, DraftAttributes, Timings,
};
use cambium_conformance::SparseBlock;
use cambium_primitives::BlockId;
use cambium_testkit::network;
use std::{error::Error, path::Path, time::Instant, vec};
use tempfile::TempDir;

/// Transactions and gas of blocks that were inserted, and how long it took.
#[derive(Debug, Default)]
pub(crate) struct Did {
    pub(crate) transactions: u64,
    pub(crate) gas: u64,
    /// By kind of work.
    pub(crate) timings: Timings,
}

/// A block that is inserted again and again: as many siblings, which differ in their extra data.
pub(super) struct Inserted {
    chain: Chain,
    siblings: vec::IntoIter<Bytes>,
    list: Option<Bytes>,
    transactions: u64,
    gas: u64,
    _dir: TempDir,
}

impl Inserted {
    /// Makes the chain in a temporary directory below `parent`, with `others` accounts beside those that the block touches,
    /// and as many siblings as `turns` says.
    pub(super) fn new(
        sparse: &SparseBlock,
        parent: &Path,
        others: u64,
        turns: u64,
        executor: BlockExecutor,
    ) -> Result<Self, Box<dyn Error>> {
        let mut spec = network(&sparse.fork).ok_or("a fork that is not known")?;
        spec.amsterdam_rules = AmsterdamRules::Lists;
        let create = || -> Result<_, Box<dyn Error>> {
            let dir = tempfile::tempdir_in(parent)?;
            let loaded = load(&sparse.state, dir.path(), others)?;
            let header = parent_of(&spec, &sparse.header, loaded.root())?;
            let chain = Chain::create(loaded, spec.clone(), header.clone())?;
            Ok((chain, header, dir))
        };
        // The header's last fields come from a chain that is made only for them.
        let (scratch, parent_header, _scratch_dir) = create()?;
        let sealed = seal(sparse, &spec, &scratch, &parent_header)?;
        let id = BlockId::new(sealed.header.number, sealed.header.hash_slow());
        let list = scratch.stored_of(id)?;
        let list = list
            .map(|stored| stored.body.access_list)
            .filter(|list| !list.is_empty());
        let siblings = (0..turns).map(|turn| {
            let mut block = sealed.clone();
            block.header.extra_data = turn.to_be_bytes().to_vec().into();
            let mut rlp = Vec::new();
            block.encode(&mut rlp);
            Bytes::from(rlp)
        });
        let siblings: Vec<_> = siblings.collect();
        let (chain, _, dir) = create()?;
        Ok(Self {
            chain: chain.with_executor(executor),
            siblings: siblings.into_iter(),
            list,
            transactions: sparse.transactions.len() as u64,
            gas: sealed.header.gas_used,
            _dir: dir,
        })
    }

    /// Inserts the next sibling. Adds the time that it took to prepare it, with its senders, and to do all else.
    pub(super) fn insert_next(&mut self, did: &mut Did) -> Result<(), Box<dyn Error>> {
        let rlp = self.siblings.next().ok_or("no sibling is left")?;
        let list = self.list.as_ref().map(|list| &list[..]);
        let start = Instant::now();
        let prepared = self.chain.prepare(rlp, list)?;
        did.timings.recover += start.elapsed();
        let inserted = self.chain.insert_prepared(&prepared)?;
        did.timings += inserted.timings;
        did.transactions += self.transactions;
        did.gas += self.gas;
        if inserted.outcome.is_none() {
            return Err("the block was there already".into());
        }
        Ok(())
    }
}

/// A header from which the block's number, gas limit and fees follow.
fn parent_of(spec: &ChainSpec, header: &Header, root: B256) -> Result<Header, Box<dyn Error>> {
    let timestamp = header.timestamp.checked_sub(12).ok_or("no time before")?;
    let blobs = spec.blob_params_at(header.timestamp);
    let blobs = blobs.filter(|_| header.excess_blob_gas.is_some());
    // A fork's fields are those of a draft.
    let number = header.number.checked_sub(2).ok_or("no number before")?;
    let before = Header {
        number,
        gas_limit: header.gas_limit,
        base_fee_per_gas: header.base_fee_per_gas,
        ..Header::default()
    };
    let attributes = DraftAttributes {
        timestamp,
        gas_limit: header.gas_limit,
        ..DraftAttributes::default()
    };
    let draft = spec.draft(&before, keccak256("before"), &attributes);
    Ok(Header {
        state_root: root,
        base_fee_per_gas: header.base_fee_per_gas,
        // At the target a base fee stays as it is.
        gas_used: header.gas_limit / 2,
        blob_gas_used: blobs.map(|blobs| blobs.target_blob_gas_per_block()),
        excess_blob_gas: header.excess_blob_gas,
        ..draft.header
    })
}

/// The block on its made-up parent, with all fields that follow.
fn seal(
    sparse: &SparseBlock,
    spec: &ChainSpec,
    chain: &Chain,
    parent: &Header,
) -> Result<Block, Box<dyn Error>> {
    let header = &sparse.header;
    let attributes = DraftAttributes {
        timestamp: header.timestamp,
        beneficiary: header.beneficiary,
        prev_randao: header.mix_hash,
        withdrawals: sparse.withdrawals.clone(),
        parent_beacon_block_root: header.parent_beacon_block_root.unwrap_or_default(),
        slot_number: 0,
        gas_limit: header.gas_limit,
    };
    let mut draft = spec.draft(parent, parent.hash_slow(), &attributes);
    draft.body.transactions.clone_from(&sparse.transactions);
    draft.header.transactions_root = calculate_transaction_root(&draft.body.transactions);
    Ok(ChainSealer(chain).seal(draft)?)
}
