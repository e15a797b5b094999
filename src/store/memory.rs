//! The store for tests and for agents that keep nothing.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{Batch, Store, StoreError};
use crate::telemetry::lock;

#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<BTreeMap<String, Vec<u8>>>);

impl Store for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(lock(&self.0).get(key).cloned())
    }
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let map = lock(&self.0);
        Ok(map
            .range(prefix.to_owned()..)
            .take_while(|(k, _)| k.starts_with(prefix))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut map = lock(&self.0);
        for (key, value) in &batch.writes {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
        Ok(())
    }
    fn size_bytes(&self) -> Option<u64> {
        None
    }
}
