use crate::runner::artifacts::TREE;

use super::*;

fn archive() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("web/local")).unwrap();
    std::fs::write(dir.path().join("web/local/file"), vec![3; 300_000]).unwrap();
    archive_of(dir.path())
}

#[track_caller]
fn is_retried(result: Result<FetchedData, MigrationError>, words: &str) {
    match result {
        Err(MigrationError::Retry(why)) => assert!(why.contains(words), "{words:?} is not in: {why}"),
        other => panic!("{words}: {other:?}"),
    }
}

/// At any place: in a header, in a file, before the seal, after it.
#[test]
fn transfer_that_is_cut_is_retried_and_leaves_nothing() {
    let whole = archive();
    let last = whole.len();
    for cut in [0, 1, 511, 512, 1024, 1700, 150_000, last - 2048, last - 1536, last - 1024] {
        for lies in [false, true] {
            let (site, part) = (Site::new(), whole[..cut].to_vec());
            let length = if lies { last } else { cut };
            let address = serve(move |_, stream| respond(stream, "200 OK", length, &part));
            let result = site.fetch(&address);
            let is_whole = cut == last - 1024;
            match (lies, cut) {
                // All of it came but the blocks of zeros that end an archive.
                (false, _) if is_whole => drop(result.unwrap()),
                // What is no archive is none after a second try.
                (false, 0 | 1 | 511) => assert!(matches!(result, Err(MigrationError::Final(_))), "{cut}: {result:?}"),
                _ => {
                    assert!(matches!(result, Err(MigrationError::Retry(_))), "{cut} {lies}: {result:?}");
                    site.is_untouched();
                }
            }
        }
    }
}

#[test]
fn peer_that_hangs_ends_by_timeout_and_a_cancelled_transfer_at_once() {
    let whole = archive();
    let (sender, hung) = std::sync::mpsc::channel();
    let hangs = move |_: usize, stream: &mut TcpStream| {
        respond(stream, "200 OK", whole.len(), &whole[..100_000]);
        let _ = sender.send(());
        // Until the other side goes.
        let _ = stream.read(&mut [0]);
    };
    let address = serve(hangs);
    let site = Site::with(|config| config.idle_timeout = Duration::from_millis(300));
    is_retried(site.fetch(&address), "the peer sent nothing for 0.3 s (migrate.idle_timeout)");
    site.is_untouched();
    let source = MigrationSource::parse("old/5f0dc4f8", MigrationFailure::Fail).unwrap();
    let late = Site::new();
    let scope = MigrationScope { until: Instant::now() + Duration::from_millis(300), ..late.scope(&address) };
    is_retried(fetch(&source, &scope), "migrate.deadline");
    late.is_untouched();
    let site = Site::new();
    let cancelled = Arc::clone(&site.cancelled);
    let fetching = std::thread::spawn(move || {
        let done = site.fetch(&address);
        site.is_untouched();
        (done, Instant::now())
    });
    // The third transfer.
    (0..3).for_each(|_| hung.recv_timeout(LONG).unwrap());
    let began = Instant::now();
    cancelled.set();
    let (done, ended) = fetching.join().unwrap();
    assert_eq!(done, Err(MigrationError::Cancelled));
    assert!(ended - began < Duration::from_secs(20), "{:?}", ended - began);
}

/// Promise (Input validation): P-14.5 A hostile peer or archive writes nothing outside, grants no rights and fills no
/// disk
#[test]
fn peer_without_an_end_is_stopped_by_the_limits() {
    let address = serve(|_, stream| {
        let mut header = ::tar::Header::new_gnu();
        header.set_path("alloc/data/endless").unwrap();
        header.set_size(1 << 60);
        header.set_cksum();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let _ = stream.write_all(b"200\r\n").and_then(|()| stream.write_all(header.as_bytes()));
        let _ = stream.write_all(b"\r\n");
        let piece = [b"10000\r\n".as_slice(), &[1; 1 << 16], b"\r\n"].concat();
        while stream.write_all(&piece).is_ok() {}
    });
    let site = Site::with(|config| config.max_size = 4 << 20);
    let Err(MigrationError::Final(why)) = site.fetch(&address) else { panic!("it does not end") };
    assert!(why.contains("migrate.max_size_mib"), "{why}");
    site.is_untouched();
    // Extended headers have no entry: all that is read counts.
    let address = serve(|_, stream| {
        let mut header = ::tar::Header::new_gnu();
        header.set_entry_type(::tar::EntryType::XHeader);
        header.set_size(0);
        header.set_cksum();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(header.as_bytes()).is_ok() {}
    });
    let Err(MigrationError::Final(why)) = site.fetch(&address) else { panic!("it does not end") };
    assert!(why.contains("migrate.max_size_mib"), "{why}");
    site.is_untouched();
}

