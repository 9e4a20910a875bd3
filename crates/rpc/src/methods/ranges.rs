//! Pages of the state: accounts after a block, and slots of an account before a transaction (`debug_accountRange`,
//! `debug_storageRangeAt`). Keys are hashes; what is behind them is shown where the database keeps preimages.

use super::{block_id, objects::Count, replay::Replay};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::BlockId;
use alloy_primitives::{Address, B256, Bytes, U256, hex, keccak256};
use cambium_chain::{ChainError, transaction_env};
use cambium_history::StateAt;
use cambium_primitives::{Account, Path};
use cambium_trie::{EMPTY_ROOT, LeafRange, LeafValue, Link};
use revm::{database::AccountState, primitives::KECCAK_EMPTY};
use serde::Serialize;
use std::{collections::BTreeMap, num::NonZeroUsize, ops::ControlFlow};

/// Most accounts of a page.
const ACCOUNTS_MAX: u64 = 256;
/// Accounts that are read at once.
const ACCOUNTS_AT_ONCE: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Most slots of a page, those of all its accounts together.
const SLOTS_MAX: usize = 16_384;
/// Slots between two looks at whether the answer is still wanted.
const LOOK_SLOTS: usize = 1024;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "debug_accountRange(Block, Start?, Maximum?, No code?, No storage?, Incompletes?) -> State dump",
            Kind::Scan,
            accounts,
        )
        .with(
            "debug_storageRangeAt(Block, Transaction index, Address, Start, Maximum) -> Storage range",
            Kind::Scan,
            slots,
        )
}

/// An account in the form of geth's dumps.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DumpedAccount {
    /// In wei, decimal.
    balance: String,
    nonce: u64,
    root: B256,
    code_hash: B256,
    #[serde(skip_serializing_if = "<[u8]>::is_empty")]
    code: Bytes,
    /// Values in hex without zeros before them, by keys whose preimages are known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    storage: BTreeMap<B256, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<Address>,
    /// keccak(address).
    key: B256,
}

/// The answer of `debug_accountRange`.
#[derive(Serialize)]
struct Dump {
    /// The state root, in hex without `0x`.
    root: String,
    /// By address, or by `pre(hash)` where the address is not known.
    accounts: BTreeMap<String, DumpedAccount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<B256>,
}

/// An account of the state, with its address if that is known.
struct FoundAccount {
    hash: B256,
    account: Account,
    root: B256,
    address: Option<Address>,
}

fn accounts(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let id: BlockId = params.required()?;
    let start = start_of(&params.optional::<Bytes>()?.unwrap_or_default())?;
    let most = params.optional::<Count>()?.map_or(0, Count::get);
    let no_code = params.optional()?.unwrap_or(false);
    let no_storage = params.optional()?.unwrap_or(false);
    let incompletes = params.optional()?.unwrap_or(false);
    params.end()?;
    let most = match most {
        0 => ACCOUNTS_MAX,
        most => most.min(ACCOUNTS_MAX),
    };
    let state = call
        .node
        .provable_state_at(block_id::block_ref(call, id)?)?;
    if !incompletes && call.node.preimages()?.is_none() {
        return Err(RpcError::server(
            "this database keeps no preimages, so no address is known: ask for `incompletes`",
        ));
    }
    let (page, mut next) = page(call, &state, start, most as usize, incompletes)?;
    let mut accounts = BTreeMap::new();
    let mut slots_left = SLOTS_MAX;
    for found in page {
        let mut dumped = DumpedAccount {
            balance: found.account.balance.to_string(),
            nonce: found.account.nonce,
            root: found.root,
            code_hash: found.account.code_hash,
            code: Bytes::new(),
            storage: BTreeMap::new(),
            address: found.address,
            key: found.hash,
        };
        if !no_code && found.account.code_hash != KECCAK_EMPTY {
            dumped.code = state.code(&found.account.code_hash)?;
        }
        if !no_storage && found.root != EMPTY_ROOT {
            let Some(storage) = all_slots(call, &state, &found.hash, slots_left)? else {
                if accounts.is_empty() {
                    return Err(RpcError::new(
                        RpcError::LIMIT,
                        format!(
                            "account {} has more than {SLOTS_MAX} slots: ask without storage, and for its slots by debug_storageRangeAt",
                            found.hash
                        ),
                    ));
                }
                // The next page begins with it.
                next = Some(found.hash);
                break;
            };
            slots_left -= storage.len();
            dumped.storage = with_keys(call, storage)?;
        }
        let name = match found.address {
            Some(address) => address.to_checksum(None),
            None => format!("pre({})", found.hash),
        };
        accounts.insert(name, dumped);
    }
    reply.value(&Dump {
        root: hex::encode(state.state_root()?),
        accounts,
        next,
    })
}

