//! Groups by name, from the system's database.

use std::ffi::CString;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("there is no group {name:?} on this host")]
    Unknown { name: String },
    #[error("cannot look up group {name:?}")]
    Lookup { name: String, source: io::Error },
}

/// Looks up the gid of a group by name or number. Blocks: the database may be remote.
pub fn group(name: &str) -> Result<u32, GroupError> {
    let unknown = || GroupError::Unknown { name: name.to_owned() };
    if let Ok(number) = name.parse::<u32>() {
        // For the kernel, u32::MAX means "leave unchanged".
        return if number == u32::MAX { Err(unknown()) } else { Ok(number) };
    }
    let c_name = CString::new(name).map_err(|_| unknown())?;
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        // SAFETY: an all-zero group is valid. The function writes into `entry` and into `buffer`, whose length it gets;
        // `found` is null or points to `entry`.
        let (error, found, gid) = unsafe {
            let mut entry: libc::group = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let (name, room) = (c_name.as_ptr(), buffer.len());
            let error = libc::getgrnam_r(name, &raw mut entry, buffer.as_mut_ptr(), room, &raw mut found);
            (error, !found.is_null(), entry.gr_gid)
        };
        match error {
            libc::ERANGE if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            // As for users, several errors mean "no such entry".
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM if !found => return Err(unknown()),
            0 => return Ok(gid),
            errno => {
                let source = io::Error::from_raw_os_error(errno);
                return Err(GroupError::Lookup { name: name.to_owned(), source });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_by_name_and_number_and_an_unknown_one_is_named_in_the_error() {
        assert_eq!((group("root").unwrap(), group("0").unwrap(), group("4123").unwrap()), (0, 0, 4123));
        for name in ["no-such-group-here", "4294967295", "a\0b", ""] {
            let error = group(name).unwrap_err();
            assert!(matches!(&error, GroupError::Unknown { name: n } if n == name), "{error:?}");
        }
    }
}
