//! Whether an alloc is placed on this node.

use crate::model::placement::NotPlaced;

/// Result of placement.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum PlaceState {
    /// Not evaluated yet by this agent.
    #[default]
    Unknown,
    Placed,
    Not(Vec<NotPlaced>),
}

impl PlaceState {
    pub fn reasons(&self) -> &[NotPlaced] {
        match self {
            PlaceState::Not(reasons) => reasons,
            PlaceState::Unknown | PlaceState::Placed => &[],
        }
    }
}
