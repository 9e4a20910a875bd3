//! Ctrl-C and SIGTERM: long work ends at a whole block. A second one ends the program at once, which is
//! safe at any moment.

use super::error::Exit;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Whether the user has asked for the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// The number of the signal, or 0.
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Catches the first signal from now on. Where signals can't be caught, they end the program.
    pub(crate) fn on_signals() -> Self {
        let stop = Self::default();
        let was_asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal sets the flag that the second one finds.
            let _ = flag::register_conditional_default(signal, was_asked.clone());
            let _ = flag::register(signal, was_asked.clone());
            let number = usize::try_from(signal).unwrap_or(0);
            let _ = flag::register_usize(signal, stop.signal.clone(), number);
        }
        stop
    }

    /// How the program ends, if the user has asked for that.
    pub(crate) fn asked(&self) -> Option<Exit> {
        match i32::try_from(self.signal.load(Ordering::Relaxed)) {
            Ok(SIGINT) => Some(Exit::Interrupted),
            Ok(SIGTERM) => Some(Exit::Terminated),
            _ => None,
        }
    }
}
