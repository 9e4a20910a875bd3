//! The figures of each store and the targets, computed from the measurements.

use super::{
    batch::BatchFigures,
    rounds::{Plan, StoreRun},
    stores::Kind,
};
use crate::report::{Target, median, quantile};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

type Figures = Map<String, Value>;

/// Number of accounts whose rate is the reference for larger states.
pub(crate) const BASE_ACCOUNTS: u64 = 1 << 24;

/// Cambium's rates in earlier cold runs, by number of accounts and memory.
pub(crate) struct EarlierRates(PathBuf);

impl EarlierRates {
    /// Returns the rates stored in `data_dir`.
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self(data_dir.join("rates.json"))
    }

    fn all(&self) -> BTreeMap<String, f64> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn name(accounts: u64, memory_bytes: u64) -> String {
        format!("{accounts} accounts, {memory_bytes} bytes of memory")
    }

    /// Returns the rate at [`BASE_ACCOUNTS`] with the same memory, if this plan has more accounts.
    pub(crate) fn base(&self, plan: &Plan) -> Option<f64> {
        let larger = plan.workload.accounts > BASE_ACCOUNTS;
        let name = Self::name(BASE_ACCOUNTS, plan.memory_bytes);
        self.all().get(&name).copied().filter(|_| larger)
    }

    /// Stores the rate of this run.
    pub(crate) fn keep(&self, plan: &Plan, stores: &[Figures]) -> io::Result<()> {
        let own = stores.iter().find(|figures| figures["store"] == "cambium");
        let rate = own.and_then(|figures| figures.get("transfers_per_second")?.as_f64());
        let Some(rate) = rate.filter(|_| plan.mode() == "cold") else {
            return Ok(());
        };
        let mut all = self.all();
        all.insert(Self::name(plan.workload.accounts, plan.memory_bytes), rate);
        fs::write(&self.0, serde_json::to_string(&all)?)
    }
}

