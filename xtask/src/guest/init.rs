//! What runs inside a guest, and the words in which it reports.
//!
//! ```text
//! @@BEGIN live 2.17     a suite, seconds since boot; then what its process prints
//! @@END live 0 93.40    its exit code, seconds since boot
//! @@SKIPS live          then lines of ALLOSTAT_SKIPS
//! @@DONE
//! ```

use super::{Guest, Job, Report, SelectedSuite, SuiteRun, System};

/// `/init` of a first root: loads the disk's driver, mounts the disk on `place`, and goes on with `rest`.
pub fn first(place: &str, rest: &str) -> String {
    format!(
        "#!/bin/busybox sh\n\
         /bin/busybox mount -t devtmpfs dev /dev\n\
         /bin/busybox mount -t proc proc /proc\n\
         while read -r module; do /bin/busybox insmod /modules/$module || echo \"cannot load $module\"; done < /modules/order\n\
         tries=0\n\
         while ! [ -b /dev/vda ] && [ $tries -lt 100 ]; do /bin/busybox sleep 0.1; tries=$((tries + 1)); done\n\
         /bin/busybox mount -t ext4 -o rw,noatime,prjquota /dev/vda {place} 2> /dev/null ||\n\
         /bin/busybox mount -t ext4 -o rw,noatime /dev/vda {place} || echo 'cannot mount the disk'\n\
         {rest}"
    )
}

/// The disk is the root from then on.
pub const SWITCH: &str = "/bin/busybox umount /proc\nexec /bin/busybox switch_root /root /init\n";

const MOUNT_V2: &str = "\
mount -t cgroup2 cgroup /sys/fs/cgroup
for controller in memory cpu io pids cpuset hugetlb; do echo +$controller > /sys/fs/cgroup/cgroup.subtree_control; done
";

const MOUNT_V1: &str = "\
mount -t tmpfs cgroup /sys/fs/cgroup
for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
  mkdir /sys/fs/cgroup/$controller
  mount -t cgroup -o $controller cgroup /sys/fs/cgroup/$controller
done
";

/// What runs the tests: `/init` on the disk, or under systemd a unit's program. Standard output and error of a test
/// binary are the second serial line, so that nothing of the kernel mixes in.
pub fn script(guest: &Guest, job: &Job) -> String {
    let begin = |mounts: &str| {
        format!(
            "export PATH=/bin HOME=/root\n\
             mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /tmp\n\
             mount -t tmpfs run /run\n\
             chmod 1777 /tmp; mkdir -p /dev/shm /dev/pts; mount -t tmpfs shm /dev/shm; mount -t devpts pts /dev/pts\n\
             ln -sf /proc/self/fd /dev/fd\n\
             {mounts}\
             hostname guest; ifconfig lo 127.0.0.1 up\n"
        )
    };
    let begin = match guest.system {
        System::V1 => begin(MOUNT_V1),
        System::V2 => begin(MOUNT_V2),
        System::Systemd => "export PATH=/usr/bin:/usr/sbin HOME=/root\n".to_owned(),
    };
    let name = guest.name;
    let variables: String = job.environment.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let mut script = format!(
        "#!/bin/busybox sh\n\
         # What is there already stays.\n\
         /bin/busybox --install -s /bin 2> /dev/null\n\
         {begin}\
         busybox stty -F /dev/ttyS1 raw\n\
         export ALLOSTAT_BIN=/allostat ALLOSTAT_WORKLOAD=/workload ALLOSTAT_TEST_DIR=/data ALLOSTAT_PARTS=/parts\n\
         export ALLOSTAT_PLACE={name} RUST_BACKTRACE=0{variables}\n\
         since_boot() {{ cut -d ' ' -f 1 /proc/uptime; }}\n\
         cd /data\n"
    );
    for SelectedSuite { suite, binary, names } in job.tests {
        let (binary, names) = (&binary.name, names.join(" "));
        script += &format!(
            "export ALLOSTAT_SKIPS=/tmp/skips-{suite}\n\
             echo \"@@BEGIN {suite} $(since_boot)\" > /dev/ttyS1\n\
             /tests/{binary} --test-threads=1 --exact {names} > /dev/ttyS1 2>&1 < /dev/null\n\
             echo \"@@END {suite} $? $(since_boot)\" > /dev/ttyS1\n\
             echo '@@SKIPS {suite}' > /dev/ttyS1\n\
             [ -f $ALLOSTAT_SKIPS ] && cat $ALLOSTAT_SKIPS > /dev/ttyS1\n"
        );
    }
    script + "echo '@@DONE' > /dev/ttyS1\nsync\nbusybox poweroff -f\n"
}

