//! `cambium_changes`: the blocks that changed an account or a slot, newest first, as a line to walk along.

use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_history::History;
use serde::Deserialize;
use serde_json::{Value, json};

/// Most changes of an answer.
const CHANGES_MAX: usize = 64;

pub(super) fn add(methods: Methods) -> Methods {
    methods.with(
        "cambium_changes(Address, Storage slot?, Options?) -> Changes",
        Kind::Scan,
        changes,
    )
}

/// What is asked for: by default the newest changes.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Asked {
    /// Changes below this block alone.
    before: Option<u64>,
    limit: Option<usize>,
}

/// The changes of one key.
struct Line<'c> {
    call: &'c Call<'c>,
    history: &'c History,
    account: B256,
    slot: Option<B256>,
}

impl Line<'_> {
    /// The first block after `number` that changed the key.
    fn changed_after(&self, number: u64) -> Result<Option<u64>, RpcError> {
        self.call.cancel.check()?;
        let state = self.history.state_at(self.call.node.db(), number)?;
        Ok(state.changed_by(&self.account, self.slot.as_ref())?)
    }

    /// The last block from `first` on and below `end` that changed the key: by look-ups of what comes next, from ever farther away.
    fn changed_before(&self, first: u64, end: u64) -> Result<Option<u64>, RpcError> {
        // Changes are looked for in first+1..end, since the state at `first` has its own.
        let below = |found: Option<u64>| found.filter(|number| *number < end);
        let (mut step, mut from) = (1, end);
        let mut found = loop {
            if from <= first {
                return Ok(None);
            }
            from = end.saturating_sub(step).max(first);
            if from + 1 < end
                && let Some(number) = below(self.changed_after(from)?)
            {
                break number;
            }
            step *= 2;
        };
        // A change is known; the last one is there or above it, up to `high`.
        let (mut low, mut high) = (found, end - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match below(self.changed_after(middle)?) {
                Some(number) => (found, low) = (number, number),
                None => high = middle,
            }
        }
        Ok(Some(found))
    }

    /// What the key is after a block.
    fn value_at(&self, number: u64) -> Result<Value, RpcError> {
        let state = self.history.state_at(self.call.node.db(), number)?;
        Ok(match &self.slot {
            None => match state.account(&self.account)? {
                None => json!({ "number": number, "deleted": true }),
                Some(account) => json!({
                    "number": number,
                    "balance": account.balance,
                    "nonce": format!("{:#x}", account.nonce),
                    "codeHash": account.code_hash,
                }),
            },
            Some(slot) => json!({
                "number": number,
                "value": B256::from(state.slot(&self.account, slot)?),
            }),
        })
    }
}

fn changes(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let address: Address = params.required()?;
    let slot: Option<U256> = params.optional()?;
    let asked: Asked = params.optional()?.unwrap_or_default();
    params.end()?;
    let history = call.node.history()?.ok_or_else(|| {
        RpcError::server(
            "this database keeps no history: import with --history, or cambium history build",
        )
    })?;
    let (first, last) = history.blocks();
    let line = Line {
        call,
        history,
        account: keccak256(address),
        slot: slot.map(|slot| keccak256(B256::from(slot))),
    };
    let most = asked.limit.unwrap_or(CHANGES_MAX).min(CHANGES_MAX);
    let mut end = asked.before.unwrap_or(u64::MAX).min(last.number + 1);
    let (mut found, mut more) = (Vec::new(), false);
    while let Some(number) = line.changed_before(first.number, end)? {
        if found.len() == most {
            more = true;
            break;
        }
        found.push(line.value_at(number)?);
        end = number;
    }
    reply.value(&json!({
        "kept": [first.number, last.number],
        "changes": found,
        "more": more,
    }))
}
