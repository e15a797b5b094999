//! Runs a program in a container by the engine: the script of a health check.
//!
//! Source: Docker Engine API, `/containers/{id}/exec`, `/exec/{id}/start`, `/exec/{id}/json`. An engine does not end
//! such a program: after a timeout it keeps running, and no second one with the same command is started beside it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::engine::{DockerEngine, EngineError, SOON, encoded, is_id};
use crate::host::http::exchange::{Payload, RequestMethod};
use crate::runner::drivers::ExecEnd;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::lock;

/// Maximum size of its output; the engine discards the rest.
const LONGEST_OUTPUT: usize = 16 << 10;

/// Programs of one container that are not known to have ended, by their commands.
#[derive(Debug, Default)]
pub struct Execs(Mutex<BTreeMap<Vec<String>, String>>);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct CreatedExec {
    pub id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ExecState {
    pub running: bool,
    pub exit_code: Option<i64>,
    /// PID on the host; 0: it does not run.
    pub pid: i64,
}

impl Execs {
    pub async fn run(
        &self,
        engine: &DockerEngine,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecEnd, EngineError> {
        let earlier = lock(&self.0).get(command).cloned();
        if let Some(id) = earlier
            && state(engine, &id).await.is_ok_and(|state| state.running)
        {
            return Ok(ExecEnd { code: None, output: String::new() });
        }
        let body = json!({ "AttachStdout": true, "AttachStderr": true, "Cmd": command });
        let target = format!("/containers/{}/exec", encoded(container));
        let made: CreatedExec = engine.json(RequestMethod::Post, &target, Some(&body), SOON).await?;
        if !is_id(&made.id) {
            return Err(EngineError::Garbage("a program without an ID".to_owned()));
        }
        lock(&self.0).insert(command.to_vec(), made.id.clone());
        let Ok(output) = tokio::time::timeout(timeout, output(engine, &made.id)).await else {
            return Ok(ExecEnd { code: None, output: String::new() });
        };
        let output = output?;
        let state = state(engine, &made.id).await?;
        if state.running {
            return Ok(ExecEnd { code: None, output });
        }
        lock(&self.0).remove(command);
        let code = state.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
        Ok(ExecEnd { code: Some(code), output })
    }
}

/// Starts it, and waits for its end or the caller's timeout.
async fn output(engine: &DockerEngine, id: &str) -> Result<String, EngineError> {
    let payload = Payload::Whole(Bytes::from_static(br#"{"Detach":false,"Tty":false}"#));
    let headers = [("content-type", "application/json")];
    let mut answer =
        engine.open(RequestMethod::Post, &format!("/exec/{}/start", encoded(id)), &headers, payload, SOON).await?;
    let mut stream = Vec::new();
    while let Some(piece) = answer.piece().ends_with(Ends::Deadline).await? {
        let room = LONGEST_OUTPUT.saturating_sub(stream.len());
        stream.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    Ok(String::from_utf8_lossy(&messages(&stream)).into_owned())
}

pub(super) async fn state(engine: &DockerEngine, id: &str) -> Result<ExecState, EngineError> {
    engine.json(RequestMethod::Get, &format!("/exec/{}/json", encoded(id)), None, SOON).await
}

/// Both streams, in order of arrival: 1 byte stream, 3 bytes 0, 4 bytes length (big endian), message. The last may be
/// cut.
fn messages(mut stream: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((head, rest)) = stream.split_first_chunk::<8>() {
        let [_, _, _, _, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX).min(rest.len());
        all.extend_from_slice(&rest[..length]);
        stream = &rest[length..];
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_of_both_streams_are_put_together_and_the_last_may_be_cut() {
        let stream = b"\x01\0\0\0\0\0\0\x02ab\x02\0\0\0\0\0\0\x01c\x01\0\0\0\0\0\0\x09de";
        assert_eq!(messages(stream), b"abcde");
    }

    proptest! {
        #[test]
        fn no_stream_panics(stream in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(messages(&stream).len() <= stream.len());
        }
    }
}
