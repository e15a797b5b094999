//! Passwords over TCP: compared with hashes of bcrypt, which cost much on purpose, and remembered so that a scrape does
//! not.
//!
//! Timing reveals nothing: an unknown user costs as much as a known one, and the bytes that are compared are sums under
//! a secret key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;

use super::error::AccessError;
use crate::telemetry::lock;

/// Whether a password is that of a hash; blocks for as long as its cost says.
type Compare = fn(&str, &str) -> bool;

/// Concurrency: any task. One password is hashed at a time, so that a flood of wrong ones takes one core and no more.
pub(super) struct Passwords {
    key: hmac::Key,
    /// By user, of hash and password together. At most as many as there are users.
    verified: Mutex<HashMap<String, hmac::Tag>>,
    /// In the place of the sum of a user without one.
    no_user: hmac::Tag,
    turn: Semaphore,
    compare: Compare,
}

impl Passwords {
    /// Errors: the system gives no random bytes.
    pub(super) fn new() -> Result<Passwords, AccessError> {
        Passwords::comparing(|password, hash| bcrypt::verify(password, hash).unwrap_or(false))
    }
    fn comparing(compare: Compare) -> Result<Passwords, AccessError> {
        let key = random_key()?;
        let no_user = hmac::sign(&key, b"");
        Ok(Passwords { key, verified: Mutex::default(), no_user, turn: Semaphore::new(1), compare })
    }

    /// `users`: hashes by user, at least one.
    pub(super) async fn are_right(&self, users: &BTreeMap<String, String>, user: &str, password: &str) -> bool {
        let known = users.get(user);
        // Searched and compared for each user: an unknown one costs as much.
        let stand_in = self.decoy_hash(users, user);
        let Some(hash) = known.or(stand_in) else { return false };
        let message = [hash.as_bytes(), b":", password.as_bytes()].concat();
        if self.remembers(user, &message) && known.is_some() {
            return true;
        }
        let Ok(_turn) = self.turn.acquire().await else { return false };
        // Another request may have verified the same before.
        if self.remembers(user, &message) && known.is_some() {
            return true;
        }
        let (compare, given, retained) = (self.compare, password.to_owned(), hash.clone());
        let is_same = tokio::task::spawn_blocking(move || compare(&given, &retained)).await.unwrap_or(false);
        let is_right = is_same && known.is_some();
        if is_right {
            let mut verified = lock(&self.verified);
            verified.retain(|user, _| users.contains_key(user));
            verified.insert(user.to_owned(), hmac::sign(&self.key, &message));
        }
        is_right
    }

    fn remembers(&self, user: &str, message: &[u8]) -> bool {
        let retained = lock(&self.verified).get(user).copied();
        let is_retained = hmac::verify(&self.key, message, retained.unwrap_or(self.no_user).as_ref()).is_ok();
        is_retained && retained.is_some()
    }

    /// For an unknown user: the hash of a known one, always the same, so that different costs reveal nothing either.
    fn decoy_hash<'u>(&self, users: &'u BTreeMap<String, String>, user: &str) -> Option<&'u String> {
        let tag = hmac::sign(&self.key, user.as_bytes());
        let number = tag.as_ref().iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let at = usize::try_from(number % u64::try_from(users.len()).ok()?.max(1)).ok()?;
        users.values().nth(at)
    }
}

/// Of this process alone.
///
/// Errors: the system gives no random bytes.
pub(super) fn random_key() -> Result<hmac::Key, AccessError> {
    hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| AccessError::Random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn users(names: &[(&str, &str)]) -> BTreeMap<String, String> {
        names.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect()
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn a_password_costs_its_hash_once_and_a_wrong_one_or_an_unknown_user_each_time() {
        static HASHED: AtomicUsize = AtomicUsize::new(0);
        let passwords = Passwords::comparing(|password, hash| {
            HASHED.fetch_add(1, Ordering::SeqCst);
            hash == format!("hash of {password}")
        });
        let passwords = passwords.unwrap();
        let known = users(&[("alice", "hash of secret"), ("bob", "hash of other")]);
        let before = Cell::new(0);
        let request = |known: &BTreeMap<String, String>, user: &str, password: &str| {
            let is_right = block_on(passwords.are_right(known, user, password));
            let now = HASHED.load(Ordering::SeqCst);
            (is_right, now - before.replace(now))
        };
        assert_eq!(request(&known, "alice", "secret"), (true, 1));
        assert_eq!(request(&known, "alice", "secret"), (true, 0), "remembered");
        for _ in 0..2 {
            assert_eq!(request(&known, "alice", "wrong"), (false, 1));
            assert_eq!(request(&known, "carol", "wrong"), (false, 1), "who is not there costs as much");
            // A known user stands in for her: his password is not hers.
            assert_eq!(request(&known, "carol", "secret"), (false, 1));
            assert_eq!(request(&known, "carol", "other"), (false, 1));
        }
        assert_eq!(request(&known, "alice", "secret"), (true, 0), "wrong ones push nothing out");
        let changed = users(&[("alice", "hash of newer")]);
        assert_eq!(request(&changed, "alice", "secret"), (false, 1), "not by what was remembered of another hash");
        assert_eq!(request(&changed, "alice", "newer"), (true, 1));
        assert_eq!(request(&BTreeMap::new(), "alice", "newer"), (false, 0));
    }

    #[test]
    fn hashes_of_other_programs_are_understood() {
        let made = bcrypt::hash_with_result("secret", 4).unwrap();
        let of = |version| made.format_for_version(version);
        for version in [bcrypt::Version::TwoA, bcrypt::Version::TwoB, bcrypt::Version::TwoY] {
            let known = users(&[("alice", &of(version))]);
            let passwords = Passwords::new().unwrap();
            assert!(block_on(passwords.are_right(&known, "alice", "secret")));
            assert!(!block_on(passwords.are_right(&known, "alice", "Secret")));
            assert!(!block_on(passwords.are_right(&known, "alice", "")));
        }
        assert!(!block_on(Passwords::new().unwrap().are_right(&users(&[("alice", "no hash")]), "alice", "secret")));
    }
}
