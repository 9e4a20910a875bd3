//! Refunds of state gas while frames run (EIP-8037, as in the fixture release).
//!
//! A frame is refunded for a slot that is zero again and for a contract that was not created. The
//! refund goes to the reservoir immediately, up to the state gas that the frame has paid. The rest
//! stays pending until the frame succeeds, and then goes to its caller on the same terms. If a
//! frame fails, its caller gets back the state gas that it paid, less the refunds so far, which are
//! lost.

use revm::interpreter::GasTracker;

/// Refunds of all running frames, by call depth.
#[derive(Clone, Debug, Default)]
pub struct Refunds {
    frames: Vec<FrameRefunds>,
    lost: u64,
}

/// Refunds of one frame, including those of its callees that succeeded.
#[derive(Clone, Copy, Debug, Default)]
struct FrameRefunds {
    /// State gas refunded to the frame so far.
    applied: u64,
    /// Refunds beyond the state gas that the frame has paid.
    pending: u64,
}

impl Refunds {
    /// Starts a frame.
    pub(crate) fn begin(&mut self, depth: usize) {
        if depth == 0 {
            self.lost = 0;
        }
        self.frames.truncate(depth);
        self.frames.resize(depth + 1, FrameRefunds::default());
    }

    /// Refunds state gas to the frame at `depth`.
    pub(crate) fn credit(&mut self, depth: usize, gas: &mut GasTracker, amount: u64) {
        let paid = u64::try_from(gas.state_gas_spent()).unwrap_or(0);
        let applied = amount.min(paid);
        let frame = &mut self.frames[depth];
        frame.applied = frame.applied.saturating_add(applied);
        frame.pending = frame.pending.saturating_add(amount - applied);
        refill(gas, applied);
    }

    /// Ends the frame at `depth` with success: its caller takes over its refunds. Returns the
    /// pending refund, which is due to the caller.
    pub(crate) fn succeed(&mut self, depth: usize) -> u64 {
        let FrameRefunds { applied, pending } = self.frames[depth];
        if let Some(caller) = depth.checked_sub(1) {
            let caller = &mut self.frames[caller];
            caller.applied = caller.applied.saturating_add(applied);
        }
        pending
    }

    /// Ends the frame at `depth` with failure. Returns its refunds, which are lost.
    pub(crate) fn fail(&mut self, depth: usize) -> u64 {
        let FrameRefunds { applied, .. } = self.frames[depth];
        self.lost = self.lost.saturating_add(applied);
        applied
    }

    /// State gas that the transaction paid and that counts in neither dimension of the block's gas.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}

/// Returns state gas to the reservoir, wherever it was taken from.
pub(crate) fn refill(gas: &mut GasTracker, amount: u64) {
    gas.set_state_gas_spilled(0);
    gas.refill_reservoir(amount);
}
