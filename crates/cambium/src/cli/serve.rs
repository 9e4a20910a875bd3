//! The chain over JSON-RPC.

#[cfg(feature = "cluster")]
use super::args::serve::ShownArgs;
use super::{
    args::{
        database::DbArgs,
        history::NodesArgs,
        serve::{LimitArgs, ServeArgs},
    },
    beside::{Beside, Serving},
    error::{Exit, Failure},
    followed::Followed,
    history, index, node, open,
    output::{Output, Report, Table, count, quantity},
    signals::Stop,
};
use cambium::{
    Node,
    history::{HistoryFollower, WholeNodes},
    index::IndexFollower,
};
use cambium_rpc::{
    Access, Engine, JwtSecret, Limits, Methods, Pool, PoolLimits, ServeError, Served, Server,
    Service,
};
use serde_json::json;
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

/// Time between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// The group of methods that the explorer page asks.
const PAGE: &str = "cambium";
/// Name of the file of the secret, in the directory of the database.
const SECRET: &str = "jwt.hex";

/// What is served, and what follows the chain meanwhile.
struct Chained {
    node: Arc<Node>,
    index: Followed<IndexFollower>,
    history: Followed<HistoryFollower>,
}

pub(crate) fn serve(args: &ServeArgs, out: &Output) -> Result<Report, Failure> {
    let runtime = Builder::new_multi_thread()
        .thread_name("cambium-net")
        .enable_all()
        .build()
        .map_err(Failure::serve)?;
    let shown = Serving::new(args.metrics.metrics, "server", &runtime, out)?;
    let methods = Methods::of_chain().with_explorer(shown.registry());
    #[cfg(feature = "cluster")]
    let methods = {
        let ShownArgs { cluster, on, tls } = &args.cluster;
        super::cluster::show(methods, cluster, on, tls, runtime.handle())?
    };
    let known = |group: &str| methods.names().any(|name| group_of(name) == group);
    if let Some(group) = args.api.iter().find(|group| !known(group)) {
        return Err(Failure::serve(format!(
            "--api: there is no group of methods {group:?}: eth, net, web3, debug, txpool, rpc and cambium are there"
        )));
    }
    let methods = methods.only(|name| args.api.iter().any(|group| group == group_of(name)));
    let chained = match args.engine.engine {
        Some(_) => to_write(&args.db, out)?,
        None => Chained {
            node: Arc::new(node::of_blocks(&args.db, out)?),
            index: Followed::None,
            history: Followed::None,
        },
    };
    let limits = limits(&args.limits);
    let served = Served::new(Arc::clone(&chained.node), limits);
    let pool = args
        .engine
        .engine
        .map(|_| Arc::new(Pool::new(PoolLimits::default())));
    let served = match &pool {
        Some(pool) => served.with_pool(Arc::clone(pool)),
        None => served,
    };
    let served = Arc::new(served);
    let noted = *out;
    served.follow_writer(move |error| {
        noted.note(format_args!(
            "the writer can't be followed: {error}; it is tried again"
        ));
    });
    let service = Service::new(Arc::clone(&served), methods);
    let service = Arc::new(match args.api.iter().any(|group| group == PAGE) {
        true => service.with_page(),
        false => service,
    });
    let engine = engine_of(args, &chained.node, pool, limits)?;
    shown.add(Arc::clone(&served) as _);
    shown.add(Arc::clone(&service) as _);
    if let Some((_, _, engine)) = &engine {
        shown.add(Arc::clone(engine) as _);
    }
    let stop = Stop::on_signals();
    let listening = async {
        let server = Server::listen(args.http).await?.with_access(Access {
            hosts: args.hosts.clone(),
            origins: args.cors.clone(),
        });
        let server = match &args.ipc {
            Some(path) => server.with_socket(path)?,
            None => server,
        };
        let engine = match engine {
            Some((address, secret, service)) => {
                let server = Server::listen(address).await?.with_jwt(secret);
                Some((server, service))
            }
            None => None,
        };
        Ok::<_, ServeError>((server, engine))
    };
    let (server, engine) = runtime.block_on(listening).map_err(Failure::serve)?;
    let address = server.address();
    note_open(address, out);
    if let Some((engine, _)) = &engine {
        out.note(format_args!(
            "http://{} serves the Engine API, with the secret in {}",
            engine.address(),
            secret_file(args).display()
        ));
    }
    out.note(format_args!(
        "http://{address} and ws://{address} serve block {}; Ctrl-C ends",
        served.node().head()
    ));
    let asked = || async {
        while stop.asked().is_none() {
            sleep(LOOK).await;
        }
    };
    let serving = server.run(Arc::clone(&service), asked());
    runtime.block_on(async {
        match engine {
            Some((server, service)) => {
                tokio::join!(serving, server.run(service, asked()));
            }
            None => serving.await,
        }
    });
    drop(shown);
    // Threads that still answer somebody are not waited for.
    runtime.shutdown_background();
    let history_error = chained
        .history
        .finish("history", HistoryFollower::finish, out);
    let index_error = chained.index.finish("index", IndexFollower::finish, out);
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
        "history_error": history_error,
        "index_error": index_error,
    });
    let mut report = Report::new(format!("Served until now.\n{table}"), json);
    if history_error.is_some() || index_error.is_some() {
        report.exit = Exit::CouldNotBeDone;
    }
    Ok(report)
}

