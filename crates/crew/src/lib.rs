//! Threads that help others with work of many parts, and sleep at once where there is none.
//!
//! The thread that has the work takes parts of it as well, and waits at its end for the parts that helpers have
//! begun. While it waits, and while a helper is at a part, it takes nothing else: no thread recurses into foreign work, and
//! a part may share parts of its own. Waking is divided too: each helper that comes wakes two more, as long as
//! more are called for.
//!
//! A pool that steals work searches all its queues many times before a thread sleeps, which takes 50 us of a processor each
//! time that one wakes; a thread that is started for a block alone takes half a millisecond or more, most of it
//! for memory that it uses first. A helper here waits on a condition.
//!
//! ```
//! use cambium_crew::Crew;
//!
//! let crew = Crew::new("square", 3);
//! let squares = crew.each(3, (0..100_u64).collect(), |part| Ok::<_, ()>(part * part));
//! assert_eq!(squares.unwrap().iter().sum::<u64>(), 328_350);
//! ```

mod sync;
mod parts;
mod threads;

pub use parts::Parts;
pub use threads::threads;

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};
use sync::{Arc, Condvar, Mutex, MutexGuard, into_inner, lock, start, wait};

/// What a helper does: it takes parts of something until there are none left.
pub type Work<'w> = dyn Fn(&Helpers<'_>) + Sync + 'w;

/// Threads that help, up to some number. They start as they are needed, stay, and end with the crew.
pub struct Crew(Arc<Inner>);

struct Inner {
    /// Threads have this name, and a number.
    name: &'static str,
    threads_max: usize,
    state: Mutex<State>,
    /// Helpers without work wait for it.
    work: Condvar,
    /// Threads wait for those that help them.
    done: Condvar,
}

#[derive(Default)]
struct State {
    offers: Vec<Offer>,
    /// Number of the next offer.
    next: u64,
    threads: usize,
    /// Number of threads that sleep.
    idle: usize,
    is_closed: bool,
}

/// Work that a thread shares.
struct Offer {
    number: u64,
    work: &'static Work<'static>,
    /// How many more helpers may come.
    seats: usize,
    helping: usize,
    panic: Option<Box<dyn Any + Send>>,
}

/// Those who help, or may be called, with the work of one thread.
pub struct Helpers<'c> {
    crew: &'c Arc<Inner>,
    /// Number of the offer.
    number: u64,
}

impl Crew {
    /// A crew of at most `threads_max` threads, none of which has started.
    pub fn new(name: &'static str, threads_max: usize) -> Self {
        Self(Arc::new(Inner {
            name,
            threads_max,
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            done: Condvar::new(),
        }))
    }

    /// Starts all threads. They have the priority of the calling one, as all threads have that of the one that starts them.
    pub fn start(&self) {
        let mut state = lock(&self.0.state);
        Inner::start(&self.0, &mut state, self.0.threads_max);
    }

    /// Runs `work` on this thread and on at most `helpers` others at once. When it returns, none of them runs it any
    /// more.
    ///
    /// # Panics
    ///
    /// Panics with a panic of `work`, on whichever thread it was.
    pub fn share(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        self.lead(&|_| work(), |others| {
            others.call(helpers);
            work();
        });
    }

    /// Runs `task` on each of `parts`, on this thread and on at most `helpers` others. Returns the results in the order of the
    /// parts.
    ///
    /// # Errors
    ///
    /// One of the errors of `task`. Nobody takes another part after it.
    ///
    /// # Panics
    ///
    /// As [`Self::share`].
    pub fn each<P: Send, T: Send, E: Send>(
        &self,
        helpers: usize,
        parts: Vec<P>,
        task: impl Fn(P) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        let helpers = helpers.min(parts.len().saturating_sub(1));
        if helpers == 0 {
            return parts.into_iter().map(task).collect();
        }
        let parts = Parts::new(parts);
        let error = Mutex::new(None);
        self.share(helpers, &|| {
            if let Err(failed) = parts.work(&task) {
                *lock(&error) = Some(failed);
            }
        });
        match into_inner(error) {
            None => Ok(parts.into_results().collect()),
            Some(error) => Err(error),
        }
    }

    /// Runs `own` on this thread, and `work` on the threads that it or they call. When it returns, none of them runs
    /// it any more.
    ///
    /// # Panics
    ///
    /// As [`Self::share`].
    pub fn lead<R>(&self, work: &Work<'_>, own: impl FnOnce(&Helpers<'_>) -> R) -> R {
        // SAFETY: the two types differ in the lifetimes alone. The reference is only in the offer, and in helpers that are
        // counted in it. `Withdraw` removes the offer, after the last of them has returned from `work`, before
        // this function returns or unwinds. Nothing can forget `Withdraw`, which is never moved out of here.
        #[allow(unsafe_code)]
        let work = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        let mut panic = None;
        let withdraw = Withdraw {
            helpers: Helpers {
                crew: &self.0,
                number: self.0.offer(work),
            },
            panic: &mut panic,
        };
        let result = own(&withdraw.helpers);
        drop(withdraw);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        result
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.work.notify_all();
    }
}

