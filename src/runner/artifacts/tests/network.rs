//! Promise (Input validation): An artifact follows at most 10 redirects, to http and https only; headers reach one
//! server

use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::model::checksum::Checksum;

const SHA256_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn a_file_is_placed_by_its_mode() {
    let server = serve_files(vec![("/dir/app%20x", b"abc".to_vec()), ("/", b"index".to_vec())]);
    let bench = ArtifactFixture::new();
    let url = format!("{server}/dir/app%20x?token=1");
    assert_eq!(bench.fetch(&url.replace("?token=1", ""), ArtifactMode::Any, "local"), Ok(FetchedArtifact { bytes: 3 }));
    bench.fetch(&format!("{server}/dir/app%20x"), ArtifactMode::File, "local/bin/app").unwrap();
    bench.fetch(&format!("{server}/dir/app%20x?filename=other"), ArtifactMode::Any, "").unwrap();
    assert_eq!(listed(&bench.task()), ["local/", "local/app x", "local/bin/", "local/bin/app", "other"]);
    assert_eq!(std::fs::read(bench.task().join("local/bin/app")).unwrap(), b"abc");
    assert_eq!(mode_of(&bench.task().join("local/bin/app")), 0o755, "it may be a program");
    let error = bench.fetch(&format!("{server}/dir/app%20x"), ArtifactMode::Dir, "local").unwrap_err();
    assert!(error.message.contains("neither an archive nor a repository"), "{error:?}");
    let error = bench.fetch(&server, ArtifactMode::Any, "local").unwrap_err();
    assert!(error.message.contains("names no file"), "{error:?}");
    let error = bench.fetch(&format!("{server}/dir/app%20x"), ArtifactMode::File, "local").unwrap_err();
    assert!(error.outcome == ArtifactOutcome::Install && error.message.contains("is a directory there"), "{error:?}");
}

/// A large artifact needs its room once, and is written once.
#[test]
fn downloaded_file_is_moved_to_its_destination_and_never_copied() {
    let bench = ArtifactFixture::new();
    let staged = bench.scope.alloc_dir.join(".artifacts-web/file");
    let seen: Arc<Mutex<Option<u64>>> = Arc::default();
    let inode = Arc::clone(&seen);
    let server = serve(move |_, _, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na").unwrap();
        // The client makes the file once it has the headers.
        let until = Instant::now() + LONG;
        while inode.lock().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            *inode.lock().unwrap() = staged.metadata().ok().map(|found| found.ino());
        }
        let _ = stream.write_all(b"bc");
    });
    bench.fetch(&format!("{server}/app"), ArtifactMode::Any, "local").unwrap();
    let placed = bench.task().join("local/app");
    assert_eq!(std::fs::read(&placed).unwrap(), b"abc");
    assert_eq!(*seen.lock().unwrap(), Some(placed.metadata().unwrap().ino()));
    assert_eq!(mode_of(&placed), 0o755);
}

#[test]
fn a_checksum_is_verified_before_anything_is_visible() {
    let list = format!("{}  other\n{SHA256_ABC} *app\n", "0".repeat(64));
    let server = serve_files(vec![("/app", b"abc".to_vec()), ("/sums", list.into_bytes()), ("/none", b"x".to_vec())]);
    let fetched = |checksum: &str| {
        let bench = ArtifactFixture::new();
        let fetched = bench.fetch(&format!("{server}/app?checksum={checksum}"), ArtifactMode::Any, "local");
        assert_eq!(fetched.is_ok(), bench.task().join("local/app").exists(), "{checksum}");
        fetched.map(drop).map_err(|error| (error.outcome, error.message))
    };
    for right in [
        "md5:900150983cd24fb0d6963f7d28e17f72".to_owned(),
        "sha1:a9993e364706816aba3e25717850c26c9cd0d89d".to_owned(),
        format!("sha256:{SHA256_ABC}"),
        SHA256_ABC.to_owned(),
        format!("file:{server}/sums"),
    ] {
        assert_eq!(fetched(&right), Ok(()), "{right}");
    }
    for (wrong, words) in [
        (format!("sha256:{}", "0".repeat(64)), SHA256_ABC.to_owned()),
        (format!("file:{server}/none"), "has no line for \"app\"".to_owned()),
    ] {
        let (outcome, message) = fetched(&wrong).unwrap_err();
        assert!(outcome == ArtifactOutcome::Checksum && message.contains(&words), "{wrong}: {message}");
    }
    let (outcome, message) = fetched(&format!("file:{server}/absent")).unwrap_err();
    assert!(outcome == ArtifactOutcome::Network && message.contains("status 404"), "{message}");
    assert!(Checksum::in_file(SHA256_ABC, "").is_some());
}

