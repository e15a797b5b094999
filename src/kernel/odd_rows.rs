//! Laws for all line-based parsers: unknown lines between valid ones, and unknown words inside valid lines where the
//! kernel may add some, change no value and cause no error.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use super::cgroup::{blkio, cpu_stat, cpuacct, io_stat, memory_events, memory_stat, oom_control, pids_events, procs};
use super::proc::{
    cgroup, cpuinfo, diskstats, meminfo, mountinfo, net_dev, net_route, net_tcp, pid_io, pid_status, stat, vmstat,
};
use super::{ParseError, pressure, text};

/// Value and error of a parser for a text.
type Parse = fn(&[u8]) -> (String, Option<ParseError>);

/// Where later kernels add words to a line of a file.
#[derive(Clone, Copy, PartialEq)]
enum Growth {
    /// Only lines are added.
    None,
    /// Behind the first word, in any order. Source: cgroup-v2.rst, "nested keyed" files.
    Keys,
    /// Columns at the end. Source: iostats.rst, proc(5).
    Columns,
    /// Optional fields, in front of the word `-`. Source: proc_pid_mountinfo(5).
    OptionalFields,
}

/// A parser with a text that it parses completely.
struct ParserCase {
    /// Below `src/kernel`.
    module: &'static str,
    /// Lines of the file; the first `headings` lines stay in front.
    good: &'static str,
    headings: usize,
    growth: Growth,
    parse: Parse,
}

const fn case(module: &'static str, good: &'static str, parse: Parse) -> ParserCase {
    ParserCase { module, good, headings: 0, growth: Growth::None, parse }
}

const fn growing(module: &'static str, growth: Growth, good: &'static str, parse: Parse) -> ParserCase {
    ParserCase { module, good, headings: 0, growth, parse }
}

fn shown<T: std::fmt::Debug>((value, error): (T, Option<ParseError>)) -> (String, Option<ParseError>) {
    (format!("{value:?}"), error)
}

const MOUNTS: &str = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
    23 21 8:2 / /data rw - xfs /dev/sda2 rw\n";
const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
    eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\neth1\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\n";
const SOCKETS: &str = "  sl  local_address rem_address\n\
    0: 0100007F:260C 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000 65534 0 1301 1 0 20 0 0 10 -1\n";

