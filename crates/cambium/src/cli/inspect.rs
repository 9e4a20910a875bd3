//! Composition of a state, and its largest contracts: `db inspect`, and the slots of one account:
//! `get --storage`.

use super::{
    args::{accounts::GetArgs, dump::InspectArgs},
    error::Failure,
    node,
    output::{KEYS, KEYS_BAR, Output, Report, Table, bytes, count, quantity, step},
    preimages::Names,
};
use cambium::{Account, B256, HistoryError, KECCAK256_EMPTY, StateAt, U256, keccak256};
use serde_json::{Value, json};
use std::{cmp::Reverse, collections::BinaryHeap, ops::ControlFlow};

/// Number of accounts between steps of the bar.
const TELL_ACCOUNTS: u64 = 1024;
/// Number of slots between looks at the bar, within one account.
const TELL_SLOTS: u64 = 1 << 16;
/// Size of a key.
const KEY_BYTES: u64 = 32;

/// A contract, by the number of its slots.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Contract {
    slots: u64,
    path: B256,
    bytes: u64,
    code_hash: B256,
}

#[derive(Default)]
struct Counts {
    accounts: u64,
    contracts: u64,
    with_storage: u64,
    slots: u64,
    account_bytes: u64,
    slot_bytes: u64,
    /// Those with the most slots, the least one first.
    largest: BinaryHeap<Reverse<Contract>>,
}

impl Counts {
    fn account(&mut self, path: B256, account: &Account, slots: (u64, u64), top: usize) {
        let mut encoded = Vec::with_capacity(80);
        account.encode_to(&mut encoded);
        self.accounts += 1;
        self.account_bytes += KEY_BYTES + encoded.len() as u64;
        let is_contract = account.code_hash != KECCAK256_EMPTY;
        self.contracts += u64::from(is_contract);
        let (slots, bytes) = slots;
        if slots == 0 {
            return;
        }
        self.with_storage += 1;
        self.slots += slots;
        self.slot_bytes += bytes;
        self.largest.push(Reverse(Contract {
            slots,
            path,
            bytes,
            code_hash: account.code_hash,
        }));
        if self.largest.len() > top {
            self.largest.pop();
        }
    }
}

/// The number and the size of an account's slots.
fn measure(
    view: &StateAt,
    path: &B256,
    on_many: &mut dyn FnMut(u64),
) -> Result<(u64, u64), HistoryError> {
    let (mut slots, mut size) = (0u64, 0u64);
    view.each_slot_from(path, &B256::ZERO, |_, value| {
        slots += 1;
        size += KEY_BYTES + value.byte_len() as u64;
        if slots.is_multiple_of(TELL_SLOTS) {
            on_many(slots);
        }
        ControlFlow::Continue(())
    })?;
    Ok((slots, size))
}

