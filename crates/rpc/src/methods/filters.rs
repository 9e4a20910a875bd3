//! Filters that clients ask now and then: what happened since they asked last.

use super::{
    logs::{self, of_block},
    pool::pending_object,
};
use crate::{
    error::RpcError,
    filter::{Blocks, FilterObject},
    limits::Kind,
    params::Params,
    polled::{Asks, Filter},
    reply::Reply,
    table::{Call, Methods},
};
use alloy_primitives::U64;
use cambium_state::{ChainEvent, Subscription};
use parking_lot::Mutex;
use std::sync::Arc;

/// Most blocks that a filter tells of at once.
const BLOCKS_AT_ONCE: usize = 1024;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_newBlockFilter() -> Filter identifier",
            Kind::Quick,
            |call, params, reply| {
                params.end()?;
                reply.value(&new(call, Asks::Blocks)?)
            },
        )
        .with(
            "eth_newPendingTransactionFilter(Hydrated transactions?) -> Filter identifier",
            Kind::Quick,
            |call, mut params, reply| {
                let whole = params.optional()?.unwrap_or(false);
                params.end()?;
                // Without a pool no transaction ever waits.
                let told = call
                    .served
                    .pool()
                    .map_or(0, |pool| *pool.announced().borrow());
                let told = Mutex::new(told);
                reply.value(&new(call, Asks::Pending { whole, told })?)
            },
        )
        .with(
            "eth_newFilter(Filter?) -> Filter identifier",
            Kind::Quick,
            |call, mut params, reply| {
                let filter: FilterObject = params.optional()?.unwrap_or_default();
                params.end()?;
                let (logs, _) = filter.clone().checked(call.limits().alternatives)?;
                reply.value(&new(call, Asks::Logs(Box::new((filter, logs))))?)
            },
        )
        .with(
            "eth_uninstallFilter(Filter identifier) -> Success",
            Kind::Quick,
            |call, mut params, reply| {
                let id: U64 = params.required()?;
                params.end()?;
                reply.value(&call.served.filters.remove(id.to()))
            },
        )
        .with(
            "eth_getFilterChanges(Filter identifier) -> Log objects",
            Kind::Scan,
            changes,
        )
        .with(
            "eth_getFilterLogs(Filter identifier) -> Log objects",
            Kind::Scan,
            all_logs,
        )
}

fn new(call: &Call<'_>, asks: Asks) -> Result<U64, RpcError> {
    let since = call.node.subscribe(call.node.head());
    Ok(U64::from(call.served.filters.add(asks, since)?))
}

fn find(call: &Call<'_>, params: &mut Params<'_>) -> Result<Arc<Filter>, RpcError> {
    let id: U64 = params.required()?;
    params.end()?;
    let filter = call.served.filters.get(id.to());
    filter.ok_or_else(|| RpcError::server("filter not found"))
}

fn changes(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let filter = find(call, &mut params)?;
    let busy = || RpcError::server("the filter is being asked already");
    let mut since = filter.since.try_lock().ok_or_else(busy)?;
    if let Asks::Pending { whole, told } = &filter.asks {
        return tell_pending(call, *whole, &mut told.lock(), reply);
    }
    let start = since.cursor();
    let told = tell(call, &filter, &mut since, reply);
    if told.is_err() {
        // What was not told is told the next time.
        *since = call.node.subscribe(start);
    }
    told
}

/// Tells what became executable since the client was told last.
fn tell_pending(
    call: &Call<'_>,
    whole: bool,
    told: &mut u64,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let Some(pool) = call.served.pool() else {
        return reply.value(&[(); 0]);
    };
    // What a new head made executable.
    pool.status(call.node)?;
    let Some(new) = pool.announced_since(*told) else {
        *told = *pool.announced().borrow();
        return Err(RpcError::new(
            RpcError::LIMIT,
            "more transactions came than are remembered: the filter goes on with those that come from now on",
        ));
    };
    let mut list = reply.list()?;
    for own in &new {
        match whole {
            false => list.item(&own.hash)?,
            true => {
                if let Some(own) = own.transaction() {
                    list.item(&pending_object(&own))?;
                }
            }
        }
    }
    list.end()?;
    *told += new.len() as u64;
    Ok(())
}

fn tell(
    call: &Call<'_>,
    filter: &Filter,
    since: &mut Subscription,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let mut list = reply.list()?;
    for _ in 0..BLOCKS_AT_ONCE {
        call.cancel.check()?;
        let (id, has_left) = match since.try_next()? {
            None => break,
            Some(ChainEvent::Committed(block)) => (block.meta.id, false),
            Some(ChainEvent::Reverted(block)) => (block.meta.id, true),
            Some(ChainEvent::Finalized(_)) => continue,
        };
        match &filter.asks {
            Asks::Blocks if !has_left => list.item(&id.hash)?,
            Asks::Logs(asks) => {
                for mut log in of_block(&call.served.node_with(id), id.hash, &asks.1)? {
                    log.removed = has_left;
                    list.item(&log)?;
                }
            }
            Asks::Blocks | Asks::Pending { .. } => {}
        }
    }
    list.end()
}

fn all_logs(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let filter = find(call, &mut params)?;
    let Asks::Logs(asks) = &filter.asks else {
        return Err(RpcError::server("filter not found: it is none of logs"));
    };
    let (filter, blocks) = asks.0.clone().checked(call.limits().alternatives)?;
    match blocks {
        Blocks::One(hash) => reply.value(&of_block(call.node, hash, &filter)?),
        Blocks::Range(from, to) => {
            let range = logs::range(call, from, to)?;
            logs::in_range(call, &filter, range, reply)
        }
    }
}
