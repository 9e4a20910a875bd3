//! A watchdog that ends the process when an operation hangs.

use std::{
    process,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Maximum duration of an operation on the slowest machine.
const LIMIT: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(500);

type Slots = Mutex<Vec<Weak<Mutex<Doing>>>>;

struct Doing {
    who: String,
    /// The operation, and its start.
    now: Option<(&'static str, Instant)>,
}

/// Ends the process, and prints which thread does what, if an operation exceeds its time.
pub(super) struct Watchdog {
    slots: Arc<Slots>,
}

/// The current operation of one thread.
pub(super) struct WatchSlot(Arc<Mutex<Doing>>);

impl Watchdog {
    pub(super) fn new(at: String) -> Self {
        let slots = Arc::new(Slots::default());
        let watched = Arc::downgrade(&slots);
        thread::spawn(move || {
            while let Some(slots) = watched.upgrade() {
                look(&slots, &at);
                drop(slots);
                thread::sleep(LOOK);
            }
        });
        Self { slots }
    }

    pub(super) fn slot(&self, who: &str) -> WatchSlot {
        let doing = Arc::new(Mutex::new(Doing {
            who: who.to_owned(),
            now: None,
        }));
        self.slots.lock().push(Arc::downgrade(&doing));
        WatchSlot(doing)
    }
}

impl WatchSlot {
    pub(super) fn doing(&self, what: &'static str) {
        self.0.lock().now = Some((what, Instant::now()));
    }

    pub(super) fn idle(&self) {
        self.0.lock().now = None;
    }
}

fn look(slots: &Slots, at: &str) {
    let mut slots = slots.lock();
    slots.retain(|slot| slot.strong_count() > 0);
    let all: Vec<_> = slots.iter().filter_map(Weak::upgrade).collect();
    let is_late = |slot: &Arc<Mutex<Doing>>| {
        let now = slot.lock().now;
        now.is_some_and(|(_, since)| since.elapsed() > LIMIT)
    };
    if !all.iter().any(is_late) {
        return;
    }
    eprintln!("{at}: somebody waits for ever:");
    for slot in all {
        let Doing { who, now } = &*slot.lock();
        match now {
            Some((what, since)) => eprintln!("  {who}: {what} for {:?}", since.elapsed()),
            None => eprintln!("  {who}: nothing"),
        }
    }
    process::abort();
}
