//! One block from its draft.

use crate::{
    error::RpcError,
    pool::{Pool, PooledTransaction},
};
use alloy_consensus::Transaction as _;
use alloy_eips::{
    eip2718::Encodable2718, eip7594::BlobTransactionSidecarVariant, eip7685::Requests,
};
use alloy_primitives::{Address, B256, Bytes, U256, map::HashMap};
use alloy_rlp::Encodable;
use cambium_chain::{
    BLOCK_RLP_BYTES_MAX, Block, DraftAttributes, Outcome, TimedReads, Transaction, complete_header,
    keep_transactions,
};
use cambium_node::{FoundBlock, Node};
use cambium_primitives::AccessList;
use std::sync::Arc;

/// Bytes of a block that are left for what its draft does not have yet: fields of the header, and lengths of lists.
const BYTES_LEFT: usize = 4096;

/// Transactions that may become a block.
pub(crate) enum Candidates<'p> {
    /// These, with their senders, all of them in this order.
    Given(Vec<(Transaction, Address)>),
    /// What waits in the pool, as far as it can be executed.
    Pool(&'p Pool),
    /// None.
    None,
}

/// A valid block that nobody has been told of.
pub(crate) struct BuiltBlock {
    pub(crate) block: Block,
    pub(crate) hash: B256,
    pub(crate) requests: Requests,
    /// Encoded, of a block whose header has its hash.
    pub(crate) access_list: Option<Bytes>,
    /// The tips, in wei.
    pub(crate) value: U256,
    /// The transactions with blobs, with their sidecars as far as they are known.
    with_blobs: Vec<Arc<PooledTransaction>>,
    /// How many transactions the pool had been given when this was built.
    pub(crate) pool_added: u64,
}

impl BuiltBlock {
    /// The sidecars of the block's blobs, in their order.
    pub(crate) fn sidecars(&self) -> impl Iterator<Item = &BlobTransactionSidecarVariant> {
        self.with_blobs
            .iter()
            .filter_map(|own| own.sidecar.as_ref())
    }
}

/// Builds a block on `parent`.
pub(crate) fn build(
    node: &Node,
    parent: &FoundBlock,
    attributes: &DraftAttributes,
    extra_data: Bytes,
    candidates: Candidates<'_>,
) -> Result<BuiltBlock, RpcError> {
    let chain = node.chain()?;
    let spec = chain.spec();
    let mut block = spec.draft(&parent.block.header, parent.id.hash, attributes);
    block.header.extra_data = extra_data;
    let is_given = matches!(candidates, Candidates::Given(_));
    let mut pooled: HashMap<B256, Arc<PooledTransaction>> = HashMap::default();
    let mut pool_added = 0;
    let chosen: Vec<(Transaction, Address)> = match candidates {
        Candidates::None => Vec::new(),
        Candidates::Given(all) => all,
        Candidates::Pool(pool) => {
            let header = &block.header;
            let blob_fee = spec
                .blob_params_at(header.timestamp)
                .zip(header.excess_blob_gas);
            let blob_fee = blob_fee.map_or(0, |(params, excess)| params.calc_blob_fee(excess));
            let (best, added) = pool.best(node, header.base_fee_per_gas.unwrap_or(0), blob_fee)?;
            pool_added = added;
            let mut left = BLOCK_RLP_BYTES_MAX.saturating_sub(block.length() + BYTES_LEFT);
            let mut chosen = Vec::with_capacity(best.len());
            for own in best {
                let bytes = own.transaction.encode_2718_len() + 8;
                if bytes > left {
                    break;
                }
                left -= bytes;
                chosen.push((own.transaction.clone(), own.sender));
                if own.sidecar.is_some() {
                    pooled.insert(own.hash(), own);
                }
            }
            chosen
        }
    };
    let senders: Vec<Address>;
    (block.body.transactions, senders) = chosen.into_iter().unzip();
    let view = chain.db().view_of(parent.id)?;
    let session = view.clone().session();
    let chosen = spec.choose(&block, &senders, TimedReads::new(view));
    let chosen = chosen.map_err(RpcError::server)?;
    if is_given && let Some((index, reason)) = chosen.left_out.first() {
        return Err(RpcError::server(format!(
            "transaction {index} can't be executed: {reason}"
        )));
    }
    keep_transactions(&mut block, &chosen.kept);
    let outcome = chosen.outcome;
    complete_header(&mut block.header, &outcome, B256::ZERO);
    let value = tips(&block, &outcome);
    let Outcome {
        changes,
        codes,
        access_list,
        requests,
        ..
    } = outcome;
    block.header.state_root = session.finish(changes, codes)?.root();
    let (got, most) = (block.length(), BLOCK_RLP_BYTES_MAX);
    if is_given && got > most {
        return Err(RpcError::server(format!(
            "the block has {got} bytes, over the limit of {most}"
        )));
    }
    let is_listed = block.header.block_access_list_hash.is_some();
    let access_list = access_list.filter(|_| is_listed);
    let own = block.body.transactions.iter();
    let with_blobs = own.filter_map(|own| pooled.get(own.tx_hash()).cloned());
    Ok(BuiltBlock {
        hash: block.header.hash_slow(),
        requests,
        access_list: access_list.map(|list| AccessList::encode(&list).into()),
        value,
        with_blobs: with_blobs.collect(),
        pool_added,
        block,
    })
}

/// What the transactions of a block pay to its beneficiary, in wei.
fn tips(block: &Block, outcome: &Outcome) -> U256 {
    let base_fee = block.header.base_fee_per_gas.unwrap_or(0);
    let mut before = 0;
    let both = block.body.transactions.iter().zip(&outcome.receipts);
    both.fold(U256::ZERO, |sum, (own, receipt)| {
        let total = receipt.cumulative_gas_used();
        let gas = total - std::mem::replace(&mut before, total);
        let tip = own.effective_tip_per_gas(base_fee).unwrap_or(0);
        sum.saturating_add(U256::from(gas).saturating_mul(U256::from(tip)))
    })
}
