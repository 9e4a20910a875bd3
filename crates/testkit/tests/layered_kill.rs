//! `kill -9` of a process with a database of the `layered` commitment, in each phase of its work:
//! while a delta fills, where an interval ends, while the root of a snapshot is computed, during a
//! merge and during an unwind. Every time the database opens at the acknowledged head, or at the one
//! that was being committed, with the root of three maps.
//!
//! The killed process is this program again. It writes what it is about to do, and what it has
//! done, to its standard output.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{AccountDiff, BlockId, Changes};
use cambium_state::{BlockMeta, Db, FileSizes, Loader, Options, StateError, StdDisk, StoreError};
use cambium_testkit::{
    LayeredBlock, Model, Random, TINY_FILES, is_long, layered_model_root,
    plain::{account, first_block, path, put, random_puts, remove, wait_until_closed},
    say, wiped_by,
};
use cambium_trie::ProofTargets;
use std::{
    collections::{BTreeMap, HashSet},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

const ACCOUNTS: u64 = 400;
const INTERVAL: u64 = 4;
/// A chain that is as long as this is given up for a new one.
const BLOCKS_MAX: u64 = 150;
/// A job that is not seen to end within this time is none.
const JOB_MAX: Duration = Duration::from_millis(40);
/// Environment variable with the directory and the seed of the process that is killed.
const WORK: &str = "CAMBIUM_KILLED_PROCESS";
const PHASES: [&str; 5] = ["delta", "boundary", "job", "merge", "unwind"];

fn options() -> Options {
    let options = Options {
        memory_bytes: 4 << 20,
        files: FileSizes {
            log_file_bytes_max: 16 << 10,
            log_extend_bytes: 4 << 10,
            ..TINY_FILES
        },
        ..Options::default()
    };
    options.layered(INTERVAL)
}

/// The changes of the block whose name is `name`.
fn changes_of(name: u64) -> Changes {
    let mut random = Random::new(name);
    let mut changes = random_puts(&mut random, 60, ACCOUNTS, name % 1000);
    for change in &mut changes {
        let slot = |random: &mut Random| (path(random.below(3)), U256::from(random.below(3)));
        match random.below(8) {
            0 => *change = remove(change.path),
            1 => change.wipe = true,
            2 | 3 => change.slots = vec![slot(&mut random)],
            _ => {}
        }
    }
    Changes::new(changes)
}

fn genesis() -> Vec<AccountDiff> {
    let slots = vec![(path(0), U256::from(1))];
    let accounts = (0..ACCOUNTS).map(|index| AccountDiff {
        slots: slots.clone(),
        ..put(path(index), 0)
    });
    accounts.collect()
}

/// Sends a message to the other process. Written messages stay in the pipe after a kill.
fn tell(what: &str, number: u64, name: u64) {
    let mut out = std::io::stdout().lock();
    let told = writeln!(out, "@ {what} {number} {name}").and_then(|()| out.flush());
    told.expect("somebody listens");
}

/// The work of the process that is killed. Each line says what has begun, and which block it leads to.
#[test]
#[ignore = "it works until it is killed, by the other test"]
fn the_process_that_is_killed() {
    let Ok(work) = std::env::var(WORK) else {
        return;
    };
    let (seed, dir) = work.split_once(' ').expect("a seed and a directory");
    let mut random = Random::new(seed.parse().expect("a seed"));
    let disk = Arc::new(StdDisk::new(dir));
    let (db, _) = Db::open(disk, options()).expect("a database");
    let mut known = HashSet::new();
    loop {
        let number = db.head().number + 1;
        let name = random.next();
        let is_first = (number - 1).is_multiple_of(INTERVAL);
        tell(if is_first { "boundary" } else { "delta" }, number, name);
        let view = db.view().expect("a view");
        let parent = view.block();
        let roots = db.counters().snapshot_roots;
        let staged = view.session().finish(changes_of(name), vec![]);
        let staged = staged.expect("a block");
        let id = BlockId::new(number, keccak256(name.to_le_bytes()));
        let meta = BlockMeta {
            id,
            parent: parent.hash,
            state_root: staged.root(),
            body: Default::default(),
        };
        let sealed = staged.seal(meta).expect("a block");
        if is_first && known.insert(parent.hash) && random.percent(50) {
            // The job began with this block's root, and the block is not committed yet.
            tell("job", number, name);
            let begin = Instant::now();
            // A merge or a checkpoint may have made the root known: then there is no job.
            while db.counters().snapshot_roots == roots && begin.elapsed() < JOB_MAX {
                thread::yield_now();
            }
            tell("job-done", number, name);
        }
        sealed.commit().expect("a block");
        tell("head", number, name);
        if random.percent(12) {
            tell("merge", number, name);
            db.flush(random.below(3) as usize).expect("a merge");
            tell("merged", number, name);
        }
        if random.percent(8) || number >= BLOCKS_MAX {
            let to = number.saturating_sub(1 + random.below(3 * INTERVAL));
            tell("unwind", to, 0);
            db.unwind(to).expect("an unwind");
            tell("unwound", to, 0);
        }
    }
}

/// Messages of the other process before it was killed.
#[derive(Default)]
struct Told {
    /// Names of the blocks up to the acknowledged head.
    chain: Vec<u64>,
    /// Its operation, the block that it leads to, and the name of that block.
    doing: Option<(String, u64, u64)>,
}

impl Told {
    fn line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a whole line");
        let (what, number, name) = (word().to_owned(), word(), word());
        let (number, name) = (number.parse().unwrap(), name.parse().unwrap());
        self.doing = match &*what {
            "head" => {
                assert_eq!(number, self.chain.len() as u64 + 1);
                self.chain.push(name);
                None
            }
            "unwound" => {
                self.chain.truncate(number as usize);
                None
            }
            "merged" => None,
            // The commit is still to come.
            "job-done" => Some(("boundary".to_owned(), number, name)),
            _ => Some((what, number, name)),
        };
    }

    /// The chains that a kill may leave, as names of their blocks.
    fn possible(&self) -> Vec<Vec<u64>> {
        let mut chains = vec![self.chain.clone()];
        match &self.doing {
            Some((what, _, _)) if what == "merge" => {}
            Some((what, to, _)) if what == "unwind" => {
                // A long unwind goes down in steps.
                let shorter = (*to as usize..self.chain.len()).rev();
                chains.extend(shorter.map(|len| self.chain[..len].to_vec()));
            }
            Some((_, _, name)) => chains.push([&self.chain[..], &[*name]].concat()),
            None => {}
        }
        chains
    }
}

