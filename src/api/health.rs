//! `GET /healthz`: is the agent alive; `GET /readyz`: has it found all that ran before, and sampled once.

use std::sync::Arc;

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::error::{ApiError, Code};
use super::http::Reply;
use super::{ApiContext, Method, Route};
use crate::model::id::TaskName;
use crate::snapshot::AllocView;
use crate::snapshot::sampler::Heartbeat;

/// So many tasks in recovery are named.
const NAMED: usize = 10;

pub(super) static HEALTHZ: Route = Route {
    method: Method::Get,
    path: "/healthz",
    access: Access::Health,
    about: "liveness: fails after 3 missed ticks",
    query: QueryRule::Ignored,
    body: None,
    answers: &[EndpointAnswer::other(&["text/plain"], "The agent is alive")],
    handler: |context, _| Box::pin(async { alive(&context.heartbeat) }),
};

pub(super) static READYZ: Route = Route {
    method: Method::Get,
    path: "/readyz",
    access: Access::Health,
    about: "readiness: recovery finished, and one sample taken",
    query: QueryRule::Ignored,
    body: None,
    answers: &[EndpointAnswer::other(&["text/plain"], "The agent is ready")],
    handler: |context, request| Box::pin(async { ready(context, request.names).map(|()| Reply::text("ready\n")) }),
};

/// The answer of an agent that is still restoring: it lives, and is not ready.
pub(super) fn closed(route: &Route) -> Result<Reply, ApiError> {
    if route.path == HEALTHZ.path { Ok(Reply::text("ok\n")) } else { Err(restoring()) }
}

fn restoring() -> ApiError {
    ApiError::new(Code::NotReady, "still restoring what ran before; try again in a moment")
}

fn alive(heartbeat: &Heartbeat) -> Result<Reply, ApiError> {
    if heartbeat.alive() {
        return Ok(Reply::text("ok\n"));
    }
    let message = format!("no tick for {:.1} s: the sampler hangs", heartbeat.age().as_secs_f64());
    Err(ApiError::new(Code::Unhealthy, message))
}

fn ready(context: &ApiContext, may_name: bool) -> Result<(), ApiError> {
    let snapshot = context.snapshot();
    if snapshot.epoch == 0 {
        return Err(ApiError::new(Code::NotReady, "nothing is sampled yet"));
    }
    let names = |a: &Arc<AllocView>| {
        let alloc = a.identity.id.clone();
        let name = move |task: &TaskName| format!("{task} of {}", alloc.short());
        a.status.iter().flat_map(|status| &status.recovering).map(name).collect::<Vec<_>>()
    };
    let recovering: Vec<String> = snapshot.allocs.iter().flat_map(names).collect();
    if recovering.is_empty() {
        return Ok(());
    }
    if !may_name {
        let message = format!("in recovery: {} tasks; everything else goes on", recovering.len());
        return Err(ApiError::new(Code::NotReady, message));
    }
    let named = recovering[..recovering.len().min(NAMED)].join(", ");
    let more = recovering.len().checked_sub(NAMED).filter(|more| *more > 0);
    let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
    Err(ApiError::new(Code::NotReady, format!("in recovery: {named}{more}; everything else goes on")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn three_missed_ticks_make_it_unhealthy_and_a_tick_heals_it() {
        let heartbeat = Heartbeat::new(Duration::from_millis(20));
        // Between the two of a try this thread may be kept waiting for longer than three ticks.
        let heals = || {
            heartbeat.beat();
            alive(&heartbeat).is_ok()
        };
        assert!((0..1_000).any(|_| heals()));
        std::thread::sleep(Duration::from_millis(90));
        assert_eq!(alive(&heartbeat).err().map(|e| e.code), Some(Code::Unhealthy));
        assert!((0..1_000).any(|_| heals()));
    }
}