pub(crate) fn inspect(args: &InspectArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_accounts(&args.state.db, out)?;
    let view = node.state_at(args.state.block)?;
    let bar = out.bar(KEYS, KEYS_BAR);
    let (mut counts, mut failure) = (Counts::default(), None);
    view.each_account(&B256::ZERO, |path, account| {
        let (accounts, slots_before) = (counts.accounts, counts.slots);
        let tell = |slots: u64| {
            bar.set_position(step(&path));
            let (accounts, slots) = (count(accounts), count(slots_before + slots));
            bar.set_message(format!("{accounts} accounts, {slots} slots"));
        };
        if accounts.is_multiple_of(TELL_ACCOUNTS) {
            tell(0);
        }
        match measure(&view, &path, &mut |slots| tell(slots)) {
            Ok(slots) => {
                counts.account(path, &account, slots, args.top.get());
                ControlFlow::Continue(())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    bar.finish_and_clear();
    if let Some(error) = failure {
        return Err(error.into());
    }
    let codes = node.db().stats()?.codes;
    described(&view, counts, codes as u64, Names::of(&node, out))
}

fn described(
    view: &StateAt,
    counts: Counts,
    codes: u64,
    mut names: Names<'_>,
) -> Result<Report, Failure> {
    let block = view.block();
    let mut table = Table::default()
        .row("block", block)
        .row("accounts", count(counts.accounts))
        .row("with code", count(counts.contracts))
        .row("with slots", count(counts.with_storage))
        .row("slots", count(counts.slots))
        .row("bytes of accounts", bytes(counts.account_bytes))
        .row("bytes of slots", bytes(counts.slot_bytes))
        .row("codes in the database", count(codes));
    let mut listed: Vec<Value> = Vec::new();
    // The greatest is the least one reversed.
    let largest = counts.largest.into_sorted_vec();
    if !largest.is_empty() {
        table = table.section("Accounts with the most slots, by address, or keccak256 of it");
    }
    for Reverse(contract) in largest {
        let Contract {
            slots,
            path,
            bytes: size,
            code_hash,
        } = contract;
        let code_bytes = view.code(&code_hash)?.len();
        let share = 100.0 * slots as f64 / counts.slots as f64;
        let address = names.address_of(&path);
        let name = address.map_or_else(|| path.to_string(), |address| address.to_string());
        table = table.row(
            name,
            format!(
                "{} slots ({share:.1} %), {}, code of {}",
                count(slots),
                bytes(size),
                bytes(code_bytes as u64)
            ),
        );
        listed.push(json!({
            "path": path,
            "address": address,
            "slots": slots,
            "bytes": size,
            "code_hash": code_hash,
            "code_bytes": code_bytes,
        }));
    }
    let json = json!({
        "block_number": quantity(block.number),
        "block_hash": block.hash,
        "accounts": counts.accounts,
        "contracts": counts.contracts,
        "accounts_with_storage": counts.with_storage,
        "slots": counts.slots,
        "account_bytes": counts.account_bytes,
        "slot_bytes": counts.slot_bytes,
        "codes": codes,
        "largest": listed,
    });
    Ok(Report::new(table.to_string(), json))
}

/// Slots of an account from a key on, and the key after them.
pub(crate) fn storage(args: &GetArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_accounts(&args.state.db, out)?;
    let view = node.state_at(args.state.block)?;
    let path = keccak256(args.address);
    let exists = view.account(&path)?.is_some();
    let from = args.from.unwrap_or_default();
    let (mut slots, mut next): (Vec<(B256, U256)>, _) = (Vec::new(), None);
    view.each_slot_from(&path, &from, |slot, value| {
        if slots.len() == args.limit.get() {
            next = Some(slot);
            return ControlFlow::Break(());
        }
        slots.push((slot, value));
        ControlFlow::Continue(())
    })?;
    let mut names = Names::of(&node, out);
    let slots: Vec<(B256, Option<B256>, U256)> = slots
        .into_iter()
        .map(|(slot, value)| (slot, names.slot_of(&slot), value))
        .collect();
    let block = view.block();
    let mut table = Table::default()
        .row("address", args.address)
        .row("block", block);
    table = match (exists, slots.len()) {
        (false, _) => table.row("account", "does not exist"),
        (true, 0) => table.row("slots", "none"),
        (true, found) => table
            .row("slots", count(found as u64))
            .section("Values by slot, or keccak256 of it"),
    };
    for (hash, key, value) in &slots {
        // A hash is marked as one: it could be taken for a slot.
        let name = match key {
            Some(key) => key.to_string(),
            None => format!("keccak256 {hash}"),
        };
        table = table.row(name, format!("{value:#x}"));
    }
    let mut text = table.to_string();
    if let Some(next) = next {
        text += &format!("\nThere are more: go on with --from {next}.");
    }
    let slots = slots.iter();
    let slots =
        slots.map(|(hash, key, value)| json!({ "path": hash, "slot": key, "value": value }));
    let json = json!({
        "address": args.address,
        "block_number": quantity(block.number),
        "block_hash": block.hash,
        "state_root": node.state_root(&view)?,
        "exists": exists,
        "slots": slots.collect::<Vec<_>>(),
        "next": next,
    });
    Ok(Report::new(text, json))
}