static CASES: &[ParserCase] = &[
    growing(
        "cgroup/blkio",
        Growth::Columns,
        "8:0 Read 1\n8:0 Write 2\n8:0 Discard 3\n8:16 Read 10\n8:16 Write 20\nTotal 36\n",
        |b| shown(blkio::parse("blkio", b)),
    ),
    case("cgroup/cpu_stat", "nr_periods 3\nnr_throttled 2\nthrottled_time 1500\n", |b| shown(cpu_stat::v1(b))),
    case("cgroup/cpu_stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n", |b| shown(cpu_stat::v2(b))),
    case("cgroup/cpuacct", "user 7\nsystem 8\n", |b| shown(cpuacct::stat(b))),
    growing(
        "cgroup/io_stat",
        Growth::Keys,
        "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:16 rbytes=10 wbytes=20 rios=30 wios=40\n",
        |b| shown(io_stat::parse(b)),
    ),
    case("cgroup/memory_events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\n", |b| shown(memory_events::parse(b))),
    case("cgroup/memory_stat", "total_cache 4\ntotal_rss 5\nhierarchical_memory_limit 6\n", |b| {
        shown(memory_stat::v1(b))
    }),
    case("cgroup/memory_stat", "anon 1\nfile 2\nshmem 3\n", |b| shown(memory_stat::v2(b))),
    case("cgroup/oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n", |b| shown(oom_control::oom_kills(b))),
    case("cgroup/pids_events", "max 5\n", |b| shown(pids_events::limit_hits(b))),
    // Each line is only an ID, so an additional line changes the result.
    case("cgroup/procs", "1\n20\n300\n", |b| {
        let mut found = Vec::new();
        let _ = procs::pids("cgroup.procs", b, &mut found);
        (format!("{:?}", [1, 20, 300].map(|pid| found.contains(&pid))), None)
    }),
    growing("pressure", Growth::Keys, "some avg10=0.00 total=8\nfull avg10=0.00 total=5\n", |b| {
        shown(pressure::parse("io", b))
    }),
    case("proc/cgroup", "4:memory:/m\n1:name=systemd:/s\n0::/u\n", |b| {
        let controllers = [None, Some("memory")].map(|of| cgroup::place(b, of));
        (format!("{controllers:?} {:?}", cgroup::hierarchies(b).collect::<Vec<_>>()), None)
    }),
    case("proc/cpuinfo", "processor : 0\nmodel name : X\n", |b| (format!("{:?}", cpuinfo::model_name(b)), None)),
    growing(
        "proc/diskstats",
        Growth::Columns,
        "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n8 16 sdb 1 2 3 4 5 6 7 8 9 10 11\n",
        |b| shown(diskstats::parse(b)),
    ),
    growing("proc/meminfo", Growth::Columns, "MemTotal: 9 kB\nMemFree: 8 kB\nSwapTotal: 0 kB\n", |b| {
        shown(meminfo::parse(b))
    }),
    case("proc/pid_io", "rchar: 9\nread_bytes: 5\nwrite_bytes: 6\n", |b| shown(pid_io::parse(b))),
    growing("proc/pid_status", Growth::Columns, "Uid:\t1\t2\t3\t4\nVmHWM:\t 9 kB\nVmRSS:\t 8 kB\nThreads:\t3\n", |b| {
        shown(pid_status::parse(b))
    }),
    growing("proc/mountinfo", Growth::OptionalFields, MOUNTS, |b| shown(mountinfo::cgroups(b))),
    growing("proc/mountinfo", Growth::OptionalFields, MOUNTS, |b| shown(mountinfo::filesystems(b))),
    growing("proc/mountinfo", Growth::OptionalFields, MOUNTS, |b| {
        (format!("{:?}", mountinfo::source_of(b, Path::new("/data/x"))), None)
    }),
    ParserCase {
        module: "proc/net_dev",
        good: "Inter-| Receive\n face |bytes\n lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\neth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n",
        headings: 2,
        growth: Growth::Columns,
        parse: |b| shown(net_dev::parse(b)),
    },
    ParserCase {
        module: "proc/net_route",
        good: ROUTES,
        headings: 1,
        growth: Growth::Columns,
        parse: |b| (format!("{:?}", net_route::default_interface(b)), None),
    },
    growing("proc/net_tcp", Growth::Columns, SOCKETS, |b| {
        let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        (format!("{:?}", net_tcp::end(b, at(0x260C), at(0xD2F0))), None)
    }),
    case("proc/vmstat", "pgfault 9\npgmajfault 4\npswpin 2\npswpout 3\n", |b| shown(vmstat::parse(b))),
    growing("proc/stat", Growth::Columns, "cpu 1 2 3 4 5 6 7 8\nctxt 7\nbtime 9\nprocesses 5\n", |b| {
        shown(stat::parse(b))
    }),
];

/// Parsers of a single line, and of binary content.
const ONE_ROW: [&str; 6] =
    ["cgroup/cpu_max", "cgroup/cpuset", "cgroup/limit", "proc/file_nr", "proc/loadavg", "proc/pid_stat"];

/// A line that no file documents.
fn odd_row() -> impl Strategy<Value = Vec<u8>> {
    let seen = prop::sample::select(vec![
        "(unknown) rbytes=7 wbytes=9 rios=1 wios=1",
        "nvme0c0n1 rbytes=7 wbytes=9",
        "(unknown) Read 7",
        "8:32",
        "8:48 new.key=5 other",
        "259:1 259:2 new=7",
        "new_key 5",
        "new_key max",
        "new_key: 7 pages 8",
        "some_more avg10=0 total=9",
        "odd",
        " ",
    ]);
    prop_oneof![
        seen.prop_map(|row| row.as_bytes().to_vec()),
        "odd[a-z_ =.()-]{0,30}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>().prop_filter("one row", |b| *b != b'\n' && *b != b':'), 0..20).prop_map(
            |mut row| {
                row.insert(0, b'~');
                row
            }
        ),
    ]
}