/// Returns all figures of one store.
pub(crate) fn of_store(plan: &Plan, run: &StoreRun) -> Figures {
    let mut figures = Figures::new();
    figures.insert("store".into(), json!(run.kind.to_string()));
    if let Some(ending) = run.endings.last() {
        figures.insert("configuration".into(), json!(ending.configuration));
    }
    if let Some(failure) = &run.failure {
        figures.insert("FAILED".into(), json!(failure));
    }
    let accounts = plan.workload.accounts as f64;
    let held = accounts + (run.batches_held() * plan.workload.fresh()) as f64;
    let mut add = |name: &str, value: f64| figures.insert(name.to_owned(), json!(value));
    if let Some(load) = run.load() {
        add("load_seconds", load.seconds);
        add("load_accounts_per_second", accounts / load.seconds);
        add("load_rss_peak_mib", mib(load.rss_peak_bytes));
        add(
            "load_bytes_written_an_account",
            load.write_bytes as f64 / accounts,
        );
        add(
            "load_disk_bytes_an_account",
            load.disk_bytes as f64 / accounts,
        );
    }
    if run.batches.is_empty() {
        return figures;
    }
    add("accounts_at_the_end", held);
    if !run.windows.is_empty() {
        let flat = run.flat.iter().filter(|is_flat| **is_flat).count();
        add("rounds_that_became_flat", flat as f64);
        let windows: Vec<_> = run.windows.iter().map(|rate| rate.round()).collect();
        figures.insert("windows_transfers_per_second".into(), json!(windows));
    }
    let mut add = |name: &str, value: f64| figures.insert(name.to_owned(), json!(value));
    let reads = run.batches.iter().map(|batch| batch.own_device_reads);
    if let Some(reads) = reads.collect::<Option<Vec<_>>>() {
        let reads = reads.into_iter().map(|reads| reads as f64);
        add("own_device_reads_a_batch", median(reads.collect()));
    }
    let (all, log) = (run.disk_bytes(), run.log_bytes());
    add(
        "disk_bytes_an_account",
        all.saturating_sub(log) as f64 / held,
    );
    if log > 0 {
        add("disk_bytes_an_account_with_block_log", all as f64 / held);
    }
    add("open_ms", median(run.opened_ms.clone()));
    let (plain, with): (Vec<_>, Vec<_>) = run
        .batches
        .iter()
        .partition(|batch| batch.witness_bytes.is_none());
    figures.extend(of_batches("", &plain));
    figures.extend(of_batches("witness_", &with));
    let mut add = |name: &str, value: f64| figures.insert(name.to_owned(), json!(value));
    let keys: usize = run.batches.iter().map(|batch| batch.keys).sum();
    let transfers: usize = run.batches.iter().map(|batch| batch.transfers).sum();
    let cold = || run.cold.iter().map(|at| &run.batches[*at]);
    let cold_keys: usize = cold().map(|batch| batch.keys).sum();
    let an_access = |count: f64| count / cold_keys as f64;
    add("keys_a_batch", keys as f64 / run.batches.len() as f64);
    let endings = run.endings.iter();
    let processors: f64 = endings.map(|ending| ending.processor_seconds).sum();
    add(
        "processor_us_a_changed_account",
        1e6 * processors / keys as f64,
    );
    if let Some(reads) = cold()
        .map(|batch| batch.own_device_reads)
        .sum::<Option<u64>>()
    {
        add("first_batch_own_reads_an_access", an_access(reads as f64));
    }
    let device = |batch: &BatchFigures| batch.read_io.device_reads + batch.commit_io.device_reads;
    add(
        "first_batch_device_reads_an_access",
        an_access(cold().map(device).sum::<u64>() as f64),
    );
    let bytes = |batch: &BatchFigures| batch.read_io.read_bytes + batch.commit_io.read_bytes;
    add(
        "first_batch_bytes_read_an_access",
        an_access(cold().map(bytes).sum::<u64>() as f64),
    );
    add(
        "bytes_read_an_access",
        run.batches.iter().map(bytes).sum::<u64>() as f64 / keys as f64,
    );
    let written: u64 = run.endings.iter().map(|ending| ending.io.write_bytes).sum();
    add(
        "bytes_written_a_changed_account_before_settling",
        written.saturating_sub(run.settled_bytes) as f64 / keys as f64,
    );
    add(
        "bytes_written_a_changed_account",
        written as f64 / keys as f64,
    );
    add(
        "bytes_written_a_transfer",
        written as f64 / transfers as f64,
    );
    let device: u64 = run
        .endings
        .iter()
        .map(|ending| ending.io.device_write_bytes)
        .sum();
    add(
        "device_bytes_written_a_changed_account",
        device as f64 / keys as f64,
    );
    let rss = run.endings.iter().map(|ending| ending.rss_peak_bytes).max();
    add("rss_peak_mib", mib(rss.unwrap_or(0)));
    if run.cgroup_peak_bytes > 0 {
        add("cgroup_peak_mib", mib(run.cgroup_peak_bytes));
    }
    if let Some(root) = run.batches.last().and_then(|batch| batch.root) {
        figures.insert("root".into(), json!(root));
    }
    if let Some(ending) = run.endings.last() {
        figures.extend(ending.figures.clone());
    }
    figures
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns rates and times of some batches, or nothing if there are none.
fn of_batches(prefix: &str, batches: &[&BatchFigures]) -> Figures {
    let mut figures = Figures::new();
    if batches.is_empty() {
        return figures;
    }
    let mut add = |name: &str, value: f64| figures.insert(format!("{prefix}{name}"), json!(value));
    let all = |time: fn(&BatchFigures) -> Option<f64>| -> Vec<f64> {
        batches.iter().filter_map(|batch| time(batch)).collect()
    };
    let mut totals = all(|batch| Some(batch.total_ms()));
    totals.sort_unstable_by(f64::total_cmp);
    let transfers: usize = batches.iter().map(|batch| batch.transfers).sum();
    add("batches", batches.len() as f64);
    add(
        "transfers_per_second",
        1e3 * transfers as f64 / totals.iter().sum::<f64>(),
    );
    add("batch_ms_median", median(totals.clone()));
    add("batch_ms_p99", quantile(&totals, 0.99));
    add("read_ms_median", median(all(|batch| Some(batch.read_ms))));
    add(
        "commit_ms_median",
        median(all(|batch| Some(batch.commit_ms))),
    );
    let mut add_known = |name: &str, values: Vec<f64>| {
        if !values.is_empty() {
            add(name, median(values));
        }
    };
    add_known("root_ms_median", all(|batch| batch.root_ms));
    add_known("proving_ms_median", all(|batch| batch.witness_ms));
    add_known(
        "bytes_median",
        all(|batch| batch.witness_bytes.map(|bytes| bytes as f64)),
    );
    figures
}

/// Returns a table of the main figures of all stores.
pub(crate) fn comparison(stores: &[Figures]) -> Vec<(String, Vec<String>)> {
    let rows = [
        ("transfers/s", "transfers_per_second"),
        ("batch, ms, median", "batch_ms_median"),
        ("batch, ms, p99", "batch_ms_p99"),
        ("reading a batch, ms", "read_ms_median"),
        ("root and commit, ms", "commit_ms_median"),
        ("of it the root, ms", "root_ms_median"),
        ("transfers/s with witness", "witness_transfers_per_second"),
        ("batch with witness, ms, median", "witness_batch_ms_median"),
        ("witness, bytes", "witness_bytes_median"),
        ("bytes read an access", "bytes_read_an_access"),
        (
            "bytes written a changed account",
            "bytes_written_a_changed_account",
        ),
        ("bytes written a transfer", "bytes_written_a_transfer"),
        ("bytes on disk an account", "disk_bytes_an_account"),
        ("RSS peak, MiB", "rss_peak_mib"),
        ("RSS and page cache peak, MiB", "cgroup_peak_mib"),
        ("opening, ms", "open_ms"),
        ("loading, accounts/s", "load_accounts_per_second"),
    ];
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value
            .as_f64()
            .map_or_else(String::new, |value| format!("{value:.0}")),
        None => "-".to_owned(),
    };
    let row = |name: &str, key: &str| {
        let figures = stores.iter().map(|figures| text(figures.get(key)));
        (name.to_owned(), figures.collect())
    };
    let mut table = vec![row("", "store")];
    table.extend(rows.map(|(name, key)| row(name, key)));
    table
}

