//! `GET /v1/allocs/{id}/fs/{ls,stat,cat}`: the directory of an alloc, without what is its tasks' alone.
//!
//! Shape: a path begins in the directory of the alloc: `alloc/data`, `<task>/local`. A listing has [`MOST_ENTRIES`]
//! entries at most and says how many there are more; a file is sent in pieces, as long as it was when it was opened.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Serialize;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::stream::PieceSource;
use super::{ApiContext, Method, Route, allocs};
use crate::exporters::prometheus::BrokenOff;
use crate::host::foreign_tree::{FileFacts, ForeignTree, FoundFile};
use crate::model::id::AllocId;
use crate::runner::drivers::BoxFuture;

pub(super) static LIST: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/fs/ls",
    access: Access::SocketOnly("files of allocs are listed"),
    about: "the entries of a directory of the alloc: ?path=web/local",
    query: QueryRule::Once(&[Parameter::new(
        "path",
        "A path below the directory of the alloc, such as web/local. Default: the directory itself.",
    )]),
    body: None,
    answers: &[EndpointAnswer::json::<DirectoryAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let entries = found(context, request, |tree, found| {
                let (entries, omitted) = tree.list(&found, MOST_ENTRIES)?;
                Ok((path_of(&found), entries, omitted))
            });
            let (path, entries, omitted) = entries.await?;
            let files = entries.iter().map(|entry| row(&entry.name.to_string_lossy(), &entry.facts)).collect();
            Ok(Reply::json(&DirectoryAnswer { path, files, omitted }))
        })
    },
};

pub(super) static STAT: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/fs/stat",
    access: Access::SocketOnly("files of allocs are listed"),
    about: "one file or directory of the alloc: ?path=web/local/app.conf",
    query: QueryRule::Once(&[Parameter::new(
        "path",
        "A path below the directory of the alloc, such as web/local. Default: the directory itself.",
    )]),
    body: None,
    answers: &[EndpointAnswer::json::<FileStatAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let (path, name, facts) = found(context, request, |_, found| {
                let name = found.names.last().map_or_else(|| "/".into(), |name| name.to_string_lossy().into_owned());
                Ok((path_of(&found), name, found.facts))
            })
            .await?;
            Ok(Reply::json(&FileStatAnswer { path, file: row(&name, &facts) }))
        })
    },
};

pub(super) static CAT: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/fs/cat",
    access: Access::SocketOnly("files of allocs are read"),
    about: "the content of a file of the alloc: ?path=web/local/app.conf, ?offset=BYTES, ?limit=BYTES",
    query: QueryRule::Once(&[
        Parameter::new(
            "path",
            "A path below the directory of the alloc, such as web/local. Default: the directory itself.",
        ),
        Parameter::new("offset", "The first byte. Default: 0."),
        Parameter::new("limit", "How many bytes. Default: all."),
    ]),
    body: None,
    answers: &[EndpointAnswer::other(&["application/octet-stream"], "The content")],
    handler: |context, request| {
        Box::pin(async {
            let query = request.query();
            let (offset, limit) = (query.number("offset")?.unwrap_or(0), query.number("limit")?);
            let (file, size) = found(context, request, |_, found| {
                let file = found.open()?;
                let size = file.metadata()?.len();
                Ok((file, size))
            })
            .await?;
            let offset = offset.min(size);
            let end = limit.map_or(size, |limit| offset.saturating_add(limit).min(size));
            let content = FileRemainder { file: Arc::new(file), at: offset, end };
            Ok(Reply::following("application/octet-stream", Box::new(content))
                .header("x-allostat-offset", offset.to_string())
                .header("x-allostat-size", size.to_string()))
        })
    },
};

/// The entries of a directory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DirectoryAnswer {
    pub path: String,
    pub files: Vec<FileAnswer>,
    /// Entries beyond the 10,000 that are listed.
    pub omitted: usize,
}

/// A file, directory or other entry.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileAnswer {
    pub name: String,
    /// `file`, `directory`, `link`, `fifo`, `socket`, `device` or `unknown`.
    pub kind: &'static str,
    pub size_bytes: u64,
    /// Octal.
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<u64>,
}

/// One entry and its place.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileStatAnswer {
    pub path: String,
    #[serde(flatten)]
    pub file: FileAnswer,
}

const MOST_ENTRIES: usize = 10_000;
/// Of one piece of a file.
const PIECE: usize = 64 << 10;

/// Opens the directory of an alloc, finds what `path` names in it and works with that on a thread that may block.
async fn found<T: Send + 'static>(
    context: &Arc<ApiContext>,
    request: &ApiRequest,
    work: impl FnOnce(&ForeignTree, FoundFile) -> io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let id = managed(context, request)?;
    found_in(context, &id, requested_path(request), work).await
}

/// The path that a request names; by default the directory of the alloc.
pub(super) fn requested_path(request: &ApiRequest) -> &str {
    request.query().get("path").unwrap_or("/")
}

