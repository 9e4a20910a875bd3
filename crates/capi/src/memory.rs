//! Memory that crosses the boundary, and how pointers are read. A pointer is checked for null here
//! and nowhere else.

use crate::status::{CambiumStatus, Failure, run_infallible};
use cambium::{Address, B256, Bytes};
use std::{
    ffi::{CStr, c_char, c_void},
    path::Path,
    ptr, slice,
};

/// Bytes of the library: a value, a proof or a code. Free it with `cambium_bytes_free`.
///
/// A caller may also make one of its own memory, with `owner` null, to pass it to a function that
/// reads it; freeing that one does nothing.
#[repr(C)]
pub struct CambiumBytes {
    /// The bytes; null if there is no value. An empty value is not null.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
    /// What keeps the bytes in memory; null if the caller does. For the library alone.
    pub owner: *mut c_void,
}

impl CambiumBytes {
    /// No value.
    pub(crate) const NONE: Self = Self {
        data: ptr::null(),
        len: 0,
        owner: ptr::null_mut(),
    };

    /// Bytes that are kept until they are freed. They are not copied.
    pub(crate) fn of(bytes: Bytes) -> Self {
        let bytes = Box::new(bytes);
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
            owner: Box::into_raw(bytes).cast(),
        }
    }

    pub(crate) fn of_option(bytes: Option<Bytes>) -> Self {
        bytes.map_or(Self::NONE, Self::of)
    }

    fn free(&mut self) {
        let owner = std::mem::replace(self, Self::NONE).owner;
        if !owner.is_null() {
            // SAFETY: `owner` is null or from `CambiumBytes::of`, and now no longer in `self`.
            drop(unsafe { Box::from_raw(owner.cast::<Bytes>()) });
        }
    }
}

/// Frees bytes, and empties the structure: freeing it again does nothing. Null is ignored. Any thread
/// may free bytes; a transaction or a store may be gone by then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_bytes_free(bytes: *mut CambiumBytes) {
    // SAFETY: the caller passes null, or a structure that the library has filled.
    unsafe { cambium_bytes_free_many(bytes, 1) }
}

/// Frees `count` bytes that stand one after the other, as `cambium_transaction_get_many` writes them.
/// Null is ignored. Any thread may free bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_bytes_free_many(bytes: *mut CambiumBytes, count: usize) {
    run_infallible((), || {
        // SAFETY: the caller passes null, or `count` structures that the library has filled.
        if let Ok(many) = unsafe { results(bytes, count) } {
            many.iter_mut().for_each(CambiumBytes::free);
        }
    });
}

/// A handle of the caller's, to read.
///
/// # Safety
///
/// `pointer` is null, or a handle that is not freed, and that nobody changes during the call.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(null::<T>)
}

/// A handle of the caller's, to change, or where a result goes that is initialised.
///
/// # Safety
///
/// `pointer` is null, or a handle that is not freed, and that nobody else uses during the call.
pub(crate) unsafe fn handle_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(null::<T>)
}

/// Where results go: `count` values of plain data.
///
/// # Safety
///
/// `pointer` is null, or has memory for `count` values that nobody else uses during the call.
pub(crate) unsafe fn results<'a, T>(pointer: *mut T, count: usize) -> Result<&'a mut [T], Failure> {
    check_len::<T>(pointer, count)?;
    match count {
        0 => Ok(&mut []),
        // SAFETY: as the caller promises; neither null nor longer than memory can be.
        _ => Ok(unsafe { slice::from_raw_parts_mut(pointer, count) }),
    }
}

/// `count` values of the caller's. They may be null if there are none.
///
/// # Safety
///
/// `pointer` is null, or has `count` values that nobody changes during the call.
pub(crate) unsafe fn read_values<'a, T>(
    pointer: *const T,
    count: usize,
) -> Result<&'a [T], Failure> {
    check_len::<T>(pointer, count)?;
    match count {
        0 => Ok(&[]),
        // SAFETY: as the caller promises; neither null nor longer than memory can be.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, count) }),
    }
}

/// Keys, 32 bytes each, one after the other.
///
/// # Safety
///
/// As [`read_values`], of 32 bytes each.
pub(crate) unsafe fn read_keys<'a>(
    pointer: *const u8,
    count: usize,
) -> Result<&'a [B256], Failure> {
    // SAFETY: `B256` is an array of 32 bytes.
    unsafe { read_values(pointer.cast::<B256>(), count) }
}

/// One key, root or hash.
///
/// # Safety
///
/// `pointer` is null, or has 32 bytes that nobody changes during the call.
pub(crate) unsafe fn read_key<'a>(pointer: *const u8) -> Result<&'a B256, Failure> {
    // SAFETY: `B256` is an array of 32 bytes.
    unsafe { handle(pointer.cast::<B256>()) }
}