/// Begins to serve a chain that this process writes, beside its work, by these methods.
pub(crate) fn beside(
    node: &Arc<Node>,
    address: SocketAddr,
    methods: Methods,
    runtime: &Runtime,
    out: &Output,
) -> Result<(Beside, Arc<Service>), Failure> {
    let served = Arc::new(Served::new(Arc::clone(node), Limits::default()));
    let service = Arc::new(Service::new(served, methods).with_page());
    let server = runtime
        .block_on(Server::listen(address))
        .map_err(Failure::serve)?;
    note_open(server.address(), out);
    out.note(format_args!(
        "http://{0} and ws://{0} serve the chain while the import runs: to browsers a page",
        server.address()
    ));
    let serving = Arc::clone(&service);
    let beside = Beside::run(runtime, |ended| {
        server.run(serving, async {
            let _ = ended.await;
        })
    });
    Ok((beside, service))
}

/// Warns of an address that others reach.
fn note_open(address: SocketAddr, out: &Output) {
    if !address.ip().is_loopback() {
        out.note(format_args!(
            "{address} is not the loopback: anyone who reaches it may call all methods that are served"
        ));
    }
}

/// The chain for a process that writes it: history and index follow, where they are there.
fn to_write(args: &DbArgs, out: &Output) -> Result<Chained, Failure> {
    let chain = open::chain_to_write(&args.clone().into(), out)?;
    let (chain, index) = index::follow(chain, false, args, out)?;
    let db = chain.db().clone();
    let mut node = Node::of_chain(chain);
    // None is made, so what a new one would have does not count.
    let nodes = NodesArgs {
        nodes: WholeNodes::ALL,
    };
    let history = match history::to_follow(None, nodes, args, &db) {
        Ok(Some(history)) => {
            node = node.with_history(history.clone());
            Followed::By(HistoryFollower::start(history, db))
        }
        Ok(None) => Followed::None,
        Err(error) => Followed::refused("history", &error, &db, out),
    };
    Ok(Chained {
        node: Arc::new(node),
        index,
        history,
    })
}

fn secret_file(args: &ServeArgs) -> PathBuf {
    let own = || args.db.datadir.join(SECRET);
    args.engine.jwt.clone().unwrap_or_else(own)
}

/// What serves a consensus client, if one is to be served.
fn engine_of(
    args: &ServeArgs,
    node: &Arc<Node>,
    pool: Option<Arc<Pool>>,
    limits: Limits,
) -> Result<Option<(SocketAddr, JwtSecret, Arc<Service>)>, Failure> {
    let (Some(address), Some(pool)) = (args.engine.engine, pool) else {
        return Ok(None);
    };
    let secret = JwtSecret::read_or_make(&secret_file(args)).map_err(Failure::serve)?;
    let limits = Limits {
        threads: limits.threads,
        ..Limits::of_engine()
    };
    let served = Arc::new(Served::new(Arc::clone(node), limits).with_pool(pool));
    let engine = Arc::new(Engine::new(Arc::clone(&served)));
    let service = Service::new(served, engine.methods())
        .with_rest(engine.rest())
        .with_name("engine");
    Ok(Some((address, secret, Arc::new(service))))
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
