//! What is published: the board, and the events.

pub mod board;
pub mod broadcaster;
pub mod events;
