//! The import command: imports files, shows progress, and reports the time spent in each stage.

#[cfg(any(feature = "cluster", feature = "serve"))]
use super::watched::Watched;
use super::{
    args::import::ImportArgs,
    chain,
    error::{Exit, Failure},
    figures, files,
    followed::Followed,
    history, index,
    memory::Followers,
    open,
    output::{Output, Report, Table, count, quantity, rate, seconds},
    preimages,
    signals::Stop,
    storage_of,
};
use cambium::{
    BlockId, BlockSource, Chain, ChainError, Db, Node, StateError,
    chain::{FileError, ImportProgress, ImportSummary, RawBlock},
    execution::{BlockExecutor, ExecutorKind, OPTIMISTIC_THREADS_MIN},
    history::HistoryFollower,
    index::IndexFollower,
};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const BAR: &str = "{percent:>3}% {wide_bar} {msg}  ETA {eta}";
/// Time over which rates are averaged.
const RATE_WINDOW: Duration = Duration::from_secs(3);

pub(crate) fn import(args: &ImportArgs, out: &Output) -> Result<Report, Failure> {
    let given = [
        &args.genesis,
        &args.access_lists,
        &args.updates,
        &args.storage_of,
    ];
    let given = given.into_iter().flatten();
    files::refuse_two_standard(args.files.iter().chain(given).map(PathBuf::as_path))?;
    let mut executor = BlockExecutor::new(args.executor.into());
    if let Some(threads) = args.threads {
        executor = executor.with_threads(threads);
    }
    let chain = open_or_make(args, out)?;
    let chain = chain.with_executor(executor).with_applying(args.apply);
    let chain = chain
        .with_batch(args.batch.get())
        .with_read_ahead(args.read_ahead);
    let (chain, index_follower) = index::follow(chain, args.index, &args.db.db, out)?;
    let history_follower = history::follow(args.history, args.nodes, &args.db.db, chain.db(), out)?;
    let mut node = Node::of_chain(chain);
    if let Followed::By(follower) = &history_follower {
        node = node.with_history(follower.history().clone());
    }
    let node = Arc::new(node);
    let chain = node.chain()?;
    #[cfg(any(feature = "cluster", feature = "serve"))]
    let watched = Watched::begin(args, &node, out)?;
    let mut shown = |progress: &ImportProgress| {
        #[cfg(any(feature = "cluster", feature = "serve"))]
        if let Some(watched) = &watched {
            watched.figures.update(progress);
        }
        #[cfg(not(any(feature = "cluster", feature = "serve")))]
        let _ = progress;
    };
    let head = chain.db().head();
    let stop = Stop::on_signals();
    let beside = Beside::of(args);
    let files = in_directories(&args.files, out)?;
    let imported = import_files(chain, &files, beside, &stop, &mut shown, out);
    #[cfg(feature = "cluster")]
    let followed = match (&imported, stop.asked()) {
        (Ok(_), None) if !args.following.follow.is_empty() => {
            let datadir = &args.db.db.datadir;
            let serving = watched.as_ref().map(|watched| {
                watched.figures.leave_database();
                &watched.serving
            });
            super::cluster::follow(chain, &args.following, datadir, &stop, serving, out).map(Some)
        }
        _ => Ok(None),
    };
    // The blocks before a failure are committed, and belong to the history as well.
    let history_error = history_follower.finish("history", HistoryFollower::finish, out);
    let index_error = index_follower.finish("index", IndexFollower::finish, out);
    let preimages_error = preimages::finish(chain, out);
    let summary = imported?;
    #[cfg(feature = "cluster")]
    let followed = followed?;
    let done = &summary.done;
    let mut options = without_lists(args);
    if args.batch.get() > 1 && done.blocks > 0 && done.batched == 0 {
        let why = match () {
            () if executor.threads.get() == 1 => Some(
                "on one thread, blocks are executed faster one by one. --threads sets the number of \
                 threads.",
            ),
            () if done.applied > 0 => Some("--apply executes no block whose list is right."),
            () => None,
        };
        if let Some(why) = why {
            out.note(format_args!("--batch had no effect: {why}"));
            options.retain(|option| *option != BATCH);
        }
    }
    if done.blocks > 0 && done.listed == 0 {
        for option in options {
            out.note(format_args!(
                "{option} had no effect: it needs access lists, and no block came with one. \
                 --access-lists names a file of them."
            ));
        }
    }
    if let Some(fork) = left_branch(chain.db(), head)? {
        out.note(format_args!(
            "the head changed branch: {} -> {}, which part after block {fork}",
            head, done.head
        ));
    }
    let mut report = Report::new(text(&summary, chain), json(&summary, chain));
    #[cfg(feature = "cluster")]
    if let Some(followed) = followed {
        add_followed(
            &mut report,
            &followed,
            chain.db().head(),
            args.files.is_empty(),
        );
    }
    report.json["history_error"] = json!(history_error);
    report.json["index_error"] = json!(index_error);
    report.json["preimages_error"] = json!(preimages_error);
    if [history_error, index_error, preimages_error]
        .iter()
        .any(Option::is_some)
    {
        report.exit = Exit::CouldNotBeDone;
    }
    if let Some(exit) = stop.asked() {
        report.exit = exit;
        report.json["stopped"] = json!(true);
        let stopped = format!("Stopped at block {}, run again to go on.", done.head.number);
        report.text = format!("{stopped}\n{}", report.text);
    }
    Ok(report)
}

