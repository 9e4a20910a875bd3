//! What a block changed, and the schedule that its transactions allow.

use super::super::{
    block_id,
    call::{commit, transact},
    ranges::keys_of,
    replay::{Replay, failed},
};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_consensus::Transaction as _;
use alloy_eips::BlockId;
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_chain::{Block, ChainError, transaction_env};
use cambium_primitives::{Account, AccountDiff, AccountUpdate};
use revm::state::EvmState;
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

/// Most accounts of a diff.
const ACCOUNTS_MAX: usize = 2048;
/// Most slots of an account in a diff.
const SLOTS_MAX: usize = 512;
/// Most gas of a block that is executed to draw its schedule.
const GAS_MAX: u64 = 300_000_000;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with("cambium_diff(Block) -> Changes", Kind::Scan, diff)
        .with("cambium_schedule(Block) -> Schedule", Kind::Scan, schedule)
}

/// The block that the one parameter names.
fn block_of(
    call: &Call<'_>,
    mut params: Params<'_>,
) -> Result<(cambium_primitives::BlockId, Block), RpcError> {
    let id: BlockId = params.required()?;
    params.end()?;
    let found = call.node.block(block_id::block_ref(call, id)?)?;
    if !found.is_canonical {
        return Err(RpcError::server("the block is not on the canonical chain"));
    }
    Ok((found.id, found.block))
}

/// Addresses by their hashes: those that the block names, and those whose preimages are kept.
struct Names<'c> {
    call: &'c Call<'c>,
    in_block: HashMap<B256, Address>,
}

impl<'c> Names<'c> {
    fn of(call: &'c Call<'c>, block: &Block) -> Result<Self, RpcError> {
        let mut all = vec![block.header.beneficiary];
        for own in &block.body.transactions {
            all.extend(own.to());
            for listed in own.access_list().into_iter().flat_map(|list| list.iter()) {
                all.push(listed.address);
            }
        }
        let senders = call.node.chain()?.senders_of(block)?;
        for (own, sender) in block.body.transactions.iter().zip(&senders) {
            all.push(*sender);
            if own.is_create() {
                all.push(sender.create(own.nonce()));
            }
        }
        for own in block.body.withdrawals.iter().flat_map(|own| own.iter()) {
            all.push(own.address);
        }
        all.extend([
            alloy_eips::eip4788::BEACON_ROOTS_ADDRESS,
            alloy_eips::eip2935::HISTORY_STORAGE_ADDRESS,
            alloy_eips::eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
            alloy_eips::eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
        ]);
        let in_block = all.into_iter().map(|own| (keccak256(own), own)).collect();
        Ok(Self { call, in_block })
    }

    fn address(&self, hash: &B256) -> Result<Option<Address>, RpcError> {
        if let Some(known) = self.in_block.get(hash) {
            return Ok(Some(*known));
        }
        let Some(preimages) = self.call.node.preimages()? else {
            return Ok(None);
        };
        Ok(preimages.address_of(hash).map_err(ChainError::from)?)
    }
}

fn diff(call: &Call<'_>, params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let (id, block) = block_of(call, params)?;
    if id == call.node.db().genesis() {
        return Err(RpcError::server(
            "the genesis block changes nothing: its accounts are the first state",
        ));
    }
    let committed = call.node.db().committed_block(id.number)?;
    let Some(committed) = committed.filter(|found| found.meta.id == id) else {
        return Err(RpcError::new(
            RpcError::PRUNED,
            "the changes of this block are in the log no more",
        ));
    };
    let names = Names::of(call, &block)?;
    let before = committed.reverts.accounts();
    let mut accounts = Vec::new();
    let all = committed.changes.accounts();
    for change in all.iter().take(ACCOUNTS_MAX) {
        call.cancel.check()?;
        let at = before.binary_search_by_key(&change.path, |old| old.path);
        accounts.push(changed(&names, change, at.ok().map(|at| &before[at]))?);
    }
    reply.value(&json!({
        "number": id.number,
        "hash": id.hash,
        "accounts": accounts,
        "more": all.len() > ACCOUNTS_MAX,
    }))
}

/// The account of an update; `None` if it says nothing.
fn put(update: &AccountUpdate) -> Option<Option<Account>> {
    match update {
        AccountUpdate::Put(account) => Some(Some(*account)),
        AccountUpdate::Delete => Some(None),
        AccountUpdate::Keep | AccountUpdate::Entry(_) => None,
    }
}

