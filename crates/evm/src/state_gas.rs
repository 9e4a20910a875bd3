//! State gas that comes back while a frame runs, by EIP-8037 as the release has it.
//!
//! What a frame gets back for a slot that is zero again, or for a contract that was not created,
//! goes to the reservoir at once, up to what the frame has paid. The rest waits for the frame to
//! succeed, and goes to its caller on the same terms. If a frame fails, its caller gets all state
//! gas back that it paid, less what had come back: that is lost.

use revm::interpreter::GasTracker;

/// The refunds of all frames that run, by their depth.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refunds {
    frames: Vec<FrameRefunds>,
    lost: u64,
}

/// The refunds of one frame, and of those that it called and that succeeded.
#[derive(Clone, Copy, Debug, Default)]
struct FrameRefunds {
    /// State gas that has come back to the frame so far.
    applied: u64,
    /// What is more than the frame has paid.
    pending: u64,
}

impl Refunds {
    /// A frame begins.
    pub(crate) fn begin(&mut self, depth: usize) {
        if depth == 0 {
            self.lost = 0;
        }
        self.frames.truncate(depth);
        self.frames.resize(depth + 1, FrameRefunds::default());
    }

    /// Gives state gas back to the frame at a depth.
    pub(crate) fn credit(&mut self, depth: usize, gas: &mut GasTracker, amount: u64) {
        let paid = u64::try_from(gas.state_gas_spent()).unwrap_or(0);
        let applied = amount.min(paid);
        let frame = &mut self.frames[depth];
        frame.applied = frame.applied.saturating_add(applied);
        frame.pending = frame.pending.saturating_add(amount - applied);
        refill(gas, applied);
    }

    /// The frame at a depth succeeds: its caller takes over. Returns what is left to give back to
    /// that.
    pub(crate) fn succeed(&mut self, depth: usize) -> u64 {
        let FrameRefunds { applied, pending } = self.frames[depth];
        if let Some(caller) = depth.checked_sub(1) {
            let caller = &mut self.frames[caller];
            caller.applied = caller.applied.saturating_add(applied);
        }
        pending
    }

    /// The frame at a depth fails. Returns what came back to it, which is lost.
    pub(crate) fn fail(&mut self, depth: usize) -> u64 {
        let FrameRefunds { applied, .. } = self.frames[depth];
        self.lost = self.lost.saturating_add(applied);
        applied
    }

    /// Gas that the transaction paid and the block counts in neither dimension.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}

/// Puts state gas into the reservoir, wherever it was taken from.
pub(crate) fn refill(gas: &mut GasTracker, amount: u64) {
    gas.set_state_gas_spilled(0);
    gas.refill_reservoir(amount);
}