#[test]
fn answers_of_the_peer_decide_whether_it_is_retried() {
    let error = |code: &str| format!("{{\"code\":\"{code}\",\"message\":\"WHY\"}}");
    for (status, body, is_retry) in [
        ("409 Conflict", error("conflict"), true),
        ("409 Conflict", error("ambiguous"), false),
        ("429 Too Many Requests", error("too_many_requests"), true),
        ("503 Service Unavailable", String::new(), true),
        ("403 Forbidden", error("socket_only"), false),
        ("404 Not Found", error("not_found"), false),
        ("302 Found", String::new(), false),
        ("502 Bad Gateway", "x".repeat(1 << 20), true),
    ] {
        let (site, text) = (Site::new(), body.clone());
        let result = site.fetch(&serve(move |_, stream| respond(stream, status, text.len(), text.as_bytes())));
        assert_eq!(matches!(result, Err(MigrationError::Retry(_))), is_retry, "{status} {result:?}");
        if body.contains("WHY") {
            assert!(format!("{result:?}").contains("WHY"), "{status} {result:?}");
        }
        site.is_untouched();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    is_retried(Site::new().fetch(&address), "cannot connect");
}

#[test]
fn peer_that_sends_single_bytes_is_retried() {
    let whole = archive();
    let address = serve(move |_, stream| {
        respond(stream, "200 OK", whole.len(), &[]);
        for byte in &whole {
            // A slow link, not a wait for anything.
            std::thread::sleep(Duration::from_millis(10));
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
        }
    });
    let site = Site::with(|config| config.idle_timeout = Duration::from_millis(500));
    is_retried(site.fetch(&address), "the peer sent less than 256 KiB in 0.5 s");
    site.is_untouched();
}

/// Promise (Durability and recovery): A migration that breaks off goes on where it stood; what changed is refused
#[test]
fn transfer_that_breaks_off_goes_on_where_it_stood_and_is_whole() {
    const EACH: usize = 400_000;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("web/local")).unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(dir.path().join("web/local/file"), &content).unwrap();
    let tree = ForeignTree::open(dir.path(), is_hidden).unwrap();
    let (sender, offsets) = std::sync::mpsc::channel();
    let address = serve_from(move |_, offset, stream| {
        let mut rest = Vec::new();
        write_migration(&tree, &|| Ok(()), offset as u64, &mut rest).unwrap();
        let _ = sender.send(offset);
        respond(stream, "200 OK", rest.len(), &rest[..rest.len().min(EACH)]);
    });
    let site = Site::new();
    let reports = Arc::new(std::sync::Mutex::new(Vec::new()));
    let reported = Arc::clone(&reports);
    let on_interruption = Box::new(move |bytes, why: &str| reported.lock().unwrap().push((bytes, why.to_owned())));
    let source = MigrationSource::parse("old/5f0dc4f8", MigrationFailure::Fail).unwrap();
    let fetched = fetch(&source, &MigrationScope { on_interruption, ..site.scope(&address) }).unwrap();
    let offsets: Vec<usize> = offsets.try_iter().collect();
    assert_eq!(offsets, (0..=7).map(|part| part * EACH).collect::<Vec<_>>(), "no byte is sent twice");
    assert_eq!(fetched.resumed, 7);
    assert_eq!(reports.lock().unwrap().len(), 7);
    assert_eq!(std::fs::read(site.alloc_dir().join(FETCHED).join(TREE).join("web/local/file")).unwrap(), content);
}

/// Between two connections the alloc was started again, its data is another one, or the peer knows no offsets.
#[test]
fn rest_of_another_archive_is_never_joined_to_what_came() {
    let archive_of_bytes = |byte: u8| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("web/local")).unwrap();
        std::fs::write(dir.path().join("web/local/file"), vec![byte; 1_000_000]).unwrap();
        archive_of(dir.path())
    };
    let (first, second) = (archive_of_bytes(1), archive_of_bytes(2));
    let half = first.len() / 2;
    for (status, from) in [("200 OK", half), ("200 OK", 0), ("409 Conflict", 0), ("400 Bad Request", 0)] {
        let (first, second) = (first.clone(), second.clone());
        let address = serve_from(move |_, offset, stream| match offset {
            0 => respond(stream, "200 OK", first.len(), &first[..half]),
            _ if status == "200 OK" => respond(stream, status, second.len() - from, &second[from..]),
            _ => respond(stream, status, 2, b"{}"),
        });
        let site = Site::new();
        let result = site.fetch(&address);
        assert!(matches!(result, Err(MigrationError::Retry(_))), "{status} {from}: {result:?}");
        site.is_untouched();
    }
}
