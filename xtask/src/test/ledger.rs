//! `tests/ledger/<slice>`: the last run of each slice, and whether it is due again.
//!
//! ```text
//! slice    v2-6.12
//! commit   3f7163c…                       what ran
//! date     2026-11-28
//! result   green                          or red
//! counts   312 passed, 0 failed, 2 skipped
//! seconds  512
//! seed     81623
//! room     src/host 8c4f…                 git's hash of the tree that was tested
//! flaky    live::a::b: where and why      a test that failed and then passed two of three
//! red      live::a::c: where and why
//! why      …                              written by a person behind a red run: why it is left as it is
//! ```
//! A slice is due when a room's hash differs from the recorded one. For how long is counted in commits of the first
//! parent, so that a merge of many commits counts once, as the one change that the gate judged.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::slices::{self, Slice};
use crate::{Result, run};

/// For so many commits of the first parent a slice may be due before the gate warns, and before it fails.
const WARN: usize = 30;
const FAIL: usize = 60;

/// One file of the ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    pub slice: String,
    pub commit: String,
    pub date: String,
    pub green: bool,
    pub counts: String,
    pub seconds: u64,
    pub seed: u64,
    pub directories: BTreeMap<String, String>,
    pub flaky: Vec<String>,
    pub red: Vec<String>,
    pub why: String,
}

impl Entry {
    fn text(&self) -> String {
        let result = if self.green { "green" } else { "red" };
        let mut text = String::new();
        let mut line = |key: &str, value: &str| {
            let _ = writeln!(text, "{key:<8} {value}");
        };
        line("slice", &self.slice);
        line("commit", &self.commit);
        line("date", &self.date);
        line("result", result);
        line("counts", &self.counts);
        line("seconds", &self.seconds.to_string());
        line("seed", &self.seed.to_string());
        self.directories.iter().for_each(|(room, hash)| line("room", &format!("{room} {hash}")));
        self.flaky.iter().for_each(|test| line("flaky", test));
        self.red.iter().for_each(|test| line("red", test));
        if !self.why.is_empty() {
            line("why", &self.why);
        }
        text
    }

    /// Unknown lines are refused: a slip in a file that a person edited must not pass for an empty one.
    fn parse(text: &str) -> Result<Entry> {
        let mut entry = Entry::default();
        for (at, line) in text.lines().enumerate() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let value = value.trim();
            let number = || value.parse().map_err(|_| format!("line {}: not a number: {value}", at + 1));
            match key {
                "slice" => entry.slice = value.to_owned(),
                "commit" => entry.commit = value.to_owned(),
                "date" => entry.date = value.to_owned(),
                "result" => entry.green = value == "green",
                "counts" => entry.counts = value.to_owned(),
                "seconds" => entry.seconds = number()?,
                "seed" => entry.seed = number()?,
                "flaky" => entry.flaky.push(value.to_owned()),
                "red" => entry.red.push(value.to_owned()),
                "why" => entry.why = value.to_owned(),
                "room" => {
                    let (room, hash) = value.split_once(' ').ok_or_else(|| format!("line {}: no hash", at + 1))?;
                    entry.directories.insert(room.to_owned(), hash.to_owned());
                }
                _ => return Err(format!("line {}: unknown key {key}", at + 1).into()),
            }
        }
        Ok(entry)
    }
}

fn file(root: &Path, slice: &Slice) -> PathBuf {
    root.join("tests/ledger").join(slice.name)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    run::output(Command::new("git").arg("-C").arg(root).args(arguments))
}

/// The rooms of a slice with their hashes at a commit; a room that was not there then has none.
fn hashes_at(root: &Path, slice: &Slice, commit: &str) -> Result<BTreeMap<String, String>> {
    let text = git(root, &[&["ls-tree", "--format=%(path) %(objectname)", commit, "--"], slice.directories].concat())?;
    Ok(text.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect())
}

/// What a slice tests, taken before it begins: what is committed meanwhile was not tested.
#[derive(Debug)]
pub struct Start {
    commit: String,
    directories: BTreeMap<String, String>,
    /// Its files differ from HEAD: such a run is not recorded.
    is_changed: bool,
}

impl Start {
    pub fn of(root: &Path, slice: &Slice) -> Result<Start> {
        let commit = git(root, &["rev-parse", "HEAD"])?.trim().to_owned();
        let hashes = hashes_at(root, slice, &commit)?;
        let differs = git(root, &[&["status", "--porcelain", "--"], slice.directories].concat())?;
        Ok(Start { commit, directories: hashes, is_changed: !differs.trim().is_empty() })
    }
}

