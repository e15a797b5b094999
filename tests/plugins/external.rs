//! We run a plugin.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use allostat::devices::external::{ExternalPlugin, PluginTimeouts, find};
use allostat::devices::plugin::{DevicePlugin, PluginError, PluginFault, PluginReport, PluginReports, StopSignal};
use allostat::model::device::{DeviceGroup, DeviceReading};
use allostat::model::id::DeviceId;
use allostat::model::units::Timestamp;
use serde_json::{Map, Value};

use crate::common::{part, patience, test_dir, wait_for};

const TICK: Duration = Duration::from_millis(50);

/// So that a fault is reported in a test's time; on a busy machine Python takes its time to begin.
fn impatient() -> PluginTimeouts {
    PluginTimeouts {
        start: Duration::from_secs(20) * patience(),
        call: Duration::from_secs(5) * patience(),
        report: Duration::from_secs(20) * patience(),
        health: Duration::from_secs(60),
        grace: Duration::from_secs(2),
    }
}

/// A directory with the plugin, as a program that starts Python.
struct Made {
    dir: tempfile::TempDir,
}

impl Made {
    /// `None`: there is no Python with grpcio.
    fn new(fault: &str, tls: Option<&str>) -> Option<Made> {
        let python = part("python3")?;
        let dir = test_dir();
        fs::write(dir.path().join("plugin.py"), include_str!("plugin.py")).expect("our own directory");
        fs::write(dir.path().join("protocol.py"), include_str!("protocol.py")).expect("our own directory");
        let made = Made { dir };
        if let Some(curve) = tls {
            certificate(made.dir.path(), curve, "cert.pem", "key.pem")?;
            certificate(made.dir.path(), curve, "other.pem", "other-key.pem")?;
        }
        let (place, tls) = (made.dir.path().display(), tls.unwrap_or_default());
        let env = format!("FAULT='{fault}' TLS='{tls}' DIR='{place}'");
        script(&made.program(), &format!("export {env}\nexec '{}' '{place}/plugin.py'", python.display()));
        Some(made)
    }
    fn program(&self) -> PathBuf {
        self.dir.path().join("acme")
    }
    fn plugin(&self, change: impl FnOnce(&mut PluginTimeouts)) -> ExternalPlugin {
        let mut patience = impatient();
        change(&mut patience);
        ExternalPlugin::new("acme", self.program(), Map::new()).with_timeouts(patience)
    }
}

pub fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("our own directory");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("our own directory");
}

