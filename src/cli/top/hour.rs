//! The last hour of the open task, as the agent keeps it: `GET /v1/allocs/{id}/history`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::curves::{Curves, both};
use crate::api::encode;
use crate::cli::connect::AgentConnection;
use crate::model::units::Timestamp;

/// The agent adds a point each 5 s to 30 s.
const EACH: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
struct HourReply {
    times: Vec<Timestamp>,
    tasks: BTreeMap<String, TaskHour>,
}

/// What was never measured is not there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TaskHour {
    cpu_cores: Vec<Option<f64>>,
    memory_bytes: Vec<Option<f64>>,
    io_read_bytes_per_second: Vec<Option<f64>>,
    io_written_bytes_per_second: Vec<Option<f64>>,
}

/// The answer that came last.
#[derive(Debug, Default)]
pub struct HourFeed(Option<NewestHour>);

#[derive(Debug)]
struct NewestHour {
    alloc: String,
    task: String,
    at: Instant,
    curves: Option<Arc<Curves>>,
}

impl HourFeed {
    /// `None`: this agent keeps no hour, or none of this task.
    pub fn poll(&mut self, agent: &mut AgentConnection, alloc: &str, task: &str) -> Option<Arc<Curves>> {
        let is_fresh = |of: &&NewestHour| of.alloc == alloc && of.task == task && of.at.elapsed() < EACH;
        if let Some(newest) = self.0.as_ref().filter(is_fresh) {
            return newest.curves.clone();
        }
        let reply = agent.get::<HourReply>(&format!("/v1/allocs/{}/history", encode(alloc)));
        let curves = reply.ok().and_then(|reply| of_task(&reply, task)).map(Arc::new);
        let (alloc, task) = (alloc.to_owned(), task.to_owned());
        self.0 = Some(NewestHour { alloc, task, at: Instant::now(), curves: curves.clone() });
        curves
    }
}

/// From the first time on at which it had a value.
fn of_task(reply: &HourReply, task: &str) -> Option<Curves> {
    let hour = reply.tasks.get(task)?;
    let at = |curve: &[Option<f64>], n: usize| curve.get(n).copied().flatten();
    let points = reply.times.iter().enumerate().map(|(n, time)| {
        let io = both(at(&hour.io_read_bytes_per_second, n), at(&hour.io_written_bytes_per_second, n));
        (*time, [at(&hour.cpu_cores, n), at(&hour.memory_bytes, n), io])
    });
    let mut curves = Curves::default();
    for (time, point) in points.skip_while(|(_, point)| point.iter().all(Option::is_none)) {
        curves.push(time, point);
    }
    (!curves.times.is_empty()).then_some(curves)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::cli::testing;

    const BODY: &str = r#"{"interval_ns":10000000000,"alloc_id":"a","times":[10,20,30,40],"tasks":{
        "t":{"cpu_cores":[null,null,0.5,1],"memory_bytes":[null,4096,8192,null],"io_read_bytes_per_second":[null,null,7],"new":[1]},
        "other":{"cpu_cores":[9,9,9,9]},"idle":{}}}"#;

    #[test]
    fn hour_of_a_task_begins_with_its_first_value_and_absent_is_no_zero() {
        let reply: HourReply = serde_json::from_str(BODY).unwrap();
        let curves = of_task(&reply, "t").unwrap();
        assert_eq!(curves.times, [Timestamp(20), Timestamp(30), Timestamp(40)]);
        assert_eq!(curves.cpu_cores, [None, Some(0.5), Some(1.0)]);
        assert_eq!(curves.memory, [Some(4096.0), Some(8192.0), None]);
        assert_eq!(curves.io, [None, Some(7.0), None]);
        assert_eq!((of_task(&reply, "idle"), of_task(&reply, "none")), (None, None));
    }

    #[test]
    fn hour_is_requested_when_a_task_is_opened_and_not_at_each_refresh() {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let (mut agent, _dir) = testing::agent(Arc::new(move |target| {
            log.lock().unwrap().push(target.to_owned());
            let off = r#"{"code":"conflict","message":"the last hour is not kept"}"#;
            Some(if target.contains("off") { (409, off.to_owned()) } else { (200, BODY.to_owned()) })
        }));
        let mut feed = HourFeed::default();
        for _ in 0..3 {
            assert_eq!(feed.poll(&mut agent, "a:/b", "t").map(|curves| curves.times.len()), Some(3));
        }
        assert_eq!(feed.poll(&mut agent, "a:/b", "other").map(|curves| curves.times.len()), Some(4));
        for _ in 0..2 {
            assert_eq!(feed.poll(&mut agent, "off", "t"), None);
        }
        let requested = ["/v1/allocs/a%3A%2Fb/history", "/v1/allocs/a%3A%2Fb/history", "/v1/allocs/off/history"];
        assert_eq!(*requests.lock().unwrap(), requested);
    }
}
