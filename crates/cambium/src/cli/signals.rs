//! Ctrl-C and SIGTERM: long work on a database ends at a whole block, and a second signal ends the program at once,
//! which is safe at any moment. Commands that write files of their own remove them.

use super::error::Exit;
use signal_hook::{
    consts::{SIGINT, SIGTERM, SIGXFSZ},
    flag,
    iterator::Signals,
};
use std::{
    ffi::c_int,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
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
        exit_of(c_int::try_from(self.signal.load(Ordering::Relaxed)).ok()?)
    }
}

/// A file that would be larger than the limit (`ulimit -f`) is an error of the write from now on, as a full disk is.
pub(crate) fn catch_size_limit() {
    let _ = flag::register(SIGXFSZ, Arc::default());
}

fn exit_of(signal: c_int) -> Option<Exit> {
    match signal {
        SIGINT => Some(Exit::Interrupted),
        SIGTERM => Some(Exit::Terminated),
        _ => None,
    }
}

/// Ends the program with `end` at the first signal from now on. Where signals can't be caught, they end it themselves.
pub(crate) fn ends_with(end: impl FnOnce(Exit) + Send + 'static) {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else {
        return;
    };
    let wait = move || {
        if let Some(exit) = signals.forever().find_map(exit_of) {
            end(exit);
        }
    };
    // Without the thread a signal would do nothing: then this is what ends the program.
    if thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .is_err()
    {
        for signal in [SIGINT, SIGTERM] {
            let _ = flag::register_conditional_default(signal, Arc::new(AtomicBool::new(true)));
        }
    }
}
