//! A driver of interleavings: the spans of `tracing` that blocks pass through are gates, at which a thread waits
//! until another has reached one.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Time after which a thread passes a gate although its condition has not occurred: the order is not possible.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The beginning or the end of a span around one block: its name, and the number of its (newest) block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Begin(&'static str, u64),
    End(&'static str, u64),
}

#[derive(Default)]
struct State {
    /// Each step, and the one that it waits for.
    rules: Vec<(Step, Step)>,
    reached: BTreeSet<Step>,
    /// Number of waits that ended because what was waited for had happened.
    kept: usize,
    given_up: usize,
}

/// The spans around blocks, by their ids: name and number of the block.
#[derive(Default)]
struct Spans {
    newest: u64,
    of_blocks: HashMap<u64, (&'static str, u64)>,
}

/// The subscriber. It is global to the process, so one test uses it at a time.
#[derive(Clone, Default)]
pub(crate) struct Gates {
    state: Arc<(Mutex<State>, Condvar)>,
    spans: Arc<Mutex<Spans>>,
}

impl Gates {
    pub(crate) fn install() -> Self {
        let gates = Self::default();
        tracing::subscriber::set_global_default(gates.clone()).expect("the first one");
        gates
    }

    /// Sets the waits between steps, and forgets the past steps.
    pub(crate) fn order(&self, rules: Vec<(Step, Step)>) {
        *self.state.0.lock().unwrap() = State {
            rules,
            ..State::default()
        };
    }

    /// Numbers of waits that were kept, and that were given up, under the order set last.
    pub(crate) fn waits(&self) -> (usize, usize) {
        let state = self.state.0.lock().unwrap();
        (state.kept, state.given_up)
    }

    /// Notes that a thread has reached a gate, and lets it pass once the order allows it.
    fn pass(&self, step: Step) {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap();
        state.reached.insert(step);
        changed.notify_all();
        let wanted: Vec<Step> = state
            .rules
            .iter()
            .filter(|(gate, _)| *gate == step)
            .map(|(_, until)| *until)
            .collect();
        for until in wanted {
            let is_waiting = |state: &mut State| !state.reached.contains(&until);
            let (guard, timeout) = changed
                .wait_timeout_while(state, WAIT_MAX, is_waiting)
                .unwrap();
            state = guard;
            match timeout.timed_out() {
                true => state.given_up += 1,
                false => state.kept += 1,
            }
        }
    }

    fn of(&self, span: &Id) -> Option<(&'static str, u64)> {
        let spans = self.spans.lock().unwrap();
        spans.of_blocks.get(&span.into_u64()).copied()
    }
}

/// The number of the block that a span is around.
#[derive(Default)]
struct Number(Option<u64>);

impl Visit for Number {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["number", "newest"].contains(&field.name()) {
            let text = format!("{value:?}");
            self.0 = text.split(' ').next().and_then(|word| word.parse().ok());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "number" {
            self.0 = Some(value);
        }
    }
}

impl Subscriber for Gates {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("cambium")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut number = Number::default();
        span.record(&mut number);
        let Spans { newest, of_blocks } = &mut *self.spans.lock().unwrap();
        *newest += 1;
        if let Some(number) = number.0 {
            of_blocks.insert(*newest, (span.metadata().name(), number));
        }
        Id::from_u64(*newest)
    }

    fn enter(&self, span: &Id) {
        if let Some((name, number)) = self.of(span) {
            self.pass(Step::Begin(name, number));
        }
    }

    fn exit(&self, span: &Id) {
        if let Some((name, number)) = self.of(span) {
            self.pass(Step::End(name, number));
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}