impl Helpers<'_> {
    /// Lets `count` more threads help. Returns how many of them there are for it: fewer if the crew has not as many, or the
    /// system refuses them. As soon as one that has come returns, nothing is left of the work, and those that have not come
    /// stay away.
    pub fn call(&self, count: usize) -> usize {
        let Self { crew, number } = *self;
        let mut state = lock(&crew.state);
        let wanted = |state: &State| {
            let offers = state.offers.iter();
            offers
                .map(|offer| offer.seats + offer.helping)
                .sum::<usize>()
        };
        let before = wanted(&state);
        let more = before.saturating_add(count).saturating_sub(state.threads);
        Inner::start(crew, &mut state, more);
        let count = count.min(state.threads.saturating_sub(before));
        state.offer(number).seats += count;
        crew.wake(&state, count);
        count
    }
}

impl Inner {
    /// Starts `more` threads, or as many as there may be.
    fn start(inner: &Arc<Self>, state: &mut MutexGuard<'_, State>, more: usize) {
        for _ in 0..more.min(inner.threads_max.saturating_sub(state.threads)) {
            let name = format!("cambium-{}-{}", inner.name, state.threads);
            let inner = Arc::clone(inner);
            if !start(name, move || Self::help(&inner)) {
                break;
            }
            state.threads += 1;
        }
    }

    fn offer(&self, work: &'static Work<'static>) -> u64 {
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        state.offers.push(Offer {
            number,
            work,
            seats: 0,
            helping: 0,
            panic: None,
        });
        number
    }

    /// Wakes at most two helpers, each of which wakes two more.
    fn wake(&self, state: &MutexGuard<'_, State>, seats: usize) {
        for _ in 0..seats.min(state.idle).min(2) {
            self.work.notify_one();
        }
    }

    /// Helps until the crew is closed.
    fn help(inner: &Arc<Self>) {
        let mut state = lock(&inner.state);
        while !state.is_closed {
            let Some(offer) = state.offers.iter_mut().find(|offer| offer.seats > 0) else {
                state.idle += 1;
                state = wait(&inner.work, state);
                state.idle -= 1;
                continue;
            };
            offer.seats -= 1;
            offer.helping += 1;
            let Offer {
                number,
                work,
                seats,
                ..
            } = *offer;
            inner.wake(&state, seats);
            drop(state);
            let helpers = Helpers {
                crew: inner,
                number,
            };
            let result = catch_unwind(AssertUnwindSafe(|| work(&helpers)));
            state = lock(&inner.state);
            let offer = state.offer(number);
            offer.helping -= 1;
            let mut surplus = result.err();
            if offer.panic.is_none() {
                offer.panic = surplus.take();
            }
            // Nothing is left of the work: whoever came now would come in vain.
            offer.seats = 0;
            if offer.helping == 0 {
                inner.done.notify_all();
            }
            if surplus.is_some() {
                drop(state);
                drop_payload(surplus);
                state = lock(&inner.state);
            }
        }
    }
}

/// Drops what a panic was raised with, which may panic itself.
fn drop_payload(payload: Option<Box<dyn Any + Send>>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // And so on, without an end: it stays in memory.
        Box::leak(panic);
    }
}

impl State {
    fn offer(&mut self, number: u64) -> &mut Offer {
        let mut offers = self.offers.iter_mut();
        let own = offers.find(|offer| offer.number == number);
        own.expect("an offer stays while somebody helps with it")
    }
}

/// Removes an offer when it is dropped, as soon as nobody helps with it.
struct Withdraw<'c, 'p> {
    helpers: Helpers<'c>,
    /// Gets the panic of a helper.
    panic: &'p mut Option<Box<dyn Any + Send>>,
}

impl Drop for Withdraw<'_, '_> {
    fn drop(&mut self) {
        let Helpers { crew, number } = self.helpers;
        let mut state = lock(&crew.state);
        state.offer(number).seats = 0;
        while state.offer(number).helping > 0 {
            state = wait(&crew.done, state);
            // A helper may have called others.
            state.offer(number).seats = 0;
        }
        *self.panic = state.offer(number).panic.take();
        state.offers.retain(|offer| offer.number != number);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;

#[cfg(all(test, feature = "loom"))]
mod model;