/// Returns the targets that apply to this run.
pub(crate) fn targets(
    plan: &Plan,
    runs: &[StoreRun],
    stores: &[Figures],
    alone: &Figures,
    base_rate: Option<f64>,
) -> Vec<Target> {
    let of = |kind: Kind, name: &str| {
        let at = runs.iter().position(|run| run.kind == kind)?;
        stores[at].get(name)?.as_f64()
    };
    let own = |name: &str| of(Kind::Cambium, name);
    let mut table = Table(Vec::new());
    let mode = if plan.warm { "all in memory" } else { "cold" };
    let rate = own("transfers_per_second");
    let least = if plan.warm { 80_000.0 } else { 30_000.0 };
    table.at_least(&format!("transfers/s, {mode}"), rate, "tx/s", least);
    let times = |kind: Kind, name: &str| Some(own(name)? / of(kind, name)?);
    for (with, prefix) in [("", ""), (" and with a witness", "witness_")] {
        let name = format!("{prefix}transfers_per_second");
        if plan.warm {
            let rate = times(Kind::Qmdb, &name);
            table.at_least(&format!("ahead of QMDB{with}, {mode}"), rate, "x", 1.0);
        } else {
            let rate = times(Kind::Nomt, &name);
            table.at_least(&format!("ahead of NOMT{with}, {mode}"), rate, "x", 4.0);
        }
    }
    if plan.warm {
        return table.0;
    }
    let of_base = rate.zip(base_rate).map(|(rate, base)| 100.0 * rate / base);
    let base = format!("the same, share of an earlier run at {BASE_ACCOUNTS}");
    table.at_least(&base, of_base, "%", 75.0);
    table.at_most(
        "device reads for a cold access (read and root)",
        own("first_batch_own_reads_an_access"),
        "reads",
        1.05,
    );
    table.at_least(
        "random reads, share of what fio gets",
        alone
            .get("random_reads_percent_of_fio")
            .and_then(Value::as_f64),
        "%",
        80.0,
    );
    table.at_most(
        "root of a batch once read",
        own("root_ms_median"),
        "ms",
        150.0,
    );
    let written = own("bytes_written_a_changed_account");
    table.at_most("bytes written a changed account", written, "bytes", 1500.0);
    let share = times(Kind::Nomt, "bytes_written_a_changed_account");
    table.at_most(
        "the same, share of NOMT's",
        share.map(|share| 100.0 * share),
        "%",
        25.0,
    );
    let small = |name: &str| {
        alone
            .get(&format!("small_block_commit_ms_{name}"))?
            .as_f64()
    };
    let stall = small("p999")
        .zip(small("p50"))
        .map(|(slow, middle)| slow / middle);
    table.at_most("commit p99.9 while merging, in medians", stall, "x", 3.0);
    let index = own("index_bytes").zip(own("accounts_at_the_end"));
    table.at_most(
        "index memory",
        index.map(|(bytes, accounts)| bytes / accounts),
        "bytes/key",
        4.0,
    );
    let told = own("memory_told_bytes").map(|bytes| bytes / f64::from(1 << 20));
    let kept = own("rss_peak_mib")
        .zip(told)
        .map(|(rss, told)| 100.0 * rss / told);
    table.at_most(
        "RSS peak, share of the memory it was told",
        kept,
        "%",
        110.0,
    );
    table.at_most(
        "disk, all but the log of the blocks since",
        own("disk_bytes_an_account"),
        "bytes/account",
        140.0,
    );
    table.at_least(
        "hot reads on one core",
        alone
            .get("hot_reads_per_second_one_core")
            .and_then(Value::as_f64),
        "reads/s",
        2_000_000.0,
    );
    let reopen = alone.get("reopen_to_first_root_ms").and_then(Value::as_f64);
    table.at_most(
        "reopen after kill -9, to the first root",
        reopen,
        "ms",
        3_000.0,
    );
    table.at_least(
        "loading",
        own("load_accounts_per_second"),
        "accounts/s",
        300_000.0,
    );
    table.0
}