fn with_rows(case: &ParserCase, odd: &[(Index, Vec<u8>)]) -> Vec<u8> {
    let mut rows: Vec<Vec<u8>> = case.good.lines().map(|row| row.as_bytes().to_vec()).collect();
    for (at, row) in odd {
        let at = case.headings + at.index(rows.len() - case.headings + 1);
        rows.insert(at, row.clone());
    }
    rows.into_iter().flat_map(|row| [row, vec![b'\n']].concat()).collect()
}

/// A word that no file documents.
fn odd_word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "new",
            "new=",
            "new=5",
            "new=max",
            "new.key=5",
            "cost.usage=7",
            "wait_usec=9",
            "new=a=b"
        ])
        .prop_map(str::to_owned),
        "new[!-9;-~]{0,12}",
    ]
}

fn with_words(case: &ParserCase, odd: &[(Index, Index, String)]) -> Vec<u8> {
    let mut rows: Vec<Vec<&str>> = case.good.lines().map(|row| row.split(' ').collect()).collect();
    for (row, at, word) in odd {
        let count = rows.len() - case.headings;
        let row = &mut rows[case.headings + row.index(count)];
        let (first, last) = match case.growth {
            Growth::None => return case.good.as_bytes().to_vec(),
            Growth::Keys => (1, row.len()),
            Growth::Columns => (row.len(), row.len()),
            Growth::OptionalFields => (6, row.iter().position(|word| *word == "-").expect("a mount has it")),
        };
        row.insert(first + at.index(last - first + 1), word);
    }
    rows.into_iter().flat_map(|row| (row.join(" ") + "\n").into_bytes()).collect()
}

proptest! {
    #[test]
    fn malformed_words_inside_rows_affect_only_their_own_value(
        odd in prop::collection::vec((any::<Index>(), any::<Index>(), odd_word()), 1..6)
    ) {
        for case in CASES.iter().filter(|case| case.growth != Growth::None) {
            let bytes = with_words(case, &odd);
            let expected = (case.parse)(case.good.as_bytes());
            let found = (case.parse)(&bytes);
            prop_assert_eq!(found, expected, "{}: {}", case.module, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn odd_rows_between_good_ones_cost_only_themselves(
        odd in prop::collection::vec((any::<Index>(), odd_row()), 1..6),
    ) {
        for case in CASES {
            let bytes = with_rows(case, &odd);
            let expected = (case.parse)(case.good.as_bytes());
            prop_assert_eq!(expected.1, None, "{}", case.module);
            let (value, error) = (case.parse)(&bytes);
            prop_assert_eq!(value, expected.0, "{}: {}", case.module, String::from_utf8_lossy(&bytes));
            // Lines of mounts and interfaces have no key: a line that starts like one and is invalid is an error, and
            // affects nothing else.
            let begins_alike = odd.iter().any(|(_, row)| row.contains(&b':') || text::digits(row).is_some());
            prop_assert!(error.is_none() || begins_alike, "{}: {error:?}", case.module);
        }
    }
}

#[test]
fn every_parser_of_rows_has_its_case() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernel");
    let mut missing = Vec::new();
    for room in ["cgroup", "proc"] {
        for entry in std::fs::read_dir(root.join(room)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let module = format!("{room}/{}", name.trim_end_matches(".rs"));
            let is_known = CASES.iter().any(|case| case.module == module) || ONE_ROW.contains(&module.as_str());
            if !is_known && name != "mod.rs" {
                missing.push(module);
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}
