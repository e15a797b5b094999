//! Where the values come from that are not in the text of a template.

use std::time::Instant;

use crate::model::address::InterfaceAddress;

/// What a template takes from outside of its text.
pub trait TemplateSources {
    /// An environment variable of the task; `None` if it is not set.
    fn env(&self, name: &str) -> Option<String>;
    /// A file below the task's directory. Errors: why it cannot be read.
    fn file(&self, path: &str) -> Result<String, String>;
    /// The value of a key of the local key tree; `None` if there is no such key. Errors: why it cannot be read.
    fn key(&self, path: &str) -> Result<Option<String>, String>;
    /// All keys below a prefix, with their full paths and values, sorted. `is_flat`: only those directly below are
    /// needed. Errors: why they cannot be read.
    fn keys(&self, prefix: &str, is_flat: bool) -> Result<Vec<(String, String)>, String>;
    /// The addresses of the host's interfaces, by interface. Errors: why they are not known.
    fn addresses(&self) -> Result<Vec<InterfaceAddress>, String>;
    /// Now, as seconds and nanoseconds since 1970. Errors: why it is not known.
    fn now(&self) -> Result<(i64, u32), String>;
    /// When rendering is abandoned.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}