/// Starts the process on `dir`, kills it a moment after it has begun `phase`, once to three
/// times, and returns what it said.
fn run_and_kill(dir: &Path, random: &mut Random, phase: &str, mut told: Told) -> Told {
    let work = format!("{} {}", random.next(), dir.display());
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_process_that_is_killed", "--ignored"])
        .arg("--nocapture")
        .env(WORK, work)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in out.lines() {
            let line = line.expect("text");
            if let Some((_, line)) = line.split_once("@ ") {
                let _ = sender.send(line.to_owned());
            }
        }
    });
    let mut wanted = 1 + random.below(3);
    while wanted > 0 {
        let Ok(line) = lines.recv_timeout(Duration::from_secs(120)) else {
            let _ = child.kill();
            let output = child.wait_with_output().expect("its end");
            panic!("it stopped: {}", String::from_utf8_lossy(&output.stderr));
        };
        wanted -= u64::from(line.starts_with(phase) && line[phase.len()..].starts_with(' '));
        told.line(&line);
    }
    // A job and a commit take a few milliseconds, mostly less.
    thread::sleep(Duration::from_micros(random.below(3_000) * random.below(3)));
    child.kill().expect("a signal");
    let status = child.wait().expect("its end");
    assert_eq!(status.code(), None, "it ended before it was killed");
    reader.join().expect("its last words");
    lines.iter().for_each(|line| told.line(&line));
    told
}

/// The states and roots of a chain, from three maps.
struct Maps(Vec<Model>);

impl Maps {
    fn of(chain: &[u64]) -> Self {
        let mut models = vec![Model::default()];
        models[0].apply(&Changes::new(genesis()));
        for name in chain {
            let mut model = models[models.len() - 1].clone();
            model.apply(&changes_of(*name));
            models.push(model);
        }
        Self(models)
    }

    fn root(&self, chain: &[u64]) -> B256 {
        let wiped: Vec<_> = chain
            .iter()
            .map(|name| wiped_by(&changes_of(*name)))
            .collect();
        let blocks: Vec<_> = (0..chain.len())
            .map(|at| LayeredBlock {
                before: &self.0[at],
                after: &self.0[at + 1],
                wiped: &wiped[at],
            })
            .collect();
        layered_model_root(INTERVAL, chain.len() as u64, &blocks, &self.0[0])
    }
}