/// A hash that may be shortened: zeros are put before it.
fn start_of(given: &[u8]) -> Result<B256, RpcError> {
    match given.len() {
        0..=32 => Ok(B256::left_padding_from(given)),
        _ => Err(RpcError::params("the start has more than 32 bytes")),
    }
}

/// The accounts from `start` on, `most` of them at most, and where the next page begins. Accounts whose address is not known are left
/// out unless they are wanted.
fn page(
    call: &Call<'_>,
    state: &StateAt,
    start: B256,
    most: usize,
    incompletes: bool,
) -> Result<(Vec<FoundAccount>, Option<B256>), RpcError> {
    let preimages = call.node.preimages()?;
    let mut lookup = preimages.as_ref().map(|own| own.lookup());
    let mut found = Vec::new();
    let mut next = Some(start);
    while let Some(first) = next {
        call.cancel.check()?;
        let range = LeafRange::accounts(first, B256::repeat_byte(u8::MAX));
        let part = state.extract_range(&range, ACCOUNTS_AT_ONCE)?;
        let leaves = part.trie.leaves(&part.range).map_err(RpcError::internal)?;
        for (hash, leaf) in leaves {
            let LeafValue::Account(account) = leaf else {
                continue;
            };
            if found.len() == most {
                return Ok((found, Some(hash)));
            }
            let address = match &mut lookup {
                Some(lookup) => lookup.address_of(&hash).map_err(ChainError::from)?,
                None => None,
            };
            if address.is_none() && !incompletes {
                continue;
            }
            let storage = part.trie.find(&Path::account(&hash));
            let root = part.trie.storage_root_at(storage.unwrap_or(Link::EMPTY));
            found.push(FoundAccount {
                hash,
                account,
                root: root.ok_or_else(|| RpcError::internal("a storage trie without its root"))?,
                address,
            });
        }
        next = part.next;
    }
    Ok((found, None))
}

/// The slots of an account that are not zero, by keccak(slot); `None` if there are more than `most`.
fn all_slots(
    call: &Call<'_>,
    state: &StateAt,
    account: &B256,
    most: usize,
) -> Result<Option<Vec<(B256, U256)>>, RpcError> {
    let mut slots = Vec::new();
    let mut is_over = false;
    walk(call, state, account, &B256::ZERO, |slot, value| {
        is_over = slots.len() == most;
        if !is_over {
            slots.push((slot, value));
        }
        !is_over
    })?;
    Ok((!is_over).then_some(slots))
}

