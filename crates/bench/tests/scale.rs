//! `scale` runs a job of each kind, on one core, on all, and with more threads than cores.

use serde_json::Value;
use std::process::Command;

/// One job of each kind.
const JOBS: [&str; 7] = [
    "import payments: auto",
    "import swaps in 16 pools: batch",
    "import payments: apply",
    "execute mega-block of tokens: sequential",
    "execute mega-block of tokens: optimistic",
    "execute mainnet: at once",
    "batches of entries",
];

#[test]
fn each_kind_of_job_has_figures_in_every_setting() {
    let output = Command::new(env!("CARGO_BIN_EXE_cambium-bench"))
        .args(["scale", "--tiny", "--rounds", "1", "--json", "--jobs"])
        .arg(JOBS.join(","))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"], Value::Array(Vec::new()), "{errors}");
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut settings = vec!["1".to_owned(), cores.to_string()];
    if cores >= 2 {
        settings.extend(["16/2", "64/2"].map(str::to_owned));
    }
    let results = report["results"].as_array().unwrap();
    let skipped = report["notes"].as_array().unwrap();
    assert_eq!(results.len() + skipped.len(), JOBS.len(), "{report:#}");
    for result in results {
        let name = result["job"].as_str().unwrap();
        for setting in &settings {
            let of = |figure: &str| result[format!("{figure}_{setting}")].as_f64();
            assert!(of("units_per_second") > Some(0.0), "{name}, {setting}");
            assert!(of("cpu_us_per_unit").is_some(), "{name}, {setting}");
        }
        let is_parallel = !name.ends_with("sequential");
        let predicted = result.get("predicted_per_second_64").is_some();
        assert_eq!(predicted, is_parallel && cores > 1, "{name}");
    }
}

#[test]
fn an_unknown_job_is_refused_and_all_are_listed() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cambium-bench"));
        command.arg("scale").args(args).output().unwrap()
    };
    let refused = run(&["--jobs", "no such job"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && text.contains("no such job"),
        "{text}"
    );
    let listed = run(&["--list"]);
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(
        listed.status.success() && text.contains("batches of entries"),
        "{text}"
    );
}
