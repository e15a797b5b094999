//! How many of the observed tasks each user may have: whoever makes many cgroups leaves out his own, and neither root's nor another user's.

use std::collections::HashMap;

use crate::host::untrusted::own_user;

/// Tasks in subtrees that are delegated to users, by user. Root's, and those of the agent's own user, come first and are not counted here.
#[derive(Debug)]
pub(super) struct Shares {
    own: u32,
    /// Of `observe.max_allocs`: a quarter for one user, half for all of them together.
    of_one: usize,
    of_all: usize,
    tasks: HashMap<u32, usize>,
}

impl Shares {
    pub(super) fn new(max_allocs: usize) -> Shares {
        let (of_one, of_all) = ((max_allocs / 4).max(1), (max_allocs / 2).max(1));
        Shares { own: own_user(), of_one, of_all, tasks: HashMap::new() }
    }
    pub(super) fn is_full(&self, user: Option<u32>) -> bool {
        let Some(user) = user.filter(|user| *user != self.own) else { return false };
        let of_one = self.tasks.get(&user).copied().unwrap_or_default();
        of_one >= self.of_one || self.tasks.values().sum::<usize>() >= self.of_all
    }
    pub(super) fn begins(&mut self, user: Option<u32>) {
        if let Some(user) = user.filter(|user| *user != self.own) {
            *self.tasks.entry(user).or_default() += 1;
        }
    }
    pub(super) fn ends(&mut self, user: Option<u32>) {
        if let Some(user) = user
            && let Some(tasks) = self.tasks.get_mut(&user)
        {
            *tasks -= 1;
            if *tasks == 0 {
                self.tasks.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_a_quarter_all_have_half_and_root_has_no_share() {
        let mut shares = Shares { own: 0, ..Shares::new(8) };
        for user in [1_000, 1_001] {
            for _ in 0..2 {
                assert!(!shares.is_full(Some(user)), "{user}");
                shares.begins(Some(user));
            }
            assert!(shares.is_full(Some(user)), "{user}");
        }
        assert!(shares.is_full(Some(1_002)) && !shares.is_full(None) && !shares.is_full(Some(0)));
        shares.ends(Some(1_000));
        assert!(!shares.is_full(Some(1_002)) && shares.is_full(Some(1_001)));
    }
}
