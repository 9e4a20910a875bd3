//! `compose.yaml`: what its containers start, and the files that it names.

use crate::support::{program, served::Served};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The container's script, in a folder instead of the volume, on free ports.
fn start(dir: &Path) -> Command {
    let own = PathBuf::from(program().get_program());
    let mut paths = vec![own.parent().expect("its folder").to_owned()];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new("bash");
    command
        .arg(project().join("containers/start"))
        .env("PATH", env::join_paths(paths).expect("paths"))
        .envs([
            ("HTTP", "127.0.0.1:0"),
            ("METRICS", "127.0.0.1:0"),
            ("MEMORY", "64M"),
        ])
        .envs([("ACCOUNTS", "300"), ("BLOCKS", "3")])
        .env("DIR", dir);
    command
}

#[test]
fn an_empty_volume_gets_a_chain_which_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::of(start(dir.path()));
    assert_eq!(served.result("eth_blockNumber", json!([])), "0x3");
    assert!(!dir.path().join("chain").exists());
    drop(served);
    // The next time it is there already, also as the volume itself.
    let served = Served::of(start(dir.path()));
    assert_eq!(served.result("eth_blockNumber", json!([])), "0x3");
    drop(served);
    let served = Served::of(start(&dir.path().join("database")));
    assert_eq!(served.result("eth_blockNumber", json!([])), "0x3");
}

#[test]
fn an_interrupted_import_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let chain = dir.path().join("chain");
    let (out, db) = (chain.as_os_str(), dir.path().join("database"));
    cambium!(
        "workload",
        "--out",
        out,
        "--accounts",
        "300",
        "--blocks",
        "5"
    )
    .done();
    fs::write(chain.join("is-whole"), "").unwrap();
    let genesis = chain.join("genesis.json");
    cambium!("init", "--preimages", &genesis, "-d", &db).done();
    let served = Served::of(start(dir.path()));
    assert_eq!(served.result("eth_blockNumber", json!([])), "0x5");
    assert!(!chain.exists());
}

#[test]
fn files_that_are_named_are_there() {
    let project = project();
    let read = |name: &str| fs::read_to_string(project.join(name)).expect(name);
    let compose = read("compose.yaml");
    let sources = compose.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("- ");
        let path = line
            .strip_prefix("./")
            .or(line.strip_prefix("dockerfile: "))?;
        Some(path.split(':').next().unwrap_or(path).to_owned())
    });
    let sources: Vec<_> = sources.collect();
    assert_eq!(sources.len(), 4, "{sources:?}");
    let copied = read("containers/Dockerfile");
    let copied = copied
        .lines()
        .filter(|line| line.starts_with("COPY containers/"));
    let copied = copied.flat_map(|line| {
        line.split(' ')
            .filter(|word| word.starts_with("containers/"))
    });
    for name in sources.iter().map(String::as_str).chain(copied) {
        assert!(project.join(name).exists(), "{name}");
    }
    // The program reads this one, and no other, for the levels of its log.
    assert!(compose.contains("CAMBIUM_LOG: ${CAMBIUM_LOG:-info}"));
    // Prometheus reads where the server listens, Grafana asks where Prometheus does.
    assert!(read("containers/start").contains("METRICS:-0.0.0.0:9600"));
    assert!(read("containers/prometheus.yaml").contains("[cambium:9600]"));
    let of_grafana = read("containers/grafana/datasources/prometheus.yaml");
    assert!(of_grafana.contains("url: http://prometheus:9090"));
    let path = "/var/lib/grafana/dashboards";
    assert!(compose.contains(&format!("./dashboards:{path}:ro")));
    assert!(read("containers/grafana/dashboards/cambium.yaml").contains(&format!("path: {path}")));
}

#[test]
fn a_signal_ends_what_the_container_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = start(dir.path());
    command.envs([("ACCOUNTS", "200000"), ("BLOCKS", "5000")]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It makes its chain.
    thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(10));
    // The next run makes another one, whatever is left of this one and of older ones.
    fs::create_dir_all(dir.path().join("chain.done")).unwrap();
    let served = Served::of(start(dir.path()));
    assert_eq!(served.result("eth_blockNumber", json!([])), "0x3");
    let left = fs::read_dir(dir.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["database"]);
}
