//! The index: made and checked by commands of its own, followed by imports, read by others.

use super::{
    args::{
        database::DbArgs,
        index::{IndexBuildArgs, LogsArgs, TxArgs},
    },
    error::Failure,
    followed::Followed,
    memory, node, open,
    output::{Output, Report, Table, bytes, count, quantity},
    rpc::{Placed, log_json},
};
use cambium::{
    BlockRef, Chain, ChainIndex, Db, Node, StateError,
    alloy_consensus::Transaction as _,
    execution::Receipt,
    index::{CheckedIndex, IndexError, IndexFollower, IndexStats, LogFilter},
    node::{FoundReceipt, FoundTransaction},
};
use serde_json::{Value, json};

/// Whether an import follows an index: one that is there, or that it is asked for.
pub(crate) fn follows(wants: bool, args: &DbArgs) -> bool {
    wants || ChainIndex::exists(&*open::disk(&args.datadir)).unwrap_or(true)
}

/// The chain with its index, and what keeps that at the head during an import, if there is one or `wants`
/// asks for it.
pub(crate) fn follow(
    chain: Chain,
    wants: bool,
    args: &DbArgs,
    out: &Output,
) -> Result<(Chain, Followed<IndexFollower>), Failure> {
    let disk = open::disk(&args.datadir);
    let opened = match ChainIndex::exists(&*disk) {
        Ok(true) => ChainIndex::open(disk, chain.db(), memory::of_index(args)),
        Ok(false) if wants => ChainIndex::create(disk, chain.db(), 0, memory::of_index(args)),
        Ok(false) => return Ok((chain, Followed::None)),
        Err(error) => Err(error),
    };
    let (chain, caught_up) = match opened {
        Ok(index) => {
            let node = node::beside(chain.with_index(index.clone()), args, out)?;
            // Blocks that are there already get their receipts here, which takes executing them.
            let caught_up = catch_up(&node, &index, out).map(|()| index);
            (node.into_chain()?, caught_up)
        }
        Err(error) => (chain, Err(error.into())),
    };
    let followed = match caught_up {
        Ok(index) => Followed::By(IndexFollower::start(index, chain.db().clone())),
        Err(failure) if wants => return Err(failure),
        Err(failure) => Followed::refused("index", &failure, chain.db(), out),
    };
    Ok((chain, followed))
}

