//! System calls before and after a block's transactions, and execution layer requests (EIP-7685).

use crate::{BlockInput, ExecutionError, Receipt, StateRead, create::BlockEvm};
use alloy_eips::{
    eip2935::HISTORY_STORAGE_ADDRESS,
    eip4788::{BEACON_ROOTS_ADDRESS, SYSTEM_ADDRESS},
    eip6110::DEPOSIT_REQUEST_TYPE,
    eip7002::{WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, WITHDRAWAL_REQUEST_TYPE},
    eip7251::{CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS, CONSOLIDATION_REQUEST_TYPE},
};
use alloy_primitives::{Address, B256, Bytes, TxKind, b256};
use revm::{
    context::{
        ContextSetters, TxEnv,
        result::{EVMError, ExecutionResult},
    },
    handler::{EvmTr, Handler, MainnetHandler},
    primitives::hardfork::SpecId,
    state::EvmState,
};

/// The request type and the data that its contract returned.
pub(crate) type ContractRequest = (u8, Bytes);

/// Request type of deposits.
pub(crate) const DEPOSITS: u8 = DEPOSIT_REQUEST_TYPE;

/// Request types that are returned by system contracts, with the contract, in order of type.
const CONTRACTS: [(u8, Address); 2] = [
    (
        WITHDRAWAL_REQUEST_TYPE,
        WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
    ),
    (
        CONSOLIDATION_REQUEST_TYPE,
        CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
    ),
];

/// Gas limit of a system call. It does not count towards the block's gas.
const SYSTEM_GAS: u64 = 30_000_000;

/// keccak("DepositEvent(bytes,bytes,bytes,bytes,bytes)").
const DEPOSIT_EVENT: B256 =
    b256!("649bbc62d0e31342afea4e5cd82d4049e7e1ee912fc0889aa790803be39038c5");

/// Fields of a deposit log: offset of the length word, and length in bytes.
const DEPOSIT_FIELDS: [(usize, usize); 5] = [(160, 48), (256, 32), (320, 8), (384, 96), (512, 8)];

/// Size of the data of a deposit log.
const DEPOSIT_LOG_BYTES: usize = 576;

/// Runs the system calls before the first transaction: stores the parent beacon block root
/// (EIP-4788) and the parent hash (EIP-2935). A missing or failing contract is ignored.
pub(crate) fn before_block<DB: StateRead>(
    evm: &mut BlockEvm<DB>,
    input: &BlockInput<'_>,
) -> Result<(), ExecutionError<DB::Error>> {
    let header = input.header;
    if input.rules.is(SpecId::CANCUN)
        && let Some(root) = header.parent_beacon_block_root
    {
        let (_, state) = call(evm, BEACON_ROOTS_ADDRESS, root.into())?;
        commit(evm, state)?;
    }
    if input.rules.is(SpecId::PRAGUE) {
        let (_, state) = call(evm, HISTORY_STORAGE_ADDRESS, header.parent_hash.into())?;
        commit(evm, state)?;
    }
    Ok(())
}

/// Runs the system calls after the last transaction, from Prague on, and returns the withdrawal
/// (EIP-7002) and consolidation (EIP-7251) requests. If a contract is missing or fails, the block
/// is invalid.
pub(crate) fn contract_requests<DB: StateRead>(
    evm: &mut BlockEvm<DB>,
    input: &BlockInput<'_>,
) -> Result<Vec<ContractRequest>, ExecutionError<DB::Error>> {
    if !input.rules.is(SpecId::PRAGUE) {
        return Ok(Vec::new());
    }
    let mut requests = Vec::with_capacity(CONTRACTS.len());
    for (kind, contract) in CONTRACTS {
        requests.push((kind, demand(evm, contract)?));
    }
    Ok(requests)
}

/// Calls a contract that must exist and succeed.
fn demand<DB: StateRead>(
    evm: &mut BlockEvm<DB>,
    contract: Address,
) -> Result<Bytes, ExecutionError<DB::Error>> {
    let account = evm.overlay().account(contract);
    let has_code = account
        .map_err(ExecutionError::Database)?
        .is_some_and(|a| !a.is_empty_code_hash());
    if !has_code {
        let reason = "there is no code".to_owned();
        return Err(ExecutionError::SystemCall { contract, reason });
    }
    let (result, state) = call(evm, contract, Bytes::new())?;
    let output = match result {
        ExecutionResult::Success { output, .. } => output.into_data(),
        ExecutionResult::Revert { .. } => {
            let reason = "it reverts".to_owned();
            return Err(ExecutionError::SystemCall { contract, reason });
        }
        ExecutionResult::Halt { reason, .. } => {
            let reason = format!("it halts ({reason:?})");
            return Err(ExecutionError::SystemCall { contract, reason });
        }
    };
    commit(evm, state)?;
    Ok(output)
}