/// Writes what a slice's run gave.
pub fn record(root: &Path, slice: &Slice, start: Start, entry: Entry) -> Result<()> {
    if start.is_changed {
        println!("slice {}: its files differ from HEAD, so the run is not recorded", slice.name);
        return Ok(());
    }
    let Start { commit, directories: hashes, .. } = start;
    let entry = Entry { slice: slice.name.to_owned(), commit, directories: hashes, date: run::date()?, ..entry };
    let path = file(root, slice);
    fs::create_dir_all(path.parent().ok_or("the ledger is a directory")?)?;
    fs::write(&path, entry.text())?;
    println!("slice {}: written to tests/ledger/{}; commit it", slice.name, slice.name);
    Ok(())
}

/// How a slice stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    Current,
    /// For so many commits, [`FAIL`] + 1 at most.
    Due(usize),
    Never,
    /// Its last run failed, and the file does not say why that is left.
    Red,
}

impl Standing {
    fn message(&self) -> String {
        let due = |commits: &str| format!("{commits} first-parent commits (a merge counts once)");
        match self {
            Standing::Current => "current".to_owned(),
            Standing::Due(n) if *n > FAIL => format!("DUE for more than {}", due(&FAIL.to_string())),
            Standing::Due(n) if *n >= WARN => format!("DUE for {}: the gate fails beyond {FAIL}", due(&n.to_string())),
            Standing::Due(n) => format!("due for {}", due(&n.to_string())),
            Standing::Never => "NEVER RUN".to_owned(),
            Standing::Red => "RED, and its file does not say why that is left".to_owned(),
        }
    }

    fn fails(&self) -> bool {
        match self {
            // A new slice has its first run before anything of it can be due.
            Standing::Current | Standing::Never => false,
            Standing::Due(commits) => *commits > FAIL,
            Standing::Red => true,
        }
    }
}

/// Newest first: the rooms' hashes at HEAD and at the commits before it. A room that was not recorded counts as changed
/// once.
fn standing(entry: Option<&Entry>, history: impl Iterator<Item = BTreeMap<String, String>>) -> Standing {
    let Some(entry) = entry else { return Standing::Never };
    if !entry.green && entry.why.is_empty() {
        return Standing::Red;
    }
    let mut history = history.peekable();
    let has_new_room = history.peek().is_some_and(|directories| !directories.keys().eq(entry.directories.keys()));
    let differs = |directories: &BTreeMap<String, String>| {
        directories.iter().any(|(room, hash)| entry.directories.get(room).is_some_and(|recorded| recorded != hash))
    };
    match history.take_while(differs).count().max(usize::from(has_new_room)) {
        0 => Standing::Current,
        commits => Standing::Due(commits),
    }
}

