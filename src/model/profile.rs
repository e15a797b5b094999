//! How much is exposed. Who stores metrics pays for each series: a profile says which families there are, and each has
//! what the one before it has, and more.

use super::words;

words! {
    pub enum Profile {
        /// What alerts need, and usage by owner.
        Lean = "lean",
        /// What boards, alerts and the examples of the documentation need: the default.
        Standard = "standard",
        /// Everything that is known.
        Full = "full",
    }
}

/// The smallest profile that has the family of a measure: of whose it is, of its alloc, of its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profiles {
    pub own: Profile,
    pub alloc: Profile,
    pub workload: Profile,
}

impl Profiles {
    pub const fn all(profile: Profile) -> Profiles {
        Profiles { own: profile, alloc: profile, workload: profile }
    }
}
