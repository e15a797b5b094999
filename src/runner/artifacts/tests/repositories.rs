//! Promise (Input validation): A repository has at most `artifact.git_file_count_limit` files; git that makes more is
//! killed

use std::os::unix::fs::PermissionsExt;

use super::*;

/// A program that stands for git: it writes down what it gets, then does this.
fn stub(bench: &mut ArtifactFixture, script: &str) -> PathBuf {
    let bin = bench.dir.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let log = bench.dir.path().join("log");
    let git = bin.join("git");
    let text = format!("#!/bin/sh\n{{ echo \"args: $*\"; env; }} >> {}\n{script}\n", log.display());
    std::fs::write(&git, text).unwrap();
    std::fs::set_permissions(&git, PermissionsExt::from_mode(0o755)).unwrap();
    bench.scope.path = format!("{}:/usr/bin:/bin", bin.display());
    log
}

/// A process that another test forks may hold the script open for writing for a moment.
fn fetched(bench: &ArtifactFixture, source: &str) -> Result<FetchedArtifact, ArtifactError> {
    loop {
        match bench.fetch(source, ArtifactMode::Any, "local/repo") {
            Err(error) if error.message.contains("Text file busy") => std::thread::yield_now(),
            done => return done,
        }
    }
}

#[test]
fn git_runs_without_prompts_hooks_and_other_protocols_and_shows_no_secret() {
    let mut bench = ArtifactFixture::new();
    let log = stub(&mut bench, "case \"$*\" in *clone*) mkdir -p tree/.git; echo hi > tree/README; exit 0;; esac");
    let source = "git::https://user:SECRET@h.lan/o/r.git//.?ref=v1&sshkey=a2V5";
    fetched(&bench, source).unwrap();
    assert_eq!(listed(&bench.task().join("local")), ["repo/", "repo/.git/", "repo/README"]);
    let text = std::fs::read_to_string(&log).unwrap();
    for expected in [
        "clone --quiet --template= -- https://h.lan/o/r.git tree",
        "-C tree checkout --quiet v1 --",
        "core.hooksPath=/dev/null",
        "protocol.allow=never",
        "GIT_TERMINAL_PROMPT=0",
        "GIT_ALLOW_PROTOCOL=https:http:ssh",
        "GIT_CONFIG_GLOBAL=/dev/null",
        "GIT_CONFIG_KEY_0=url.https://user:SECRET@h.lan/.insteadOf",
        "BatchMode=yes -o IdentitiesOnly=yes -i '",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(text.lines().filter(|line| line.starts_with("args:")).all(|line| !line.contains("SECRET")), "{text}");
    assert!(!text.contains("CARGO"), "{text}");

    std::fs::remove_file(&log).unwrap();
    fetched(&bench, "git::ssh://git@h/r?ref=main&depth=1").unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("clone --quiet --template= --depth=1 --branch=main -- ssh://git@h/r tree"), "{text}");

    let mut bench = ArtifactFixture::new();
    stub(&mut bench, "echo fatal: cannot read https://user:SECRET@h.lan >&2; exit 128");
    let error = fetched(&bench, source).unwrap_err();
    assert_eq!(error.outcome, ArtifactOutcome::Git);
    assert!(error.message.contains("fatal: cannot read https://***@h.lan"), "{error:?}");
}

#[test]
fn a_hostile_repository_leaves_nothing() {
    for (script, words) in [
        ("mkdir -p tree; ln -s /etc tree/out", "out of the tree"),
        ("mkdir -p tree/a; ln -s ../../x tree/a/out", "out of the tree"),
        ("mkdir -p tree; mkfifo tree/pipe", "and no file, directory or link"),
    ] {
        let mut bench = ArtifactFixture::new();
        stub(&mut bench, script);
        let error = fetched(&bench, "git::https://h/r").unwrap_err();
        assert!(error.outcome == ArtifactOutcome::Archive && error.message.contains(words), "{script}: {error:?}");
        assert_eq!(listed(&bench.task()), ["local/"]);
    }
}

#[test]
fn repository_of_too_many_files_ends_at_its_limit() {
    let mut bench = ArtifactFixture::new().config(|config| config.git_file_count_limit = 100);
    stub(&mut bench, "mkdir -p tree/a; cd tree/a; i=0; while [ $i -lt 100 ]; do : > $i; i=$((i+1)); done");
    let error = fetched(&bench, "git::https://h/r").unwrap_err();
    assert_eq!(error.outcome, ArtifactOutcome::Limit, "{error:?}");
    assert!(error.message.contains("more than 100 entries (artifact.git_file_count_limit)"), "{error:?}");
    assert_eq!(listed(&bench.task()), ["local/"]);
    let mut bench = ArtifactFixture::new().config(|config| config.git_file_count_limit = 101);
    stub(&mut bench, "mkdir -p tree/a; cd tree/a; i=0; while [ $i -lt 100 ]; do : > $i; i=$((i+1)); done");
    fetched(&bench, "git::https://h/r").unwrap();
}

#[test]
fn git_that_makes_files_without_end_is_killed_and_named() {
    let mut bench = ArtifactFixture::new().config(|config| config.git_file_count_limit = 1);
    stub(&mut bench, "mkdir tree; cd tree; i=0; while :; do seq $i $((i+999)) | xargs touch; i=$((i+1000)); done");
    let error = fetched(&bench, "git::https://h/r").unwrap_err();
    assert!(error.outcome == ArtifactOutcome::Limit && error.message.contains("more than 1 entries"), "{error:?}");
    assert_eq!(listed(&bench.task()), ["local/"]);
}