/// HEAD and those before it, newest first.
fn commits(root: &Path, most: usize) -> Result<Vec<String>> {
    let list = git(root, &["rev-list", "--first-parent", "-n", &most.to_string(), "HEAD"])?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// One line per slice; what of them fails the gate. Errors: git does not answer, although this is a repository.
pub fn report(root: &Path) -> Result<Vec<String>> {
    if !root.join(".git").exists() {
        println!("slices: the source has no .git, so nothing is known of them");
        return Ok(Vec::new());
    }
    if git(root, &["rev-parse", "--is-shallow-repository"])?.trim() == "true" {
        println!(
            "slices: this clone is shallow; for how many commits one has been due is known in a whole clone alone"
        );
    }
    let commits = commits(root, FAIL + 1)?;
    let mut failing = Vec::new();
    for slice in slices::ALL {
        let of_file = |e: &dyn std::fmt::Display| format!("tests/ledger/{}: {e}", slice.name);
        let text = fs::read_to_string(file(root, slice)).ok();
        let entry = text.map(|text| Entry::parse(&text)).transpose().map_err(|e| of_file(&e))?;
        if let Some(other) = entry.as_ref().filter(|entry| entry.slice != slice.name) {
            return Err(of_file(&format!("it is of the slice {}", other.slice)).into());
        }
        let history: Result<Vec<_>> = commits.iter().map(|commit| hashes_at(root, slice, commit)).collect();
        let standing = standing(entry.as_ref(), history?.into_iter());
        let message = standing.message();
        let why = entry.as_ref().filter(|entry| !entry.green && !entry.why.is_empty());
        let why = why.map(|entry| format!("; red: {}", entry.why)).unwrap_or_default();
        let last = entry.as_ref().map(|e| format!("; {} {}, {} s, {}", e.date, e.counts, e.seconds, short(&e.commit)));
        println!("slice {:<18} {message}{why}{}", slice.name, last.unwrap_or_default());
        if standing.fails() {
            failing
                .push(format!("slice {}: {message}: run `cargo xtask test --slice {0}` ({})", slice.name, slice.what));
        }
    }
    Ok(failing)
}

fn short(commit: &str) -> &str {
    commit.get(..7).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            slice: "x".into(),
            commit: "abc".into(),
            date: "2026-01-01".into(),
            green: true,
            counts: "3 passed, 0 failed, 1 skipped".into(),
            seconds: 7,
            seed: 9,
            directories: [("src/a".to_owned(), "1".to_owned())].into(),
            flaky: vec!["a::b: tests/x.rs:1: late".into()],
            red: Vec::new(),
            why: "a reason".into(),
        }
    }

    fn directories(hash: &str) -> BTreeMap<String, String> {
        [("src/a".to_owned(), hash.to_owned())].into()
    }

    #[test]
    fn file_reads_as_it_was_written() {
        assert_eq!(Entry::parse(&entry().text()).unwrap(), entry());
        assert!(Entry::parse("reslt green").unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn slice_is_due_for_as_many_commits_as_have_other_rooms() {
        let standing =
            |entry: &Entry, hashes: &[&str]| standing(Some(entry), hashes.iter().map(|hash| directories(hash)));
        assert_eq!(standing(&entry(), &["1", "0"]), Standing::Current);
        assert_eq!(standing(&entry(), &["3", "2", "1"]), Standing::Due(2));
        let more = [("src/a".to_owned(), "1".to_owned()), ("src/b".to_owned(), "7".to_owned())].into();
        assert_eq!(super::standing(Some(&entry()), [more].into_iter()), Standing::Due(1), "a room is new");
        let long = vec!["2"; FAIL + 1];
        assert!(standing(&entry(), &long).fails());
        assert!(!standing(&entry(), &long[1..]).fails());
    }

    #[test]
    fn message_of_a_due_slice_says_what_is_counted_and_when_the_gate_fails() {
        let due = |n| Standing::Due(n).message();
        assert_eq!(due(3), "due for 3 first-parent commits (a merge counts once)");
        assert!(due(WARN - 1).starts_with("due ") && due(WARN).starts_with("DUE for 30 first-parent"));
        assert!(due(WARN).ends_with("the gate fails beyond 60") && due(FAIL).ends_with("beyond 60"));
        assert!(due(FAIL + 1).starts_with("DUE for more than 60 first-parent commits"));
    }

    /// A merge is one commit of the first parent, whatever it brings.
    #[test]
    fn merge_of_many_commits_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            let who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"];
            git(dir.path(), &[&who[..], words].concat()).unwrap()
        };
        git(&["init", "-q", "-b", "main"]);
        git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        git(&["checkout", "-q", "-b", "side"]);
        for n in 0..5 {
            git(&["commit", "-q", "--allow-empty", "-m", &format!("side {n}")]);
        }
        git(&["checkout", "-q", "main"]);
        git(&["merge", "-q", "--no-ff", "--no-edit", "side"]);
        assert_eq!(commits(dir.path(), 61).unwrap().len(), 2);
        assert_eq!(commits(dir.path(), 1).unwrap().len(), 1);
    }

    #[test]
    fn red_run_fails_unless_the_file_says_why() {
        let red = Entry { green: false, ..entry() };
        assert!(!standing(Some(&red), [directories("1")].into_iter()).fails());
        let silent = Entry { why: String::new(), ..red };
        assert_eq!(standing(Some(&silent), [directories("1")].into_iter()), Standing::Red);
        assert_eq!(standing(None, std::iter::empty()), Standing::Never);
    }

    #[test]
    fn rooms_of_this_repository_have_hashes() {
        let root = crate::root();
        // A packaged source has no git.
        if root.join(".git").exists() {
            let directories = hashes_at(&root, &slices::HOST_LONG, "HEAD").unwrap();
            assert_eq!(directories.len(), slices::HOST_LONG.directories.len(), "{directories:?}");
        }
    }
}
