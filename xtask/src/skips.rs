//! Which skips may occur: `tests/allowed-skips`. Any other fails the run.
//!
//! ```text
//! # reason              where it may occur
//! no-gpu                always
//! not-root              ordinary-user
//! no-qemu               not-debian
//! no-cgroup-v2          elsewhere:v2-6.1,v2-6.12
//! ```
//! `elsewhere`: the same test runs in one of these other places, so nothing is left out and nothing is counted. A
//! reason may have several words.

use std::collections::BTreeMap;

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipCondition {
    Always,
    OrdinaryUser,
    NotDebian,
    /// Places that do not give this reason.
    Elsewhere(Vec<String>),
}

/// This run, as far as skips care.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    pub root: bool,
    pub debian: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It ran elsewhere: not a skip at all.
    RanElsewhere,
    Allowed,
    Forbidden,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct AllowedSkips(BTreeMap<String, Vec<SkipCondition>>);

impl AllowedSkips {
    pub fn parse(text: &str) -> Result<AllowedSkips> {
        let mut allowed = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            let Some(reason) = words.next() else { continue };
            let whens = words.map(when).collect::<Option<Vec<SkipCondition>>>().filter(|whens| !whens.is_empty());
            let whens = whens.ok_or_else(|| {
                format!("line {}: after the reason: always, ordinary-user, not-debian, elsewhere:PLACE,...", number + 1)
            })?;
            if allowed.insert(reason.to_owned(), whens).is_some() {
                return Err(format!("line {}: {reason} stands there twice", number + 1).into());
            }
        }
        Ok(AllowedSkips(allowed))
    }

    /// `runs`: whether the test runs in that other place, now or by another slice.
    pub fn judge(&self, reason: &str, circumstances: Circumstances, runs: impl Fn(&str) -> bool) -> Judgement {
        let whens = self.0.get(reason).map_or(&[][..], Vec::as_slice);
        let is_elsewhere = |when: &SkipCondition| match when {
            SkipCondition::Elsewhere(places) => places.iter().any(|place| runs(place)),
            SkipCondition::Always | SkipCondition::OrdinaryUser | SkipCondition::NotDebian => false,
        };
        if whens.iter().any(is_elsewhere) {
            return Judgement::RanElsewhere;
        }
        let allowed = whens.iter().any(|when| match when {
            SkipCondition::Always => true,
            SkipCondition::OrdinaryUser => !circumstances.root,
            SkipCondition::NotDebian => !circumstances.debian,
            SkipCondition::Elsewhere(_) => false,
        });
        if allowed { Judgement::Allowed } else { Judgement::Forbidden }
    }

    /// Every place that the list names.
    #[cfg(test)]
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.0
            .values()
            .flatten()
            .flat_map(|when| match when {
                SkipCondition::Elsewhere(places) => places.as_slice(),
                SkipCondition::Always | SkipCondition::OrdinaryUser | SkipCondition::NotDebian => &[],
            })
            .map(String::as_str)
    }
}

fn when(word: &str) -> Option<SkipCondition> {
    match word.split_once(':') {
        Some(("elsewhere", places)) => Some(SkipCondition::Elsewhere(places.split(',').map(str::to_owned).collect())),
        Some(_) => None,
        None => match word {
            "always" => Some(SkipCondition::Always),
            "ordinary-user" => Some(SkipCondition::OrdinaryUser),
            "not-debian" => Some(SkipCondition::NotDebian),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT_ON_DEBIAN: Circumstances = Circumstances { root: true, debian: true };

    #[test]
    fn a_reason_that_is_not_listed_is_forbidden() {
        let allowed = AllowedSkips::parse("# none\nno-gpu always # later\n").unwrap();
        assert_eq!(allowed.judge("no-gpu", ROOT_ON_DEBIAN, |_| false), Judgement::Allowed);
        assert_eq!(allowed.judge("too-lazy", ROOT_ON_DEBIAN, |_| true), Judgement::Forbidden);
    }

    #[test]
    fn a_reason_for_ordinary_users_is_forbidden_to_root() {
        let allowed = AllowedSkips::parse("not-root ordinary-user").unwrap();
        assert_eq!(allowed.judge("not-root", ROOT_ON_DEBIAN, |_| true), Judgement::Forbidden);
        let user = Circumstances { root: false, debian: true };
        assert_eq!(allowed.judge("not-root", user, |_| false), Judgement::Allowed);
    }

    #[test]
    fn elsewhere_holds_only_if_it_ran_elsewhere() {
        let allowed = AllowedSkips::parse("no-cgroup-v2 elsewhere:v2-6.1,v2-6.12 not-debian").unwrap();
        assert_eq!(allowed.judge("no-cgroup-v2", ROOT_ON_DEBIAN, |place| place == "v2-6.12"), Judgement::RanElsewhere);
        assert_eq!(allowed.judge("no-cgroup-v2", ROOT_ON_DEBIAN, |place| place == "host"), Judgement::Forbidden);
        let fedora = Circumstances { root: true, debian: false };
        assert_eq!(allowed.judge("no-cgroup-v2", fedora, |_| false), Judgement::Allowed);
    }

    #[test]
    fn a_list_that_says_nothing_clear_is_refused() {
        assert!(AllowedSkips::parse("no-gpu").is_err());
        assert!(AllowedSkips::parse("no-gpu sometimes").is_err());
        assert!(AllowedSkips::parse("no-gpu elsewhere").is_err(), "in which places?");
        assert!(AllowedSkips::parse("no-gpu always\nno-gpu always").is_err());
    }

    #[test]
    fn the_list_of_this_repository_reads() {
        let text = std::fs::read_to_string(crate::root().join("tests/allowed-skips")).unwrap();
        let allowed = AllowedSkips::parse(&text).unwrap();
        let known = |place: &&str| *place == "host" || crate::guest::GUESTS.iter().any(|guest| guest.name == *place);
        assert_eq!(allowed.places().find(|place| !known(place)), None, "there is no such place");
    }
}
