//! The report on an account that a proof shows, under any commitment.

use super::{
    chain::balance,
    output::{Report, Table, count, quantity},
};
use cambium::{Account, Address, B256, U256};
use serde_json::{Value, json};

/// The report on a proof that holds. `roots` are printed beside the account.
pub(crate) fn report(
    root: B256,
    address: Address,
    account: Option<Account>,
    slots: &[(B256, U256)],
    roots: &[(&'static str, B256)],
) -> Report {
    let values: Vec<Value> = slots
        .iter()
        .map(|(slot, value)| json!({ "slot": slot, "value": value }))
        .collect();
    let fields = account.unwrap_or_default();
    let mut json = json!({
        "holds": true,
        "root": root,
        "address": address,
        "exists": account.is_some(),
        "nonce": quantity(fields.nonce),
        "balance": fields.balance,
        "code_hash": fields.code_hash,
        "slots": values,
    });
    let mut table = Table::default()
        .row("state root", root)
        .row("address", address);
    table = match account {
        None => table.row("account", "does not exist"),
        Some(account) => table
            .row("nonce", count(account.nonce))
            .row("balance", balance(account.balance))
            .row("code hash", account.code_hash),
    };
    for (name, root) in roots {
        json[*name] = json!(root);
        table = table.row(name.replace('_', " "), root);
    }
    for (slot, value) in slots {
        table = table.row(format!("slot {slot}"), format!("{value:#x} ({value})"));
    }
    Report::new(format!("The proof holds.\n{table}"), json)
}
