//! The functions of NVML as C calls them. What each answers is said in one line; [`exports`] makes the function of it.
//!
//! ```text
//! value  (device, .., *out)              one number or structure
//! both   (device, .., *out, *out)        two numbers
//! text   (device, *buffer, length)       a string that must fit
//! list   (device, .., *count, *items)    as many as fit; `count` says how many there are
//! ```
//! The rest, each of a shape of its own, is written by hand.

use std::ffi::{CStr, c_char, c_uint};

use super::types::Handle;
use crate::codes::{self, Code};
use crate::state::Target;

macro_rules! exports {
    ($($shape:ident $name:ident($($argument:ident: $type:ty),*) -> $out:ty = $answer:expr;)*) => {
        $(crate::abi::frame::export!($shape $name($($argument: $type),*) -> $out = $answer);)*
    };
}

macro_rules! export {
    (value $name:ident($($argument:ident: $type:ty),*) -> $out:ty = $answer:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: Handle, $($argument: $type,)* out: *mut $out) -> Code {
            let answer: fn(&crate::state::ResolvedTarget $(, $type)*) -> Result<$out, crate::codes::Code> = $answer;
            crate::state::call(stringify!($name), crate::abi::frame::handle(device), |found| {
                // SAFETY: the caller gives a place for one value, or null.
                unsafe { crate::abi::frame::write(out, answer(found $(, $argument)*)?) }
            })
        }
    };
    (both $name:ident($($argument:ident: $type:ty),*) -> $out:ty = $answer:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: Handle, $($argument: $type,)* first: *mut $out, second: *mut $out) -> Code {
            let answer: fn(&crate::state::ResolvedTarget $(, $type)*) -> Result<[$out; 2], crate::codes::Code> =
                $answer;
            crate::state::call(stringify!($name), crate::abi::frame::handle(device), |found| {
                let [one, other] = answer(found $(, $argument)*)?;
                // SAFETY: the caller gives a place for each value, or null.
                unsafe { crate::abi::frame::write(first, one).and_then(|()| crate::abi::frame::write(second, other)) }
            })
        }
    };
    (text $name:ident() -> $out:ty = $answer:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: Handle, buffer: *mut c_char, length: c_uint) -> Code {
            let answer: fn(&crate::state::ResolvedTarget) -> Result<$out, crate::codes::Code> = $answer;
            crate::state::call(stringify!($name), crate::abi::frame::handle(device), |found| {
                // SAFETY: the caller gives a buffer of that length, or null.
                unsafe { crate::abi::frame::write_text(buffer, length, &answer(found)?) }
            })
        }
    };
    (list $name:ident($($argument:ident: $type:ty),*) -> $out:ty = $answer:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: Handle, $($argument: $type,)* count: *mut c_uint, items: *mut $out) -> Code {
            let answer: fn(&crate::state::ResolvedTarget $(, $type)*) -> Result<Vec<$out>, crate::codes::Code> =
                $answer;
            crate::state::call(stringify!($name), crate::abi::frame::handle(device), |found| {
                // SAFETY: the caller gives a place for the count, or null.
                unsafe { crate::abi::frame::claim(count, found.claimed)? }
                // SAFETY: the caller says in `count` how many items have a place, or gives null.
                unsafe { crate::abi::frame::write_list(count, items, &answer(found $(, $argument)*)?) }
            })
        }
    };
}
pub(super) use {export, exports};

pub(super) fn handle(device: Handle) -> Target<'static> {
    Target::Handle(device as usize)
}

pub(super) fn known<T: Clone>(value: Option<&T>) -> Result<T, Code> {
    value.cloned().ok_or(codes::NOT_SUPPORTED)
}

/// # Safety
/// `out` is null, or a place for a value.
pub(super) unsafe fn write<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(codes::INVALID_ARGUMENT);
    }
    // SAFETY: the caller promises it.
    unsafe { out.write(value) };
    Ok(())
}

/// # Safety
/// `buffer` is null, or has `length` bytes.
pub(super) unsafe fn write_text(buffer: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if buffer.is_null() {
        return Err(codes::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(codes::INSUFFICIENT_SIZE);
    }
    // SAFETY: text and its zero fit, as was asked.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

/// As a fault wants it: so many, and no room for them.
///
/// # Safety
/// `count` is null or a place for a value.
pub(super) unsafe fn claim(count: *mut c_uint, claimed: Option<c_uint>) -> Result<(), Code> {
    let Some(claimed) = claimed else { return Ok(()) };
    // SAFETY: the caller promises it.
    unsafe { write(count, claimed) }?;
    Err(codes::INSUFFICIENT_SIZE)
}

/// How many there are is said in any case.
///
/// # Safety
/// `count` is null or readable and writable; `items` is null, or has as many places as `count` says.
pub(super) unsafe fn write_list<T: Copy>(count: *mut c_uint, items: *mut T, list: &[T]) -> Result<(), Code> {
    if count.is_null() {
        return Err(codes::INVALID_ARGUMENT);
    }
    // SAFETY: the caller promises it.
    let room = unsafe { count.read() } as usize;
    // SAFETY: as above.
    unsafe { count.write(c_uint::try_from(list.len()).unwrap_or(c_uint::MAX)) };
    if list.is_empty() {
        return Ok(());
    }
    if items.is_null() || room < list.len() {
        return Err(codes::INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for all of the list, as was asked.
    unsafe { items.copy_from_nonoverlapping(list.as_ptr(), list.len()) };
    Ok(())
}

/// # Safety
/// `text` is null, or ends in a zero.
pub(super) unsafe fn read_text<'a>(text: *const c_char) -> Result<&'a str, Code> {
    if text.is_null() {
        return Err(codes::INVALID_ARGUMENT);
    }
    // SAFETY: the caller promises it.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| codes::INVALID_ARGUMENT)
}
