//! Locks and atomics of unit tests. What a model makes has a lock or a number of `shuttle` besides its own,
//! whose operations come first: they are the points where the model's threads switch. What other tests
//! make has none, and works between threads of the system.

use shuttle::sync as model;
use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    sync::{PoisonError, atomic::Ordering},
};

thread_local! {
    /// Whether this thread runs a model. All threads of a model run on one of the system.
    static IS_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// Does `run`, in which all locks and atomics that are made are those of a model.
pub(super) fn in_model(run: impl FnOnce()) {
    IS_MODEL.set(true);
    run();
    IS_MODEL.set(false);
}

/// `make`, in a model.
fn if_model<T>(make: impl FnOnce() -> T) -> Option<T> {
    IS_MODEL.get().then(make)
}

/// A lock's guard, and that of the model's lock, which is held for longer.
pub(crate) struct Guard<G, M> {
    guard: G,
    _model: Option<M>,
}

impl<G: Deref, M> Deref for Guard<G, M> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut, M> DerefMut for Guard<G, M> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[derive(Debug)]
pub(crate) struct Mutex<T> {
    value: parking_lot::Mutex<T>,
    model: Option<model::Mutex<()>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: parking_lot::Mutex::new(value),
            model: if_model(|| model::Mutex::new(())),
        }
    }

    pub(crate) fn lock(&self) -> Guard<parking_lot::MutexGuard<'_, T>, model::MutexGuard<'_, ()>> {
        let model = self.model.as_ref().map(model::Mutex::lock);
        Guard {
            _model: model.map(|guard| guard.unwrap_or_else(PoisonError::into_inner)),
            guard: self.value.lock(),
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

#[derive(Debug)]
pub(crate) struct RwLock<T> {
    value: parking_lot::RwLock<T>,
    model: Option<model::RwLock<()>>,
}

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: parking_lot::RwLock::new(value),
            model: if_model(|| model::RwLock::new(())),
        }
    }

    pub(crate) fn read(
        &self,
    ) -> Guard<parking_lot::RwLockReadGuard<'_, T>, model::RwLockReadGuard<'_, ()>> {
        let model = self.model.as_ref().map(model::RwLock::read);
        Guard {
            _model: model.map(|guard| guard.unwrap_or_else(PoisonError::into_inner)),
            guard: self.value.read(),
        }
    }

    pub(crate) fn write(
        &self,
    ) -> Guard<parking_lot::RwLockWriteGuard<'_, T>, model::RwLockWriteGuard<'_, ()>> {
        let model = self.model.as_ref().map(model::RwLock::write);
        Guard {
            _model: model.map(|guard| guard.unwrap_or_else(PoisonError::into_inner)),
            guard: self.value.write(),
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// An atomic number. Each use of it is an operation on the number of a model first.
#[derive(Debug)]
pub(crate) struct Atomic<A> {
    value: A,
    model: Option<model::atomic::AtomicBool>,
}

impl<A> Deref for Atomic<A> {
    type Target = A;

    fn deref(&self) -> &A {
        if let Some(model) = &self.model {
            model.load(Ordering::SeqCst);
        }
        &self.value
    }
}

macro_rules! atomics {
    ($($name:ident: $value:ty;)+) => {$(
        pub(crate) type $name = Atomic<std::sync::atomic::$name>;

        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self {
                    value: std::sync::atomic::$name::new(value),
                    model: if_model(|| model::atomic::AtomicBool::new(false)),
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    )+};
}

atomics! {
    AtomicBool: bool;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
}