/// Returns the targets of `./bench kv` that apply to this run.
pub(crate) fn entry_targets(plan: &Plan, runs: &[StoreRun], stores: &[Figures]) -> Vec<Target> {
    let of = |kind: Kind, name: &str| {
        let at = runs.iter().position(|run| run.kind == kind)?;
        stores[at].get(name)?.as_f64()
    };
    let times = |kind: Kind, name: &str| Some(of(Kind::Binary, name)? / of(kind, name)?);
    let mut table = Table(Vec::new());
    let (mode, nomt, qmdb) = match plan.warm {
        true => ("all in memory", 4.0, 1.0 / 3.0),
        false => ("cold", 2.5, 1.0),
    };
    for (with, prefix) in [("", ""), (" and with a witness", "witness_")] {
        let name = format!("{prefix}transfers_per_second");
        let ahead = format!("ahead of NOMT{with}, {mode}");
        table.at_least(&ahead, times(Kind::Nomt, &name), "x", nomt);
    }
    table.at_least(
        &format!("ahead of QMDB, which proves no absence by key, {mode}"),
        times(Kind::Qmdb, "transfers_per_second"),
        "x",
        qmdb,
    );
    table.at_least(
        &format!("ahead of an MPT over RocksDB, {mode}"),
        times(Kind::RocksdbMpt, "transfers_per_second"),
        "x",
        4.0,
    );
    table.at_most(
        "bytes of a witness, share of NOMT's path proofs",
        times(Kind::Nomt, "witness_bytes_median").map(|share| 100.0 * share),
        "%",
        100.0,
    );
    table.at_most(
        "device reads for a cold access (read and root)",
        of(Kind::Binary, "first_batch_own_reads_an_access"),
        "reads",
        1.05,
    );
    table.0
}