fn call<DB: StateRead>(
    evm: &mut BlockEvm<DB>,
    contract: Address,
    data: Bytes,
) -> Result<(ExecutionResult, EvmState), ExecutionError<DB::Error>> {
    evm.ctx().set_tx(TxEnv {
        caller: SYSTEM_ADDRESS,
        kind: TxKind::Call(contract),
        gas_limit: SYSTEM_GAS,
        gas_price: 0,
        data,
        ..TxEnv::default()
    });
    let result: Result<_, EVMError<DB::Error>> = MainnetHandler::default().run_system_call(evm);
    let state = evm.ctx().journaled_state.finalize();
    match result {
        Ok(result) => Ok((result, state)),
        Err(EVMError::Database(error)) => Err(ExecutionError::Database(error)),
        Err(other) => Err(ExecutionError::SystemCall {
            contract,
            reason: other.to_string(),
        }),
    }
}

fn commit<DB: StateRead>(
    evm: &mut BlockEvm<DB>,
    state: EvmState,
) -> Result<(), ExecutionError<DB::Error>> {
    evm.overlay()
        .commit(state)
        .map_err(ExecutionError::Database)
}

/// The deposits in the logs of `receipts` (EIP-6110), 192 bytes each.
///
/// # Errors
///
/// [`ExecutionError::MalformedDeposit`].
pub fn deposits<E>(contract: Address, receipts: &[Receipt]) -> Result<Bytes, ExecutionError<E>> {
    let mut deposits = Vec::new();
    for log in receipts.iter().flat_map(|receipt| receipt.logs()) {
        if log.address != contract || log.topics().first() != Some(&DEPOSIT_EVENT) {
            continue;
        }
        append_deposit(&log.data.data, &mut deposits).ok_or(ExecutionError::MalformedDeposit)?;
    }
    Ok(deposits.into())
}

/// Appends the deposit in a log's data: five byte strings in Solidity's ABI encoding. `None` if the
/// layout differs.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 5 * 32 | offset of each field |
/// | 160 | 32 + 64 | length 48, public key, padding |
/// | 256 | 32 + 32 | length 32, withdrawal credentials |
/// | 320 | 32 + 32 | length 8, amount, padding |
/// | 384 | 32 + 96 | length 96, signature |
/// | 512 | 32 + 32 | length 8, index, padding |
fn append_deposit(data: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if data.len() != DEPOSIT_LOG_BYTES {
        return None;
    }
    let word = |at: usize, value: usize| {
        let word = &data[at..at + 32];
        word[..30].iter().all(|byte| *byte == 0) && word[30..] == (value as u16).to_be_bytes()
    };
    for (index, (offset, len)) in DEPOSIT_FIELDS.into_iter().enumerate() {
        if !word(index * 32, offset) || !word(offset, len) {
            return None;
        }
        out.extend_from_slice(&data[offset + 32..offset + 32 + len]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deposit() -> Vec<u8> {
        let mut data = vec![0; DEPOSIT_LOG_BYTES];
        for (index, (offset, len)) in DEPOSIT_FIELDS.into_iter().enumerate() {
            data[index * 32 + 30..index * 32 + 32].copy_from_slice(&(offset as u16).to_be_bytes());
            data[offset + 31] = len as u8;
            data[offset + 32..offset + 32 + len].fill(index as u8 + 1);
        }
        data
    }

    #[test]
    fn a_deposit_is_its_five_fields_without_their_padding() {
        let mut out = Vec::new();
        append_deposit(&deposit(), &mut out).unwrap();
        assert_eq!(out.len(), 192);
        let counts = [1, 2, 3, 4, 5].map(|field| out.iter().filter(|byte| **byte == field).count());
        assert_eq!(counts, [48, 32, 8, 96, 8]);
    }

    #[test]
    fn a_deposit_of_any_other_layout_is_refused() {
        let good = deposit();
        for (index, (offset, _)) in DEPOSIT_FIELDS.into_iter().enumerate() {
            for at in (index * 32..index * 32 + 32).chain(offset..offset + 32) {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert_eq!(append_deposit(&bad, &mut Vec::new()), None, "byte {at}");
            }
        }
        assert_eq!(
            append_deposit(&good[..DEPOSIT_LOG_BYTES - 1], &mut Vec::new()),
            None
        );
    }
}