#[test]
fn redirects_are_followed_to_http_alone_and_never_in_a_circle() {
    let server = serve(|path, head, stream| {
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let to = |stream: &mut TcpStream, location: &str| {
            respond(stream, "302 Found", &format!("Location: {location}\r\n"), b"");
        };
        match path {
            "/a/relative" => to(stream, "../file"),
            "/absolute" => to(stream, &format!("http://{host}/file")),
            "/file" => respond(stream, "200 OK", "", b"abc"),
            "/circle" => to(stream, "/circle2"),
            "/circle2" => to(stream, "/circle"),
            "/passwd" => to(stream, "file:///etc/passwd"),
            "/unix" => to(stream, "unix:/run/docker.sock"),
            "/nowhere" => to(stream, ""),
            "/error" => respond(stream, "500 Broken", "", b"no"),
            other => {
                let depth: u32 = other.trim_start_matches("/deep").parse().unwrap_or(0);
                to(stream, &format!("/deep{}", depth + 1));
            }
        }
    });
    let bench = ArtifactFixture::new();
    for good in ["/a/relative", "/absolute"] {
        bench.fetch(&format!("{server}{good}"), ArtifactMode::File, "local/x").unwrap();
        assert_eq!(std::fs::read(bench.task().join("local/x")).unwrap(), b"abc");
        std::fs::remove_file(bench.task().join("local/x")).unwrap();
    }
    for (bad, words) in [
        ("/circle", "redirects in a circle"),
        ("/nowhere", "redirects in a circle"),
        ("/passwd", "`file` is neither http nor https"),
        ("/unix", "`unix` is neither http nor https"),
        ("/deep0", "redirects more than 10 times"),
        ("/error", "answered with status 500"),
    ] {
        bench.refuses(&format!("{server}{bad}"), ArtifactOutcome::Network, words);
    }
}

/// Promise (Input validation): No message about an artifact contains its credentials, its query or its headers
#[test]
fn headers_and_credentials_reach_their_server_alone_and_no_message() {
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&received);
    let other = serve(move |_, head, stream| {
        log.lock().unwrap().push(head.to_owned());
        respond(stream, "403 Forbidden", "", b"no");
    });
    let (log, target) = (Arc::clone(&received), other.clone());
    let server = serve(move |_, head, stream| {
        log.lock().unwrap().push(head.to_owned());
        respond(stream, "307 Elsewhere", &format!("Location: {target}/there?signature=SECRET\r\n"), b"");
    });
    let bench = ArtifactFixture::new();
    let url = format!("{}/app?token=SECRET", server.replace("http://", "http://user:SECRET@"));
    let mut order = bench.order(&url, ArtifactMode::Any, "local");
    order.headers = vec![("X-Token".to_owned(), "SECRET".to_owned()), ("User-Agent".to_owned(), "own".to_owned())];
    let error = fetch(&order, &bench.scope).unwrap_err();
    assert!(
        error.message.contains("/there answered with status 403") && !error.message.contains("SECRET"),
        "{error:?}"
    );
    assert!(!order.source.shown().contains("SECRET"));
    let received = received.lock().unwrap();
    let [first, second] = received.as_slice() else { panic!("{received:?}") };
    let first = first.to_lowercase();
    assert!(first.contains("x-token: secret") && first.contains("authorization: basic dxnlcjptrunsrvq="), "{first}");
    assert!(first.contains("user-agent: own") && first.matches("user-agent").count() == 1, "{first}");
    let second = second.to_lowercase();
    assert!(!second.contains("x-token") && !second.contains("authorization") && !second.contains("own"), "{second}");
}

#[test]
fn a_server_that_lies_or_hangs_ends_in_a_named_failure() {
    let server = serve(|path, _, stream| {
        let head = |stream: &mut TcpStream, headers: &str| {
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes()).unwrap();
        };
        match path {
            "/short" => {
                head(stream, "Content-Length: 10\r\n");
                let _ = stream.write_all(b"abc");
            }
            "/long" => head(stream, "Content-Length: 1000000\r\n"),
            "/endless" => {
                head(stream, "Transfer-Encoding: chunked\r\n");
                while stream.write_all(b"5\r\nabcde\r\n").is_ok() {}
            }
            "/cut" => {
                head(stream, "Transfer-Encoding: chunked\r\n");
                let _ = stream.write_all(b"5\r\nabc");
            }
            "/nonsense" => {
                let _ = stream.write_all(b"\x16\x03\x01 nonsense");
            }
            // Sends nothing until the other side goes.
            hangs => {
                if hangs == "/hangs-in-its-body" {
                    head(stream, "Content-Length: 9\r\n");
                }
                let _ = stream.read(&mut [0]);
            }
        }
    });
    let bench = ArtifactFixture::new().config(|config| {
        config.http_max_size = 100_000;
        config.http_idle_timeout = Duration::from_millis(300);
    });
    let network = ArtifactOutcome::Network;
    for (path, outcome, words) in [
        ("/short", network, "the connection to"),
        ("/cut", network, "the connection to"),
        ("/nonsense", network, "the connection to"),
        ("/long", ArtifactOutcome::Limit, "http_max_size_mib"),
        ("/endless", ArtifactOutcome::Limit, "http_max_size_mib"),
        ("/hangs", network, "did not answer within"),
        ("/hangs-in-its-body", network, "sent nothing for"),
    ] {
        bench.refuses(&format!("{server}{path}"), outcome, words);
    }
    let bench = ArtifactFixture::new().config(|config| config.http_read_timeout = Duration::from_millis(300));
    bench.refuses(&format!("{server}/endless"), network, "http_read_timeout");
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bench.refuses(&format!("http://{unused}/x"), network, "cannot connect");
}