/// Adds what following a cluster has done, which may be all that was done.
#[cfg(feature = "cluster")]
fn add_followed(
    report: &mut Report,
    followed: &cambium_cluster::Followed,
    head: BlockId,
    is_all: bool,
) {
    let mut text = format!(
        "Followed the cluster: {} blocks, {} of which the stream did not have; the head is {head}.",
        count(followed.blocks),
        count(followed.fetched)
    );
    if followed.refused > 0 {
        text += &format!(
            "\n{} updates were false and refused.",
            count(followed.refused)
        );
    }
    if followed.passed > 0 {
        text += &format!(
            "\n{} records were passed, since no shard has the blocks that they need any more: `cambium db load` begins with a \
             later state.",
            count(followed.passed)
        );
    }
    if let Some(trouble) = &followed.trouble {
        text += &format!("\nThe last trouble: {trouble}");
    }
    report.text = match is_all {
        true => text,
        false => format!("{}\n{text}", report.text),
    };
    report.json["head_number"] = json!(head.number);
    report.json["head_hash"] = json!(head.hash);
    report.json["followed"] = json!({
        "blocks": followed.blocks,
        "fetched": followed.fetched,
        "choices": followed.choices,
        "refused": followed.refused,
        "passed": followed.passed,
        "trouble": followed.trouble,
    });
}

/// The newest canonical block that the chain of `head` has, if that is not canonical any more.
fn left_branch(db: &Db, head: BlockId) -> Result<Option<u64>, Failure> {
    if db.block_id(head.number)?.is_some_and(|block| block == head) {
        return Ok(None);
    }
    let branches = db.side_branches()?;
    let of_head = branches.into_iter().find(|branch| branch.tip == head);
    Ok(of_head.map(|branch| branch.fork.number))
}

const BATCH: &str = "--batch";

/// The options that do nothing for blocks without access lists.
fn without_lists(args: &ImportArgs) -> Vec<&'static str> {
    let options = [
        (
            "--executor batched or parallel",
            args.executor.needs_lists(),
        ),
        ("--apply", args.apply),
        (BATCH, args.batch.get() > 1),
    ];
    let given = options.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(option, _)| option).collect()
}

/// Which executor ran the blocks, and why. `None` if none was executed.
fn executor_used(executor: &BlockExecutor, done: &ImportProgress) -> Option<String> {
    if done.blocks == done.applied {
        return None;
    }
    if done.batched > 0 {
        return Some(format!(
            "by access lists, {} of {} blocks at once with others",
            count(done.batched),
            count(done.blocks)
        ));
    }
    let threads = executor.threads.get();
    let kind = executor.kind.for_block(done.listed > 0, threads);
    let used = match kind {
        ExecutorKind::Batched | ExecutorKind::Parallel if done.listed == 0 => "sequential",
        ExecutorKind::Full => "full",
        ExecutorKind::Batched => "batched",
        ExecutorKind::Parallel => "parallel",
        ExecutorKind::Optimistic => "optimistic",
        ExecutorKind::Auto | ExecutorKind::Sequential => "sequential",
    };
    let why = match (executor.kind, kind) {
        (ExecutorKind::Auto, ExecutorKind::Parallel) => match done.blocks - done.listed {
            0 => "the blocks came with access lists".to_owned(),
            others => format!("for all but {} blocks without access lists", count(others)),
        },
        (ExecutorKind::Auto, ExecutorKind::Optimistic) => {
            format!("no access lists, {threads} threads; or sequential, whichever was faster")
        }
        (ExecutorKind::Auto, _) => {
            format!("no access lists, and fewer than {OPTIMISTIC_THREADS_MIN} threads")
        }
        (ExecutorKind::Batched | ExecutorKind::Parallel, _) if done.listed == 0 => {
            "no access lists".to_owned()
        }
        _ => "as told".to_owned(),
    };
    Some(format!("{used}: {why}"))
}

