//! The chain over JSON-RPC.

use super::{
    args::serve::{LimitArgs, ServeArgs},
    error::Failure,
    node,
    output::{Output, Report, Table, count, quantity},
    signals::Stop,
};
use cambium_rpc::{Access, Limits, Methods, Served, Server, Service};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Builder, time::sleep};

/// Time between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn serve(args: &ServeArgs, out: &Output) -> Result<Report, Failure> {
    let node = Arc::new(node::of_blocks(&args.db, out)?);
    let methods = Methods::of_chain();
    let known = |group: &str| methods.names().any(|name| group_of(name) == group);
    if let Some(group) = args.api.iter().find(|group| !known(group)) {
        return Err(Failure::serve(format!(
            "--api: there is no group of methods {group:?}: eth, net, web3, debug and rpc are there"
        )));
    }
    let methods = methods.only(|name| args.api.iter().any(|group| group == group_of(name)));
    let served = Arc::new(Served::new(node, limits(&args.limits)));
    let noted = *out;
    served.follow_writer(move |error| {
        noted.note(format_args!(
            "the writer can't be followed: {error}; it is tried again"
        ));
    });
    let service = Arc::new(Service::new(Arc::clone(&served), methods));
    let runtime = Builder::new_multi_thread()
        .thread_name("cambium-net")
        .enable_all()
        .build()
        .map_err(Failure::serve)?;
    let stop = Stop::on_signals();
    let listening = async {
        let server = Server::listen(args.http).await?.with_access(Access {
            hosts: args.hosts.clone(),
            origins: args.cors.clone(),
        });
        match &args.ipc {
            Some(path) => server.with_socket(path),
            None => Ok(server),
        }
    };
    let server = runtime.block_on(listening).map_err(Failure::serve)?;
    let address = server.address();
    if !address.ip().is_loopback() {
        out.note(format_args!(
            "{address} is not the loopback: anyone who reaches it may call all methods of --api"
        ));
    }
    out.note(format_args!(
        "http://{address} and ws://{address} serve block {}; Ctrl-C ends",
        served.node().head()
    ));
    let asked = async {
        while stop.asked().is_none() {
            sleep(LOOK).await;
        }
    };
    runtime.block_on(server.run(Arc::clone(&service), asked));
    // Threads that still answer somebody are not waited for.
    runtime.shutdown_background();
    let (head, counts) = (served.node().head(), service.counts());
    let table = Table::default()
        .row("head", head)
        .row("requests", count(counts.requests))
        .row("calls", count(counts.calls))
        .row("errors", count(counts.errors));
    let json = json!({
        "address": address.to_string(),
        "head_number": quantity(head.number),
        "head_hash": head.hash,
        "requests": counts.requests,
        "calls": counts.calls,
        "errors": counts.errors,
    });
    Ok(Report::new(format!("Served until now.\n{table}"), json))
}

/// The group that a method is of: what its name begins with.
fn group_of(name: &str) -> &str {
    name.split('_').next().unwrap_or_default()
}

fn limits(args: &LimitArgs) -> Limits {
    let own = Limits::default();
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    Limits {
        connections: args.connections.get(),
        threads: args.threads.map_or(own.threads, |threads| threads.get()),
        batch: args.batch_calls.get(),
        body_bytes: bytes(args.request_size),
        answer_bytes: args.answer_size,
        batch_bytes: args.batch_size,
        time: Duration::from_secs(args.answer_seconds.get()),
        call_time: Duration::from_secs(args.call_seconds.get()),
        call_gas: args.call_gas.get(),
        logs: args.logs.get(),
        log_blocks: args.log_blocks.get(),
        proof_keys: args.proof_keys.get(),
        simulated_blocks: args.simulated_blocks.get(),
        subscriptions: args.subscriptions.get(),
        ..own
    }
}
