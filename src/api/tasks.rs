//! `GET /v1/tasks`: every task in one short row, for clients that ask each second. With `?since=` the `taken_at` of the
//! answer before: what changed since.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::http::{ApiRequest, Reply, encoded, tagged};
use super::{ApiContext, ApiError, Method, Route};
use crate::exporters::json::tasks::{self, TasksAnswer};
use crate::model::answer::Detail;
use crate::snapshot::Snapshot;
use crate::telemetry::lock;

pub(super) static TASKS: Route = Route {
    method: Method::Get,
    path: "/v1/tasks",
    access: Access::Read,
    about: "each task in a short row: source, state, and the values of `allostat top`; ?since= returns changes only, \
            ?before=1 adds an earlier reading to each, for rates",
    query: QueryRule::Once(&[
        Parameter::new("since", "The `taken_at` of an earlier answer: rows then hold only what changed since."),
        Parameter::new("before", "`1` adds an earlier reading to each row, for rates."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json::<TasksAnswer<'static>>()],
    handler: |context, request| Box::pin(answer(context, request)),
};

/// Answered snapshots are kept for clients that return: for so long, and twice as long at most.
const RETAINED_FOR: Duration = Duration::from_secs(10);
/// Clients that ask each second all receive the same two: of this tick, and of the one before.
const RETAINED: usize = 2;

async fn answer(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let (context, detail) = (Arc::clone(context), request.origin.detail());
    let since = request.query().number("since")?;
    let with_before = request.query().flag("before")?;
    if with_before && since.is_some() {
        return Err(ApiError::bad_parameter("before", "give since or before, not both"));
    }
    if since.is_none() && !with_before {
        return whole(context, request).await;
    }
    encoded(move || {
        let snapshot = context.snapshots.newest();
        let body = match since.and_then(|since| context.answered.find(since)) {
            Some(before) => tasks::changes(&snapshot, &before, detail),
            None if with_before => tasks::all_with_before(&snapshot, detail),
            None => tasks::all(&snapshot, detail),
        };
        if since.is_some() {
            RecentSnapshots::keep(&context.answered, snapshot);
        }
        Reply::new("application/json", body)
    })
    .await
}

/// All clients that poll share one body for each snapshot, and one that has it already is answered without.
async fn whole(context: Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let detail = request.origin.detail();
    let (tag, body) = encoded(move || {
        let snapshot = context.snapshots.newest_unwatched();
        let tag = format!("{:x}-{}", snapshot.taken_at.0, snapshot.version);
        let body = SharedTable::get(&context.answered.tables[usize::from(detail == Detail::Full)], &snapshot, detail);
        (tag, body)
    })
    .await?;
    Ok(tagged(request, &tag, Reply::new("application/json", body)))
}

/// The table of the newest snapshot that a client has asked for, while clients ask.
#[derive(Default)]
struct SharedTable(Mutex<Option<(Instant, u64, Bytes)>>);

impl SharedTable {
    /// Blocks while it is encoded, by whichever client asks first.
    fn get(table: &Arc<SharedTable>, snapshot: &Snapshot, detail: Detail) -> Bytes {
        let mut retained = lock(&table.0);
        if let Some((requested_at, _, body)) = retained.as_mut().filter(|(_, version, _)| *version == snapshot.version)
        {
            *requested_at = Instant::now();
            return body.clone();
        }
        let body = Bytes::from(tasks::all(snapshot, detail));
        if retained.replace((Instant::now(), snapshot.version, body.clone())).is_none() {
            tokio::spawn(SharedTable::forget(Arc::clone(table)));
        }
        body
    }

    /// Gives its memory back when no client has asked for long.
    async fn forget(table: Arc<SharedTable>) {
        loop {
            tokio::time::sleep(RETAINED_FOR).await;
            let mut retained = lock(&table.0);
            *retained = retained.take().filter(|(requested_at, ..)| requested_at.elapsed() < RETAINED_FOR);
            if retained.is_none() {
                return;
            }
        }
    }
}

/// The snapshots that were answered last to clients that come back, and the bodies that clients share.
#[derive(Default)]
pub struct RecentSnapshots {
    snapshots: Mutex<Vec<(Instant, Arc<Snapshot>)>>,
    /// Without and with what only the owner reads.
    tables: [Arc<SharedTable>; 2],
}

impl RecentSnapshots {
    /// By its `taken_at`, which another agent's has not.
    fn find(&self, taken_at: u64) -> Option<Arc<Snapshot>> {
        let recent = lock(&self.snapshots);
        recent.iter().find(|(_, snapshot)| snapshot.taken_at.0 == taken_at).map(|(_, snapshot)| Arc::clone(snapshot))
    }

    fn keep(recent: &Arc<RecentSnapshots>, snapshot: Arc<Snapshot>) {
        let mut retained = lock(&recent.snapshots);
        if retained.is_empty() {
            tokio::spawn(RecentSnapshots::forget(Arc::clone(recent)));
        }
        let mut removed: Vec<_> = retained.extract_if(.., |(_, old)| old.taken_at == snapshot.taken_at).collect();
        if retained.len() == RETAINED {
            removed.push(retained.remove(0));
        }
        retained.push((Instant::now(), snapshot));
        // No request waits until it is taken apart.
        drop(retained);
        drop(removed);
    }

    /// Until no client has come back for long: each is some megabytes.
    async fn forget(recent: Arc<RecentSnapshots>) {
        loop {
            tokio::time::sleep(RETAINED_FOR).await;
            let (removed, is_over) = {
                let mut retained = lock(&recent.snapshots);
                let removed: Vec<_> = retained.extract_if(.., |(at, _)| at.elapsed() >= RETAINED_FOR).collect();
                (removed, retained.is_empty())
            };
            drop(removed);
            if is_over {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Timestamp;
    use crate::snapshot::agent::tests::info;

    fn snapshot(taken_at: u64) -> Arc<Snapshot> {
        Arc::new(Snapshot::empty(Arc::new(info()), Timestamp(taken_at)))
    }

    #[tokio::test(start_paused = true)]
    async fn answered_snapshots_are_held_while_clients_return_and_then_released() {
        let recent = Arc::new(RecentSnapshots::default());
        assert!(recent.find(0).is_none(), "a client without an answer receives everything");
        for taken_at in [1, 2, 2, 3] {
            RecentSnapshots::keep(&recent, snapshot(taken_at));
        }
        let is_retained = |taken_at| recent.find(taken_at).is_some();
        assert_eq!([1, 2, 3].map(is_retained), [false, true, true], "of this tick and of the one before");
        tokio::time::sleep(RETAINED_FOR / 2).await;
        RecentSnapshots::keep(&recent, snapshot(4));
        tokio::time::sleep(RETAINED_FOR - Duration::from_secs(1)).await;
        let is_retained = |taken_at| recent.find(taken_at).is_some();
        assert_eq!([2, 3, 4].map(is_retained), [false, false, true]);
        tokio::time::sleep(RETAINED_FOR * 2).await;
        assert!(lock(&recent.snapshots).is_empty());
        RecentSnapshots::keep(&recent, snapshot(5));
        tokio::time::sleep(RETAINED_FOR * 3).await;
        assert!(lock(&recent.snapshots).is_empty(), "nor the snapshot of a later client");
    }
}
