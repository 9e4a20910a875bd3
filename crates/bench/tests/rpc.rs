//! `rpc` measures each part of a small chain without a peer.

use serde_json::Value;
use std::{path::Path, process::Command};

#[test]
fn each_part_has_figures_and_answers_have_no_errors() {
    let program = Path::new(env!("CARGO_BIN_EXE_cambium-bench"));
    if !program.with_file_name("cambium").exists() {
        eprintln!("SKIPPED: the program cambium is not built; ./test builds it");
        return;
    }
    let output = Command::new(program)
        .args(["rpc", "--quick", "--json", "--rounds", "1"])
        .args(["--accounts", "1000", "--blocks", "2", "--payloads", "10"])
        .args(["--deep-blocks", "60"])
        .args(["--parts", "batch,threads,old,logs,payload,beside"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"], Value::Array(Vec::new()), "{errors}");
    let results = report["results"].as_array().unwrap();
    let value = |measured: &str, figure: &str| {
        let of = |result: &&Value| result["measured"] == measured && result["figure"] == figure;
        let found = results.iter().find(of);
        found.and_then(|result| result["cambium"].as_f64())
    };
    for (measured, figure) in [
        ("eth_getBalance in batches of 100", "calls/s"),
        ("eth_getStorageAt in batches of 100", "calls/s"),
        ("eth_call balanceOf in batches of 100", "calls/s"),
        ("eth_getProof in batches of 100", "calls/s"),
        ("proof at the head", "p50 ms"),
        ("cold proof at the head", "p50 ms"),
        ("logs of one receiver in 30 blocks", "requests/s"),
        ("newPayload + forkchoiceUpdated over JSON", "blocks/s"),
        ("newPayload + forkchoiceUpdated over SSZ", "blocks/s"),
    ] {
        assert!(
            value(measured, figure) > Some(0.0),
            "{measured}: {report:#}"
        );
    }
    let beside = results
        .iter()
        .find(|result| result["measured"] == "import beside requests");
    assert!(beside.is_some_and(|result| result["requests_per_second"].as_f64() > Some(0.0)));
    let targets = report["targets"].as_array().unwrap();
    assert!(!targets.is_empty(), "{report:#}");
}

#[test]
fn an_unknown_part_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_cambium-bench"))
        .args(["rpc", "--parts", "no such part"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("payload"),
        "{text}"
    );
}