/// Signed by itself, as go-plugin makes them.
pub fn certificate(dir: &Path, curve: &str, certificate: &str, key: &str) -> Option<()> {
    let mut openssl = Command::new(part("openssl")?);
    openssl.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "30", "-subj", "/CN=localhost", "-pkeyopt"]);
    openssl.arg(format!("ec_paramgen_curve:{curve}")).args(["-addext", "subjectAltName=DNS:localhost"]);
    let output = openssl.args(["-keyout", key, "-out", certificate]).current_dir(dir).output().expect("it must run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

pub fn external(program: PathBuf) -> ExternalPlugin {
    ExternalPlugin::new("acme", program, Map::new()).with_timeouts(impatient())
}

/// A plugin that runs.
pub struct Running {
    plugin: Arc<ExternalPlugin>,
    reports: Receiver<PluginReport>,
    ends: Arc<StopSignal>,
    thread: JoinHandle<PluginError>,
}

impl Running {
    pub fn start(plugin: ExternalPlugin) -> Running {
        let (to, reports) = sync_channel(1024);
        let (ends, plugin) = (Arc::new(StopSignal::default()), Arc::new(plugin));
        let (reported, own) = (PluginReports::new(to, Arc::clone(&ends), TICK), Arc::clone(&plugin));
        // As small as the manager's.
        let thread =
            std::thread::Builder::new().stack_size(256 << 10).spawn(move || own.run(&reported)).expect("a thread");
        Running { plugin, reports, ends, thread }
    }
    #[track_caller]
    fn report(&self) -> PluginReport {
        match self.reports.recv_timeout(Duration::from_secs(30) * patience()) {
            Ok(report) => report,
            Err(error) => panic!("no report came: {error}"),
        }
    }
    #[track_caller]
    pub fn groups(&self) -> Vec<DeviceGroup> {
        loop {
            if let PluginReport::Groups(groups) = self.report() {
                return groups;
            }
        }
    }
    #[track_caller]
    pub fn reading(&self) -> DeviceReading {
        loop {
            if let PluginReport::Reading(reading) = self.report() {
                return *reading;
            }
        }
    }
    #[track_caller]
    fn fault(&self) -> PluginError {
        loop {
            if let PluginReport::Fault(error) = self.report() {
                return error;
            }
        }
    }
    /// The receiver is gone.
    pub fn stop(self) -> PluginError {
        self.ends.end();
        self.ended().0
    }
    /// Waits until it cannot go on; gives what it had reported before that.
    fn ended(self) -> (PluginError, Vec<PluginReport>) {
        let mut reports = Vec::new();
        loop {
            match self.reports.recv_timeout(Duration::from_secs(60) * patience()) {
                Ok(report) => reports.push(report),
                Err(RecvTimeoutError::Disconnected) => {
                    return (self.thread.join().expect("it must not panic"), reports);
                }
                Err(RecvTimeoutError::Timeout) => panic!("it goes on"),
            }
        }
    }
}

/// What ends a plugin with this fault, and what it reported before.
fn end_of(fault: &str) -> Option<(PluginError, Vec<PluginReport>)> {
    // One that is busy with half a million attributes answers nothing else meanwhile.
    let often = |p: &mut PluginTimeouts| p.health = Duration::from_millis(300);
    Some(
        Running::start(Made::new(fault, None)?.plugin(|p| {
            if fault == "ill" {
                often(p);
            }
            if fault == "half a million attributes" {
                // Python makes them for seconds, on a busy machine for a minute.
                p.report = Duration::from_secs(120) * patience();
            }
        }))
        .ended(),
    )
}

macro_rules! made {
    ($made:expr) => {
        match $made {
            Some(made) => made,
            None => skip_test!("no-python"),
        }
    };
}

/// How many processes were started with this directory in their arguments and still run.
pub fn left(dir: &Path) -> usize {
    started_with(&dir.display().to_string()).len()
}

/// Processes that have this in their arguments, and still run.
pub fn started_with(text: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc must be there").flatten();
    let with = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(text).then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    };
    processes.filter_map(with).collect()
}

fn sound(running: &Running) {
    let groups = running.groups();
    let [group] = groups.as_slice() else { panic!("{groups:?}") };
    assert_eq!(group.kind.to_string(), "acme/fpga/F1");
    let attributes: Vec<String> = group.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(attributes, ["bitstream=", "clock=1.5 GHz", "memory=16 GiB", "secure=false"]);
    let devices: Vec<_> = group.devices.iter().map(|d| (d.id.as_str(), d.unhealthy.as_deref())).collect();
    assert_eq!(devices, [("f-0", None), ("f-1", Some("too hot"))]);
    assert_eq!(group.devices[0].facts.pci_bus_id, "0000:3b:00.0");

    let reading = running.reading();
    assert_eq!((reading.device.as_str(), reading.up), ("f-0", true));
    assert!(reading.at >= Timestamp(1_700_000_000_000_000_000), "{:?}", reading.at);
    let mut stats = serde_json::to_value(&*reading.stats).expect("JSON");
    let count = stats["attributes"]["count"]["value"]["ratio"]["numerator"].take();
    assert!(count.is_u64(), "{count}");
    let expected = serde_json::json!({
        "attributes": {
            "count": {"value": {"ratio": {"numerator": null, "denominator": 0}}},
            "empty": {"value": {"text": ""}},
            "no": {"value": {"bool": false}},
            "none": {"description": "not read"},
            "zero": {"value": {"ratio": {"numerator": 0.0}}},
        },
        "nested": {"lane": {"attributes": {"errors": {"value": {"ratio": {"numerator": 1_u64 << 62}}}}}},
    });
    assert_eq!(stats, expected);

    let reserved = running.plugin.reserve(&[DeviceId::from("f-0"), DeviceId::from("f-1")]).expect("both are there");
    assert_eq!(reserved.env["ACME_VISIBLE_DEVICES"], "f-0,f-1");
    assert_eq!((reserved.nodes[0].host_path.as_str(), reserved.nodes[0].permissions.as_str()), ("/dev/null", "rw"));
    assert!(reserved.mounts[0].read_only && reserved.mounts[0].task_path == "/opt/acme");
    let unknown = running.plugin.reserve(&[DeviceId::from("gone")]).expect_err("it is not there");
    assert_eq!(unknown.fault, PluginFault::Failed);
    assert!(unknown.message.ends_with("failed with code 5: unknown device IDs: gone"), "{unknown}");
}