/// Opens what a kill has left, and compares it with the maps. Returns the chain that is there.
fn check(dir: &Path, told: &Told, is_thorough: bool, at: &str) -> Vec<u64> {
    let open = || Db::open(Arc::new(StdDisk::new(dir)), options());
    let db = loop {
        match open() {
            Ok((db, _)) => break db,
            Err(StateError::Store(StoreError::InUse { .. })) => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{at}: {error}"),
        }
    };
    let hash = |chain: &[u64]| match chain.last() {
        Some(name) => keccak256(name.to_le_bytes()),
        None => first_block(B256::ZERO).id.hash,
    };
    let head = db.head();
    let mut possible = told.possible().into_iter();
    let chain =
        possible.find(|chain| (chain.len() as u64, hash(chain)) == (head.number, head.hash));
    let chain = chain.unwrap_or_else(|| {
        panic!(
            "{at}: the head is {head}, acknowledged was block {}",
            told.chain.len()
        )
    });
    let maps = Maps::of(&chain);
    let view = db.view().expect("a view");
    let root = maps.root(&chain);
    assert_eq!(view.state_root(), root, "{at}: root of {head}");
    let (model, targets) = (&maps.0[chain.len()], 0..ACCOUNTS / 8);
    let targets = targets.map(|index| (path(index), (0..3).map(path).collect()));
    let targets = ProofTargets::new(targets.collect());
    let proof = view.prove_layered(&targets).expect("a proof");
    for proved in proof.verify(root, &targets).expect("a proof that holds") {
        let there = model.account(&proved.path);
        assert_eq!(proved.account, there.map(|there| there.account), "{at}");
        for (slot, value) in proved.slots {
            let there = there.and_then(|there| there.slots.get(&slot).copied());
            assert_eq!(value, there.unwrap_or_default(), "{at}");
        }
    }
    if is_thorough {
        let damage = db.check(&mut |_| {}).expect("a check").damage;
        assert!(damage.is_empty(), "{at}: {damage:?}");
    }
    // The root of the next block, too, whose interval may be another one.
    let staged = view.session().finish(changes_of(1), vec![]);
    let next = [&chain[..], &[1]].concat();
    let root = staged.expect("a block").root();
    assert_eq!(root, Maps::of(&next).root(&next), "{at}: next root");
    drop(db);
    wait_until_closed(&StdDisk::new(dir));
    chain
}

fn make(dir: &Path) {
    let mut loader = Loader::new(Arc::new(StdDisk::new(dir)), options()).unwrap();
    for change in genesis() {
        loader
            .account(change.path, &account(0), change.slots)
            .unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    loaded.create(meta, vec![]).unwrap().close().unwrap();
}

#[test]
fn a_process_killed_in_any_phase_leaves_the_acknowledged_head_with_its_root() {
    let each = if is_long() { 60 } else { 4 };
    let mut random = Random::new(0x1a7e);
    let dir = tempfile::tempdir().unwrap();
    let mut kills: BTreeMap<String, u64> = BTreeMap::new();
    let (mut chains, mut cycles, mut highest) = (0, 0, 0);
    let mut told = Told::default();
    let mut at = PathBuf::new();
    while let Some(phase) = PHASES
        .into_iter()
        .filter(|phase| kills.get(*phase).copied().unwrap_or(0) < each)
        .min_by_key(|phase| kills.get(*phase).copied().unwrap_or(0))
    {
        if at.as_os_str().is_empty() || told.chain.len() as u64 >= BLOCKS_MAX {
            at = dir.path().join(chains.to_string());
            make(&at);
            (told, chains) = (Told::default(), chains + 1);
        }
        told = run_and_kill(&at, &mut random, phase, told);
        let doing = told.doing.as_ref().map_or("between", |(what, ..)| what);
        *kills.entry(doing.to_owned()).or_default() += 1;
        cycles += 1;
        assert!(cycles < 60 * each, "some phase is never met: {kills:?}");
        let told_at = format!("kill {cycles}, during {doing}");
        let chain = check(&at, &told, cycles % 4 == 0, &told_at);
        highest = highest.max(chain.len());
        told = Told { chain, doing: None };
    }
    say(&format!(
        "{cycles} kills: {kills:?}, {chains} chains, up to block {highest}"
    ));
}