/// The alloc that a request names. Errors: there is none; it is only observed.
pub(super) fn managed(context: &ApiContext, request: &ApiRequest) -> Result<AllocId, ApiError> {
    let alloc = allocs::find_among(&context.snapshot(), request.param(0), |alloc| alloc.observed.is_none())?;
    if alloc.observed.is_some() {
        let (id, source) = (&alloc.identity.id, alloc.identity.source.as_str());
        let message = format!("{id} is only observed here, not managed; this agent has no directory of it ({source})");
        return Err(ApiError::new(Code::Conflict, message).on("id"));
    }
    Ok(alloc.identity.id.clone())
}

/// The same for an alloc that is known.
pub(super) async fn found_in<T: Send + 'static>(
    context: &ApiContext,
    id: &AllocId,
    path: &str,
    work: impl FnOnce(&ForeignTree, FoundFile) -> io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let (root, requested) = (context.data_dir.alloc(id), path.to_owned());
    let done = tokio::task::spawn_blocking(move || {
        let tree = ForeignTree::open(&root, is_hidden)?;
        let found = tree.find(&requested)?;
        work(&tree, found)
    });
    let done = done.await.map_err(|e| ApiError::new(Code::Failed, format!("reading the files was cut short: {e}")))?;
    done.map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Code::NotFound,
            io::ErrorKind::PermissionDenied => Code::Forbidden,
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => Code::BadRequest,
            _ => Code::Failed,
        };
        ApiError::new(code, format!("{path:?} of alloc {}: {error}", id.short())).on("path")
    })
}

/// What is its task's alone, as in Nomad: `secrets` and `private` of each task.
fn is_hidden(names: &[OsString]) -> bool {
    // While an artifact comes, the key of its repository is there. What is migrated is not verified yet. What templates
    // were rendered from is the environment of their task.
    let stages = |name: &OsString| {
        let name = name.as_encoded_bytes();
        [&b".artifacts-"[..], b".migrat", b".templates-"].iter().any(|own| name.starts_with(own))
    };
    let [top, inner, ..] = names else { return names.iter().any(stages) };
    if stages(top) || stages(inner) {
        return true;
    }
    top != "alloc" && ["secrets", "private"].iter().any(|name| inner.eq_ignore_ascii_case(name))
}

fn path_of(found: &FoundFile) -> String {
    Path::new("/").join(found.names.iter().collect::<std::path::PathBuf>()).to_string_lossy().into_owned()
}

fn row(name: &str, facts: &FileFacts) -> FileAnswer {
    let kind = match facts.kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "unknown",
    };
    FileAnswer {
        name: name.to_owned(),
        kind,
        size_bytes: facts.size_bytes,
        mode: format!("{:04o}", facts.mode),
        uid: facts.uid,
        gid: facts.gid,
        modified_at: facts.modified_nanos,
    }
}

/// The rest of a file. One that became shorter meanwhile ends early, which its reader learns from the connection.
struct FileRemainder {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl PieceSource for FileRemainder {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, BrokenOff>> {
        Box::pin(async move {
            let left = self.end.saturating_sub(self.at);
            let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            if length == 0 {
                return Ok(None);
            }
            let (file, at) = (Arc::clone(&self.file), self.at);
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; length];
                let read = file.read_at(&mut piece, at)?;
                piece.truncate(read);
                io::Result::Ok(piece)
            });
            let piece = read.await.map_err(|_| BrokenOff)?.map_err(|_| BrokenOff)?;
            if piece.is_empty() {
                return Err(BrokenOff);
            }
            self.at = self.at.saturating_add(piece.len() as u64);
            Ok(Some(piece.into()))
        })
    }
    fn buffered(&self) -> usize {
        PIECE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_private_of_each_task_are_hidden_whatever_their_case() {
        let of = |path: &str| is_hidden(&Path::new(path).iter().map(OsString::from).collect::<Vec<_>>());
        for hidden in ["web/secrets", "web/secrets/token", "web/Private/x", "db/SECRETS"] {
            assert!(of(hidden), "{hidden}");
        }
        for seen in ["", "web", "secrets", "alloc/secrets", "alloc/data/secrets", "web/local/secrets"] {
            assert!(!of(seen), "{seen}");
        }
    }

    #[tokio::test]
    async fn a_file_is_sent_in_pieces_up_to_its_end_and_breaks_off_where_it_shrank() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..PIECE * 2 + 10).map(|n| u8::try_from(n % 251).unwrap()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let content = |at, end| FileRemainder { file: Arc::new(File::open(&path).unwrap()), at, end };
        let mut whole = content(5, bytes.len() as u64);
        let mut read = Vec::new();
        while let Some(piece) = whole.next().await.unwrap() {
            assert!(piece.len() <= PIECE);
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, bytes[5..]);
        let mut longer = content(bytes.len() as u64 - 1, bytes.len() as u64 + 1);
        assert_eq!(longer.next().await.unwrap().unwrap().len(), 1);
        assert!(longer.next().await.is_err());
    }
}
