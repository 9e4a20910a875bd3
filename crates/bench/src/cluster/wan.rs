//! Hosts with delays between them: network namespaces, which a program in Python routes between. It needs root, iproute2, Python and the
//! program (`wan.py`), which CAMBIUM_WAN names or which is beside the checkout.

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

/// Hosts with delays between them. They are removed when it is dropped.
pub(super) struct Wan {
    prefix: String,
    router: Child,
}

impl Wan {
    /// Starts hosts with a delay in milliseconds from each to each other one.
    ///
    /// # Errors
    ///
    /// Why they can't be had.
    pub(super) fn start(folder: &Path, hosts: usize, delay_ms: f64) -> Result<Self, String> {
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
        let prefix = format!("b{}", id());
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
    pub(super) fn on(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &format!("{}-{host}", self.prefix)])
            .arg(program);
        command
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        // It removes the hosts when it ends.
        let router = self.router.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &router]).status();
        let _ = self.router.wait();
    }
}

/// Address of a host, from 1.
pub(super) fn address(host: usize) -> String {
    format!("10.77.0.{host}")
}