fn changed(
    names: &Names<'_>,
    change: &AccountDiff,
    before: Option<&AccountDiff>,
) -> Result<Value, RpcError> {
    let new = put(&change.account);
    let old = before.and_then(|before| put(&before.account));
    let pair = |field: &dyn Fn(&Account) -> Value| {
        let (new, old) = (new?, old?);
        let of = |account: Option<Account>| account.as_ref().map_or(Value::Null, field);
        let (old, new) = (of(old), of(new));
        (old != new).then(|| json!([old, new]))
    };
    // Slots that are set, and those that were removed with all others.
    let mut keys: BTreeSet<B256> = change.slots.iter().map(|(key, _)| *key).collect();
    if change.wipe {
        keys.extend(
            before
                .iter()
                .flat_map(|old| old.slots.iter())
                .map(|(key, _)| *key),
        );
    }
    let more_slots = keys.len() > SLOTS_MAX;
    let keys: Vec<B256> = keys.into_iter().take(SLOTS_MAX).collect();
    let known = keys_of(names.call, &keys)?;
    let value_in = |diff: Option<&AccountDiff>, key: &B256| {
        let slots = diff.map_or(&[][..], |diff| &diff.slots);
        let at = slots.binary_search_by_key(key, |(own, _)| *own);
        B256::from(at.map_or(U256::ZERO, |at| slots[at].1))
    };
    let slots = keys.iter().zip(known).map(|(path, key)| {
        json!({
            "path": path,
            "key": key,
            "value": [value_in(before, path), value_in(Some(change), path)],
        })
    });
    Ok(json!({
        "address": names.address(&change.path)?,
        "path": change.path,
        "balance": pair(&|account| json!(account.balance)),
        "nonce": pair(&|account| json!(format!("{:#x}", account.nonce))),
        "codeHash": pair(&|account| json!(account.code_hash)),
        "created": old == Some(None) && matches!(new, Some(Some(_))),
        "deleted": new == Some(None),
        "slots": slots.collect::<Vec<_>>(),
        "moreSlots": more_slots,
    }))
}

/// Something that transactions read and write.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Item {
    Account(Address),
    Slot(Address, U256),
}

fn schedule(call: &Call<'_>, params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let (id, block) = block_of(call, params)?;
    if block.header.gas_used > GAS_MAX {
        return Err(RpcError::new(
            RpcError::LIMIT,
            format!(
                "the block has {} gas, {GAS_MAX} at most",
                block.header.gas_used
            ),
        ));
    }
    let mut replay = Replay::of(call, &block)?;
    let senders = call.node.chain()?.senders_of(&block)?;
    let mut writers = HashMap::new();
    let mut transactions = Vec::new();
    let own = block.body.transactions.iter().zip(senders);
    for (index, (own, sender)) in own.enumerate() {
        replay.cancel.check()?;
        let began = Instant::now();
        let done = transact(
            &mut replay.state,
            &replay.env,
            transaction_env(own, sender),
            None,
        );
        let done = done.map_err(failed)?.done;
        let ns = began.elapsed().as_nanos() as u64;
        // What the fee's receiver gets is added up, in whatever order.
        let (reads, after) = waits(&done.state, block.header.beneficiary, index, &mut writers);
        transactions.push(json!({
            "index": index,
            "hash": own.hash(),
            "gasUsed": done.result.tx_gas_used(),
            "ns": ns,
            "reads": reads,
            "after": after,
        }));
        commit(&mut replay.state, done.state);
    }
    reply.value(&json!({
        "number": id.number,
        "hash": id.hash,
        "threads": cambium_crew::threads(),
        "transactions": transactions,
    }))
}

/// How many items a transaction reads, and the transactions before it that wrote them; then it is the writer of its own.
fn waits(
    state: &EvmState,
    fees_to: Address,
    index: usize,
    writers: &mut HashMap<Item, usize>,
) -> (usize, BTreeSet<usize>) {
    let (mut reads, mut after, mut written) = (0, BTreeSet::new(), Vec::new());
    for (address, account) in state {
        let mut look = |item, is_written: bool| {
            reads += 1;
            after.extend(writers.get(&item).copied());
            if is_written {
                written.push(item);
            }
        };
        if *address != fees_to {
            look(
                Item::Account(*address),
                account.is_touched() && account.original_info() != account.info,
            );
        }
        for (key, slot) in &account.storage {
            look(Item::Slot(*address, *key), slot.is_changed());
        }
    }
    for item in written {
        writers.insert(item, index);
    }
    (reads, after)
}
