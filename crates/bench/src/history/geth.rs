//! geth's archive: a chain of payments that geth imports with the hash scheme and `--gcmode archive`, and
//! accounts at random old blocks, proved by `eth_getProof`.
//!
//! The time is that of a round trip: a request in JSON over geth's socket, its answer, and verifying the proof. geth
//! takes changes only as transactions, so its chain is another one than that of the rest, of the same size: as many
//! accounts and blocks, and as many changed accounts in a block, half of which send. Its files have headers, bodies and
//! receipts as well. It needs more memory than the other reading processes, and is given a limit of its own, page cache
//! included.
//!
//! Nothing is imported while accounts are read: a running geth takes blocks from a consensus client alone. `geth init`
//! takes 8 GB of memory for a million accounts, so this is for small sizes.

use super::{
    plan::{Failure, Plan, make_empty},
    reads::read_with,
    states::{Found, OldStates},
};
use crate::{
    geth::{Program, VERSION, command, failed, has_imported, import_seconds},
    report::Notes,
    system,
};
use alloy_primitives::{Address, B256};
use cambium_chain::{ChainError, ChainSealer, ChainWriter};
use cambium_state::{Options, StdDisk};
use cambium_trie::{AccountProof, verify_account_proof};
use cambium_workload::{BlockSize, Spread};
use cambium_workload::{Workload, WorkloadParams};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, File},
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    iter,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const SCHEME: &str = "hash";
/// Memory of the engine that makes the chain, in bytes.
const MAKING_BYTES: u64 = 1 << 30;
/// One account in this many sends.
const SENDERS_DIVISOR: u64 = 2;
/// geth's caches, as a share of its limit.
const CACHE_DIVISOR: u64 = 4;
const TIME_MAX: Duration = Duration::from_secs(3_600);
/// Time in which geth opens its socket, and in which it answers.
const ANSWER_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// Name in the report.
pub(super) const NAME: &str = "geth, JSON-RPC";

/// Makes a chain, has geth import it, and reads from geth with each of some numbers of threads. Returns
/// figures, and what was wrong.
pub(super) fn measure(
    plan: &Plan,
    memory: u64,
    threads: &[u64],
    notes: &mut Notes,
) -> Result<(Map<String, Value>, Vec<String>), Failure> {
    let program = Program::build(VERSION)?;
    let dir = plan.dir.join("geth");
    make_empty(&dir)?;
    let chain = MadeChain::make(plan, &dir)?;
    let data = dir.join("data");
    let mut geth = Geth {
        program,
        memory,
        data,
        log: plan.dir.join("geth.log"),
        notes,
    };
    geth.finish("init", &[], &chain.genesis)?;
    let first_bytes = geth.compacted_bytes()?;
    let mut options = archive(memory);
    options.push("--nocompaction".into());
    let log = geth.finish("import", &options, &chain.blocks)?;
    let seconds = import_seconds(&log)
        .filter(|_| has_imported(&log, plan.blocks))
        .ok_or_else(|| format!("geth has not imported the chain: {log}"))?;
    let bytes = geth.compacted_bytes()?.saturating_sub(first_bytes);
    let changes = chain.changes.max(1) as f64;
    let mut figures = json!({
        "history": NAME,
        "bytes_per_change": bytes as f64 / changes,
        "build_seconds": seconds,
        "build_us_per_change": 1e6 * seconds / changes,
        "memory_mib": memory >> 20,
    });
    let figures = figures.as_object_mut().ok_or("figures have names")?;
    let errors = geth.serve_and_read(plan, &chain, threads, figures)?;
    Ok((figures.clone(), errors))
}

/// Options of an archive.
fn archive(memory: u64) -> Vec<OsString> {
    let cache = ((memory / CACHE_DIVISOR) >> 20).to_string();
    let options = ["--gcmode", "archive", "--cache", &cache];
    options.map(OsString::from).to_vec()
}

/// A generated chain in files, and what is true of it.
struct MadeChain {
    genesis: PathBuf,
    blocks: PathBuf,
    roots: Vec<B256>,
    addresses: Vec<Address>,
    /// For each account the blocks that changed its nonce, ascending, and the nonces.
    nonces: Vec<Vec<(u64, u64)>>,
    /// Number of changed accounts in all blocks.
    changes: u64,
}

