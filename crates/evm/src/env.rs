//! Conversion of blocks, transactions and rules to revm's environment.

use crate::{
    BlockInput, Rules, Transaction, amsterdam, balances, constantinople,
    context::{Evm, EvmContext},
    effects::ObserveBalance,
};
use alloy_consensus::{Header, Transaction as _, Typed2718};
use alloy_primitives::{Address, U256};
use revm::{
    Database, MainBuilder,
    bytecode::opcode::SSTORE,
    context::{BlockEnv, CfgEnv, TxEnv},
    context_interface::{block::BlobExcessGasAndPrice, either::Either},
    handler::instructions::EthInstructions,
    interpreter::{Instruction, interpreter::EthInterpreter},
    primitives::hardfork::SpecId,
};

/// Builds an EVM for the transactions of one block.
pub(crate) fn evm<DB: Database + ObserveBalance>(input: &BlockInput<'_>, db: DB) -> Evm<DB> {
    let rules = &input.rules;
    let cfg = config_env(rules, input.header.gas_limit);
    let block = block_env(input.header, rules);
    let context = EvmContext::new(db, rules.spec)
        .with_cfg(cfg)
        .with_block(block);
    let mut evm = context.build_mainnet();
    install(&mut evm.instruction, rules);
    evm
}

/// Replaces the instructions that differ from revm's under these rules.
pub(crate) fn install<DB: Database + ObserveBalance>(
    table: &mut EthInstructions<EthInterpreter, EvmContext<DB>>,
    rules: &Rules,
) {
    balances::install(table);
    if rules.eip1283 {
        table.insert_instruction(SSTORE, Instruction::new(constantinople::sstore), 0);
    }
    if rules.is(SpecId::AMSTERDAM) {
        amsterdam::install(table);
    }
}

/// The configuration of revm for a block with these rules and this gas limit. From Amsterdam on, and in
/// Constantinople, revm alone does not follow the rules of a block: only the executors of this crate do.
pub fn config_env(rules: &Rules, gas_limit: u64) -> CfgEnv {
    let mut cfg = CfgEnv::new_with_spec(rules.spec).with_chain_id(rules.chain_id);
    if rules.eip1283 {
        cfg.set_gas_params(constantinople::gas_params());
    }
    if rules.is(SpecId::AMSTERDAM) {
        amsterdam::configure(&mut cfg, gas_limit);
    }
    if let Some(blobs) = &rules.blobs {
        cfg.max_blobs_per_tx = Some(blobs.max_blobs_per_tx);
    }
    cfg
}

/// revm's environment of a block.
pub fn block_env(header: &Header, rules: &Rules) -> BlockEnv {
    let merged = rules.is(SpecId::MERGE);
    let blob_price = rules
        .blobs
        .as_ref()
        .zip(header.excess_blob_gas)
        .map(|(blobs, excess)| BlobExcessGasAndPrice {
            excess_blob_gas: excess,
            blob_gasprice: blobs.calc_blob_fee(excess),
        });
    BlockEnv {
        number: U256::from(header.number),
        beneficiary: header.beneficiary,
        timestamp: U256::from(header.timestamp),
        gas_limit: header.gas_limit,
        basefee: header.base_fee_per_gas.unwrap_or(0),
        difficulty: if merged {
            U256::ZERO
        } else {
            header.difficulty
        },
        prevrandao: merged.then_some(header.mix_hash),
        blob_excess_gas_and_price: blob_price,
        slot_num: header.slot_number.unwrap_or(0),
    }
}

/// Converts a transaction, signed by `sender`, to that of revm.
pub fn transaction_env(transaction: &Transaction, sender: Address) -> TxEnv {
    TxEnv {
        tx_type: transaction.ty(),
        caller: sender,
        gas_limit: transaction.gas_limit(),
        gas_price: transaction.max_fee_per_gas(),
        kind: transaction.kind(),
        value: transaction.value(),
        data: transaction.input().clone(),
        nonce: transaction.nonce(),
        chain_id: transaction.chain_id(),
        access_list: transaction.access_list().cloned().unwrap_or_default(),
        gas_priority_fee: transaction.max_priority_fee_per_gas(),
        blob_hashes: transaction
            .blob_versioned_hashes()
            .unwrap_or_default()
            .to_vec(),
        max_fee_per_blob_gas: transaction.max_fee_per_blob_gas().unwrap_or(0),
        authorization_list: transaction
            .authorization_list()
            .unwrap_or_default()
            .iter()
            .map(|authorization| Either::Left(authorization.clone()))
            .collect(),
    }
}
