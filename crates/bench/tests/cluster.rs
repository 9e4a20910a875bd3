//! `cluster --quick` has a figure for each of its parts, and makes a plot.

use serde_json::Value;
use std::{fs, process::Command};

#[test]
fn each_part_has_figures_and_the_plot_has_a_line_for_each_row() {
    let folder = tempfile::TempDir::new().unwrap();
    let plot = folder.path().join("aborts.svg");
    let output = Command::new(env!("CARGO_BIN_EXE_cambium-bench"))
        .args(["cluster", "--quick", "--json", "--plot"])
        .arg(&plot)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"], Value::Array(Vec::new()), "{errors}");
    let results = report["results"].as_array().unwrap();
    let with = |figure: &str| {
        let results = results.iter().filter(|it| it.get(figure).is_some());
        results.collect::<Vec<_>>()
    };
    let curves = with("aborted by level, %");
    // Two kinds of receivers, four ages of bags.
    assert_eq!(curves.len(), 8);
    for curve in &curves {
        let shares = curve["aborted by level, %"].as_array().unwrap();
        let share = |level: usize| shares[level].as_f64().unwrap();
        // Who keeps the root alone has nothing in common with a stale bag; who keeps all needs none.
        assert_eq!((shares.len(), share(0), share(7)), (8, 100.0, 0.0));
    }
    let drawn = fs::read_to_string(plot).unwrap();
    assert_eq!(drawn.matches("<polyline").count(), curves.len());
    assert_eq!(with("process lost: until it has the head, s").len(), 1);
    let rates = with("transfers/s");
    let skipped = report["notes"].to_string().contains("SKIPPED");
    assert_eq!(rates.len(), if skipped { 1 } else { 2 }, "{report:#}");
    for rate in rates {
        assert!(rate["transfers/s"].as_f64() > Some(0.0));
    }
}

#[test]
fn an_unknown_part_is_refused() {
    let refused = Command::new(env!("CARGO_BIN_EXE_cambium-bench"))
        .args(["cluster", "--parts", "aborts,oceans"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && text.contains("\"oceans\""),
        "{text}"
    );
}
