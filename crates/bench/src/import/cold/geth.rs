//! The same blocks imported by geth, from a copy of a database that it has initialized once.
//!
//! Geth gets the same memory (`--cache`), and its process has the same limit, page cache included.
//! The path scheme is used. The time is geth's own report: from its first block until its caches
//! are on the disk, without opening and without the compaction that would follow.
//!
//! `geth init` holds the whole genesis state in memory several times: 1.3 GB for 200,000 accounts
//! of which a fifth hold tokens, 7.8 GB for a million. 10 million would take more than 64 GB, so
//! the comparison needs `--accounts 1000000`, or 2 million with 24 GB.

use super::rounds::{Figures, Plan, Setup, drop_inputs};
use crate::{
    geth::{Program, command, failed, has_imported, import_seconds},
    import::{Copied, Inputs},
    report::Notes,
    state::stores::Failure,
    system,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const SCHEME: &str = "path";
const MIB: f64 = (1 << 20) as f64;
/// Time after which an import is killed: in too little memory geth reads its own code again and
/// again.
const IMPORT_MAX: Duration = Duration::from_secs(900);
const INIT_MAX: Duration = Duration::from_secs(3 * 3600);
/// Initializing takes the genesis file into memory: it may take this percentage of what is free.
const INIT_PERCENT: u64 = 85;

/// Figures of initializing a database.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Initialized {
    seconds: f64,
    rss_peak_bytes: u64,
}

impl Program {
    /// Imports the blocks in every round, each time into a new copy of the database.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        setup: &Setup<'_>,
        notes: &mut Notes,
    ) -> Result<Figures, Failure> {
        let (db, initialized) = self.database(setup.inputs, notes)?;
        let mut figures = Figures::default();
        for round in 1..=plan.rounds {
            eprintln!("geth: round {round} of {}", plan.rounds);
            let mut of_round = self.import(plan, setup, &db, notes)?;
            let mut add = |name: &str, value: f64| of_round.insert(name.to_owned(), value);
            add("init_seconds", initialized.seconds);
            let resident = initialized.rss_peak_bytes as f64 / MIB;
            add("init_rss_peak_mib", resident);
            add("database_mib", system::disk_bytes(&db)? as f64 / MIB);
            figures.add(of_round);
        }
        Ok(figures)
    }

    /// Imports the blocks into a copy of `db`.
    fn import(
        &self,
        plan: &Plan,
        setup: &Setup<'_>,
        db: &Path,
        notes: &mut Notes,
    ) -> Result<BTreeMap<String, f64>, Failure> {
        let Setup {
            inputs,
            memory_bytes,
            ..
        } = setup;
        let copy = Copied::of(db, &plan.data)?;
        drop_inputs(inputs)?;
        let mut args = command("import", SCHEME, &copy.path());
        let cache = (memory_bytes >> 20).to_string();
        args.extend(["--nocompaction", "--cache", &cache].map(OsString::from));
        args.push(inputs.blocks().into());
        let log = plan.data.join("geth.log");
        let limit = setup.limit_bytes(plan);
        let ended = self.run(&args, limit, IMPORT_MAX, &log, notes)?;
        let text = fs::read_to_string(&log)?;
        if !ended.status.success() || !has_imported(&text, inputs.facts.blocks) {
            return Err(failed("import", &ended, &text).into());
        }
        let seconds = import_seconds(&text).ok_or("geth reported no time")?;
        let rss = ended.rss_peak_bytes as f64;
        let transactions = inputs.facts.transactions as f64;
        let figures = [
            ("seconds", Some(seconds)),
            ("transactions_per_second", Some(transactions / seconds)),
            ("process_seconds", Some(ended.seconds)),
            ("cpu_seconds", Some(ended.cpu_seconds)),
            ("rss_peak_mib", Some(rss / MIB)),
            (
                "rss_percent_of_memory",
                Some(100.0 * rss / *memory_bytes as f64),
            ),
            (
                "cgroup_peak_mib",
                ended.cgroup_peak_bytes.map(|peak| peak as f64 / MIB),
            ),
        ];
        let figures = figures.into_iter();
        Ok(figures
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect())
    }

    /// Returns geth's database of a workload, and initializes it if it is missing.
    fn database(
        &self,
        inputs: &Inputs,
        notes: &mut Notes,
    ) -> Result<(PathBuf, Initialized), Failure> {
        let dir = inputs.place("geth");
        let done = dir.with_extension("json");
        if done.exists() {
            return Ok((dir, serde_json::from_slice(&fs::read(done)?)?));
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let genesis = inputs.genesis_file()?;
        eprintln!("geth init: {} (once)", dir.display());
        let mut args = command("init", SCHEME, &dir);
        args.push(genesis.into());
        let limit = system::memory_available_bytes() / 100 * INIT_PERCENT;
        let log = inputs.place("geth-init.log");
        let ended = self.run(&args, limit, INIT_MAX, &log, notes)?;
        if !ended.status.success() {
            let error = failed("init", &ended, &fs::read_to_string(&log)?);
            if dir.exists() {
                fs::remove_dir_all(&dir)?;
            }
            return Err(error.into());
        }
        let initialized = Initialized {
            seconds: ended.seconds,
            rss_peak_bytes: ended.rss_peak_bytes,
        };
        fs::write(done, serde_json::to_vec_pretty(&initialized)?)?;
        Ok((dir, initialized))
    }
}