/// Returns the targets of `./bench state --steady`. `fio_rate`: what `fio` reads a second on the same file system.
pub(crate) fn steady_targets(
    plan: &Plan,
    runs: &[StoreRun],
    stores: &[Figures],
    fio_rate: Option<f64>,
) -> Vec<Target> {
    let of = |kind: Kind, name: &str| {
        let at = runs.iter().position(|run| run.kind == kind)?;
        stores[at].get(name)?.as_f64()
    };
    let own = |name: &str| of(Kind::Cambium, name);
    let rate = |kind: Kind| Some(own("transfers_per_second")? / of(kind, "transfers_per_second")?);
    let mut table = Table(Vec::new());
    table.at_least("ahead of NOMT, steady", rate(Kind::Nomt), "x", 5.0);
    for kind in [Kind::Rocksdb, Kind::Mdbx, Kind::Fjall] {
        let name = format!("ahead of {kind}, which has no trie, steady");
        table.at_least(&name, rate(kind), "x", 1.0);
    }
    // A batch is not cold if half of its accesses are answered from memory.
    let reads = own("own_device_reads_a_batch");
    let cold = reads.filter(|reads| own("keys_a_batch").is_some_and(|keys| *reads > keys / 2.0));
    let reading = cold.zip(fio_rate).map(|(reads, rate)| 1e3 * reads / rate);
    table.at_most(
        "a cold batch, in the time that fio takes for as many reads",
        own("batch_ms_median")
            .zip(reading)
            .map(|(time, reading)| time / reading),
        "x",
        1.3,
    );
    let written = own("bytes_written_a_changed_account");
    table.at_most("bytes written a changed account", written, "bytes", 1400.0);
    let index = own("index_bytes").zip(own("accounts_at_the_end"));
    let index = index.map(|(bytes, accounts)| bytes / accounts);
    table.at_most("index memory", index, "bytes/key", 5.0);
    let flat = own("rounds_that_became_flat");
    let rounds = plan.rounds as f64;
    table.at_least("rounds whose rate became flat", flat, "rounds", rounds);
    table.0
}

/// Returns the targets of `./bench layered`.
pub(crate) fn layered_targets(runs: &[StoreRun], stores: &[Figures]) -> Vec<Target> {
    let of = |kind: Kind, name: &str| {
        let at = runs.iter().position(|run| run.kind == kind)?;
        stores[at].get(name)?.as_f64()
    };
    let own = |name: &str| of(Kind::Layered, name);
    let times = |name: &str| Some(own(name)? / of(Kind::Cambium, name)?);
    let mut table = Table(Vec::new());
    table.at_most(
        "device reads for a root once its block is read",
        own("lone_root_device_reads"),
        "reads",
        0.0,
    );
    table.at_most(
        "root on the critical path, against mpt",
        times("root_ms_median"),
        "x",
        0.6,
    );
    table.at_least(
        "transfers/s cold, against mpt",
        times("transfers_per_second"),
        "x",
        1.0,
    );
    let rate = own("transfers_per_second").zip(of(Kind::RocksdbMpt, "transfers_per_second"));
    table.at_least(
        "ahead of an MPT over RocksDB, cold",
        rate.map(|(own, peer)| own / peer),
        "x",
        4.0,
    );
    table.0
}

struct Table(Vec<Target>);

impl Table {
    fn at_least(&mut self, name: &str, value: Option<f64>, unit: &'static str, least: f64) {
        self.add(name, value, unit, format!("at least {least}"), |value| {
            value >= least
        });
    }

    fn at_most(&mut self, name: &str, value: Option<f64>, unit: &'static str, most: f64) {
        self.add(name, value, unit, format!("at most {most}"), |value| {
            value <= most
        });
    }

    /// Adds a target, unless its figure was not measured.
    fn add(
        &mut self,
        name: &str,
        value: Option<f64>,
        unit: &'static str,
        target: String,
        met: impl Fn(f64) -> bool,
    ) {
        if let Some(value) = value {
            self.0.push(Target {
                name: name.to_owned(),
                value,
                unit,
                target,
                met: met(value),
            });
        }
    }
}
