//! What is known of an alloc's place on this node.

use crate::model::placement::NotPlaced;

/// What is known of its place.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum PlaceState {
    /// It was not asked yet, in this life of the agent.
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
