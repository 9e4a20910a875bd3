//! Imports into a database that fits into memory: a generated chain, and a real one.

use crate::report::{Report, Target, data_dir, median};
use cambium_chain::{BlockSource, Chain, ChainError, ChainSealer, ChainWriter, ImportSummary};
use cambium_state::{Disk, Options, StdDisk};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use serde_json::{Map, Value, json};
use std::{error::Error, fs, path::PathBuf, sync::Arc};

const BLOCK_TRANSACTIONS: u64 = 500;
const PAYMENTS_PER_SECOND_MIN: f64 = 10_000.0;
const ROOT_SHARE_MAX_PERCENT: f64 = 25.0;

pub(super) fn run(quick: bool) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("import");
    let (accounts, blocks, runs) = if quick {
        (100_000, 60, 3)
    } else {
        (1_000_000, 200, 5)
    };
    let memory_bytes = 1 << 30;
    let options = Options {
        memory_bytes,
        ..Options::default()
    };
    report
        .parameters
        .insert("memory_bytes".into(), json!(memory_bytes));
    report.parameters.insert("runs".into(), json!(runs));

    let params = WorkloadParams {
        accounts,
        blocks,
        block_size: BlockSize::Transactions(BLOCK_TRANSACTIONS),
        erc20_percent: 0,
        ..WorkloadParams::default()
    };
    let workload = Workload::new(params)?;
    let file = generated(&workload)?;
    let name = format!("payments: {accounts} accounts, {blocks} blocks of {BLOCK_TRANSACTIONS}");
    let payments = measure(&name, runs, options, &[file], |disk| {
        workload.init(disk, options, &mut |_| {})
    })?;
    report.targets.push(Target {
        name: format!("payments, {accounts} accounts, signatures and durable commit included"),
        value: payments["transactions_per_second"]
            .as_f64()
            .unwrap_or_default(),
        unit: "tx/s",
        target: format!("at least {PAYMENTS_PER_SECOND_MIN}"),
        met: payments["transactions_per_second"].as_f64() >= Some(PAYMENTS_PER_SECOND_MIN),
    });
    let share = payments["root_percent_of_steps"].as_f64().unwrap_or(100.0);
    report.targets.push(Target {
        name: "state root, share of the time of a block's steps".to_owned(),
        value: share,
        unit: "%",
        target: format!("under {ROOT_SHARE_MAX_PERCENT}"),
        met: share < ROOT_SHARE_MAX_PERCENT,
    });
    report.results.push(payments);

    match execution_apis() {
        Some((genesis, chain)) => {
            let name = "execution-apis chain (54 blocks)";
            report
                .results
                .push(measure(name, runs, options, &[chain], |disk| {
                    Chain::init(disk, &genesis, options, &mut |_| {})
                })?);
        }
        None => eprintln!(
            "SKIPPED: the execution-apis chain is not there: scripts/public-data fetches it, or set CAMBIUM_DATA to the unpacked data"
        ),
    }
    report.comparison = table(&report.results);
    Ok(report)
}

/// The results as a table for people, a column for each chain.
fn table(results: &[Map<String, Value>]) -> Vec<(String, Vec<String>)> {
    let row = |name: &str, figure: &str, decimals: usize| {
        let values = results.iter().map(|result| {
            let value = result[figure].as_f64().unwrap_or_default();
            format!("{value:.decimals$}")
        });
        (name.to_owned(), values.collect())
    };
    let columns = ["generated", "real"].into_iter().take(results.len());
    let mut rows = vec![(
        "chain".to_owned(),
        columns.map(str::to_owned).collect::<Vec<_>>(),
    )];
    rows.extend([
        row("blocks", "blocks", 0),
        row("transactions", "transactions", 0),
        row("transactions/s", "transactions_per_second", 0),
        row("  of the slowest run", "slowest_transactions_per_second", 0),
        row("Mgas/s", "mgas_per_second", 1),
        row("time, s", "seconds", 3),
        row("  recovering senders, s", "recover_seconds", 3),
        row("  reading state, s", "read_seconds", 3),
        row("  executing, s", "execute_seconds", 3),
        row("  state roots, s", "root_seconds", 3),
        row("  making blocks durable, s", "commit_seconds", 3),
        row(
            "state roots, % of a block's steps",
            "root_percent_of_steps",
            1,
        ),
    ]);
    rows
}

