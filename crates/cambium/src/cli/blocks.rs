//! Commands on single blocks: block, receipts, diff.

use super::{
    args::blocks::{BlockArgs, DiffArgs},
    error::Failure,
    index, node,
    output::{Output, Report, Table, count, quantity, rpc},
    preimages::Names,
    rpc::Placed,
};
use cambium::{
    B256, Changes,
    db::{AccountDiff, AccountUpdate, STORAGE_ROOT_KEY, storage_root_of},
    node::FoundReceipt,
};
use serde_json::{Map, Value, json};

pub(crate) fn block(args: &BlockArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_blocks(&args.db, out)?;
    let found = node.block(args.block)?;
    let (header, body) = (&found.block.header, &found.block.body);
    let mut json = rpc(header);
    json["hash"] = json!(found.id.hash);
    json["totalDifficulty"] = json!(found.total_difficulty);
    json["canonical"] = json!(found.is_canonical);
    let senders = node.chain()?.senders_of(&found.block)?;
    let placed = senders.iter().zip(&body.transactions).enumerate();
    let placed = placed.map(|(index, (sender, transaction))| Placed {
        block: found.id,
        header,
        index,
        transaction,
        sender: *sender,
    });
    json["transactions"] = placed.map(|one| one.transaction_json()).collect();
    json["uncles"] = rpc(&body.ommers);
    json["withdrawals"] = rpc(&body.withdrawals);
    let canonical = match found.is_canonical {
        true => "yes",
        false => "no, on another branch",
    };
    let mut table = Table::default()
        .row("block", found.id)
        .row("canonical", canonical)
        .row("parent", header.parent_hash)
        .row("state root", header.state_root)
        .row("timestamp", header.timestamp)
        .row("beneficiary", header.beneficiary)
        .row(
            "gas",
            format!("{} of {}", count(header.gas_used), count(header.gas_limit)),
        )
        .row("transactions", count(body.transactions.len() as u64));
    if let Some(withdrawals) = &body.withdrawals {
        table = table.row("withdrawals", count(withdrawals.len() as u64));
    }
    if !body.ommers.is_empty() {
        table = table.row("ommers", count(body.ommers.len() as u64));
    }
    if !body.transactions.is_empty() {
        table = table.section("Transactions");
        for (index, transaction) in body.transactions.iter().enumerate() {
            table = table.row(index, transaction.hash());
        }
    }
    Ok(Report::new(table.to_string(), json))
}

pub(crate) fn receipts(args: &BlockArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_blocks(&args.db, out)?;
    let found = node.block(args.block)?;
    let receipts = node.receipts_of(&found)?;
    let mut table = Table::default()
        .row("block", found.id)
        .row("receipts", count(receipts.len() as u64))
        .section("Transactions");
    let mut listed = Vec::with_capacity(receipts.len());
    for FoundReceipt {
        found: of,
        receipt,
        gas_used,
        first_log,
    } in &receipts
    {
        let placed = Placed {
            block: of.block,
            header: &found.block.header,
            index: of.index,
            transaction: &of.transaction,
            sender: of.sender,
        };
        listed.push(placed.receipt_json(receipt, *gas_used, *first_log));
        let text = index::receipt_text(receipt, *gas_used);
        table = table.row(of.transaction.hash(), text);
    }
    let json = json!({
        "block_number": quantity(found.id.number),
        "block_hash": found.id.hash,
        "receipts": listed,
    });
    Ok(Report::new(table.to_string(), json))
}

pub(crate) fn diff(args: &DiffArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_accounts(&args.db, out)?;
    let (from, to) = (node.canonical_id(args.from)?, node.canonical_id(args.to)?);
    if from.number > to.number {
        let why = format!("block {from} comes after block {to}: give the older one first");
        return Err(Failure::BadEntry { why });
    }
    let mut changes = Changes::default();
    let bar = out.bar(
        to.number - from.number,
        "{bar:30} {percent}%  block {human_pos}",
    );
    for number in from.number + 1..=to.number {
        if let Some(block) = node.db().committed_block(number)? {
            changes = changes.then(block.changes);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut names = Names::of(&node, out);
    let (accounts, all_slots) = changes.counts();
    let is_partial = node.db().kept_storage().is_some();
    let root_in = |change| storage_root(change).filter(|_| is_partial);
    let roots = changes.accounts().iter().filter_map(root_in);
    let slots = all_slots - roots.count();
    let mut table = Table::default()
        .row("from", from)
        .row("to", to)
        .row("changed accounts", count(accounts as u64))
        .row("changed slots", count(slots as u64));
    let mut listed = Vec::with_capacity(accounts);
    for change in changes.accounts() {
        let (text, fields) = match &change.account {
            AccountUpdate::Keep => ("slots alone".to_owned(), Value::String("kept".to_owned())),
            AccountUpdate::Delete => ("deleted".to_owned(), Value::Null),
            AccountUpdate::Put(account) => (
                format!("nonce {}, {} wei", account.nonce, account.balance),
                json!({
                    "nonce": quantity(account.nonce),
                    "balance": account.balance,
                    "codeHash": account.code_hash,
                }),
            ),
            // A database of accounts has none.
            AccountUpdate::Entry(_) => continue,
        };
        let root = root_in(change);
        let slots = match (change.wipe, change.slots.len()) {
            _ if let Some(root) = root => format!("; storage root {root}, its slots are not kept"),
            (true, 0) => "; all slots removed".to_owned(),
            (true, len) => format!("; all slots removed, {} set", count(len as u64)),
            (false, 0) => String::new(),
            (false, len) => format!("; {} slots", count(len as u64)),
        };
        let address = names.address_of(&change.path);
        let name = address.map_or_else(|| change.path.to_string(), |address| address.to_string());
        table = table.row(name, format!("{text}{slots}"));
        let changed: &[_] = if root.is_some() { &[] } else { &change.slots };
        let values = changed.iter();
        let values = values.map(|(slot, value)| (slot.to_string(), json!(value)));
        let keys = changed.iter();
        let keys = keys.filter_map(|(slot, _)| Some((slot.to_string(), names.slot_of(slot)?)));
        listed.push(json!({
            "path": change.path,
            "address": address,
            "slotKeys": keys.map(|(slot, key)| (slot, json!(key))).collect::<Map<_, _>>(),
            "account": fields,
            "wipe": change.wipe,
            "slots": values.collect::<Map<_, _>>(),
        }));
        if let (Some(root), Some(last)) = (root, listed.last_mut()) {
            last["storageRoot"] = json!(root);
        }
    }
    let json = json!({
        "from_number": quantity(from.number),
        "from_hash": from.hash,
        "to_number": quantity(to.number),
        "to_hash": to.hash,
        "changed_accounts": accounts,
        "changed_slots": slots,
        "accounts": listed,
    });
    Ok(Report::new(table.to_string(), json))
}

/// The new storage root, in changes of a partial database that does not keep the account's slots.
fn storage_root(change: &AccountDiff) -> Option<B256> {
    match &change.slots[..] {
        [(STORAGE_ROOT_KEY, value)] => Some(storage_root_of(*value)),
        _ => None,
    }
}
