//! Status codes and messages, and the one place where panics are caught.

use cambium::{HistoryError, StateError, db::ErrorClass};
use cambium_kv::{KvError, VerifyError};
use std::{
    any::Any,
    ffi::{CStr, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Size of the message in a `CambiumError`, in bytes, with the NUL at its end.
pub const CAMBIUM_MESSAGE_BYTES: usize = 1024;

/// What became of a call, by what its caller does about it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CambiumStatus {
    /// It is done.
    Ok = 0,
    /// There is no entry, no account, or no further entry. Not a failure: there is no message.
    NotFound = 1,
    /// The transaction lost against another one, or is too old to be validated. Nothing of it was
    /// written: run it again from its beginning.
    Conflict = 2,
    /// A null pointer, an impossible length or value, or handles that do not belong together. Nothing
    /// was done.
    InvalidArgument = 3,
    /// The commit or block does not exist, or is not kept any more.
    NotKept = 4,
    /// There is no database, there is one already, another process has it open, or it is of another
    /// kind or version.
    Unavailable = 5,
    /// A write through a handle that was opened read-only.
    ReadOnly = 6,
    /// The disk failed. After a failed write the store refuses further commits until it is opened
    /// again; what was committed before is safe.
    Io = 7,
    /// Data on the disk is damaged; the message names the file and says what to do.
    Damaged = 8,
    /// The proof does not show what it claims.
    BadProof = 9,
    /// A bug in the library. Close the handle and open it again.
    Panic = 10,
}

/// Says what went wrong. The caller provides it, on the stack for example: nothing has to be freed.
/// It is written only if a call fails.
#[repr(C)]
pub struct CambiumError {
    /// The status that the call returned.
    pub status: CambiumStatus,
    /// What is wrong, where, and what to do: UTF-8, with a NUL at the end, shortened to fit.
    pub message: [c_char; CAMBIUM_MESSAGE_BYTES],
}

/// Returns the name of a status, such as `conflict`, for logs. The string is static. A number that is
/// no status has the name `unknown`. Any thread may call it.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_status_name(status: u32) -> *const c_char {
    let name: &'static CStr = match status {
        0 => c"ok",
        1 => c"not found",
        2 => c"conflict",
        3 => c"invalid argument",
        4 => c"not kept",
        5 => c"unavailable",
        6 => c"read-only",
        7 => c"io",
        8 => c"damaged",
        9 => c"bad proof",
        10 => c"panic",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// A status with its message.
#[derive(Debug)]
pub(crate) struct Failure {
    status: CambiumStatus,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: CambiumStatus, message: impl ToString) -> Self {
        Self {
            status,
            message: message.to_string(),
        }
    }

    pub(crate) fn argument(message: impl ToString) -> Self {
        Self::new(CambiumStatus::InvalidArgument, message)
    }
}

impl From<ErrorClass> for CambiumStatus {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Conflict => Self::Conflict,
            ErrorClass::InvalidArgument => Self::InvalidArgument,
            ErrorClass::NotKept => Self::NotKept,
            ErrorClass::Unavailable => Self::Unavailable,
            ErrorClass::ReadOnly => Self::ReadOnly,
            ErrorClass::Damaged => Self::Damaged,
            _ => Self::Io,
        }
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        Self::new(ErrorClass::from(&error).into(), error)
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::new(ErrorClass::from(&error).into(), error)
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        Self::new(ErrorClass::from(&error).into(), error)
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        Self::new(CambiumStatus::BadProof, error)
    }
}

/// Does the work of a call: turns its failure, or its panic, into a status and a message.
pub(crate) fn run(
    error: *mut CambiumError,
    work: impl FnOnce() -> Result<CambiumStatus, Failure>,
) -> CambiumStatus {
    // Whatever the work has changed when it panics is as after an error: the engine's locks are not
    // poisoned, and a handle that was consumed is freed.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(CambiumStatus::Panic, panic_message(&*panic)),
    };
    // SAFETY: the caller passes null, or memory for a `CambiumError` that nobody else uses meanwhile.
    if let Some(error) = unsafe { error.as_mut() } {
        error.status = failure.status;
        write_message(&mut error.message, &failure.message);
    }
    failure.status
}

/// Does work that cannot fail; `otherwise` if it panics.
pub(crate) fn run_infallible<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    format!("a bug in cambium: {text}; close this handle and open it again")
}

/// Writes as much of the text as fits, without cutting a character, and a NUL.
fn write_message(to: &mut [c_char; CAMBIUM_MESSAGE_BYTES], text: &str) {
    let mut end = text.len().min(CAMBIUM_MESSAGE_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let bytes = text.as_bytes()[..end].iter();
    // A message has no NUL, but what it quotes may have.
    let chars = bytes.map(|byte| match byte {
        0 => b' ' as c_char,
        byte => *byte as c_char,
    });
    for (to, from) in to.iter_mut().zip(chars.chain([0])) {
        *to = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> CambiumError {
        CambiumError {
            status: CambiumStatus::Ok,
            message: [1; CAMBIUM_MESSAGE_BYTES],
        }
    }

    fn text(error: &CambiumError) -> String {
        let bytes: Vec<u8> = error.message.iter().map(|c| *c as u8).collect();
        CStr::from_bytes_until_nul(&bytes)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_message() {
        let mut error = empty();
        let status = run(&raw mut error, || panic!("the index is {}", 7));
        assert_eq!((status, error.status), (status, CambiumStatus::Panic));
        assert_eq!(
            text(&error),
            "a bug in cambium: the index is 7; close this handle and open it again"
        );
        assert_eq!(
            run(std::ptr::null_mut(), || panic!("again")),
            CambiumStatus::Panic
        );
    }

    #[test]
    fn a_long_message_ends_at_a_character_that_fits() {
        let mut error = empty();
        let long = "a".repeat(CAMBIUM_MESSAGE_BYTES - 2) + "éé";
        run(&raw mut error, || Err(Failure::argument(&long)));
        assert_eq!(text(&error), "a".repeat(CAMBIUM_MESSAGE_BYTES - 2));
        run(&raw mut error, || Err(Failure::argument("a\0b")));
        assert_eq!(text(&error), "a b");
    }

    #[test]
    fn success_leaves_the_error_as_it_was() {
        let mut error = empty();
        assert_eq!(
            run(&raw mut error, || Ok(CambiumStatus::NotFound)),
            CambiumStatus::NotFound
        );
        assert_eq!((error.status, error.message[0]), (CambiumStatus::Ok, 1));
    }

    #[test]
    fn every_status_has_a_name() {
        let name = |status| {
            // SAFETY: the function returns a static string.
            unsafe { CStr::from_ptr(cambium_status_name(status)) }
        };
        let named: std::collections::BTreeSet<_> = (0..=10).map(name).collect();
        assert_eq!(named.len(), 11);
        assert_eq!(name(CambiumStatus::Panic as u32), c"panic");
        assert_eq!(name(11), c"unknown");
    }
}
