//! What a trace may take: memory for its steps, and time.

use crate::{cancel::Cancel, error::RpcError};
use alloy_primitives::{Address, U256, map::HashSet};
use revm::{
    Inspector,
    context_interface::{ContextTr, context::ContextError},
    interpreter::{
        Interpreter,
        interpreter_types::{InputsTr, Jumps, LoopControl},
    },
};

/// Most bytes of the steps of a transaction, with what each shows, and most of its calls and logs.
pub(super) const TRACE_BYTES: usize = 256 << 20;
/// Of a step, besides what it shows.
const STEP_BYTES: usize = 200;
const SLOT_BYTES: usize = 64;
/// Steps between two looks at the time.
const LOOK_STEPS: u32 = 1024;
const SLOAD: u8 = 0x54;
const SSTORE: u8 = 0x55;

/// What a tracer keeps of each step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub(super) steps: bool,
    pub(super) stack: bool,
    pub(super) memory: bool,
    pub(super) storage: bool,
}

/// Ends an execution once its trace takes too much, or nobody waits for it any more. Tracers bound bytes of calls and logs
/// alone.
#[derive(Debug)]
pub(super) struct Budget {
    kept: Kept,
    left: usize,
    steps: u32,
    slots: HashSet<(Address, U256)>,
    cancel: Cancel,
    over: Option<RpcError>,
}

impl Budget {
    pub(super) fn new(kept: Kept, cancel: Cancel) -> Self {
        Self {
            kept,
            left: TRACE_BYTES,
            steps: 0,
            slots: HashSet::default(),
            cancel,
            over: None,
        }
    }

    /// Why the execution was ended, if it was.
    pub(super) fn over(self) -> Option<RpcError> {
        self.over
    }

    /// Bytes of the next step.
    fn bytes(&mut self, interp: &Interpreter) -> usize {
        if !self.kept.steps {
            return 0;
        }
        let mut bytes = STEP_BYTES;
        if self.kept.stack {
            bytes += 32 * interp.stack.len();
        }
        if self.kept.memory {
            bytes += interp.memory.len();
        }
        if self.kept.storage && matches!(interp.bytecode.opcode(), SLOAD | SSTORE) {
            if let Ok(slot) = interp.stack.peek(0) {
                self.slots.insert((interp.input.target_address(), slot));
            }
            bytes += SLOT_BYTES * self.slots.len();
        }
        bytes
    }
}

impl<C: ContextTr> Inspector<C> for Budget {
    fn step(&mut self, interp: &mut Interpreter, context: &mut C) {
        let bytes = self.bytes(interp);
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(LOOK_STEPS) && self.over.is_none() {
            self.over = self.cancel.check().err();
        }
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None if self.over.is_none() => {
                self.over = Some(RpcError::new(
                    RpcError::LIMIT,
                    "the trace is too large: leave stack, memory and storage out, or take another tracer",
                ));
            }
            None => {}
        }
        if self.over.is_some() {
            if context.error().is_ok() {
                *context.error() = Err(ContextError::Custom("the trace was ended".into()));
            }
            interp.bytecode.action().take();
            interp.bytecode.reset_action();
            interp.halt_fatal();
        }
    }
}
