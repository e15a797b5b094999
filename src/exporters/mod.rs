//! Floor 5: the snapshot in the words of others. Pure views: nothing here reads the host.

pub mod catalogue;
pub mod families;
pub mod json;
pub mod prometheus;
pub mod walk;

pub use prometheus::{Encoding, Format};
