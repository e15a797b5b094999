//! What is published: the board, and the events.

pub mod board;
pub mod events;
