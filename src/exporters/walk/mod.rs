//! What any exporter tells of a snapshot: its families, and which of them are wanted.

mod filter;
pub mod lifecycle;

pub use filter::{Filter, FilterError, Source};
