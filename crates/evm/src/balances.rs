//! Instructions that depend on balances. They tell the database of which accounts, so that all other
//! accesses to an account need no particular balance ([`crate::effects`]).
//!
//! Calls and creations that send value depend on the balance of the caller: [`crate::create`] notes
//! them.

use crate::{context::EvmContext, effects::ObserveBalance};
use alloy_primitives::Address;
use revm::{
    Database,
    bytecode::opcode::{BALANCE, SELFBALANCE, SELFDESTRUCT},
    handler::instructions::EthInstructions,
    interpreter::{
        Instruction, InstructionContext, InstructionExecResult, instructions::host,
        interpreter::EthInterpreter, interpreter_types::InputsTr,
    },
};

type EvmInstruction<DB> = Instruction<EthInterpreter, EvmContext<DB>>;
type Step<'a, DB> = InstructionContext<'a, EvmContext<DB>, EthInterpreter>;

/// Installs BALANCE, SELFBALANCE and SELFDESTRUCT, which note the account.
pub(crate) fn install<DB: Database + ObserveBalance>(
    table: &mut EthInstructions<EthInterpreter, EvmContext<DB>>,
) {
    let mut put = |opcode: u8, instruction: EvmInstruction<DB>| {
        let gas = table.gas_table()[usize::from(opcode)];
        table.insert_instruction(opcode, instruction, gas);
    };
    put(BALANCE, Instruction::new(balance::<DB>));
    put(SELFBALANCE, Instruction::new(self_balance::<DB>));
    put(SELFDESTRUCT, Instruction::new(selfdestruct::<DB>));
}

fn balance<DB: Database + ObserveBalance>(step: Step<'_, DB>) -> InstructionExecResult {
    let InstructionContext { interpreter, host } = step;
    let address = interpreter.stack.data().last().copied();
    let done = host::balance(InstructionContext {
        interpreter: &mut *interpreter,
        host: &mut *host,
    });
    if let Some(address) = address {
        observe(host, Address::from_word(address.into()));
    }
    done
}

fn self_balance<DB: Database + ObserveBalance>(step: Step<'_, DB>) -> InstructionExecResult {
    observe(step.host, step.interpreter.input.target_address());
    host::selfbalance(step)
}

fn selfdestruct<DB: Database + ObserveBalance>(step: Step<'_, DB>) -> InstructionExecResult {
    observe(step.host, step.interpreter.input.target_address());
    host::selfdestruct(step)
}

/// Notes that a transaction depends on the balance of an account.
pub(crate) fn observe<DB: Database + ObserveBalance>(host: &mut EvmContext<DB>, address: Address) {
    host.journaled_state.database.observe_balance(address);
}
