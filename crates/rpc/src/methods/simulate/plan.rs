//! The blocks that a request asks for, in order, and empty ones where numbers are left out.

use crate::{error::RpcError, signature::Position};
use alloy_consensus::Header;
use alloy_eips::eip4895::Withdrawal;
use alloy_rpc_types_eth::{BlockOverrides, state::StateOverride};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Seconds from a block to the next one, unless the request says otherwise.
const BLOCK_SECONDS: u64 = 12;

/// A block as it is asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    #[serde(borrow, default)]
    block_overrides: Option<&'a RawValue>,
    #[serde(default)]
    state_overrides: Option<StateOverride>,
    #[serde(borrow, default)]
    calls: Option<Vec<&'a RawValue>>,
}

/// What a block has besides the fields that alloy knows.
#[derive(Default, Deserialize)]
struct Body {
    #[serde(default)]
    withdrawals: Option<Vec<Withdrawal>>,
}

/// A block that is to be simulated. Its number and time are known.
pub(super) struct Planned<'a> {
    pub(super) number: u64,
    pub(super) timestamp: u64,
    pub(super) overrides: BlockOverrides,
    pub(super) withdrawals: Vec<Withdrawal>,
    pub(super) state: StateOverride,
    pub(super) calls: Vec<&'a RawValue>,
}

/// Parses a part of the request.
pub(super) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, RpcError> {
    serde_json::from_str(raw.get())
        .map_err(|error| crate::params::invalid(&Position(0, None), &error))
}

/// Puts the blocks of a request in order. At most `most` of them, with those between them, are made.
pub(super) fn planned<'a>(
    asked: &[&'a RawValue],
    base: &Header,
    most: u64,
) -> Result<Vec<Planned<'a>>, RpcError> {
    let too_many = || {
        let what = format!("too many blocks: {most} are simulated at most");
        RpcError::new(RpcError::SIMULATION, what)
    };
    if asked.is_empty() {
        return Err(RpcError::params("empty input"));
    }
    if asked.len() as u64 > most {
        return Err(too_many());
    }
    let mut all = Vec::new();
    let (mut number, mut timestamp) = (base.number, base.timestamp);
    for raw in asked {
        let Asked {
            block_overrides,
            state_overrides,
            calls,
        } = parse(raw)?;
        let (overrides, body): (BlockOverrides, Body) = match block_overrides {
            Some(raw) => (parse(raw)?, parse(raw)?),
            None => Default::default(),
        };
        let next = number.saturating_add(1);
        let own = overrides.number.map_or(next, |own| own.saturating_to());
        if own < next || own == number {
            let what = format!("block numbers must be in order: {own} <= {number}");
            return Err(RpcError::new(RpcError::BLOCK_NUMBER, what));
        }
        if own - base.number > most {
            return Err(too_many());
        }
        for number in next..own {
            timestamp = timestamp.saturating_add(BLOCK_SECONDS);
            all.push(Planned {
                number,
                timestamp,
                overrides: BlockOverrides::default(),
                withdrawals: Vec::new(),
                state: StateOverride::default(),
                calls: Vec::new(),
            });
        }
        let later = timestamp.saturating_add(BLOCK_SECONDS);
        let time = overrides.time.unwrap_or(later);
        if time <= timestamp {
            let what = format!("block timestamps must be in order: {time} <= {timestamp}");
            return Err(RpcError::new(RpcError::BLOCK_TIME, what));
        }
        (number, timestamp) = (own, time);
        all.push(Planned {
            number,
            timestamp,
            overrides,
            withdrawals: body.withdrawals.unwrap_or_default(),
            state: state_overrides.unwrap_or_default(),
            calls: calls.unwrap_or_default(),
        });
    }
    Ok(all)
}
