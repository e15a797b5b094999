//! Looks up users in the system's user database.

use std::ffi::{CStr, CString};
use std::io;

use serde::{Deserialize, Serialize};

/// The uid, gid and groups of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// All groups, including the primary one.
    pub groups: Vec<u32>,
    pub home: String,
    pub shell: String,
}

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("there is no user {name:?} on this host")]
    Unknown { name: String },
    #[error("cannot look up user {name:?}")]
    Lookup { name: String, source: io::Error },
}

/// Looks up a user by name, by uid, or as `uid:gid`; such a pair needs no entry in the database. Blocks: the database
/// may be remote.
pub fn account(name: &str) -> Result<Account, UserError> {
    let Some((user, group)) = name.split_once(':') else { return in_database(name) };
    let (Ok(uid), Ok(gid)) = (user.parse::<u32>(), group.parse::<u32>()) else {
        return Err(UserError::Unknown { name: name.to_owned() });
    };
    match in_database(user) {
        Ok(account) => Ok(Account { gid, groups: vec![gid], ..account }),
        Err(UserError::Unknown { .. }) => {
            let (home, shell) = ("/".to_owned(), "/bin/sh".to_owned());
            Ok(Account { name: user.to_owned(), uid, gid, groups: vec![gid], home, shell })
        }
        Err(error) => Err(error),
    }
}

fn in_database(name: &str) -> Result<Account, UserError> {
    let lookup = |source| UserError::Lookup { name: name.to_owned(), source };
    let unknown = || UserError::Unknown { name: name.to_owned() };
    let c_name = CString::new(name).map_err(|_| unknown())?;
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        // SAFETY: an all-zero passwd is valid. The functions write into `entry` and into `buffer`, whose length they
        // get; `found` is null or points to `entry`.
        let (error, found, entry) = unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let error = match name.parse::<u32>() {
                Ok(uid) => libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found),
                Err(_) => {
                    let name = c_name.as_ptr();
                    libc::getpwnam_r(name, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
                }
            };
            (error, !found.is_null(), entry)
        };
        match error {
            libc::ERANGE if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            // Depending on the database, several errors mean "no such entry".
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM if !found => return Err(unknown()),
            0 => {
                // SAFETY: the entry was filled in, so its strings are terminated and lie in `buffer`, which is still
                // alive.
                let text = |at: *const libc::c_char| unsafe { CStr::from_ptr(at).to_string_lossy().into_owned() };
                let name = text(entry.pw_name);
                let groups = groups(&name, entry.pw_gid).map_err(lookup)?;
                let (home, shell) = (text(entry.pw_dir), text(entry.pw_shell));
                return Ok(Account { name, uid: entry.pw_uid, gid: entry.pw_gid, groups, home, shell });
            }
            errno => return Err(lookup(io::Error::from_raw_os_error(errno))),
        }
    }
}

fn groups(name: &str, primary: u32) -> io::Result<Vec<u32>> {
    let name = CString::new(name)?;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: `groups` has `count` entries, and getgrouplist writes no more.
        let answer = unsafe { libc::getgrouplist(name.as_ptr(), primary, groups.as_mut_ptr(), &raw mut count) };
        let needed = usize::try_from(count).unwrap_or(0);
        if answer >= 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        if needed <= groups.len() || needed > 1 << 16 {
            return Err(io::Error::other("the list of groups is not available"));
        }
        groups.resize(needed, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_number() {
        let root = account("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(account("0").unwrap(), root);
        let with_group = account("0:7").unwrap();
        assert_eq!((with_group.name, with_group.gid, with_group.groups), (root.name.clone(), 7, vec![7]));
        let unknown = account("4123456:9").unwrap();
        assert_eq!((unknown.uid, unknown.gid, unknown.groups.as_slice()), (4_123_456, 9, &[9][..]));
        assert!(account("root:x").is_err());
    }

    #[test]
    fn an_unknown_user_is_named_in_the_error() {
        for name in ["no-such-user-here", "4123456789", "a\0b"] {
            let error = account(name).unwrap_err();
            assert!(matches!(&error, UserError::Unknown { name: n } if n == name), "{error:?}");
        }
    }
}