#[test]
fn git_that_hangs_is_killed_with_its_children_and_missing_git_is_reported() {
    let mut bench = ArtifactFixture::new().config(|config| config.git_timeout = Duration::from_millis(300));
    let log = stub(&mut bench, "sleep 600 & echo pid: $! >> ../../log; wait");
    let error = fetched(&bench, "git::https://h/r").unwrap_err();
    assert!(error.message.contains("artifact.git_timeout"), "{error:?}");
    let text = std::fs::read_to_string(&log).unwrap();
    let child: u32 = text.lines().find_map(|line| line.strip_prefix("pid: ")).unwrap().parse().unwrap();
    let began = Instant::now();
    let is_removed =
        || std::fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |stat| stat.contains(") Z "));
    while !is_removed() {
        assert!(began.elapsed() < LONG, "what git started runs still");
        std::thread::yield_now();
    }

    let mut bench = ArtifactFixture::new();
    let log = stub(&mut bench, "exec sleep 600");
    let cancelled = Arc::clone(&bench.scope.cancelled);
    std::thread::spawn(move || {
        while !log.exists() && began.elapsed() < LONG {
            std::thread::yield_now();
        }
        cancelled.set();
    });
    let error = fetched(&bench, "git::https://h/r").unwrap_err();
    assert_eq!(error.outcome, ArtifactOutcome::Cancelled, "{error:?}");

    let mut bench = ArtifactFixture::new();
    bench.scope.path = "/nonexistent".to_owned();
    let error = bench.fetch("git::https://h/r", ArtifactMode::Any, "local").unwrap_err();
    assert!(error.outcome == ArtifactOutcome::Git && error.message.contains("git is not installed"), "{error:?}");
}

/// The tree of a repository as git leaves it, and what the installation makes of it after a change.
fn changed_after_inspection(
    bench: &mut ArtifactFixture,
    root: &Path,
    change: impl FnOnce(&Path),
) -> Result<(), ArtifactError> {
    stub(bench, "mkdir -p tree; echo x > tree/a; echo x > tree/b; stat -c %a . > ../../modes");
    let staging = Staging::new(&bench.scope.alloc_dir, "web", &bench.scope.cancelled).unwrap();
    let bounds = MeterBounds::of_repository(&bench.scope.config);
    let meter = UnpackMeter::new(bounds, Arc::clone(&bench.scope.cancelled), staging.directory());
    let order = ArtifactOrder { root: root.to_owned(), ..bench.order("git::https://h/r", ArtifactMode::Any, "local") };
    let ArtifactOrigin::Git(source) = &order.source.from else { panic!("it is a repository") };
    loop {
        match git::clone(source, &order, &bench.scope, (&staging, &meter)) {
            Err(error) if error.message.contains("Text file busy") => std::thread::yield_now(),
            done => {
                done.unwrap();
                break;
            }
        }
    }
    assert_eq!(std::fs::read_to_string(bench.dir.path().join("modes")).unwrap(), "711\n");
    assert_eq!(mode_of(staging.path()), 0o700, "it is closed once git has ended");
    change(&staging.path().join(TREE));
    install::install(&staging, unpack::UnpackedTree::Directory, &order, &bench.scope, &meter)
}

/// Another process of the task's user may hold its directory open.
#[test]
fn repository_that_grows_after_its_inspection_ends_at_its_limit() {
    let mut bench = ArtifactFixture::new().config(|config| config.git_file_count_limit = 3);
    let root = bench.task();
    changed_after_inspection(&mut bench, &root, |_| ()).unwrap();
    assert_eq!(listed(&bench.task()), ["local/", "local/a", "local/b"]);
    let error = changed_after_inspection(&mut bench, &root, |tree| {
        (0..9).for_each(|n| std::fs::write(tree.join(n.to_string()), "").unwrap());
    });
    let error = error.unwrap_err();
    assert!(error.outcome == ArtifactOutcome::Limit && error.message.contains("more than 3 entries"), "{error:?}");
}

/// Each walk counts for itself.
#[test]
fn subdirectory_of_a_repository_may_have_as_many_files_as_the_whole() {
    let mut bench = ArtifactFixture::new().config(|config| config.git_file_count_limit = 4);
    stub(&mut bench, "mkdir -p tree/sub; cd tree/sub; touch a b c");
    fetched(&bench, "git::https://h/r//s*").unwrap();
    assert_eq!(listed(&bench.task().join("local/repo")), ["a", "b", "c"]);
}

/// With `fs.protected_hardlinks=0` a user can link a file that only root can read.
#[test]
fn file_of_another_user_in_a_repository_is_not_copied_to_another_file_system() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut bench = ArtifactFixture::new();
    let foreign = bench.dir.path().join("foreign");
    std::fs::write(&foreign, "secret").unwrap();
    std::os::unix::fs::chown(&foreign, Some(4_002), None).unwrap();
    let error = changed_after_inspection(&mut bench, elsewhere.path(), |tree| {
        std::fs::remove_file(tree.join("a")).unwrap();
        std::fs::hard_link(&foreign, tree.join("a")).unwrap();
    });
    let error = error.unwrap_err();
    assert!(error.message.contains("\"a\" is no regular file of the task's user"), "{error:?}");
    assert!(!listed(elsewhere.path()).contains(&"local/a".to_owned()));
    assert!(!listed(elsewhere.path()).iter().any(|name| name.ends_with(".allostat")));
}