fn open_or_make(args: &ImportArgs, out: &Output) -> Result<Chain, Failure> {
    let followers = Followers {
        history: history::follows(args.history, &args.db.db),
        index: index::follows(args.index, &args.db.db),
        preimages: preimages::follows(args.preimages, &args.db.db),
    };
    let db = followers.beside(history::keeping_blocks(args.history, &args.db));
    let Some(genesis) = &args.genesis else {
        return open::chain_to_write(&db, out);
    };
    let list = args.storage_of.as_deref();
    let first = chain::FirstState {
        preimages: args.preimages,
        storage_of: list.map(storage_of::read).transpose()?,
        ..chain::FirstState::default()
    };
    chain::open_or_init(genesis, &db, first, out).map(|(chain, _)| chain)
}

/// Endings of the names of files of blocks, in a directory.
const BLOCKS: [&str; 4] = [".rlp", ".rlp.gz", ".gz", ".era1"];

/// Files of blocks, where each directory stands for those in it, in the order of their names. Files that are none are
/// noted.
fn in_directories(given: &[PathBuf], out: &Output) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for file in given {
        if files::is_standard(file) || !file.is_dir() {
            found.push(file.clone());
            continue;
        }
        let before = found.len();
        let mut within = Vec::new();
        for entry in file.read_dir().map_err(Failure::io(file, "read"))? {
            within.push(entry.map_err(Failure::io(file, "read"))?.path());
        }
        within.sort();
        for path in within {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !BLOCKS.iter().any(|ending| name.ends_with(ending)) {
                continue;
            }
            // A pipe in a directory may never end, so it is skipped.
            if path.metadata().is_ok_and(|there| !there.is_file()) {
                out.note(format_args!("skipped: {} is not a file", path.display()));
                continue;
            }
            match files::refuse_without_blocks(&path) {
                Err(error @ FileError::OtherContent { .. }) => {
                    out.note(format_args!("skipped: {error}"));
                }
                // Importing it says what is wrong with it.
                Ok(()) | Err(_) => found.push(path),
            }
        }
        if found.len() == before {
            return Err(Failure::NoFiles(file.clone()));
        }
    }
    Ok(found)
}

