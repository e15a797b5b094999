//! The exporters as the API sees them.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::api::{ApiError, BoxFuture, Code, Views, Wanted};
use crate::exporters::prometheus::{Bodies, Filter};
use crate::exporters::{catalogue, json as views};
use crate::host::clock::Clock;
use crate::jobspec::nearest::nearest;
use crate::model::answer::{Detail, WITHHELD};
use crate::runner::{Fate, Handle, Orphan, Stray, Watchers};
use crate::snapshot::{AllocView, Snapshot};
use crate::telemetry::metrics::WatchedBy;

pub(super) struct Exports {
    pub bodies: Arc<Bodies>,
    pub runner: Handle,
    pub clock: Arc<dyn Clock>,
}

impl Views for Exports {
    fn metrics(&self, snapshot: Arc<Snapshot>, wanted: Wanted) -> BoxFuture<'_, Result<Bytes, ApiError>> {
        Box::pin(async move {
            let (format, encoding) = (wanted.format, wanted.encoding);
            let bodies = Arc::clone(&self.bodies);
            if !wanted.is_everything() {
                let family = |name: &String| catalogue::family(name).map(|f| f.name).ok_or_else(|| unknown(name));
                let names = wanted.names.iter().map(family).collect::<Result<Vec<_>, _>>()?;
                let sources = wanted.sources.iter().map(String::as_str);
                let filter =
                    Filter::new(names, sources).map_err(|e| ApiError::bad_parameter("source", e.to_string()))?;
                return blocking(move || bodies.filtered(&snapshot, format, encoding, &filter)).await;
            }
            if let Some(scraper) = &wanted.scraper {
                bodies.came(scraper, format, encoding);
            }
            match bodies.ready(&snapshot, format, encoding) {
                Some(body) => Ok(body),
                None => blocking(move || bodies.get(&snapshot, format, encoding)).await,
            }
        })
    }
    fn alloc_list(&self, snapshot: &Snapshot, detail: Detail) -> Value {
        let mut list = views::allocs(snapshot, detail);
        if let Some(watchers) = self.runner.watchers() {
            list["supervisors"] = supervisors(&watchers);
        }
        list
    }
    fn alloc(&self, alloc: &AllocView, detail: Detail) -> Value {
        views::alloc(alloc, detail)
    }
    fn alloc_stats(&self, snapshot: &Snapshot, alloc: &AllocView) -> Value {
        views::stats(snapshot, alloc, self.clock.now())
    }
    fn node(&self, snapshot: &Snapshot, detail: Detail) -> Value {
        let mut node = views::node(snapshot);
        let drivers = self.runner.drivers().iter().map(|(name, driver)| {
            let (healthy, message) = driver.health();
            json!({ "name": name, "healthy": healthy, "message": message })
        });
        node["drivers"] = drivers.collect();
        node["hooks"] =
            self.runner.hooks().into_iter().map(|(runner, order)| (runner.to_owned(), json!(order))).collect();
        let quarantined = self.runner.quarantined();
        node["quarantined"] = match detail {
            Detail::Full => json!(quarantined),
            // That there are some is no secret; what they are called and hold is.
            Detail::Public => quarantined.iter().map(|_| WITHHELD).collect(),
        };
        node["orphans"] = self.runner.orphans().iter().map(|one| orphan(one, detail)).collect();
        if let Some(watchers) = self.runner.watchers() {
            node["supervisors"] = supervisors(&watchers);
            // They may be another user's: who looks there by himself sees what he may see.
            if detail == Detail::Full {
                node["strays"] = watchers.strays.iter().map(stray).collect();
            }
        }
        node
    }
    fn catalogue(&self) -> Value {
        catalogue::json()
    }
}

fn supervisors(watchers: &Watchers) -> Value {
    let counts = WatchedBy::ALL.iter().zip(watchers.counts).map(|(by, n)| (by.as_str().to_owned(), json!(n)));
    counts.collect::<Map<_, _>>().into()
}

/// Its directory tells whose it is; where that lies is in the agent's log alone.
fn stray(stray: &Stray) -> Value {
    let Stray { process, run_dir, watched_by } = stray;
    let mut names = run_dir.iter().rev().skip(1).filter_map(|name| name.to_str());
    let mut row = json!({ "pid": process.pid, "watched_by": watched_by.as_str() });
    names.next().iter().for_each(|task| row["task"] = json!(task));
    names.next().iter().for_each(|alloc| row["alloc_id"] = json!(alloc));
    row
}

fn orphan(orphan: &Orphan, detail: Detail) -> Value {
    let Orphan { alloc_id, task, attempt, pid, fate } = orphan;
    let (fate, why) = match fate {
        Fate::Ending => ("ending", None),
        Fate::Killed => ("killed", None),
        Fate::MayRun(why) => ("may_run", Some(why)),
    };
    let mut row = json!({ "alloc_id": alloc_id, "task": task, "attempt": attempt, "fate": fate });
    if detail == Detail::Full {
        pid.iter().for_each(|pid| row["pid"] = json!(pid));
    }
    why.iter().for_each(|why| row["why"] = json!(if detail == Detail::Full { why } else { WITHHELD }));
    row
}

/// Encoding a large body takes milliseconds, which other connections must not wait for.
async fn blocking(work: impl FnOnce() -> Bytes + Send + 'static) -> Result<Bytes, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ApiError::new(Code::Failed, "encoding the exposition failed; the agent's log says why"))
}

fn unknown(name: &str) -> ApiError {
    let near = nearest(name, catalogue::CATALOGUE.iter().map(|desc| desc.name));
    let advice = near.map_or_else(|| "/v1/catalogue lists all".to_owned(), |near| format!("did you mean {near}?"));
    ApiError::bad_parameter("name[]", format!("there is no metric {name:?}; {advice}"))
}