/// An address.
///
/// # Safety
///
/// `pointer` is null, or has 20 bytes that nobody changes during the call.
pub(crate) unsafe fn read_address<'a>(pointer: *const u8) -> Result<&'a Address, Failure> {
    // SAFETY: `Address` is an array of 20 bytes.
    unsafe { handle(pointer.cast::<Address>()) }
}

/// The path of a directory.
///
/// # Safety
///
/// `pointer` is null, or a string with a NUL at its end that nobody changes during the call.
pub(crate) unsafe fn read_path<'a>(pointer: *const c_char) -> Result<&'a Path, Failure> {
    if pointer.is_null() {
        return Err(Failure::argument("the path is null"));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    match text.to_str() {
        Ok("") => Err(Failure::argument("the path is empty")),
        Ok(text) => Ok(Path::new(text)),
        Err(_) => Err(Failure::argument(format!("the path {text:?} is not UTF-8"))),
    }
}

/// Writes a result to memory that may be uninitialised.
///
/// # Safety
///
/// `to` is null, or has memory for one `T` that nobody else uses during the call.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) -> Result<(), Failure> {
    check_result(to)?;
    // SAFETY: not null, and as the caller promises.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a result that the caller may leave out.
///
/// # Safety
///
/// The pointer is as the header asks of the caller.
pub(crate) unsafe fn write_unless_null<T>(to: *mut T, value: T) -> Result<CambiumStatus, Failure> {
    if !to.is_null() {
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(to, value) }?;
    }
    Ok(CambiumStatus::Ok)
}

/// Writes a value, and says whether there is one.
///
/// # Safety
///
/// The pointer is as the header asks of the caller.
pub(crate) unsafe fn found_value(
    to: *mut CambiumBytes,
    found: Option<Bytes>,
) -> Result<CambiumStatus, Failure> {
    let status = match found {
        Some(_) => CambiumStatus::Ok,
        None => CambiumStatus::NotFound,
    };
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { write(to, CambiumBytes::of_option(found)) }?;
    Ok(status)
}

/// Refuses a null pointer to a result before any work is done for it.
pub(crate) fn check_result<T>(to: *mut T) -> Result<(), Failure> {
    match to.is_null() {
        true => Err(null::<T>()),
        false => Ok(()),
    }
}

/// Frees a handle. Null is ignored.
///
/// # Safety
///
/// `pointer` is null, or from `Box::into_raw`, and not used again.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    run_infallible((), || {
        if !pointer.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(pointer) });
        }
    });
}

fn check_len<T>(pointer: *const T, count: usize) -> Result<(), Failure> {
    if count > 0 && pointer.is_null() {
        return Err(null::<T>());
    }
    let bytes = count.checked_mul(size_of::<T>());
    match bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
        true => Ok(()),
        false => Err(Failure::argument(format!(
            "{count} times {} bytes are more than there is memory",
            size_of::<T>()
        ))),
    }
}

fn null<T>() -> Failure {
    let name = std::any::type_name::<T>();
    let name = name.rsplit("::").next().unwrap_or(name);
    Failure::argument(format!("a pointer to {name} is null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_impossible_lengths_are_refused_and_empty_is_not() {
        // SAFETY: null pointers are never followed, and a count of 0 reads nothing.
        unsafe {
            assert!(read_keys(ptr::null(), 0).unwrap().is_empty());
            assert!(read_keys(ptr::null(), 1).is_err());
            assert!(read_keys([0; 32].as_ptr(), usize::MAX / 16).is_err());
            assert!(read_key(ptr::null()).is_err());
            assert!(read_path(ptr::null()).is_err());
            assert!(read_path(c"".as_ptr()).is_err());
            assert!(read_path(c"\xff".as_ptr()).is_err());
            assert!(write::<u64>(ptr::null_mut(), 1).is_err());
            free::<u64>(ptr::null_mut());
        }
    }

    #[test]
    fn bytes_are_freed_once_and_those_of_the_caller_never() {
        let mut bytes = [
            CambiumBytes::of(Bytes::from(vec![7; 40])),
            CambiumBytes::of(Bytes::new()),
        ];
        assert!(!bytes[1].data.is_null() && bytes[1].len == 0);
        let own = [1, 2, 3];
        let mut of_caller = CambiumBytes {
            data: own.as_ptr(),
            len: own.len(),
            owner: ptr::null_mut(),
        };
        // SAFETY: the structures are as the library fills them, or have no owner.
        unsafe {
            cambium_bytes_free_many(bytes.as_mut_ptr(), 2);
            cambium_bytes_free_many(bytes.as_mut_ptr(), 2);
            cambium_bytes_free(&raw mut of_caller);
            cambium_bytes_free(ptr::null_mut());
        }
        assert!(bytes.iter().all(|bytes| bytes.data.is_null()));
        assert!(of_caller.data.is_null());
    }
}
