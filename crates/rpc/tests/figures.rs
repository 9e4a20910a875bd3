//! Figures: those of the documentation, and counted where it happens.

use crate::common::{ask, served_of, workload_chain};
use cambium_metrics::{MetricsHost, MetricsPage};
use cambium_rpc::{Limits, Methods, PoolLimits, Service};
use cambium_testkit::exposition::{Exposition, FigureTables};
use serde_json::Value;
use std::sync::Arc;

fn page(hosts: &[&dyn MetricsHost]) -> Exposition {
    let mut page = MetricsPage::default();
    for host in hosts {
        host.report(&mut page);
    }
    let text = page.to_string();
    Exposition::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn all_figures_are_in_the_tables() {
    let served = served_of(workload_chain(2), Limits::default(), PoolLimits::default());
    let service = Service::new(Arc::clone(&served), Methods::of_chain());
    ask(
        &service,
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#,
    );
    let mut tables = FigureTables::of(include_str!("../../../docs/RPC.md"));
    tables.add_engine("the engine", include_str!("../../../docs/OPERATIONS.md"));
    let page = page(&[&*served, &service]);
    tables.check(
        &page,
        &["Of a service", "Of what is served", "the engine"],
        &[],
    );
}

#[test]
fn figures_follow_what_is_done() {
    let served = served_of(workload_chain(2), Limits::default(), PoolLimits::default());
    let service = Service::new(Arc::clone(&served), Methods::of_chain()).with_name("mine");
    let twin = Service::new(Arc::clone(&served), Methods::of_chain());
    for request in [
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"},{"jsonrpc":"2.0","id":2,"method":"eth_getBalance","params":[]}]"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_nothing"}"#,
        "{",
    ] {
        ask(&service, request);
    }
    ask(&twin, r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#);
    ask(
        &service,
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x02"]}"#,
    );
    let page = page(&[&*served, &service, &twin]);
    let value = |name: &str, labels: &[(&str, &str)]| page.find(name, labels);
    let calls = |method, outcome| {
        let labels = [
            ("service", "mine"),
            ("method", method),
            ("outcome", outcome),
        ];
        value("cambium_api_calls_total", &labels)
    };
    assert_eq!(calls("eth_blockNumber", "ok"), Some(2.0));
    assert_eq!(calls("eth_blockNumber", "error"), Some(0.0));
    assert_eq!(calls("eth_getBalance", "error"), Some(1.0));
    // The methods of another service are counted by themselves.
    assert_eq!(calls("eth_chainId", "ok"), None);
    let mine = [("service", "mine")];
    assert_eq!(value("cambium_api_requests_total", &mine), Some(5.0));
    for (code, count) in [
        ("-32700", 1.0),
        ("-32601", 1.0),
        ("-32602", 1.0),
        ("-32005", 0.0),
    ] {
        let labels = [("service", "mine"), ("code", code)];
        assert_eq!(
            value("cambium_api_errors_total", &labels),
            Some(count),
            "{code}"
        );
    }
    assert_eq!(
        value("cambium_pool_transactions_refused_total", &[]),
        Some(1.0)
    );
    assert_eq!(value("cambium_head_block", &[]), Some(2.0));
    let counts = service.counts();
    assert_eq!((counts.requests, counts.calls, counts.errors), (5, 5, 4));
    assert_eq!(served.ready(), Ok(()));
}

#[test]
fn the_dashboard_shows_figures_that_there_are() {
    let mut tables = FigureTables::of(include_str!("../../../docs/RPC.md"));
    tables.add_engine("the engine", include_str!("../../../docs/OPERATIONS.md"));
    let mut names = tables.names();
    names.extend(FigureTables::of(include_str!("../../../docs/CLUSTER.md")).names());
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../dashboards/cambium.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = 0;
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let words =
                expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            for word in
                words.filter(|word| word.starts_with("cambium_") || word.starts_with("process_"))
            {
                assert!(
                    names.contains(word),
                    "{}: there is no {word}",
                    panel["title"]
                );
                shown += 1;
            }
        }
    }
    assert!(shown > 60, "{shown}");
}