impl MadeChain {
    fn make(plan: &Plan, dir: &Path) -> Result<Self, Failure> {
        let workload = Workload::new(WorkloadParams {
            seed: plan.seed,
            accounts: plan.accounts,
            senders: Some(plan.accounts / SENDERS_DIVISOR),
            blocks: plan.blocks,
            block_size: BlockSize::Transactions(plan.changes / 2),
            erc20_percent: 0,
            fresh_percent: 0,
            spread: Spread::Distinct,
            ..WorkloadParams::default()
        })?;
        let genesis = dir.join("genesis.json");
        let mut out = BufWriter::new(File::create(&genesis)?);
        workload.write_genesis(&mut out)?;
        out.flush()?;
        let disk = Arc::new(StdDisk::new(dir.join("cambium")));
        let options = Options {
            memory_bytes: MAKING_BYTES,
            ..Options::default()
        };
        let chain = workload.init(disk, options, &mut |_| {})?;
        let first = chain.block(0)?.header;
        let addresses: Vec<_> = (0..plan.accounts).map(|at| workload.address(at)).collect();
        let mut made = Self {
            genesis,
            blocks: dir.join("chain.rlp"),
            roots: vec![first.state_root],
            nonces: vec![Vec::new(); addresses.len()],
            addresses,
            changes: 0,
        };
        let indices: HashMap<_, _> = made.addresses.iter().copied().zip(0..).collect();
        let mut blocks = ChainWriter::create(&made.blocks)?;
        workload.generate(&first, &mut ChainSealer(&chain), |block| {
            blocks.write(block)?;
            made.roots.push(block.header.state_root);
            let number = block.header.number;
            for account in chain.access_list(number)?.accounts() {
                let has_changed = !account.balance_changes.is_empty()
                    || !account.nonce_changes.is_empty()
                    || !account.storage_changes.is_empty();
                made.changes += u64::from(has_changed);
                let index: Option<&usize> = indices.get(&account.address);
                if let (Some(index), Some(last)) = (index, account.nonce_changes.last()) {
                    made.nonces[*index].push((number, last.new_nonce));
                }
            }
            Ok::<_, ChainError>(())
        })?;
        blocks.finish()?;
        drop(chain);
        fs::remove_dir_all(dir.join("cambium"))?;
        Ok(made)
    }

    /// The nonce of an account after a block.
    fn nonce(&self, index: u64, number: u64) -> u64 {
        let nonces = &self.nonces[index as usize];
        let last = nonces.partition_point(|(block, _)| *block <= number);
        last.checked_sub(1).map_or(0, |at| nonces[at].1)
    }
}

/// geth with its data.
struct Geth<'a> {
    program: Program,
    /// Limit of its memory, in bytes.
    memory: u64,
    data: PathBuf,
    log: PathBuf,
    notes: &'a mut Notes,
}

impl Geth<'_> {
    /// Has it import a file, or begin with one. Returns its log.
    fn finish(&mut self, name: &str, options: &[OsString], file: &Path) -> Result<String, Failure> {
        let mut args = command(name, SCHEME, &self.data);
        args.extend_from_slice(options);
        args.push(file.into());
        self.run(name, &args)
    }

    /// The size of its data after a compaction: without one, what `init` wrote outweighs what comes later.
    fn compacted_bytes(&mut self) -> Result<u64, Failure> {
        let compact = command("compact", SCHEME, &self.data);
        let args: Vec<_> = iter::once("db".into()).chain(compact).collect();
        self.run("db compact", &args)?;
        Ok(system::disk_bytes(&self.data)?)
    }

    /// Runs a command to its end. Returns its log.
    fn run(&mut self, name: &str, args: &[OsString]) -> Result<String, Failure> {
        // Making the chain is not measured, so it may use all memory.
        let limit = system::memory_available_bytes();
        let ended = self
            .program
            .run(args, limit, TIME_MAX, &self.log, self.notes)?;
        let log = fs::read_to_string(&self.log)?;
        match ended.status.success() {
            true => Ok(log),
            false => Err(failed(name, &ended, &log).into()),
        }
    }

    /// Starts it as a server, and reads from it.
    fn serve_and_read(
        &mut self,
        plan: &Plan,
        chain: &MadeChain,
        threads: &[u64],
        figures: &mut Map<String, Value>,
    ) -> Result<Vec<String>, Failure> {
        // The path of a socket has at most 107 bytes.
        let place = tempfile::tempdir()?;
        let socket = place.path().join("geth.ipc");
        let mut args = Vec::new();
        for option in [
            ["--state.scheme", SCHEME],
            ["--syncmode", "full"],
            ["--maxpeers", "0"],
            ["--port", "0"],
            ["--authrpc.port", "0"],
        ] {
            args.extend(option.map(OsString::from));
        }
        args.push("--nodiscover".into());
        args.extend(archive(self.memory));
        args.extend(["--datadir".into(), self.data.clone().into()]);
        args.extend(["--ipcpath".into(), socket.clone().into()]);
        if let Err(error) = system::drop_caches() {
            self.notes.add(format!("caches are not dropped ({error})"));
        }
        let mut running = self
            .program
            .start(&args, self.memory, &self.log, self.notes)?;
        let start = Instant::now();
        let mut client = loop {
            if let Ok(client) = Client::connect(&socket) {
                break client;
            }
            if running.ended()?.is_some() || start.elapsed() > ANSWER_MAX {
                return Err(format!("geth does not serve: see {}", self.log.display()).into());
            }
            thread::sleep(POLL);
        };
        let head: String = client.call("eth_blockNumber", &json!([]))?;
        if head != format!("{:#x}", plan.blocks) {
            return Err(format!("geth's newest block is {head}, not {}", plan.blocks).into());
        }
        let served = Served {
            socket,
            idle: Mutex::new(vec![client]),
            chain,
        };
        let mut errors = Vec::new();
        for count in threads {
            let nonce = |index, number| chain.nonce(index, number);
            let (read, wrong) = read_with(&served, plan, *count, &nonce, &chain.roots)?;
            errors.extend(wrong);
            let prefix = match count {
                1 => String::new(),
                count => format!("{count}_threads_"),
            };
            // Those of this process, which has read nothing.
            let of_geth = read
                .into_iter()
                .filter(|(name, _)| name != "device_bytes_per_read");
            figures.extend(of_geth.map(|(name, value)| (format!("{prefix}{name}"), value)));
        }
        if let Some(peak) = running.cgroup_peak_bytes() {
            figures.insert("cgroup_peak_mib".to_owned(), json!(peak >> 20));
        }
        Ok(errors)
    }
}

