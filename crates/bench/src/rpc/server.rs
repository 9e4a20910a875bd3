//! The servers: `cambium serve` and geth, as processes on the loopback.

use super::{connection::Connection, plan::MEMORY_BYTES};
use crate::{geth, state::stores::Failure, system};
use cambium_rpc::JwtSecret;
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Time in which a server begins to answer, and in which it becomes idle.
const START_MAX: Duration = Duration::from_secs(300);
/// Time in which a server ends.
const STOP_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);
/// Time over which idleness is observed, and the processor time within it that counts as idle.
const IDLE_WINDOW: Duration = Duration::from_millis(400);
const IDLE_SECONDS: f64 = 0.03;

/// geth with the history of trie nodes under the path scheme, which 1.16 does not have.
pub(super) const GETH_VERSION: &str = "v1.17.10";

/// The path scheme: its flat states and its nodes by path make reads and blocks fast. The hash scheme reads states through the trie,
/// and takes several times the disk.
pub(super) const SCHEME: &str = "path";

/// One of the two servers that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Cambium,
    Geth,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cambium => "cambium",
            Self::Geth => "geth",
        }
    }
}

/// Paths of the servers' programs.
pub(super) struct Programs {
    cambium: PathBuf,
    pub(super) geth: Option<geth::Program>,
}

impl Programs {
    /// Finds `cambium` beside this program, and builds geth if it is wanted.
    pub(super) fn find(has_geth: bool) -> Result<Self, Failure> {
        let cambium = std::env::current_exe()?.with_file_name("cambium");
        if !cambium.exists() {
            let path = cambium.display();
            return Err(format!("{path} is not there: build the package cambium as well").into());
        }
        let geth = has_geth
            .then(|| geth::Program::build(GETH_VERSION))
            .transpose()?;
        Ok(Self { cambium, geth })
    }

    /// The servers to measure.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let geth = self.geth.as_ref().map(|_| Kind::Geth);
        [Kind::Cambium].into_iter().chain(geth).collect()
    }

    /// A command of Cambium's program.
    pub(super) fn cambium(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.cambium);
        command.args(args);
        command
    }

    /// Starts a server of the database in `dir`, whose newest block has this number, and waits until it is idle.
    pub(super) fn serve(
        &self,
        kind: Kind,
        dir: &Path,
        head: u64,
        setting: &Setting,
    ) -> Result<Server, Failure> {
        let (http, engine) = (free_address()?, free_address()?);
        let secret_file = dir.with_extension("jwt");
        let secret = JwtSecret::read_or_make(&secret_file)?;
        let log = dir.with_extension("log");
        let out = File::create(&log)?;
        let mut command = match kind {
            Kind::Cambium => self.cambium_serve(dir, http, setting),
            Kind::Geth => self.geth_serve(dir, http, engine)?,
        };
        if kind == Kind::Cambium && setting.has_engine {
            command
                .args(["--engine", &engine.to_string(), "--jwt"])
                .arg(&secret_file);
        } else if kind == Kind::Geth {
            command.arg("--authrpc.jwtsecret").arg(&secret_file);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        let mut server = Server {
            kind,
            child,
            http,
            engine,
            secret,
            log,
        };
        server.wait_for(head)?;
        server.wait_until_idle();
        Ok(server)
    }

    fn cambium_serve(&self, dir: &Path, http: SocketAddr, setting: &Setting) -> Command {
        let memory = format!("{}M", MEMORY_BYTES >> 20);
        let mut command = self.cambium(&["serve", "--http", &http.to_string()]);
        command.args(["--memory", &memory, "-d"]).arg(dir);
        if let Some(threads) = setting.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        command
    }

    fn geth_serve(
        &self,
        dir: &Path,
        http: SocketAddr,
        engine: SocketAddr,
    ) -> Result<Command, Failure> {
        let geth = self.geth.as_ref().ok_or("geth is not asked for")?;
        let mut command = Command::new(geth.path());
        command.args(geth_archive());
        for option in [
            ["--state.scheme", SCHEME],
            ["--syncmode", "full"],
            ["--maxpeers", "0"],
            ["--port", "0"],
            ["--nat", "none"],
            ["--http.addr", "127.0.0.1"],
            ["--http.api", "eth,net,web3,debug"],
            ["--authrpc.addr", "127.0.0.1"],
            // A batch of 100 proofs stays below it in any case.
            ["--rpc.batch-response-max-size", "250000000"],
        ] {
            command.args(option);
        }
        command.args(["--http.port", &http.port().to_string()]);
        command.args(["--authrpc.port", &engine.port().to_string()]);
        command.args(["--nodiscover", "--ipcdisable", "--http", "--ws"]);
        command.args(["--ws.addr", "127.0.0.1", "--ws.port"]);
        command.arg(free_address()?.port().to_string());
        command.arg("--datadir").arg(dir);
        Ok(command)
    }
}

