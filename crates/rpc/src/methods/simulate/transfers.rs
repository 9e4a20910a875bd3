//! Logs of ether transfers, among those of contracts.

use alloy_primitives::{Address, B256, Log, LogData, U256, address, b256};
use revm::{
    Inspector,
    context_interface::{ContextTr, JournalTr},
    interpreter::{CallInputs, CallOutcome, CreateInputs, CreateOutcome},
};

/// Where transfers seem to be logged.
const EMITTER: Address = address!("eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee");
/// keccak("Transfer(address,address,uint256)").
const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Collects the logs of a call in their order, with one for each transfer of ether. The receipt has the contracts' alone.
pub(super) struct Transfers {
    /// With their indices in the block.
    logs: Vec<(u64, Log)>,
    next: u64,
    /// How many logs there were before each frame: a frame that fails takes its own back.
    frames: Vec<usize>,
}

impl Transfers {
    /// For a call before which the block has this many logs.
    pub(super) const fn after(next: u64) -> Self {
        Self {
            logs: Vec::new(),
            next,
            frames: Vec::new(),
        }
    }

    /// The logs, and the index of the next one.
    pub(super) fn into_logs(self) -> (Vec<(u64, Log)>, u64) {
        (self.logs, self.next)
    }

    /// The indices of logs that are taken back are not given again: other clients count so.
    fn push(&mut self, log: Log) {
        self.logs.push((self.next, log));
        self.next += 1;
    }

    fn transfer(&mut self, from: Address, to: Address, value: U256) {
        if !value.is_zero() {
            let topics = vec![TRANSFER, from.into_word(), to.into_word()];
            let data = value.to_be_bytes::<32>().into();
            self.push(Log {
                address: EMITTER,
                data: LogData::new_unchecked(topics, data),
            });
        }
    }

    fn begin(&mut self) {
        self.frames.push(self.logs.len());
    }

    fn end(&mut self, is_ok: bool) {
        let before = self.frames.pop().unwrap_or_default();
        if !is_ok {
            self.logs.truncate(before);
        }
    }
}

impl<C: ContextTr> Inspector<C> for Transfers {
    fn log(&mut self, _: &mut C, log: Log) {
        self.push(log);
    }

    fn call(&mut self, _: &mut C, inputs: &mut CallInputs) -> Option<CallOutcome> {
        self.begin();
        if let Some(value) = inputs.transfer_value() {
            self.transfer(inputs.transfer_from(), inputs.transfer_to(), value);
        }
        None
    }

    fn call_end(&mut self, _: &mut C, _: &CallInputs, outcome: &mut CallOutcome) {
        self.end(outcome.result.result.is_ok());
    }

    fn create(&mut self, context: &mut C, inputs: &mut CreateInputs) -> Option<CreateOutcome> {
        self.begin();
        if !inputs.value().is_zero() {
            // An error of the state is met again by the frame itself.
            let caller = context.journal_mut().load_account(inputs.caller());
            let nonce = caller.map_or(0, |caller| caller.data.info.nonce);
            let to = inputs.created_address(nonce);
            self.transfer(inputs.caller(), to, inputs.value());
        }
        None
    }

    fn create_end(&mut self, _: &mut C, _: &CreateInputs, outcome: &mut CreateOutcome) {
        self.end(outcome.result.result.is_ok());
    }

    fn selfdestruct(&mut self, contract: Address, target: Address, value: U256) {
        self.transfer(contract, target, value);
    }
}