/// Imports `files` several times, each time into a new database.
fn measure(
    name: &str,
    runs: usize,
    options: Options,
    files: &[PathBuf],
    init: impl Fn(Arc<dyn Disk>) -> Result<Chain, ChainError>,
) -> Result<Map<String, Value>, Box<dyn Error>> {
    let mut summaries: Vec<ImportSummary> = Vec::new();
    let mut last = None;
    for run in 0..runs {
        eprintln!("{name}: run {} of {runs}", run + 1);
        let dir = tempfile::Builder::new()
            .prefix("import-")
            .tempdir_in(data_dir()?)?;
        drop(init(Arc::new(StdDisk::new(dir.path())))?);
        // Opened again, so that nothing is cached from its creation.
        let disk = Arc::new(StdDisk::new(dir.path()));
        let (chain, _) = Chain::open(disk, options)?;
        for file in files {
            summaries.push(chain.import(BlockSource::open(file)?, &mut |_| {})?);
        }
        last = Some(chain.db().counters());
    }
    let of =
        |figure: &dyn Fn(&ImportSummary) -> f64| median(summaries.iter().map(figure).collect());
    let wall = |summary: &ImportSummary| summary.elapsed.as_secs_f64();
    let mut result = Map::new();
    let first = summaries.first().ok_or("no run")?;
    result.insert("workload".into(), json!(name));
    result.insert("blocks".into(), json!(first.done.blocks));
    result.insert("transactions".into(), json!(first.done.transactions));
    let mut add = |name: &str, value: f64| result.insert(name.into(), json!(value));
    add("seconds", of(&wall));
    add(
        "transactions_per_second",
        of(&|s| s.done.transactions as f64 / wall(s)),
    );
    add(
        "mgas_per_second",
        of(&|s| s.done.gas as f64 / 1e6 / wall(s)),
    );
    add("recover_seconds", of(&|s| s.timings.recover.as_secs_f64()));
    add("read_seconds", of(&|s| s.timings.read.as_secs_f64()));
    let execute = |s: &ImportSummary| s.timings.execute.saturating_sub(s.timings.read);
    add("execute_seconds", of(&|s| execute(s).as_secs_f64()));
    add("root_seconds", of(&|s| s.timings.root.as_secs_f64()));
    add("commit_seconds", of(&|s| s.timings.commit.as_secs_f64()));
    add(
        "root_percent_of_wall",
        of(&|s| 100.0 * s.timings.root.as_secs_f64() / wall(s)),
    );
    // Time of a block if its stages ran one after another.
    add(
        "root_percent_of_steps",
        of(&|s| {
            let t = &s.timings;
            let steps = t.recover + t.execute + t.root + t.commit;
            100.0 * t.root.as_secs_f64() / steps.as_secs_f64()
        }),
    );
    add("slowest_transactions_per_second", {
        let rates = summaries
            .iter()
            .map(|s| s.done.transactions as f64 / wall(s));
        rates.fold(f64::INFINITY, f64::min)
    });
    if let Some(counters) = last {
        for (name, value) in counters.named() {
            result.insert(format!("counter_{name}"), json!(value));
        }
    }
    Ok(result)
}

/// Returns the file of the workload's chain, which is generated once for each set of parameters.
fn generated(workload: &Workload) -> Result<PathBuf, Box<dyn Error>> {
    let params = workload.params();
    let name = format!(
        "workload-{}-{}-{}x{BLOCK_TRANSACTIONS}-{}.rlp",
        params.seed, params.accounts, params.blocks, params.erc20_percent
    );
    let path = data_dir()?.join(name);
    if path.exists() {
        return Ok(path);
    }
    eprintln!("making {} (once)", path.display());
    let dir = tempfile::Builder::new()
        .prefix("workload-")
        .tempdir_in(data_dir()?)?;
    let disk = Arc::new(StdDisk::new(dir.path().join("db")));
    let chain = workload.init(disk, Options::default(), &mut |_| {})?;
    let genesis = chain.block(0)?.header;
    let partial = dir.path().join("chain.rlp");
    let mut writer = ChainWriter::create(&partial)?;
    workload.generate(&genesis, &mut ChainSealer(&chain), |block| {
        Ok(writer.write(block)?)
    })?;
    writer.finish()?;
    fs::rename(partial, &path)?;
    Ok(path)
}

fn execution_apis() -> Option<(PathBuf, PathBuf)> {
    let data = PathBuf::from(std::env::var_os("CAMBIUM_DATA")?);
    let tests = data.join("execution-apis/tests");
    let (genesis, chain) = (tests.join("genesis.json"), tests.join("chain.rlp"));
    (genesis.exists() && chain.exists()).then_some((genesis, chain))
}
