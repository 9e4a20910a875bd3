//! The workload command: generates a chain as files that any client can import.

use super::{
    args::workload::WorkloadArgs,
    chain::{INIT_BAR, init_progress, refuse_to_overwrite},
    error::Failure,
    files::{self, Unfinished},
    output::{Output, Report, Table, bytes, count, quantity},
};
use cambium::{
    BlockId, ChainError, Options, StdDisk,
    chain::{AccessListWriter, ChainSealer, ChainWriter},
};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The files of a generated chain, and what is in it.
pub(crate) struct Generated {
    pub(crate) genesis: PathBuf,
    pub(crate) chain: PathBuf,
    pub(crate) access_lists: Option<PathBuf>,
    pub(crate) head: BlockId,
    pub(crate) transactions: u64,
    pub(crate) gas: u64,
}

/// Options of generating a chain.
pub(crate) struct How {
    pub(crate) memory_bytes: u64,
    /// Whether existing files are overwritten.
    pub(crate) force: bool,
    pub(crate) access_lists: bool,
    /// Blocks of an interval, if the chain has the `layered` commitment.
    pub(crate) merge_interval: Option<u64>,
}

pub(crate) fn workload(args: &WorkloadArgs, out: &Output) -> Result<Report, Failure> {
    let defaults = WorkloadParams::default();
    let params = WorkloadParams {
        seed: args.seed,
        chain_id: args.chain_id,
        fork: args.fork.into(),
        accounts: args.accounts,
        senders: args.senders,
        holders: args.holders,
        pools: args.pools,
        slots: args.slots,
        blocks: args.blocks,
        block_size: match args.gas {
            Some(gas) => BlockSize::Gas(gas),
            None => BlockSize::Transactions(args.transactions),
        },
        erc20_percent: match (args.erc20, args.swaps, args.slot_reads) {
            (Some(percent), ..) => percent,
            (None, 0, 0) => defaults.erc20_percent,
            (None, ..) => 0,
        },
        swap_percent: args.swaps,
        slot_read_percent: args.slot_reads,
        slot_read_gas: args.slot_read_gas,
        fresh_percent: args.fresh,
        spread: args.spread,
        pool_spread: args.pool_spread,
    };
    let workload = Workload::new(params)?;
    let how = How {
        memory_bytes: args.memory,
        force: args.force,
        access_lists: args.access_lists || args.fork.has_access_lists(),
        merge_interval: args.commitment.merge_interval()?,
    };
    let made = generate(&workload, &args.out, how, out)?;
    let size = |file: &Path| fs::metadata(file).map_or(0, |metadata| metadata.len());
    let file = |file: &Path| format!("{} ({})", file.display(), bytes(size(file)));
    let (accounts, slots) = (workload.genesis().accounts, workload.genesis_slots());
    let mut table = Table::default()
        .row("genesis", file(&made.genesis))
        .row("blocks", file(&made.chain));
    if let Some(lists) = &made.access_lists {
        table = table.row("access lists", file(lists));
    }
    let table = table
        .row("accounts", count(accounts))
        .row("slots", count(slots))
        .row("transactions", count(made.transactions))
        .row("gas", gas(made.gas, args.blocks))
        .row("head", made.head);
    Ok(Report::new(
        format!("Generated {} blocks.\n{table}", count(args.blocks)),
        json!({
            "genesis": made.genesis.display().to_string(),
            "chain": made.chain.display().to_string(),
            "access_lists": made.access_lists.map(|file| file.display().to_string()),
            "accounts": accounts,
            "slots": slots,
            "blocks": args.blocks,
            "transactions": made.transactions,
            "gas": quantity(made.gas),
            "head_number": quantity(made.head.number),
            "head_hash": made.head.hash,
        }),
    ))
}

/// Writes genesis, blocks and access lists to `dir`. The blocks are executed in a temporary
/// database in `dir`, which is removed at the end.
pub(crate) fn generate(
    workload: &Workload,
    dir: &Path,
    how: How,
    out: &Output,
) -> Result<Generated, Failure> {
    let (genesis, chain_file) = (dir.join("genesis.json"), dir.join("chain.rlp"));
    let lists_file = how.access_lists.then(|| dir.join("access-lists.rlp"));
    for file in [&genesis, &chain_file].into_iter().chain(&lists_file) {
        refuse_to_overwrite(file, how.force)?;
    }
    files::make_directory(dir)?;
    let mut unfinished = Unfinished::on_signals(out);
    let scratch = unfinished.make_scratch(".cambium-workload-", dir)?;
    let accounts = count(workload.genesis().accounts);
    let bar = out.bar(0, "");
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.set_message(format!("writing {accounts} accounts to the genesis file"));
    let created = unfinished.make(&genesis, || File::create(&genesis));
    let created = created.map_err(Failure::io(&genesis, "created"))?;
    write_genesis(workload, created).map_err(Failure::io(&genesis, "written"))?;
    bar.finish_and_clear();
    let options = Options {
        memory_bytes: how.memory_bytes,
        ..Options::default()
    };
    let options = how
        .merge_interval
        .map_or(options, |blocks| options.layered(blocks));
    let disk = Arc::new(StdDisk::new(scratch.path().join("db")));
    let bar = out.bar(1, INIT_BAR);
    let chain = workload.init(disk, options, &mut init_progress(&bar))?;
    bar.finish_and_clear();

    let first = chain.block(chain.db().genesis().number)?.header;
    let mut writer = unfinished.make(&chain_file, || ChainWriter::create(&chain_file))?;
    let lists = lists_file.as_ref();
    let lists = lists.map(|file| unfinished.make(file, || AccessListWriter::create(file)));
    let mut lists = lists.transpose()?;
    let bar = out.bar(
        workload.params().blocks,
        "{bar:30} {percent}%  block {human_pos} of {human_len}  ETA {eta}",
    );
    let (mut transactions, mut gas) = (0, 0);
    let last = workload.generate(&first, &mut ChainSealer(&chain), |block| {
        bar.inc(1);
        transactions += block.body.transactions.len() as u64;
        gas += block.header.gas_used;
        writer.write(block)?;
        if let Some(lists) = &mut lists {
            let id = chain.db().head();
            lists.write(id, &chain.access_list(id.number)?.encode())?;
        }
        Ok::<_, ChainError>(())
    })?;
    writer.finish()?;
    lists.map(AccessListWriter::finish).transpose()?;
    drop(chain);
    drop(scratch);
    unfinished.finish();
    bar.finish_and_clear();
    Ok(Generated {
        genesis,
        chain: chain_file,
        access_lists: lists_file,
        head: BlockId::new(last.number, last.hash_slow()),
        transactions,
        gas,
    })
}

/// Formats the total gas, and the average per block.
fn gas(gas: u64, blocks: u64) -> String {
    match gas.checked_div(blocks) {
        Some(each) => format!("{}, {} per block", count(gas), count(each)),
        None => count(gas),
    }
}

fn write_genesis(workload: &Workload, file: File) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    workload.write_genesis(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}
