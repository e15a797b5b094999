//! A file of a server into the staging: bounded in bytes and time, and verified before anybody sees it.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{Mode, OFlags, openat};

use super::checksums::ExpectedChecksum;
use super::meter::{UnpackMeter, fault, mib};
use super::order::{ArtifactError, ArtifactOrder, ArtifactScope, patience};
use super::staging::{FILE, Staging};
use super::unpack::DownloadedFile;
use crate::host::http::TlsFiles;
use crate::host::http::exchange::HttpAnswer;
use crate::host::http::fetch::{FetchRequest, HttpUrl, fetch};
use crate::model::checksum::{Checksum, ChecksumSource};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::artifacts::ArtifactOutcome;

/// Of a file of checksums.
const LARGEST_LIST: usize = 1 << 20;
/// What is written at once.
const PIECE: usize = 256 << 10;

fn network(message: impl Into<String>) -> ArtifactError {
    ArtifactError::new(ArtifactOutcome::Network, message)
}

/// Errors: what failed, with the address without its secrets.
pub(super) fn to_file(
    url: &str,
    order: &ArtifactOrder,
    scope: &ArtifactScope,
    (staging, meter): (&Staging, &UnpackMeter<'_>),
) -> Result<DownloadedFile, ArtifactError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| network(format!("cannot set up a client: {e}")))?;
    let url = HttpUrl::parse(url).map_err(network)?;
    let download = Download { order, scope, url };
    let whole = scope.config.http_read_timeout;
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            () = scope.cancelled.wait() => Err(ArtifactError::new(ArtifactOutcome::Cancelled, "cancelled")),
            done = tokio::time::timeout(whole, download.run(staging, meter)) => done.unwrap_or_else(|_| {
                Err(network(format!("not fetched within {} s (artifact.http_read_timeout)", whole.as_secs_f32())))
            }),
        }
    });
    // A look-up of a name that hangs is not waited for.
    runtime.shutdown_background();
    result
}

struct Download<'a> {
    order: &'a ArtifactOrder,
    scope: &'a ArtifactScope,
    url: HttpUrl,
}

impl Download<'_> {
    async fn run(&self, staging: &Staging, meter: &UnpackMeter<'_>) -> Result<DownloadedFile, ArtifactError> {
        let mut expected = self.expected().await?.map(ExpectedChecksum::new);
        let mut answer = self.answer(&self.url).await?;
        let limit = self.scope.config.http_max_size;
        let limit = if limit == 0 { u64::MAX } else { limit };
        let too_large = || {
            let message = format!("it has more than {} (artifact.http_max_size_mib)", mib(limit));
            ArtifactError::new(ArtifactOutcome::Limit, message)
        };
        let written = |e: std::io::Error| fault(&e, ArtifactOutcome::Install, "cannot write it");
        if let Some(length) = answer.header("content-length").and_then(|length| length.parse::<u64>().ok()) {
            if length > limit {
                return Err(too_large());
            }
            meter.has_room(length).map_err(written)?;
            self.scope.progress.expects(length);
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(staging.directory(), FILE, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.map_err(|e| written(e.into()))?);
        let (mut bytes, mut held) = (0_u64, Vec::with_capacity(2 * PIECE));
        loop {
            let piece = self.piece(&mut answer).await?;
            let is_end = piece.is_none();
            if let Some(piece) = piece {
                self.scope.progress.receives(piece.len() as u64);
                bytes = bytes.saturating_add(piece.len() as u64);
                if bytes > limit {
                    return Err(too_large());
                }
                if let Some(expected) = &mut expected {
                    expected.update(&piece);
                }
                held.extend_from_slice(&piece);
            }
            if held.len() >= PIECE || is_end {
                meter.writes(held.len() as u64).and_then(|()| file.write_all(&held)).map_err(written)?;
                held.clear();
            }
            if is_end {
                break;
            }
        }
        if let Some(expected) = expected {
            expected.verify().map_err(|why| ArtifactError::new(ArtifactOutcome::Checksum, why))?;
        }
        Ok(DownloadedFile { file, bytes })
    }

    async fn answer(&self, url: &HttpUrl) -> Result<HttpAnswer, ArtifactError> {
        let mut headers = Vec::new();
        // What the job gives is meant for the server of its artifact.
        if url.is_same_server(&self.url) {
            headers.clone_from(&self.order.headers);
        }
        let has_own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if let Some((user, password)) = url.credentials().filter(|_| !has_own) {
            headers
                .push(("authorization".to_owned(), format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))));
        }
        let tls = Arc::new(TlsFiles { is_unverified: self.order.insecure, ..TlsFiles::default() });
        let request = FetchRequest { url, headers: &headers, tls, patience: patience(&self.scope.config) };
        fetch(request).ends_with(Ends::Deadline).await.map_err(|e| network(crate::telemetry::chain(&e)))
    }

    async fn piece(&self, answer: &mut HttpAnswer) -> Result<Option<bytes::Bytes>, ArtifactError> {
        let patience = patience(&self.scope.config);
        match tokio::time::timeout(patience, answer.piece()).await {
            Ok(piece) => piece.map_err(|e| network(crate::telemetry::chain(&e))),
            Err(_) => Err(network(format!(
                "the server sent nothing for {} s (artifact.http_idle_timeout)",
                patience.as_secs_f32()
            ))),
        }
    }

    async fn expected(&self) -> Result<Option<Checksum>, ArtifactError> {
        let url = match &self.order.source.checksum {
            None => return Ok(None),
            Some(ChecksumSource::Known(checksum)) => return Ok(Some(checksum.clone())),
            Some(ChecksumSource::File(url)) => HttpUrl::parse(url).map_err(network)?,
        };
        let of_list =
            |e: ArtifactError| ArtifactError { message: format!("its file of checksums: {}", e.message), ..e };
        let mut answer = self.answer(&url).await.map_err(of_list)?;
        let mut text = Vec::new();
        while let Some(piece) = self.piece(&mut answer).await.map_err(of_list)? {
            text.extend_from_slice(&piece);
            if text.len() > LARGEST_LIST {
                let message = format!("its file of checksums has more than {LARGEST_LIST} bytes");
                return Err(ArtifactError::new(ArtifactOutcome::Limit, message));
            }
        }
        let name = self.url.name();
        let found = Checksum::in_file(&String::from_utf8_lossy(&text), &name);
        let missing = || {
            let message = format!("its file of checksums {url} has no line for {name:?}");
            ArtifactError::new(ArtifactOutcome::Checksum, message)
        };
        found.map(Some).ok_or_else(missing)
    }
}