/// Visits slots of an account in the order of keccak(slot), until `visit` wants no more.
fn walk(
    call: &Call<'_>,
    state: &StateAt,
    account: &B256,
    from: &B256,
    mut visit: impl FnMut(B256, U256) -> bool,
) -> Result<(), RpcError> {
    let (mut visited, mut over) = (0_usize, Ok(()));
    state.each_slot_from(account, from, |slot, value| {
        visited += 1;
        if visited.is_multiple_of(LOOK_SLOTS) {
            over = call.cancel.check();
        }
        match over.is_ok() && visit(slot, value) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    over
}

/// Slots by their keys, as far as these are known.
fn with_keys(
    call: &Call<'_>,
    slots: Vec<(B256, U256)>,
) -> Result<BTreeMap<B256, String>, RpcError> {
    let hashes: Vec<_> = slots.iter().map(|(hash, _)| *hash).collect();
    let keys = keys_of(call, &hashes)?;
    let known = keys.into_iter().zip(slots);
    let known = known.filter_map(|(key, (_, value))| {
        let value = hex::encode(value.to_be_bytes_trimmed_vec());
        Some((key?, value))
    });
    Ok(known.collect())
}

/// The key of each slot, if it is known.
pub(super) fn keys_of(call: &Call<'_>, hashes: &[B256]) -> Result<Vec<Option<B256>>, RpcError> {
    let Some(preimages) = call.node.preimages()? else {
        return Ok(vec![None; hashes.len()]);
    };
    let keys = preimages.lookup().slots_of(hashes).into_iter();
    Ok(keys.collect::<Result<_, _>>().map_err(ChainError::from)?)
}

/// A slot of the answer of `debug_storageRangeAt`, by keccak(key).
#[derive(Serialize)]
struct RangeSlot {
    key: Option<B256>,
    value: B256,
}

/// The answer of `debug_storageRangeAt`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StorageRange {
    storage: BTreeMap<B256, RangeSlot>,
    next_key: Option<B256>,
}

/// A slot as it is before the transaction: its value, and its key if execution has touched it.
type Touched = BTreeMap<B256, (U256, U256)>;

fn slots(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let id: BlockId = params.required()?;
    let index = params.required::<Count>()?.get();
    let address: Address = params.required()?;
    let start: Bytes = params.required()?;
    let most = params.required::<Count>()?.get();
    params.end()?;
    if start.len() > 32 {
        return Err(RpcError::params("the start has more than 32 bytes"));
    }
    let start = B256::right_padding_from(&start);
    let most = usize::try_from(most).unwrap_or(SLOTS_MAX).min(SLOTS_MAX);
    let block = call.node.block(block_id::block_ref(call, id)?)?.block;
    let transactions = &block.body.transactions;
    let is_there = index < transactions.len() as u64 || index == 0;
    if !is_there {
        return Err(RpcError::server(format!(
            "transaction index {index} out of range for block {}",
            block.header.hash_slow()
        )));
    }
    let mut replay = Replay::of(call, &block)?;
    let senders = call.node.chain()?.senders_of(&block)?;
    for (own, sender) in transactions.iter().zip(senders).take(index as usize) {
        call.cancel.check()?;
        replay.run(transaction_env(own, sender))?;
    }
    let state = &replay.state;
    let changed = state.cache.accounts.get(&address);
    let is_wiped = changed.is_some_and(|own| {
        matches!(
            own.account_state,
            AccountState::StorageCleared | AccountState::NotExisting
        )
    });
    let touched: Touched = changed
        .into_iter()
        .flat_map(|own| own.storage.iter())
        .map(|(key, value)| (keccak256(key.to_be_bytes::<32>()), (*value, *key)))
        .collect();
    // One more than is shown says where the next page begins.
    let mut found: BTreeMap<B256, U256> = touched
        .range(start..)
        .filter(|(_, (value, _))| !value.is_zero())
        .take(most + 1)
        .map(|(hash, (value, _))| (*hash, *value))
        .collect();
    if !is_wiped {
        let mut below = 0;
        walk(
            call,
            state.db.state(),
            &keccak256(address),
            &start,
            |hash, value| {
                if !touched.contains_key(&hash) {
                    found.insert(hash, value);
                    below += 1;
                }
                below <= most
            },
        )?;
    }
    let next_key = found.keys().nth(most).copied();
    let shown: Vec<_> = found.into_iter().take(most).collect();
    let hashes: Vec<_> = shown.iter().map(|(hash, _)| *hash).collect();
    let keys = keys_of(call, &hashes)?;
    let shown = shown.into_iter().zip(keys).map(|((hash, value), key)| {
        let key = key.or_else(|| touched.get(&hash).map(|(_, key)| B256::from(*key)));
        let value = B256::from(value);
        (hash, RangeSlot { key, value })
    });
    reply.value(&StorageRange {
        storage: shown.collect(),
        next_key,
    })
}