/// Promise (Device plugins): A plugin written for Nomad runs unchanged: groups, readings, reservations, settings by its
/// schema's defaults
#[test]
fn external_plugin_is_read_and_ends_on_request() {
    let made = made!(Made::new("", None));
    // One that had to be killed would go on for longer than `stop` waits.
    let running = Running::start(made.plugin(|p| p.grace = Duration::from_secs(3_600)));
    sound(&running);
    let plugin = Arc::clone(&running.plugin);
    assert_eq!(running.stop(), PluginError::stopped());
    assert_eq!(left(made.dir.path()), 0);
    let place = fs::read_to_string(made.dir.path().join("tmpdir")).unwrap();
    assert!(place.contains("/allostat-plugin-") && !Path::new(&place).exists(), "{place}");
    assert_eq!(plugin.reserve(&[DeviceId::from("f-0")]).unwrap_err().fault, PluginFault::Died);
}

#[test]
fn a_plugin_on_a_loopback_port_is_followed_too() {
    let made = made!(Made::new("tcp", None));
    let running = Running::start(made.plugin(|_| ()));
    sound(&running);
    assert_eq!(running.stop(), PluginError::stopped());
}

/// P-521 is what go-plugin makes.
///
/// Promise (Device plugins): Both sides of a connection trust only the one certificate that they were given, P-521
/// included
#[test]
fn both_sides_show_the_certificate_that_the_other_expects() {
    for curve in ["P-521", "P-256"] {
        let made = made!(Made::new("", Some(curve)));
        let running = Running::start(made.plugin(|_| ()));
        sound(&running);
        assert_eq!(running.stop(), PluginError::stopped());
    }
}

#[test]
fn a_plugin_that_shows_another_certificate_is_not_believed() {
    let made = made!(Made::new("other certificate", Some("P-521")));
    let (error, reports) = Running::start(made.plugin(|_| ())).ended();
    assert_eq!((error.fault, reports.len()), (PluginFault::Died, 0), "{error}");
    assert!(error.message.contains("invalid peer certificate: UnknownIssuer"), "{error}");
}

#[test]
fn child_processes_of_a_plugin_end_with_it() {
    let made = made!(Made::new("child", None));
    let running = Running::start(made.plugin(|_| ()));
    running.reading();
    wait_for("its child", Duration::from_secs(10) * patience(), || (left(made.dir.path()) == 2).then_some(()));
    running.stop();
    wait_for("both to be gone", Duration::from_secs(20) * patience(), || (left(made.dir.path()) == 0).then_some(()));
}

#[test]
fn change_is_reported_as_it_comes() {
    let made = made!(Made::new("changes", None));
    let running = Running::start(made.plugin(|_| ()));
    let health = |groups: &[DeviceGroup]| groups[0].devices[1].unhealthy.clone();
    assert_eq!(health(&running.groups()).as_deref(), Some("too hot"));
    assert_eq!(health(&running.groups()), None);
    running.stop();
}

/// Promise (Device plugins): A program that is no plugin, prints garbage or speaks another version is named, and
/// nothing of it is left
#[test]
fn program_that_is_no_plugin_is_named_and_ended() {
    let cases = [
        ("garbage", PluginFault::Protocol, "is not a handshake line"),
        ("version", PluginFault::Protocol, "Nomad plugin protocol version \"1\", expected 2"),
        ("no listener", PluginFault::Died, "cannot connect to unix|"),
        (
            "exits",
            PluginFault::Died,
            "the process ended before its handshake line; it ended with exit status: 4, last output: cannot find a \
             driver",
        ),
        ("driver", PluginFault::Protocol, "plugin type 2 is not a device plugin (3)"),
        ("api version", PluginFault::Protocol, "plugin supports API versions [\"v9.0.0\"], not v0.1.0"),
        ("needs config", PluginFault::Failed, "missing setting \"token\": the plugin's schema requires it"),
        ("config refused", PluginFault::Failed, "SetConfig failed with code 3: bad period"),
    ];
    for (fault, expected, message) in cases {
        let made = made!(Made::new(fault, None));
        let (error, reports) = Running::start(made.plugin(|_| ())).ended();
        assert_eq!((error.fault, reports.len()), (expected, 0), "{fault}: {error}");
        assert!(error.message.contains(message), "{fault}: {error}");
        assert_eq!(left(made.dir.path()), 0, "{fault}");
    }
}