/// What comes with the blocks in a file of its own.
#[derive(Clone, Copy)]
pub(crate) enum Beside<'a> {
    Nothing,
    AccessLists(&'a Path),
    Updates(&'a Path),
}

impl<'a> Beside<'a> {
    fn of(args: &'a ImportArgs) -> Self {
        match (&args.access_lists, &args.updates) {
            (Some(lists), _) => Self::AccessLists(lists),
            (None, Some(updates)) => Self::Updates(updates),
            (None, None) => Self::Nothing,
        }
    }
}

/// Imports files in order, with a progress bar. After an error all valid blocks before are committed, and the failure says so. If `stop` is
/// asked for, no further block is read: those that are under way are committed.
pub(crate) fn import_files(
    chain: &Chain,
    files: &[PathBuf],
    beside: Beside<'_>,
    stop: &Stop,
    shown: &mut dyn FnMut(&ImportProgress),
    out: &Output,
) -> Result<ImportSummary, Failure> {
    let blocks = Files::new(files, stop.clone())?;
    let bar = out.bar(blocks.bytes_total, BAR);
    let mut meter = Meter::new(bar, out.is_quiet(), blocks.bytes_read.clone());
    let mut progress = |progress: &ImportProgress| {
        meter.update(progress);
        shown(progress);
    };
    let before = chain.db().head();
    let summary = match beside {
        Beside::Nothing => chain.import(blocks, &mut progress),
        Beside::AccessLists(lists) => {
            let lists = files::lists_of(lists)?;
            chain.import(files::with_lists(blocks, lists)?, &mut progress)
        }
        Beside::Updates(updates) => {
            let updates = files::updates_of(updates)?;
            chain.import(files::with_updates(blocks, updates)?, &mut progress)
        }
    };
    meter.bar.finish_and_clear();
    summary.map_err(|error| match error {
        // The wrong file was given, and no other had a new block.
        error @ ChainError::File(FileError::OtherContent { .. }) if chain.db().head() == before => {
            error.into()
        }
        // Other errors concern the database itself, so nothing is said about its blocks.
        error @ (ChainError::Block { .. }
        | ChainError::FalseUpdate { .. }
        | ChainError::NoUpdate(_)
        | ChainError::File(_)
        | ChainError::State(StateError::NotOnFinalized { .. })) => Failure::Import {
            error: Box::new(error),
            head: chain.db().head(),
        },
        error => error.into(),
    })
}

/// The blocks of many files, opened one after the other.
struct Files {
    waiting: VecDeque<PathBuf>,
    current: Option<BlockSource>,
    /// Name of the current file, and the number of blocks that it had so far.
    name: String,
    blocks: u64,
    bytes_before: u64,
    bytes_total: u64,
    bytes_read: Arc<AtomicU64>,
    stop: Stop,
}

impl Files {
    /// Checks that all files exist before any is read.
    fn new(files: &[PathBuf], stop: Stop) -> Result<Self, Failure> {
        let mut bytes_total = 0;
        for file in files {
            if files::is_standard(file) {
                continue;
            }
            let metadata = file.metadata().map_err(Failure::io(file, "read"))?;
            if metadata.is_file() {
                bytes_total += metadata.len();
            }
        }
        Ok(Self {
            waiting: files.iter().cloned().collect(),
            current: None,
            name: String::new(),
            blocks: 0,
            bytes_before: 0,
            bytes_total,
            bytes_read: Arc::default(),
            stop,
        })
    }
}

impl Iterator for Files {
    type Item = Result<RawBlock, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stop.asked().is_some() {
            return None;
        }
        loop {
            if let Some(source) = &mut self.current {
                let mut next = source.next();
                if self.blocks == 0 {
                    next = files::first_block(next);
                }
                let read = self.bytes_before + source.progress().bytes_read();
                self.bytes_read.store(read, Ordering::Relaxed);
                match next {
                    None => self.bytes_before = read,
                    // A block cut off by the requested stop is read again next time.
                    Some(Err(_)) if self.stop.asked().is_some() => return None,
                    next => {
                        self.blocks += 1;
                        return next;
                    }
                }
            }
            // A file without a block is not the one that the user meant.
            if self.current.take().is_some() && self.blocks == 0 {
                self.waiting.clear();
                return Some(Err(FileError::BadFile {
                    file: std::mem::take(&mut self.name).into(),
                    what: "it has no block".to_owned(),
                }));
            }
            let file = self.waiting.pop_front()?;
            (self.name, self.blocks) = (files::input_name(&file), 0);
            match files::blocks_of(&file) {
                Ok(source) => self.current = Some(source),
                Err(error) => {
                    self.waiting.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Updates the progress bar.
struct Meter {
    bar: ProgressBar,
    is_silent: bool,
    bytes_read: Arc<AtomicU64>,
    /// Recent progress with its times, for the rates.
    before: VecDeque<(Instant, ImportProgress)>,
}

impl Meter {
    fn new(bar: ProgressBar, is_silent: bool, bytes_read: Arc<AtomicU64>) -> Self {
        let before = VecDeque::from([(Instant::now(), ImportProgress::default())]);
        Self {
            bar,
            is_silent,
            bytes_read,
            before,
        }
    }

    fn update(&mut self, now: &ImportProgress) {
        if self.is_silent {
            return;
        }
        self.bar
            .set_position(self.bytes_read.load(Ordering::Relaxed));
        while self.before.len() > 1 && self.before[0].0.elapsed() > RATE_WINDOW {
            self.before.pop_front();
        }
        let (time, old) = self.before[0];
        let time = time.elapsed();
        self.bar.set_message(format!(
            "block {}  {} blocks/s  {:.1} Mgas/s  {} tx/s",
            count(now.head.number),
            rate_text(rate(now.blocks - old.blocks, time)),
            rate(now.gas - old.gas, time) / 1e6,
            rate_text(rate(now.transactions - old.transactions, time)),
        ));
        self.before.push_back((Instant::now(), *now));
    }
}

/// The result of an import, as a table.
pub(crate) fn text(summary: &ImportSummary, chain: &Chain) -> String {
    let (done, time) = (&summary.done, summary.elapsed);
    let timings = &summary.timings;
    let mut table = Table::default()
        .row("blocks", with_rate(done.blocks, time, "blocks/s"))
        .row("transactions", with_rate(done.transactions, time, "tx/s"))
        .row(
            "gas",
            format!(
                "{} ({:.1} Mgas/s)",
                count(done.gas),
                rate(done.gas, time) / 1e6
            ),
        );
    if let Some(used) = executor_used(chain.executor(), done) {
        table = table.row("executor", used);
    }
    if done.applied > 0 {
        let applied = count(done.applied);
        table = table.row(
            "applied",
            format!("{applied} blocks by access list or state update, not executed"),
        );
    }
    let (parallel, again) = (done.parallel.parallel, done.parallel.again);
    let mut reading = "reading state, part of execute";
    if parallel + again > 0 {
        reading = "reading state, part of execute, summed over threads";
        let (parallel, again) = (count(parallel), count(again));
        let text = format!("{parallel} transactions; {again} were executed again");
        table = table.row("in parallel", text);
    }
    if done.skipped > 0 {
        table = table.row(
            "skipped",
            format!("{}, already imported", count(done.skipped)),
        );
    }
    table = table
        .row("time", seconds(time))
        .row(
            "  recover",
            stage(timings.recover, time, "decoding, and recovering senders"),
        )
        .row("  execute", stage(timings.execute, time, "transactions"))
        .row("    read", stage(timings.read, time, reading))
        .row(
            "  root",
            stage(timings.root, time, "updating and hashing the trie"),
        )
        .row(
            "  commit",
            stage(timings.commit, time, "making blocks durable"),
        )
        .row("head", done.head)
        .row("state root", summary.state_root)
        .section("The engine");
    let table = figures::rows(chain.db(), table);
    format!("{table}\nRecovering, executing and committing run concurrently: their times overlap.")
}

fn with_rate(number: u64, time: Duration, unit: &str) -> String {
    let rate = rate_text(rate(number, time));
    format!("{} ({rate} {unit})", count(number))
}

/// Formats a rate, with a decimal below 10: there are few blocks of a billion gas per second.
fn rate_text(rate: f64) -> String {
    match rate {
        0.0..10.0 => format!("{rate:.1}"),
        _ => count(rate as u64),
    }
}

fn stage(part: Duration, whole: Duration, what: &str) -> String {
    let percent = 100.0 * part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE);
    format!("{:>8} {percent:>4.0} %  {what}", seconds(part))
}

/// The result of an import, as JSON.
pub(crate) fn json(summary: &ImportSummary, chain: &Chain) -> Value {
    let (done, timings) = (&summary.done, &summary.timings);
    let figures = figures::json(chain.db());
    json!({
        "blocks": done.blocks,
        "transactions": done.transactions,
        "gas": quantity(done.gas),
        "skipped": done.skipped,
        "listed": done.listed,
        "applied": done.applied,
        "batched": done.batched,
        "executor": executor_used(chain.executor(), done),
        "parallel": done.parallel.parallel,
        "again": done.parallel.again,
        "seconds": summary.elapsed.as_secs_f64(),
        "head_number": quantity(done.head.number),
        "head_hash": done.head.hash,
        "state_root": summary.state_root,
        "timings": {
            "recover": timings.recover.as_secs_f64(),
            "execute": timings.execute.as_secs_f64(),
            "read": timings.read.as_secs_f64(),
            "root": timings.root.as_secs_f64(),
            "commit": timings.commit.as_secs_f64(),
        },
        "counters": figures.counters,
        "commit_latency": figures.commit_latency,
        "seal_waits": figures.seal_waits,
    })
}
