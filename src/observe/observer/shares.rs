//! Limits the observed tasks per user: a user who creates many cgroups displaces only their own, not those of root or
//! other users.

use std::collections::HashMap;

use crate::host::untrusted::own_user;

/// Tasks in delegated subtrees, by user. Tasks of root and of the agent's user are not limited here.
#[derive(Debug)]
pub(super) struct UserQuotas {
    agent_user: u32,
    /// Limits as parts of `observe.max_allocs`: a quarter per user, half for all users together.
    of_one: usize,
    of_all: usize,
    tasks: HashMap<u32, usize>,
}

impl UserQuotas {
    pub(super) fn new(max_allocs: usize) -> UserQuotas {
        let (of_one, of_all) = ((max_allocs / 4).max(1), (max_allocs / 2).max(1));
        UserQuotas { agent_user: own_user(), of_one, of_all, tasks: HashMap::new() }
    }
    pub(super) fn is_full(&self, user: Option<u32>) -> bool {
        let Some(user) = user.filter(|user| *user != self.agent_user) else { return false };
        let of_one = self.tasks.get(&user).copied().unwrap_or_default();
        of_one >= self.of_one || self.tasks.values().sum::<usize>() >= self.of_all
    }
    pub(super) fn begins(&mut self, user: Option<u32>) {
        if let Some(user) = user.filter(|user| *user != self.agent_user) {
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
    fn observed_share_is_a_quarter_per_user_half_for_all_users_and_unlimited_for_root() {
        let mut shares = UserQuotas { agent_user: 0, ..UserQuotas::new(8) };
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