/// Adds the blocks up to the head.
fn catch_up(node: &Node, index: &ChainIndex, out: &Output) -> Result<(), Failure> {
    let (upto, head) = (index.stats().upto, node.head());
    if upto == Some(head) {
        return Ok(());
    }
    let (before, head) = (upto.map_or(0, |upto| upto.number), head.number);
    let bar = out.bar(
        head.saturating_sub(before),
        "{percent:>3}% {wide_bar} {msg}  ETA {eta}",
    );
    let mut failed = None;
    node.build_index(&mut |progress| {
        let upto = progress.upto.number;
        bar.set_position(upto.saturating_sub(before));
        bar.set_message(format!("block {}", count(upto)));
        // Runs are merged when there are some new ones.
        if upto.is_multiple_of(1_024)
            && let Err(error) = index.merge()
        {
            failed = Some(error);
        }
        failed.is_none()
    })?;
    bar.finish_and_clear();
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

pub(crate) fn build(args: &IndexBuildArgs, out: &Output) -> Result<Report, Failure> {
    let chain = open::chain_to_read(&args.db, out)?;
    let disk = open::disk(&args.db.datadir);
    let index = match ChainIndex::exists(&*disk)? {
        true => ChainIndex::open(disk, chain.db(), memory::of_index(&args.db))?,
        false => {
            let (first, head) = (args.from.unwrap_or(0), chain.db().head());
            if first > head.number {
                let why = format!("--from is block {first}, and the head is block {head}");
                return Err(Failure::BadEntry { why });
            }
            ChainIndex::create(disk, chain.db(), first, memory::of_index(&args.db))?
        }
    };
    let node = node::beside(chain.with_index(index.clone()), &args.db, out)?;
    catch_up(&node, &index, out)?;
    index.flush()?;
    index.merge()?;
    let without = index.count_without_receipts()?;
    if without > 0 {
        out.note(format_args!(
            "transactions of {} blocks have no receipts, which could not be made, since the states before them \
             can't be read. `cambium history build` makes old states readable; after that, remove the \
             folder `index` and build it again.",
            count(without)
        ));
    }
    let stats = index.stats();
    let mut json = stats_json(&stats);
    json["without_receipts"] = json!(without);
    let table = stats_rows(Table::default(), &stats);
    Ok(Report::new(table.to_string(), json))
}

pub(crate) fn check(args: &DbArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_index(args, out)?;
    let index = node.index()?.ok_or(IndexError::NotOpen)?;
    let bar = out.bar(
        index.stats().blocks,
        "{percent:>3}% {wide_bar} {msg}  ETA {eta}",
    );
    let checked = index.check(&mut |checked| {
        bar.set_position(checked.blocks);
        bar.set_message(format!("{} blocks", count(checked.blocks)));
    })?;
    bar.finish_and_clear();
    let CheckedIndex {
        runs,
        blocks,
        hashes,
        logs,
    } = checked;
    let table = Table::default()
        .row("blocks", count(blocks))
        .row("transactions", count(hashes - blocks))
        .row("entries of logs", count(logs))
        .row("runs", count(runs));
    let json = json!({
        "blocks": blocks,
        "transactions": hashes - blocks,
        "log_entries": logs,
        "runs": runs,
    });
    Ok(Report::new(format!("The index is whole.\n{table}"), json))
}

/// Returns the figures of the index; `None` if there is none. An error is noted, and returned for output: the database
/// does not need the index.
pub(crate) fn stats(
    args: &DbArgs,
    db: &Db,
    out: &Output,
) -> Result<(Option<IndexStats>, Option<String>), Failure> {
    let disk = open::disk_to_read(args)?;
    match ChainIndex::open_read_only(disk, db, memory::of_index(args)) {
        Ok(index) => Ok((Some(index.stats()), None)),
        Err(IndexError::NoIndex { .. }) => Ok((None, None)),
        Err(error) => {
            out.note(&error);
            Ok((None, Some(error.to_string())))
        }
    }
}

pub(crate) fn stats_rows(table: Table, stats: &IndexStats) -> Table {
    let upto = stats
        .upto
        .map_or("none".to_owned(), |upto| upto.to_string());
    table
        .row("indexed from block", stats.oldest)
        .row("indexed up to", upto)
        .row(
            "blocks",
            format!("{}, {}", count(stats.blocks), bytes(stats.data_bytes)),
        )
        .row(
            "transactions",
            count(stats.hashes.saturating_sub(stats.blocks)),
        )
        .row("entries of logs", count(stats.logs))
        .row(
            "runs",
            format!("{}, {}", count(stats.runs), bytes(stats.run_bytes)),
        )
}

pub(crate) fn stats_json(stats: &IndexStats) -> Value {
    json!({
        "oldest_number": quantity(stats.oldest),
        "upto_number": stats.upto.map(|upto| quantity(upto.number)),
        "upto_hash": stats.upto.map(|upto| upto.hash),
        "blocks": stats.blocks,
        "transactions": stats.hashes.saturating_sub(stats.blocks),
        "log_entries": stats.logs,
        "runs": stats.runs,
        "run_bytes": stats.run_bytes,
        "data_bytes": stats.data_bytes,
        "memory_bytes": stats.memory_bytes,
    })
}

/// Whether a transaction succeeded, its gas and logs, in words.
pub(crate) fn receipt_text(receipt: &Receipt, gas_used: u64) -> String {
    let how = match receipt.is_success() {
        true => "succeeded",
        false => "reverted",
    };
    let logs = match receipt.logs().len() {
        1 => "1 log".to_owned(),
        logs => format!("{} logs", count(logs as u64)),
    };
    format!("{how}, {} gas, {logs}", count(gas_used))
}

pub(crate) fn tx(args: &TxArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_index(&args.db, out)?;
    let unknown = || Failure::NoValue {
        why: format!(
            "no transaction of the canonical chain has the hash {}",
            args.hash
        ),
    };
    let (found, receipt) = match args.no_receipt {
        true => (node.transaction(args.hash)?.ok_or_else(unknown)?, None),
        false => {
            let found = node.receipt(args.hash)?.ok_or_else(unknown)?;
            (found.found.clone(), Some(found))
        }
    };
    let FoundTransaction {
        block,
        index,
        transaction,
        sender,
    } = found;
    let of_block = node.chain()?.block_of(block)?;
    let (whole, _) = of_block.ok_or(StateError::UnknownBlock(block.hash))?;
    let placed = Placed {
        block,
        header: &whole.header,
        index,
        transaction: &transaction,
        sender,
    };
    let json = placed.transaction_json();
    let to = match transaction.to() {
        Some(to) => to.to_string(),
        None => format!("none: it creates {}", sender.create(transaction.nonce())),
    };
    let mut table = Table::default()
        .row("transaction", transaction.hash())
        .row("block", block)
        .row("index", count(index as u64))
        .row("type", placed.kind())
        .row("from", sender)
        .row("to", to)
        .row("value", format!("{} wei", transaction.value()))
        .row("nonce", transaction.nonce())
        .row("gas price", format!("{} wei", placed.gas_price()))
        .row("input", bytes(transaction.input().len() as u64));
    let receipt = receipt.map(|found| {
        let FoundReceipt {
            receipt,
            gas_used,
            first_log,
            ..
        } = found;
        let json = placed.receipt_json(&receipt, gas_used, first_log);
        (receipt_text(&receipt, gas_used), json)
    });
    let (text, receipt) = receipt.unzip();
    if let Some(text) = text {
        table = table.row("receipt", text);
    }
    let json = json!({ "transaction": json, "receipt": receipt });
    Ok(Report::new(table.to_string(), json))
}

pub(crate) fn logs(args: &LogsArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_index(&args.db, out)?;
    let filter = LogFilter {
        addresses: args.address.clone(),
        topics: [&args.topic0, &args.topic1, &args.topic2, &args.topic3].map(Vec::clone),
    };
    let (from, to) = (node.canonical_id(args.from)?, node.canonical_id(args.to)?);
    if from.number > to.number {
        let why = format!("--from is block {from}, which comes after --to, block {to}");
        return Err(Failure::BadEntry { why });
    }
    // A first block that was loaded has transactions without receipts.
    let is_loaded = from == node.db().genesis() && from.number > 0 && to.number > from.number;
    let from = match is_loaded && matches!(args.from, BlockRef::Earliest) {
        false => from.number,
        true => {
            out.note(format_args!(
                "block {from}, the first of the database, is not searched: it was loaded, without receipts"
            ));
            from.number + 1
        }
    };
    let (mut listed, mut lines, mut more) = (Vec::new(), String::new(), false);
    for found in node.logs(&filter, from..=to.number)? {
        let found = found?;
        if listed.len() as u64 >= args.limit {
            more = true;
            break;
        }
        let topics = found
            .log
            .topics()
            .iter()
            .map(|topic| format!("\n  {topic}"));
        lines += &format!(
            "block {} log {} of transaction {}\n  {}, {} of data{}\n",
            count(found.block.number),
            found.log_index,
            found.transaction,
            found.log.address,
            bytes(found.log.data.data.len() as u64),
            topics.collect::<String>()
        );
        listed.push(log_json(&found));
    }
    let len = listed.len() as u64;
    let logs = match len {
        1 => "1 log".to_owned(),
        len => format!("{} logs", count(len)),
    };
    let end = match more {
        true => format!("{logs}, and more: --limit is {}", count(args.limit)),
        false => logs,
    };
    let json = json!({ "logs": listed, "more": more });
    Ok(Report::new(format!("{lines}{end}"), json))
}
