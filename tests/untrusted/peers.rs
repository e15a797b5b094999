//! What other agents, users of a host, collectors and clients write: the data of a migrated alloc, keys of templates,
//! answers over OTLP, job files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::exporters::otlp;
use allostat::host::foreign_tree::ForeignTree;
use allostat::jobspec::diagnostic::{MAX_FILE_BYTES, MAX_PROBLEMS};
use allostat::jobspec::evaluate::basis::NoExternalInputs;
use allostat::jobspec::{self, GivenVariables, Inputs};
use allostat::model::env::Env;
use allostat::model::migration::{MigrationFailure, MigrationSource};
use allostat::runner::drivers;
use allostat::runner::{KeyTree, MigrationConfig, MigrationPeer, MigrationScope, fetch_migration, write_migration};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;

use super::Place;
use super::doors::{PATIENCE, answer, tar_of};

/// So long a transfer or a push may last: the settings allow hours, and a client of either tries again.
const BRIEF: Duration = Duration::from_millis(300);

/// The archive of an ended alloc, as its agent sends it.
pub fn sealed_archive(alloc_dir: &Path) -> Vec<u8> {
    let data = alloc_dir.join("alloc/data");
    fs::create_dir_all(data.join("below")).unwrap();
    fs::write(data.join("below/file"), [b'x'; 3_000]).unwrap();
    symlink("below/file", data.join("link")).unwrap();
    File::create(data.join("hole")).unwrap().set_len(1 << 20).unwrap();
    let tree = ForeignTree::open(alloc_dir, |_| false).unwrap();
    let mut archive = Vec::new();
    write_migration(&tree, &|| Ok(()), 0, &mut archive).unwrap();
    archive
}