#[test]
fn a_program_that_is_none_is_named() {
    let dir = test_dir();
    let file = dir.path().join("text");
    fs::write(&file, "no program").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    for (program, message) in [
        // As every shell does, it is taken for a script.
        (file, "it ended with exit status: 127"),
        (dir.path().join("none"), "No such file or directory"),
        ("/bin/true".into(), "the process ended before its handshake line; it ended with exit status: 0"),
    ] {
        let (error, _) = Running::start(ExternalPlugin::new("x", program, Map::new())).ended();
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn a_report_that_cannot_be_ends_the_plugin_and_names_the_field() {
    let cases = [
        ("nan", "device_group[0].attributes[\"clock\"].float_val is not finite"),
        ("duplicate ids", "device_group[0].devices[2].id lists \"f-0\" twice"),
        ("empty vendor", "device_group[0].vendor is empty"),
        ("many attributes", "device_group[0].attributes has more than 1000"),
        ("half a million attributes", "bytes; the limit is 4194304"),
        ("long strings", "bytes; the limit is 4194304"),
        ("no text", "cannot decode the response to"),
    ];
    for (fault, message) in cases {
        let (error, reports) = made!(end_of(fault));
        assert_eq!((error.fault, reports.len()), (PluginFault::Invalid, 0), "{fault}: {error}");
        assert!(error.message.contains(message), "{fault}: {error}");
    }
    let (error, _) = made!(end_of("deep stats"));
    assert!(error.message.contains("recursion limit reached"), "{error}");
    let (error, reports) = made!(end_of("stats nan"));
    let path = "groups[0].instance_stats[\"f-0\"].stats.attributes[\"zero\"].float_numerator_val is not finite";
    assert_eq!((error.fault, error.message.as_str()), (PluginFault::Invalid, path));
    assert!(matches!(reports[..], [PluginReport::Groups(_)]), "its devices were reported: {reports:?}");
}

#[test]
fn plugin_that_ends_or_fails_has_its_reason() {
    let cases = [
        ("fingerprint refused", 0, PluginFault::Failed, "Fingerprint failed with code 13: no driver: 100% gone"),
        ("fingerprint error", 1, PluginFault::Failed, "Fingerprint failed with code 13: the driver went away"),
        ("clean end", 1, PluginFault::Failed, "the plugin closed its device stream"),
        ("dies", 1, PluginFault::Died, "it ended with exit status: 3, last output: panic: out of luck"),
        ("ill", 1, PluginFault::Failed, "the plugin reports that it is unhealthy (status 2)"),
    ];
    for (fault, groups, expected, message) in cases {
        let (error, reports) = made!(end_of(fault));
        let listed = reports.iter().filter(|report| matches!(report, PluginReport::Groups(_))).count();
        assert_eq!((error.fault, listed), (expected, groups), "{fault}: {error}");
        assert!(error.message.contains(message), "{fault}: {error}");
    }
}

/// Promise (Device plugins): A plugin that hangs in any state is reported within its deadline, and killed with its
/// children
#[test]
fn plugin_that_hangs_is_reported_within_its_deadline_and_killed() {
    type Change = fn(&mut PluginTimeouts);
    let cases: [(&str, Change, &str); 3] = [
        ("hangs", |p| p.start = Duration::from_secs(1), "no handshake line within 1 s"),
        ("silent", |p| p.report = Duration::from_secs(1), "Fingerprint within 1 s"),
        ("stopped", |p| (p.call, p.health) = (Duration::from_secs(3), Duration::from_millis(300)), " within 3 s"),
    ];
    for (fault, change, message) in cases {
        let made = made!(Made::new(fault, None));
        let (error, _) = Running::start(made.plugin(change)).ended();
        assert_eq!(error.fault, PluginFault::Timeout, "{fault}: {error}");
        assert!(error.message.contains(message), "{fault}: {error}");
        assert_eq!(left(made.dir.path()), 0, "{fault}");
    }
    // One that says yes and stays: of all deadlines the grace alone is short enough for `stop`.
    let made = made!(Made::new("stays", None));
    let long = Duration::from_secs(3_600);
    let running = Running::start(made.plugin(|p| {
        *p =
            PluginTimeouts { start: p.start, call: long, report: long, health: long, grace: Duration::from_millis(300) }
    }));
    running.groups();
    assert_eq!(running.stop(), PluginError::stopped());
    assert_eq!(left(made.dir.path()), 0);
}

/// Promise (Device plugins): If readings stop, the devices stay and readings are retried
#[test]
fn interrupted_plugin_readings_are_removed_and_requested_again() {
    for (fault, message) in
        [("stats error", "Stats failed with code 13: busy"), ("stats end", "the plugin closed its stream of readings")]
    {
        let made = made!(Made::new(fault, None));
        let running = Running::start(made.plugin(|_| ()));
        let fault = running.fault();
        assert_eq!(fault.fault, PluginFault::Failed);
        assert!(fault.message.contains(message), "{fault}: {fault}");
        assert_eq!(running.reading().device.as_str(), "f-0");
        running.stop();
    }
    // One that has none says so once, and is not asked again: a second request would come two ticks later, and the
    // sixth health check behind the first request, with which this plugin ends, after twenty times as long.
    let made = made!(Made::new("no stats", None));
    let (error, reports) = Running::start(made.plugin(|p| p.health = TICK * 8)).ended();
    assert!(error.message.contains("unhealthy (status 2)"), "{error}");
    let is_fault = |report: &&PluginReport| matches!(report, PluginReport::Fault(_));
    assert_eq!(reports.iter().filter(is_fault).count(), 1, "{reports:?}");
    let first = reports.into_iter().find(|report| is_fault(&report));
    assert!(matches!(first, Some(PluginReport::Fault(error)) if error.fault == PluginFault::Protocol));
}

#[test]
fn readings_of_an_unlisted_device_are_dropped_and_reported_once() {
    let made = made!(Made::new("stranger", None));
    let running = Running::start(made.plugin(|_| ()));
    let fault = running.fault();
    assert_eq!(fault.message, "readings of 1 unlisted devices, first \"f-9\"");
    for _ in 0..5 {
        assert_eq!(running.reading().device.as_str(), "f-0");
    }
    running.stop();
}

#[test]
fn a_reservation_that_hangs_or_cannot_be_delays_nothing_else() {
    for call in [Duration::from_secs(3_600), Duration::from_secs(2)] {
        let made = made!(Made::new("reserve hangs", None));
        let running = Running::start(made.plugin(|p| p.call = call));
        running.groups();
        let plugin = Arc::clone(&running.plugin);
        let (sent, called) = sync_channel(1);
        let request = std::thread::spawn(move || {
            sent.send(()).unwrap();
            plugin.reserve(&[DeviceId::from("f-0")])
        });
        called.recv().unwrap();
        if call.as_secs() > 60 {
            (0..5).for_each(|_| drop(running.reading()));
            assert!(!request.is_finished(), "readings waited for the call");
            // What a plugin answers at its end is its own.
            running.stop();
            drop(request.join().unwrap());
        } else {
            assert_eq!(request.join().unwrap().unwrap_err().fault, PluginFault::Timeout);
            running.reading();
            running.stop();
        }
    }

    let made = made!(Made::new("reserve wrong", None));
    let running = Running::start(made.plugin(|_| ()));
    running.reading();
    let error = running.plugin.reserve(&[DeviceId::from("f-0")]).unwrap_err();
    let expected = (PluginFault::Invalid, "devices[0].permissions is not a combination of r, w and m");
    assert_eq!((error.fault, error.message.as_str()), expected);
    running.stop();
}

#[test]
fn the_settings_beside_a_program_reach_it() {
    let made = made!(Made::new("", None));
    let write = |value: Value| fs::write(made.dir.path().join("acme.json"), value.to_string()).unwrap();
    let run = || {
        let mut found = find(made.dir.path(), &[]);
        assert_eq!((found.plugins.len(), found.refused.len()), (1, 0));
        Running::start(found.plugins.remove(0).with_timeouts(impatient()))
    };
    // The plugin itself says which of the two it wants to see.
    write(serde_json::json!({"period": "5s", "ignored": ["f-7"]}));
    let running = run();
    running.groups();
    running.stop();
    write(serde_json::json!({"peroid": "5s"}));
    let (error, _) = run().ended();
    assert_eq!(error.message, "unknown setting \"peroid\": the plugin's schema does not have it");
}