pub fn read_results(text: &str) -> Report {
    enum ConsoleSection {
        Nothing,
        Output,
        Skips(String),
    }
    let mut report = Report::default();
    let mut place = ConsoleSection::Nothing;
    for line in text.lines() {
        // A binary that ends in the middle of a line leaves its last words before the marker.
        let (words, marker) = line.find("@@").map_or((line, ""), |at| line.split_at(at));
        if let (ConsoleSection::Output, Some(ran), false) = (&place, report.ran.last_mut(), words.is_empty()) {
            ran.output += words;
            ran.output.push('\n');
        }
        let marked: Vec<&str> = marker.split(' ').collect();
        match marked.as_slice() {
            ["@@BEGIN", suite, since_boot] => {
                let began = since_boot.parse().unwrap_or(0.0);
                report.ran.push(SuiteRun { suite: (*suite).to_owned(), began, ..SuiteRun::default() });
                place = ConsoleSection::Output;
            }
            ["@@END", _, code, since_boot] => {
                if let Some(ran) = report.ran.last_mut() {
                    ran.code = code.parse().ok();
                    ran.seconds = since_boot.parse::<f64>().map_or(0.0, |ended| ended - ran.began);
                }
                place = ConsoleSection::Nothing;
            }
            ["@@SKIPS", suite] => place = ConsoleSection::Skips((*suite).to_owned()),
            ["@@DONE"] => report.finished = true,
            _ => {
                if let ConsoleSection::Skips(suite) = &place {
                    report.skips.push((suite.clone(), line.to_owned()));
                }
            }
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::cargo::TestBinary;
    use proptest::prelude::*;

    #[test]
    fn results_are_distinguished_by_binary() {
        let report = read_results(
            "noise\n@@BEGIN live 2.5\nrunning 1 test\ntest a ... ok\nhalf a line@@END live 0 4.0\n@@SKIPS live\na\tno-gpu\n\
             @@BEGIN places 4.1\nboom\n@@END places 101 4.2\n@@SKIPS places\n@@DONE\n",
        );
        assert!(report.finished);
        assert_eq!(report.ran.len(), 2);
        assert!((report.ran[0].seconds - 1.5).abs() < 1e-9);
        assert_eq!(report.ran[0].output, "running 1 test\ntest a ... ok\nhalf a line\n");
        assert_eq!((report.ran[0].code, report.ran[1].code), (Some(0), Some(101)));
        assert_eq!(report.skips, [("live".to_owned(), "a\tno-gpu".to_owned())]);
    }

    #[test]
    fn a_guest_that_died_has_not_finished() {
        let report = read_results("@@BEGIN live 1.0\ntest a ... ");
        assert_eq!((report.finished, report.ran[0].code), (false, None));
    }

    #[test]
    fn script_runs_each_suite_with_its_binary_place_and_variables() {
        let guest = super::super::GUESTS[0];
        let selected = |suite: &str, names: &[&str]| SelectedSuite {
            suite: suite.into(),
            binary: TestBinary { name: "cgroups".into(), path: PathBuf::new(), package: PathBuf::new() },
            names: names.iter().map(|n| (*n).into()).collect(),
        };
        let tests = [selected("live", &["live::a::b", "live::c"]), selected("places", &["places::d"])];
        let (allostat, logs) = (PathBuf::new(), PathBuf::new());
        let script = script(
            &guest,
            &Job {
                name: "v2-6.1",
                tests: &tests,
                environment: &[("ALLOSTAT_SIZE", "gate".to_owned())],
                limit: Duration::from_secs(1),
                allostat: &allostat,
                workload: &allostat,
                logs: &logs,
            },
        );
        for part in [
            "/tests/cgroups --test-threads=1 --exact live::a::b live::c >",
            "@@BEGIN places",
            "ALLOSTAT_PLACE=v2-6.1 RUST_BACKTRACE=0 ALLOSTAT_SIZE=gate\n",
            "cgroup2",
        ] {
            assert!(script.contains(part), "{part} is not in {script}");
        }
    }

    proptest! {
        #[test]
        fn no_results_panic(text in "(@@(BEGIN|END|SKIPS|DONE)|a| 0| |\n|\t)*") {
            read_results(&text);
        }
    }
}
