//! Instructions that behave differently in the fixture release than in revm.

use crate::{balances::observe, context::EvmContext, effects::ObserveBalance};
use alloy_primitives::{Address, Log, LogData, U256};
use revm::{
    Database,
    bytecode::opcode::{CREATE, CREATE2, EXTCODECOPY, EXTCODESIZE, SELFDESTRUCT, SSTORE},
    context_interface::{Cfg, ContextTr, JournalTr, journaled_state::account::JournaledAccountTr},
    handler::instructions::EthInstructions,
    interpreter::{
        Instruction, InstructionContext, InstructionExecResult, InstructionResult, Interpreter,
        instructions::{contract, host},
        interpreter::EthInterpreter,
        interpreter_types::InputsTr,
    },
    primitives::eip7708::{BURN_LOG_TOPIC, ETH_TRANSFER_LOG_ADDRESS},
};

/// Static gas of reading an account. revm uses the value of EIP-8038.
const ACCOUNT_READ_GAS: u16 = 100;

type EvmInstruction<DB> = Instruction<EthInterpreter, EvmContext<DB>>;
type Step<'a, DB> = InstructionContext<'a, EvmContext<DB>, EthInterpreter>;

/// Replaces revm's instructions.
pub(crate) fn install<DB: Database + ObserveBalance>(
    table: &mut EthInstructions<EthInterpreter, EvmContext<DB>>,
) {
    let mut put = |opcode: u8, instruction: EvmInstruction<DB>, gas: u16| {
        table.insert_instruction(opcode, instruction, gas);
    };
    put(CREATE, Instruction::new(create::<false, DB>), 0);
    put(CREATE2, Instruction::new(create::<true, DB>), 0);
    put(SSTORE, Instruction::new(sstore::<DB>), 0);
    put(SELFDESTRUCT, Instruction::new(selfdestruct::<DB>), 5_000);
    table.insert_gas(EXTCODESIZE, ACCOUNT_READ_GAS);
    table.insert_gas(EXTCODECOPY, ACCOUNT_READ_GAS);
}

/// CREATE and CREATE2: state gas for an account is charged whether or not the account exists, and
/// returns to the reservoir if nothing is created.
fn create<const IS_CREATE2: bool, DB: Database + ObserveBalance>(
    step: Step<'_, DB>,
) -> InstructionExecResult {
    let charge = step.host.cfg().gas_params().new_account_state_gas();
    let InstructionContext { interpreter, host } = step;
    // revm compares the value with the balance here, before there is a frame.
    if interpreter
        .stack
        .data()
        .last()
        .is_some_and(|value| !value.is_zero())
    {
        observe(host, interpreter.input.target_address());
    }
    let before = *interpreter.gas.tracker();
    if !interpreter.gas.record_state_cost(charge) {
        return Err(InstructionResult::OutOfGas);
    }
    let created = contract::create::<IS_CREATE2, _, _>(InstructionContext {
        interpreter: &mut *interpreter,
        host: &mut *host,
    });
    match created {
        Err(InstructionResult::Suspend) => {}
        Ok(()) => credit(interpreter, host, charge),
        // Regular gas is charged first, and ran out.
        Err(_) => *interpreter.gas.tracker_mut() = before,
    }
    created
}

fn credit<DB: Database>(
    interpreter: &mut Interpreter<EthInterpreter>,
    host: &mut EvmContext<DB>,
    amount: u64,
) {
    let depth = interpreter.input.depth();
    let gas = interpreter.gas.tracker_mut();
    host.chain.credit(depth, gas, amount);
}

/// SSTORE: the state gas of a slot that is zero again returns to the reservoir.
fn sstore<DB: Database>(step: Step<'_, DB>) -> InstructionExecResult {
    host::sstore_with_gas_accounting(step, |step, _, load| {
        let prices = step.host.cfg.gas_params();
        let regular = prices.sstore_dynamic_gas(true, &load.data, load.is_cold);
        let state = prices.sstore_state_gas(&load.data);
        let refund = prices.sstore_refund(true, &load.data);
        let refill = prices.sstore_state_gas_refill(&load.data);
        let gas = &mut step.interpreter.gas;
        if !gas.record_regular_cost(regular) || !gas.record_state_cost(state) {
            return Err(InstructionResult::OutOfGas);
        }
        gas.record_refund(refund);
        credit(step.interpreter, step.host, refill);
        Ok(())
    })
}

/// SELFDESTRUCT: a contract created in this transaction with itself as beneficiary burns its
/// balance.
fn selfdestruct<DB: Database + ObserveBalance>(step: Step<'_, DB>) -> InstructionExecResult {
    let InstructionContext { interpreter, host } = step;
    let address = interpreter.input.target_address();
    observe(host, address);
    let target = interpreter.stack.data().last().copied();
    let done = host::selfdestruct(InstructionContext {
        interpreter: &mut *interpreter,
        host: &mut *host,
    });
    let is_itself = target.is_some_and(|target| Address::from_word(target.into()) == address);
    if done == Err(InstructionResult::SelfDestruct) && is_itself {
        burn(host, address).map_err(|_| InstructionResult::FatalExternalError)?;
    }
    done
}

fn burn<DB: Database>(context: &mut EvmContext<DB>, address: Address) -> Result<(), DB::Error> {
    let mut account = context.journal_mut().load_account_mut(address)?;
    let balance = *account.balance();
    if !account.account().is_selfdestructed() || balance.is_zero() {
        return Ok(());
    }
    account.set_balance(U256::ZERO);
    context.journal_mut().log(burn_log(address, balance));
    Ok(())
}

/// The log of a burned balance (EIP-7708).
pub(crate) fn burn_log(address: Address, balance: U256) -> Log {
    let data = balance.to_be_bytes::<32>().to_vec().into();
    Log {
        address: ETH_TRANSFER_LOG_ADDRESS,
        data: LogData::new_unchecked(vec![BURN_LOG_TOPIC, address.into_word()], data),
    }
}