/// A geth that serves.
struct Served<'a> {
    socket: PathBuf,
    /// Connections that no thread uses.
    idle: Mutex<Vec<Client>>,
    chain: &'a MadeChain,
}

impl Served<'_> {
    fn idle(&self) -> Result<Option<Client>, Failure> {
        let mut idle = self.idle.lock().map_err(|error| error.to_string())?;
        Ok(idle.pop())
    }
}

impl OldStates for Served<'_> {
    fn read(&self, index: u64, number: u64, root: B256) -> Result<Found, Failure> {
        let mut client = match self.idle()? {
            Some(client) => client,
            None => Client::connect(&self.socket)?,
        };
        let address = self.chain.addresses[index as usize];
        let params = json!([address, [], format!("{number:#x}")]);
        let proof: AccountProof = client.call("eth_getProof", &params)?;
        let mut idle = self.idle.lock().map_err(|error| error.to_string())?;
        idle.push(client);
        drop(idle);
        if proof.address != address {
            return Err(format!("a proof of {}, not of {address}", proof.address).into());
        }
        let verified = verify_account_proof(root, &proof)?;
        Ok(Found {
            nonce: verified.account.map(|account| account.nonce),
            root: Some(root),
            nodes: proof.account_proof.len() as u64,
        })
    }

    fn import(&self, _: &[u64]) -> Result<(), Failure> {
        Err("a geth that runs takes blocks from a consensus client alone".into())
    }
}

/// A connection, on which requests are answered one after another, each in a line.
struct Client(BufReader<UnixStream>);

/// An answer. One that failed has no result.
#[derive(Deserialize)]
struct Answer<T> {
    result: Option<T>,
    error: Option<Value>,
}

impl Client {
    fn connect(socket: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn call<T: for<'a> Deserialize<'a>>(
        &mut self,
        method: &str,
        params: &Value,
    ) -> Result<T, Failure> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.0.get_mut().write_all(request.to_string().as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let answer: Answer<T> = serde_json::from_str(&line)?;
        let error = || format!("geth: {method}: {}", answer.error.unwrap_or_default()).into();
        answer.result.ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Shutdown;

    fn answer(line: &str) -> Result<String, Failure> {
        let (ours, mut theirs) = UnixStream::pair()?;
        theirs.write_all(line.as_bytes())?;
        // The request still arrives; later ones are not answered.
        theirs.shutdown(Shutdown::Write)?;
        Client(BufReader::new(ours)).call("eth_blockNumber", &json!([]))
    }

    #[test]
    fn an_answer_has_a_result_or_the_error_says_why() -> Result<(), Failure> {
        let found = answer("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"0x10\"}\n")?;
        assert_eq!(found, "0x10");
        let line = "{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"missing trie node\"}}\n";
        let error = answer(line).expect_err("it has no result").to_string();
        assert!(error.contains("missing trie node"), "{error}");
        assert!(answer("").is_err());
        Ok(())
    }

    #[test]
    fn each_payment_of_a_chain_changes_two_accounts_and_one_nonce() -> Result<(), Failure> {
        let dir = tempfile::tempdir()?;
        let plan = Plan {
            accounts: 60,
            blocks: 4,
            imported: 0,
            import_rate: 1,
            changes: 20,
            reads: 0,
            memory: 0,
            history_memory: 0,
            history_cache: 0,
            trie_memory: 0,
            process_memory: 0,
            seed: 1,
            dir: dir.path().to_owned(),
        };
        let made = MadeChain::make(&plan, dir.path())?;
        let nonces = |number| (0..60).map(move |index| (index, number));
        let sum = |number| -> u64 {
            nonces(number)
                .map(|(at, number)| made.nonce(at, number))
                .sum()
        };
        assert_eq!((0..=4).map(sum).collect::<Vec<_>>(), [0, 10, 20, 30, 40]);
        assert_eq!(made.roots.len(), 5);
        // Those who pay and are paid, and what every block changes.
        assert!(
            (80..=80 + 4 * 4).contains(&made.changes),
            "{}",
            made.changes
        );
        Ok(())
    }
}
