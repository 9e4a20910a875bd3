//! Hosts with delays between them: network namespaces, which a program in Python routes between. It needs root, iproute2, Python and the
//! program (`wan.py`), which CAMBIUM_WAN names or which is beside the checkout.

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use serde_json::json;
use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
};

/// Whether a connection that was idle for a round trip begins slowly again, so that each block takes several: no host of a cluster over
/// slow networks should have it.
const SLOW_START: &str = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";

const CUT: f64 = -1.0;

/// Hosts with delays between them. They are removed when it is dropped.
pub struct Wan {
    prefix: String,
    matrix: PathBuf,
    delays: Vec<Vec<f64>>,
    delay_ms: f64,
    router: Child,
}

impl Wan {
    /// Starts hosts with a delay in milliseconds from each to each other one.
    ///
    /// # Errors
    ///
    /// Why they can't be had.
    pub fn start(folder: &Path, hosts: usize, delay_ms: f64) -> Result<Self, String> {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/tools/wan.py");
        let script = env::var_os("CAMBIUM_WAN").map_or(beside, PathBuf::from);
        if !script.exists() {
            return Err("there is no wan.py; CAMBIUM_WAN names one".to_owned());
        }
        let namespaces = Command::new("ip").args(["netns", "list"]).output();
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !namespaces.is_ok_and(|listed| listed.status.success()) {
            return Err("it needs root, and `ip` of iproute2".to_owned());
        }
        let delays: Vec<Vec<f64>> = (0..hosts)
            .map(|from| {
                let to = (0..hosts).map(|to| if from == to { 0.0 } else { delay_ms });
                to.collect()
            })
            .collect();
        let matrix = folder.join("delays.json");
        let text = |error: std::io::Error| error.to_string();
        fs::write(&matrix, json!(delays).to_string()).map_err(text)?;
        // The names of network devices are short.
        let prefix = format!("c{}", id());
        let router = Command::new("python3")
            .arg(script)
            .arg(&matrix)
            .args(["--prefix", &prefix])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut wan = Self {
            prefix,
            matrix,
            delays,
            delay_ms,
            router: router.map_err(text)?,
        };
        let mut first = String::new();
        let out = wan.router.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut first).map_err(text)?;
        if first.trim() != "up" {
            return Err("the hosts can't be made".to_owned());
        }
        for host in 1..=hosts {
            let set = wan
                .on(host, Path::new("sh"))
                .args(["-c", &format!("echo 0 > {SLOW_START}")])
                .status();
            if !set.is_ok_and(|status| status.success()) {
                return Err(format!("{SLOW_START} can't be set"));
            }
        }
        Ok(wan)
    }

    /// A program on a host, from 1.
    pub fn on(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &format!("{}-{host}", self.prefix)])
            .arg(program);
        command
    }

    /// Cuts a host off, from 1, or connects it again.
    ///
    /// # Panics
    ///
    /// If the delays can't be written, or the program has ended.
    pub fn connect(&mut self, host: usize, connected: bool) {
        let delay = if connected { self.delay_ms } else { CUT };
        for other in (0..self.delays.len()).filter(|other| *other != host - 1) {
            self.delays[host - 1][other] = delay;
            self.delays[other][host - 1] = delay;
        }
        fs::write(&self.matrix, json!(self.delays).to_string()).expect("delays");
        self.signal(Signal::HUP).expect("the router runs");
    }

    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        kill_process(Pid::from_child(&self.router), signal)
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        // It removes the hosts when it ends.
        let _ = self.signal(Signal::TERM);
        let _ = self.router.wait();
    }
}

/// Address of a host, from 1.
pub fn address(host: usize) -> String {
    format!("10.77.0.{host}")
}
