//! Locks and atomics of the value cache, which the feature `loom` replaces with loom's.
//!
//! With loom, the model in `cache/values/model.rs` explores the interleavings of its threads under
//! the C11 memory model: `cargo test -p cambium-snapshot --features loom --lib model`. Other tests
//! can't run with the feature, since loom's types work only inside a model.

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

    /// `loom`'s mutex with the methods of `parking_lot`'s.
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