/// Options of geth's archive: the history of values, of trie nodes, of logs and of transactions for all blocks.
pub(super) fn geth_archive() -> Vec<OsString> {
    let cache = (MEMORY_BYTES >> 20).to_string();
    let options = [
        "--gcmode",
        "archive",
        "--history.state",
        "0",
        "--history.trienode",
        "0",
        "--history.logs",
        "0",
        "--history.transactions",
        "0",
        "--cache",
        &cache,
    ];
    options.map(OsString::from).to_vec()
}

/// How Cambium serves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    pub(super) has_engine: bool,
    /// Threads of the server, by default its own default.
    pub(super) threads: Option<usize>,
}

/// A server that runs. It is killed on drop; [`Server::stop`] lets it end.
pub(super) struct Server {
    pub(super) kind: Kind,
    child: Child,
    pub(super) http: SocketAddr,
    /// Where the Engine API is.
    pub(super) engine: SocketAddr,
    pub(super) secret: JwtSecret,
    log: PathBuf,
}

impl Server {
    /// Processor time of the process, user and system.
    pub(super) fn cpu_seconds(&self) -> f64 {
        system::cpu_seconds_of(self.child.id())
    }

    /// Waits until the server answers that its newest block is `head`.
    fn wait_for(&mut self, head: u64) -> Result<(), Failure> {
        let start = Instant::now();
        let number = |address| {
            let mut connection = Connection::open(address)?;
            connection.call("eth_blockNumber", &json!([]))
        };
        let wanted = Value::from(format!("{head:#x}"));
        loop {
            let answer = number(self.http);
            match &answer {
                Ok(number) if *number == wanted => return Ok(()),
                Ok(number) => {
                    let name = self.kind.name();
                    return Err(
                        format!("{name}: the newest block is {number}, not {wanted}").into(),
                    );
                }
                Err(_) => {}
            }
            if self.child.try_wait()?.is_some() || start.elapsed() > START_MAX {
                let log = self.log.display();
                return Err(format!("{} does not serve: see {log}", self.kind.name()).into());
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until background work such as geth's indexing is over.
    pub(super) fn wait_until_idle(&self) {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            let cpu = self.cpu_seconds();
            thread::sleep(IDLE_WINDOW);
            if self.cpu_seconds() - cpu <= IDLE_SECONDS {
                return;
            }
        }
    }

    /// Asks the process to end, as Ctrl-C does, and waits for it.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let process = i32::try_from(self.child.id()).ok();
        let process = process.and_then(rustix::process::Pid::from_raw);
        let process = process.ok_or("a process without an id")?;
        rustix::process::kill_process(process, rustix::process::Signal::INT)?;
        let start = Instant::now();
        while start.elapsed() < STOP_MAX {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        Err(format!("{} does not end", self.kind.name()).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address on the loopback that nothing listens at.
fn free_address() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}
