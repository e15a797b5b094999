//! What the API shows of a snapshot, made by the exporters.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::BoxFuture;
use super::error::ApiError;
use crate::model::answer::{Detail, Encoding, Format};
use crate::snapshot::{AllocView, ScraperKey, Snapshot};

/// Which body of `/metrics` is wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub format: Format,
    pub encoding: Encoding,
    /// Families by name, `?name[]=`; none: all.
    pub names: Vec<String>,
    /// `?source=`; none: all.
    pub sources: Vec<String>,
    /// Who will come again.
    pub scraper: Option<ScraperKey>,
}

impl Wanted {
    /// Only a whole body can be an acknowledged one.
    pub fn is_everything(&self) -> bool {
        self.names.is_empty() && self.sources.is_empty()
    }
}

pub trait Views: Send + Sync {
    /// The exposition of this snapshot. The whole one is encoded once and shared by all who ask.
    ///
    /// Errors: an unknown source.
    fn metrics(&self, snapshot: Arc<Snapshot>, wanted: Wanted) -> BoxFuture<'_, Result<Bytes, ApiError>>;
    fn alloc_list(&self, snapshot: &Snapshot, detail: Detail) -> Value;
    fn alloc(&self, alloc: &AllocView, detail: Detail) -> Value;
    fn alloc_stats(&self, snapshot: &Snapshot, alloc: &AllocView) -> Value;
    fn node(&self, snapshot: &Snapshot, detail: Detail) -> Value;
    fn catalogue(&self) -> Value;
}