#[test]
fn a_download_ends_soon_after_it_is_cancelled() {
    let requested = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requested);
    let server = serve(move |_, _, stream| {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = stream.read(&mut [0]);
    });
    let bench = ArtifactFixture::new();
    let cancelled = Arc::clone(&bench.scope.cancelled);
    let began = Instant::now();
    std::thread::spawn(move || {
        while requested.load(Ordering::SeqCst) == 0 && began.elapsed() < LONG {
            std::thread::yield_now();
        }
        cancelled.set();
    });
    bench.refuses(&format!("{server}/x"), ArtifactOutcome::Cancelled, "cancelled");
    assert!(began.elapsed() < Duration::from_secs(60), "its own timeout is no shorter");
}

#[test]
fn a_download_waits_until_the_one_before_it_for_the_same_task_has_ended() {
    let bench = ArtifactFixture::new();
    let first = Staging::new(&bench.scope.alloc_dir, "web", &bench.scope.cancelled).unwrap();
    std::fs::write(first.path().join("mine"), "x").unwrap();
    let (alloc_dir, cancelled) = (bench.scope.alloc_dir.clone(), Arc::clone(&bench.scope.cancelled));
    let second = std::thread::spawn(move || Staging::new(&alloc_dir, "web", &cancelled).map(drop));
    let other = Staging::new(&bench.scope.alloc_dir, "db", &bench.scope.cancelled).map(drop);
    assert!(other.is_ok() && !second.is_finished() && first.path().join("mine").exists());
    drop(first);
    second.join().unwrap().unwrap();
    let _held = Staging::new(&bench.scope.alloc_dir, "web", &bench.scope.cancelled).unwrap();
    bench.scope.cancelled.set();
    assert!(Staging::new(&bench.scope.alloc_dir, "web", &bench.scope.cancelled).is_err());
}

#[test]
fn artifact_download_leaves_the_reserved_disk_space_free() {
    let server = serve_files(vec![("/x", vec![7; 1000])]);
    let bench = ArtifactFixture::new().config(|config| config.free_space_reserve = u64::MAX / 2);
    bench.refuses(&format!("{server}/x"), ArtifactOutcome::Limit, "stay free");
}

/// The server sends the rest only after the test has seen the first part.
#[test]
fn download_progress_is_shown_while_bytes_arrive_and_unpacked_ones_after() {
    const MIB: usize = 1 << 20;
    let archive = archive_of(&vec![7; 3 * MIB]);
    let length = archive.len();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let server = serve(move |_, _, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let (first, rest) = archive.split_at(MIB);
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(first));
        let _ = gate.lock().unwrap().recv_timeout(LONG);
        let _ = stream.write_all(rest);
    });
    let bench = ArtifactFixture::new();
    let (progress, source) = (Arc::clone(&bench.scope.progress), format!("{server}/a.tar"));
    assert_eq!(progress.shown("a.tar"), "a.tar waits for other downloads to end");
    std::thread::scope(|scope| {
        let fetched = scope.spawn(|| bench.fetch(&source, ArtifactMode::Any, "local"));
        let began = Instant::now();
        while progress.received() < MIB as u64 {
            assert!(began.elapsed() < LONG, "{}", progress.shown("a.tar"));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(progress.shown("a.tar"), "downloading a.tar: 1 of 3 MiB");
        go.send(()).unwrap();
        assert_eq!(fetched.join().unwrap(), Ok(FetchedArtifact { bytes: length as u64 }));
    });
    assert_eq!(
        (progress.received(), progress.shown("a.tar").as_str()),
        (length as u64, "unpacking a.tar: 3 MiB written")
    );
}

/// A tar of one file.
fn archive_of(content: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), content).unwrap();
    let made = std::process::Command::new("tar").arg("-C").arg(dir.path()).args(["-cf", "-", "file"]).output().unwrap();
    assert!(made.status.success());
    made.stdout
}

/// From another file system it is copied first.
#[test]
fn failed_copy_to_another_file_system_leaves_no_draft() {
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let fixture = ArtifactFixture::new();
    std::fs::create_dir_all(elsewhere.path().join("to/app")).unwrap();
    let at = serve_files(vec![("/app", b"abc".to_vec()), ("/other", b"abc".to_vec())]);
    let fetched = |path: &str| {
        let order = fixture.order(&format!("{at}{path}"), ArtifactMode::Any, "to");
        fetch(&ArtifactOrder { root: elsewhere.path().to_owned(), ..order }, &fixture.scope)
    };
    let error = fetched("/app").unwrap_err();
    assert_eq!(error.outcome, ArtifactOutcome::Install, "{error:?}");
    fetched("/other").unwrap();
    assert_eq!(listed(elsewhere.path()), ["to/", "to/app/", "to/other"]);
}
