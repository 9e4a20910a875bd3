//! The workload command: a generated chain as two files that any client imports.

use super::{
    args::WorkloadArgs,
    chain::{INIT_BAR, init_progress, refuse_to_overwrite},
    error::Failure,
    output::{Output, Report, Table, bytes, count},
};
use cambium::{
    BlockId, Chain, ChainError, ChainSealer, ChainWriter, Options, Spread, StdDisk, Workload,
    WorkloadParams,
};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A generated chain in files.
pub(crate) struct Generated {
    pub(crate) genesis: PathBuf,
    pub(crate) chain: PathBuf,
    pub(crate) head: BlockId,
    pub(crate) transactions: u64,
}

pub(crate) fn workload(args: &WorkloadArgs, out: &Output) -> Result<Report, Failure> {
    let params = WorkloadParams {
        seed: args.seed,
        chain_id: args.chain_id,
        fork: args.fork.into(),
        accounts: args.accounts,
        senders: args.senders,
        blocks: args.blocks,
        transfers_per_block: args.transfers,
        erc20_percent: args.erc20,
        fresh_percent: args.fresh,
        spread: if args.zipf {
            Spread::Zipf
        } else {
            Spread::Uniform
        },
    };
    let workload = Workload::new(params)?;
    let made = generate(&workload, &args.out, args.memory, args.force, out)?;
    let size = |file: &Path| fs::metadata(file).map_or(0, |metadata| metadata.len());
    let file = |file: &Path| format!("{} ({})", file.display(), bytes(size(file)));
    let table = Table::default()
        .row("genesis", file(&made.genesis))
        .row("blocks", file(&made.chain))
        .row("transactions", count(made.transactions))
        .row("head", made.head);
    Ok(Report::new(
        format!("Generated {} blocks.\n{table}", count(args.blocks)),
        json!({
            "genesis": made.genesis.display().to_string(),
            "chain": made.chain.display().to_string(),
            "accounts": workload.genesis().accounts,
            "blocks": args.blocks,
            "transactions": made.transactions,
            "head_number": made.head.number,
            "head_hash": made.head.hash,
        }),
    ))
}

/// Writes genesis and blocks into `dir`. Headers need execution: that goes on in a database of its
/// own beside them, which is removed at the end.
pub(crate) fn generate(
    workload: &Workload,
    dir: &Path,
    memory_bytes: u64,
    force: bool,
    out: &Output,
) -> Result<Generated, Failure> {
    let (genesis, chain_file) = (dir.join("genesis.json"), dir.join("chain.rlp"));
    refuse_to_overwrite(&genesis, force)?;
    refuse_to_overwrite(&chain_file, force)?;
    fs::create_dir_all(dir).map_err(Failure::io(dir, "made"))?;
    let scratch = tempfile::Builder::new()
        .prefix(".cambium-workload-")
        .tempdir_in(dir)
        .map_err(Failure::io(dir, "written to"))?;

    let accounts = count(workload.genesis().accounts);
    let bar = out.bar(0, "");
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.set_message(format!("writing {accounts} accounts to the genesis file"));
    write_genesis(workload, &genesis).map_err(Failure::io(&genesis, "written"))?;
    bar.finish_and_clear();
    let options = Options {
        memory_bytes,
        ..Options::default()
    };
    let disk = Arc::new(StdDisk::new(scratch.path().join("db")));
    let bar = out.bar(1, INIT_BAR);
    let chain = Chain::init_workload(disk, workload, options, &mut init_progress(&bar))?;
    bar.finish_and_clear();

    let first = chain.block(chain.db().genesis().number)?.header;
    let mut writer = ChainWriter::create(&chain_file)?;
    let bar = out.bar(
        workload.params().blocks,
        "{bar:30} {percent}%  block {human_pos} of {human_len}  ETA {eta}",
    );
    let mut transactions = 0;
    let last = workload.generate(&first, &mut ChainSealer(&chain), |block| {
        bar.inc(1);
        transactions += block.body.transactions.len() as u64;
        writer.write(block).map_err(ChainError::from)
    })?;
    writer.finish()?;
    bar.finish_and_clear();
    Ok(Generated {
        genesis,
        chain: chain_file,
        head: BlockId::new(last.number, last.hash_slow()),
        transactions,
    })
}

fn write_genesis(workload: &Workload, file: &Path) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    workload.write_genesis(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}
