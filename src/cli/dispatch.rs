//! `allostat dispatch`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::exit::{CliError, CliExit, CliResult};
use super::follow::AllocFollower;
use super::{CliSession, parents, run};
use crate::api::{DispatchBody, LaunchAnswer};
use crate::model::launching::MAX_PAYLOAD_BYTES;

/// Launch a parameterized job
///
/// Examples: `allostat dispatch --meta to=me@example.com mail letter.txt`, `date | allostat dispatch convert -`
///
/// Waits until the launched job is done, and exits with its result. Ctrl-C detaches; the job continues.
#[derive(Debug, clap::Args)]
pub struct DispatchCommand {
    /// ID of the parameterized job
    #[arg(value_parser = super::alloc_id)]
    job: String,
    /// File with the payload, at most 16 KiB; - is standard input
    payload: Option<PathBuf>,
    /// Metadata of the launched job; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    meta: Vec<(String, String)>,
    /// Launch nothing while a job that was launched with this token runs; wait for that one
    #[arg(long, value_name = "TOKEN")]
    idempotency_token: Option<String>,
    /// Return at once; print the ID of the launched job
    #[arg(long)]
    detach: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("write it as KEY=VALUE".to_owned()),
    }
}

impl DispatchCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let payload = self.payload.as_deref().map(read_payload).transpose()?;
        let meta: BTreeMap<String, String> = self.meta.into_iter().collect();
        let body = DispatchBody {
            payload: payload.map(|bytes| STANDARD.encode(bytes)),
            meta: Some(meta).filter(|meta| !meta.is_empty()),
            idempotency_token: self.idempotency_token,
            job_id: None,
        };
        let body = serde_json::to_vec(&body).map_err(|e| CliError::failed(e.to_string()))?;
        let mut agent = session.connect_to_act()?;
        let mut follow = AllocFollower::from_now(&mut agent)?;
        let target = format!("{}/dispatch", parents::target(&self.job));
        let launched: LaunchAnswer = follow.agent().post(&target, body)?;
        if self.detach {
            writeln!(session.out, "{}", launched.job)?;
            return Ok(CliExit::Done);
        }
        run::launched(session, &mut follow, &launched)
    }
}

/// One byte more than is taken shows that it is too large.
fn read_payload(path: &Path) -> Result<Vec<u8>, CliError> {
    let most = u64::try_from(MAX_PAYLOAD_BYTES).unwrap_or(u64::MAX) + 1;
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|e| CliError::new(CliExit::NotFound, format!("cannot read {}: {e}", path.display())))?;
    if bytes.len() > MAX_PAYLOAD_BYTES {
        let message = format!("{} has more than {MAX_PAYLOAD_BYTES} bytes", path.display());
        return Err(CliError::new(CliExit::InvalidFile, message).hint("a payload is at most 16 KiB"));
    }
    Ok(bytes)
}
