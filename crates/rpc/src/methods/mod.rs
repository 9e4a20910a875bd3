//! The methods of a chain.

mod block_id;
mod objects;
mod chain;
mod state;
mod blocks;
pub(crate) mod pool;
mod transactions;
pub(crate) mod logs;
mod filters;
mod fees;
mod raw;
mod access_lists;
mod net;
mod forks;
mod call;
mod simulate;
mod fill;
mod replay;
mod ranges;
mod budget;
mod trace;
mod testing;
mod explore;

use crate::table::Methods;

impl Methods {
    /// What Ethereum's JSON-RPC has that reads a chain.
    pub fn of_chain() -> Self {
        let mut methods = Self::none();
        for add in [
            chain::add,
            state::add,
            blocks::add,
            transactions::add,
            logs::add,
            filters::add,
            fees::add,
            raw::add,
            access_lists::add,
            net::add,
            forks::add,
            call::add,
            simulate::add,
            fill::add,
            ranges::add,
            trace::add,
            pool::add,
        ] {
            methods = add(methods);
        }
        methods
    }
}