/// Fetches the data of an alloc from another agent: noise, entries without a seal, an archive that was damaged.
pub fn migrate(place: &Place, bytes: &[u8]) {
    place.answers(match bytes.len() % 3 {
        0 => bytes.to_vec(),
        1 => answer(&tar_of(bytes)),
        _ => {
            let mut archive = place.archive.clone();
            let at = bytes.len() * 7 % archive.len();
            archive.iter_mut().skip(at).zip(bytes).for_each(|(sent, byte)| *sent ^= byte);
            answer(&archive)
        }
    });
    let alloc_dir = place.directory.join("new");
    for own in ["alloc/data", "t/local"] {
        fs::create_dir_all(alloc_dir.join(own)).unwrap();
    }
    let peer = MigrationPeer::parse(&format!("old=http://{}", place.address)).unwrap();
    let scope = MigrationScope {
        config: MigrationConfig { peers: vec![peer], free_space_reserve: 0, ..MigrationConfig::default() },
        alloc_dir: alloc_dir.clone(),
        tasks: vec!["t".into()],
        cancelled: Arc::default(),
        until: Instant::now() + BRIEF,
        on_interruption: Box::new(|_, _| {}),
    };
    let source = MigrationSource::parse("old/5f0dc4f8", MigrationFailure::Fail).unwrap();
    // Most are refused.
    let is_fetched = fetch_migration(&source, &scope).is_ok();
    let mut left: Vec<_> = fs::read_dir(&alloc_dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    let expected: &[&str] = if is_fetched { &[".migrated", "alloc", "t"] } else { &["alloc", "t"] };
    assert_eq!(left, expected, "no staging remains");
    let placed = fs::read_dir(alloc_dir.join("alloc/data")).unwrap().count();
    assert_eq!(placed, 0, "a transfer puts nothing into the directories of tasks");
    fs::remove_dir_all(&alloc_dir).unwrap();
}

/// The text of a file that no key may lead to.
const OUTSIDE: &str = "outside of the tree of keys";
/// Of one key, in bytes.
const LARGEST_VALUE: usize = 512 << 10;

/// The input is a value, names of files that a user made, and the key of a job.
pub fn read_keys(place: &Place, bytes: &[u8]) {
    let (top, outside) = (place.directory.join("keys"), place.file("outside", OUTSIDE.as_bytes()));
    fs::create_dir_all(top.join("below")).unwrap();
    fs::write(top.join("input"), bytes).unwrap();
    for (number, piece) in bytes.chunks(50).take(32).enumerate() {
        let name: Vec<u8> = piece.iter().map(|byte| if matches!(byte, 0 | b'/') { b'_' } else { *byte }).collect();
        let path = top.join("below").join(OsStr::from_bytes(&name));
        // Some names come twice, and `.` is there.
        let _ = match number % 3 {
            0 => File::create_new(path).and_then(|mut file| file.write_all(String::from_utf8_lossy(piece).as_bytes())),
            1 => fs::create_dir(path),
            _ => symlink(&outside, path),
        };
    }
    let (tree, key, deadline) = (KeyTree(top.clone()), String::from_utf8_lossy(bytes), Instant::now() + PATIENCE);
    let is_value = bytes.len() <= LARGEST_VALUE && std::str::from_utf8(bytes).is_ok();
    assert_eq!(tree.value("input").is_ok(), is_value);
    let below =
        [("", false), ("below", true), (&*key, false)].map(|(prefix, flat)| tree.values(prefix, flat, deadline));
    let values = below.into_iter().flatten().flatten().map(|(_, value)| value);
    let mut values = values.chain(tree.value(&key).ok().flatten());
    assert!(values.all(|value| value != OUTSIDE), "a link was followed");
    fs::remove_dir_all(&top).unwrap();
}

/// Far above the longest message of an answer.
const LONGEST_MESSAGE: usize = 8 << 10;

/// Pushes an empty batch to a collector that answers over HTTP or gRPC: noise, or a sound answer with the input in it.
pub fn push(place: &Place, bytes: &[u8]) {
    let piece = &bytes[..bytes.len().min(16_000)];
    let length = u32::try_from(piece.len()).unwrap().to_be_bytes();
    // Settings, the headers of stream 1 with status 200, and its only data.
    let framed = [&b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88"[..], &length[1..], b"\0\x01\0\0\0\x01", piece];
    let status = ["200 OK", "400 Bad Request", "503 Service Unavailable"][bytes.len() / 4 % 3];
    let kind = ["application/x-protobuf", "application/json", "text/html"][bytes.len() / 12 % 3];
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", bytes.len());
    let (protocol, reply) = match bytes.len() % 4 {
        0 => (otlp::Protocol::Grpc, bytes.to_vec()),
        1 => (otlp::Protocol::Grpc, framed.concat()),
        2 => (otlp::Protocol::HttpProtobuf, bytes.to_vec()),
        _ => (otlp::Protocol::HttpProtobuf, [head.as_bytes(), bytes].concat()),
    };
    place.answers(reply);
    let config = otlp::Config { protocol, timeout: BRIEF, ..otlp::Config::default() };
    let endpoint = otlp::endpoint(&format!("http://{}", place.address), true).unwrap();
    let batch = otlp::pack(&ExportMetricsServiceRequest::default(), otlp::Compression::Gzip);
    let (code, message) = otlp::send_once(&config, endpoint, &batch).unwrap();
    assert!(!code.is_empty() && message.len() < LONGEST_MESSAGE, "{code}: {} bytes", message.len());
}

const JOB: &str = r#"
variable "count" { default = 2 }
locals { names = [for n in range(3) : "n${n}"] }
job "j" {
  type = "batch"
  group "g" {
    count = var.count
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
        args    = concat(local.names, ["a", "5"])
      }
      env { A = "${NOMAD_TASK_NAME}-${upper("x")}" }
      template {
        destination = "local/x"
        data        = <<END
{{ range ls "app" }}{{ .Key }}={{ .Value }}
{{ end }}
END
      }
      resources { memory = 64 }
    }
  }
}
"#;
/// Far above 50 problems with their lines, which are cut.
const LARGEST_REPORT: usize = 512 << 10;

/// Reads a job as the API does: noise, or a sound file with the input at some place.
pub fn read_job(_: &Place, bytes: &[u8]) {
    let (before, after) = JOB.as_bytes().split_at(bytes.len() * 7 % JOB.len());
    let file = if bytes.len().is_multiple_of(4) { bytes.to_vec() } else { [before, bytes, after].concat() };
    let name = if bytes.len().is_multiple_of(8) { "job.json" } else { "job.hcl" };
    let Ok(text) = jobspec::text_of(name, file) else { return };
    let given = GivenVariables::default();
    let inputs = Inputs { given: &given, outside: &NoExternalInputs };
    let parsed = jobspec::parse_with(name, &text, inputs, |parsed| {
        let mut problems = drivers::problems_anywhere(parsed);
        problems.extend(parsed.too_long(&Env::new()));
        problems
    });
    match parsed {
        Ok(_) => assert!(text.len() <= MAX_FILE_BYTES),
        Err(problems) => {
            let (count, report) = (problems.0.len(), problems.to_string());
            assert!((1..=MAX_PROBLEMS + 1).contains(&count), "{count} problems");
            assert!(report.len() < LARGEST_REPORT, "{} bytes", report.len());
        }
    }
}
