//! A bound on the outcomes that wait to be checked: their receipts and logs grow with the gas of their blocks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Gas of the blocks that wait, if there are several. A byte in a log costs 8 gas at least.
const GAS_MAX: u64 = 512_000_000;

/// The blocks that wait to be checked.
#[derive(Default)]
pub(crate) struct Unchecked {
    gas: Mutex<u64>,
    freed: Condvar,
}

/// The room of one block. Dropping it makes room for others.
pub(crate) struct Room {
    unchecked: Arc<Unchecked>,
    gas: u64,
}

impl Unchecked {
    /// Waits for room. A block has room if no other one waits, however large it is.
    pub(crate) fn room(self: &Arc<Self>, gas: u64) -> Room {
        let mut waiting = self.gas();
        while *waiting > 0 && waiting.saturating_add(gas) > GAS_MAX {
            let woken = self.freed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
        *waiting += gas;
        drop(waiting);
        Room {
            unchecked: self.clone(),
            gas,
        }
    }

    fn gas(&self) -> MutexGuard<'_, u64> {
        self.gas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.unchecked.gas() -= self.gas;
        self.unchecked.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_block_waits_for_those_before_and_never_for_nothing() {
        let unchecked = Arc::<Unchecked>::default();
        let huge = unchecked.room(u64::MAX / 2);
        let waits = thread::spawn({
            let unchecked = unchecked.clone();
            move || drop((unchecked.room(GAS_MAX / 2), unchecked.room(GAS_MAX / 2)))
        });
        assert!(!waits.is_finished());
        drop(huge);
        waits.join().unwrap();
        assert_eq!(*unchecked.gas(), 0);
    }
}
