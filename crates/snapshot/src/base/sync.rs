//! Locks and atomic numbers of the value cache: those of `loom` where its model runs.
//!
//! The model goes through all orders of its threads, and through all that the memory of any
//! processor may show them: `cargo test -p cambium-snapshot --features loom --lib model`. Other tests
//! don't run with the feature, since nothing else drives such locks.

#[cfg(feature = "loom")]
pub use self::modelled::Mutex;
#[cfg(feature = "loom")]
pub use loom::sync::atomic::AtomicU32;
#[cfg(not(feature = "loom"))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::AtomicU32;

#[cfg(feature = "loom")]
mod modelled {
    use loom::sync::MutexGuard;

    /// With the methods of `parking_lot`.
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self(loom::sync::Mutex::new(T::default()))
        }
    }

    impl<T> Mutex<T> {
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model ends with its first panic")
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}
