//! The bal command: prints a block's access list.

use super::{
    args::accounts::BalArgs,
    error::Failure,
    node,
    output::{Output, Report, Table, count, quantity},
};
use cambium::{
    B256, BlockId, U256,
    access_list::{
        AccessField, AccessList, AccessListCounts, AccessListLimits, AccessListSizes, AccessValue,
        AccountChanges, BlockAccessIndex,
    },
};
use serde_json::{Value, json};
use std::fmt::{self, Display};

pub(crate) fn bal(args: &BalArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_chain(&args.db, out)?;
    let (chain, id) = (node.chain()?, node.canonical_id(args.block)?);
    let number = id.number;
    let header = chain.block(number)?.header;
    let list = chain.access_list(number)?;
    let found = Found {
        id,
        is_first: id == chain.db().genesis(),
        kept: chain.kept_access_list(number)?.is_some(),
        counts: list.counts(),
        items_max: header
            .block_access_list_hash
            .map(|_| AccessListLimits::of_block(0, header.gas_limit).items_max),
        sizes: chain.access_list_sizes(number, &list)?,
        list,
    };
    Ok(Report::new(found.to_string(), found.json()))
}

struct Found {
    id: BlockId,
    list: AccessList,
    kept: bool,
    /// Whether the block is the first of the database.
    is_first: bool,
    counts: AccessListCounts,
    items_max: Option<u64>,
    sizes: AccessListSizes,
}

impl Found {
    fn json(&self) -> Value {
        let (counts, sizes) = (&self.counts, &self.sizes);
        json!({
            "number": quantity(self.id.number),
            "hash": self.id.hash,
            "kept": self.kept,
            "access_list_hash": self.list.hash(),
            "counts": {
                "accounts": counts.accounts,
                "accounts_changed": counts.accounts_changed,
                "slots_changed": counts.slots_changed,
                "slots_read": counts.slots_read,
                "slot_changes": counts.slot_changes,
                "balance_changes": counts.balance_changes,
                "nonce_changes": counts.nonce_changes,
                "code_changes": counts.code_changes,
            },
            "items": counts.items(),
            "items_max": self.items_max,
            "bytes": {
                "full": sizes.full,
                "batched": sizes.batched,
                "parallel": sizes.parallel,
            },
            "access_list": self.list.accounts().iter().map(account_json).collect::<Vec<_>>(),
        })
    }

    fn summary(&self) -> Table {
        let (counts, sizes) = (&self.counts, &self.sizes);
        let from = match self.kept {
            true => "stored with the block",
            false if self.is_first => {
                "empty: the first block of the database is made, not executed"
            }
            false => "computed by executing the block again: its header has no hash of a list",
        };
        let items = match self.items_max {
            Some(max) => format!(
                "{} of {} allowed by the gas limit",
                count(counts.items()),
                count(max)
            ),
            None => count(counts.items()),
        };
        let slots = (counts.slots_changed, counts.slots_read);
        Table::default()
            .row("block", self.id)
            .row("list", from)
            .row("hash", self.list.hash())
            .row(
                "accounts",
                format!(
                    "{} accessed, {} changed",
                    count(counts.accounts),
                    count(counts.accounts_changed)
                ),
            )
            .row(
                "slots",
                format!("{} changed, {} read", count(slots.0), count(slots.1)),
            )
            .row("items", items)
            .row(
                "changes",
                format!(
                    "{} of slots, {} of balances, {} of nonces, {} of code",
                    count(counts.slot_changes),
                    count(counts.balance_changes),
                    count(counts.nonce_changes),
                    count(counts.code_changes)
                ),
            )
            .section("Size")
            .row("full", size(sizes.full, "changes, and values of all keys"))
            .row(
                "batched",
                size(sizes.batched, "changes, and all keys read: EIP-7928"),
            )
            .row("parallel", size(sizes.parallel, "changes alone"))
    }
}

fn size(bytes: u64, what: &str) -> String {
    format!("{:>9} bytes: {what}", count(bytes))
}

impl Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.summary())?;
        for account in self.list.accounts() {
            write!(f, "\n{}", account.address)?;
            write_account(f, account)?;
        }
        Ok(())
    }
}

/// An account in the format of `eth_getBlockAccessList`: slots and their values have 32 bytes,
/// numbers no leading zeros.
fn account_json(account: &AccountChanges) -> Value {
    let word = |word: &U256| B256::from(*word);
    let index = |index: BlockAccessIndex| format!("{index:#x}");
    let slots = account.storage_changes.iter().map(|slot| {
        let changes = slot
            .changes
            .iter()
            .map(|c| json!({ "index": index(c.block_access_index), "value": word(&c.new_value) }));
        json!({ "key": word(&slot.slot), "changes": changes.collect::<Vec<_>>() })
    });
    let balances = account.balance_changes.iter().map(|c| {
        let balance = format!("{:#x}", c.post_balance);
        json!({ "index": index(c.block_access_index), "value": balance })
    });
    let nonces = account.nonce_changes.iter().map(|c| {
        let nonce = format!("{:#x}", c.new_nonce);
        json!({ "index": index(c.block_access_index), "value": nonce })
    });
    let codes = account.code_changes.iter();
    let codes = codes.map(|c| json!({ "index": index(c.block_access_index), "code": c.new_code }));
    json!({
        "address": account.address,
        "storageChanges": slots.collect::<Vec<_>>(),
        "storageReads": account.storage_reads.iter().map(word).collect::<Vec<_>>(),
        "balanceChanges": balances.collect::<Vec<_>>(),
        "nonceChanges": nonces.collect::<Vec<_>>(),
        "codeChanges": codes.collect::<Vec<_>>(),
    })
}

/// Writes one line for each change and each slot read: field, index, value.
fn write_account(f: &mut fmt::Formatter<'_>, account: &AccountChanges) -> fmt::Result {
    let mut lines = Vec::new();
    for slot in &account.storage_changes {
        let field = AccessField::Slot(slot.slot);
        lines.extend(slot.changes.iter().map(|change| {
            let value = AccessValue::Slot(change.new_value);
            line(field, change.block_access_index, value)
        }));
    }
    lines.extend(account.storage_reads.iter().map(|slot| Line {
        field: AccessField::Slot(*slot).to_string(),
        change: None,
    }));
    lines.extend(account.balance_changes.iter().map(|change| {
        let value = AccessValue::Balance(change.post_balance);
        line(AccessField::Balance, change.block_access_index, value)
    }));
    lines.extend(account.nonce_changes.iter().map(|change| {
        let value = AccessValue::Nonce(change.new_nonce);
        line(AccessField::Nonce, change.block_access_index, value)
    }));
    lines.extend(account.code_changes.iter().map(|change| {
        let value = AccessValue::Code(change.new_code.clone());
        line(AccessField::Code, change.block_access_index, value)
    }));
    let width = lines.iter().map(|line| line.field.len()).max().unwrap_or(0);
    for Line { field, change } in lines {
        match change {
            Some((index, value)) => write!(f, "\n  {field:width$}  {index:>4}  {value}")?,
            None => write!(f, "\n  {field:width$}  read")?,
        }
    }
    Ok(())
}

struct Line {
    field: String,
    change: Option<(u64, AccessValue)>,
}

fn line(field: AccessField, index: BlockAccessIndex, value: AccessValue) -> Line {
    Line {
        field: field.to_string(),
        change: Some((index.get(), value)),
    }
}
