use proptest::prelude::*;

use super::*;
use crate::model::host::NodeIdentity;
use crate::model::id::BootId;
use crate::runner::settings::HostNetwork;
use crate::telemetry::metrics::Metrics;

/// What other programs have.
#[derive(Default)]
struct Programs(Mutex<BTreeSet<u16>>);

impl PortsInUse for Programs {
    fn is_used_at(&self, at: SocketAddr) -> bool {
        self.is_used(at.port())
    }
    fn is_used(&self, port: u16) -> bool {
        self.0.lock().unwrap().contains(&port)
    }
    fn user(&self, at: SocketAddr, _: Instant) -> Option<String> {
        self.is_used(at.port()).then(|| "nginx (PID 7)".to_owned())
    }
}

const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

fn keeper(first: u16, last: u16, programs: &[u16]) -> PortKeeper {
    let config = NetworkConfig { dynamic_ports: (first, last), ..NetworkConfig::default() };
    PortKeeper::new(config, Arc::new(Programs(Mutex::new(programs.iter().copied().collect()))), Metrics::new().ports)
}
fn holder(alloc: &str) -> PortHolder {
    PortHolder { alloc: AllocId::from(alloc), job: JobId::from(format!("job-of-{alloc}").as_str()) }
}
fn needed(label: &str, fixed: Option<u16>) -> NeededPort {
    let (label, to) = (label.to_owned(), PortTarget::Unset);
    NeededPort { label, task: None, fixed, to, host_ip: IP, ignore_collision: false }
}
fn reserve(
    keeper: &PortKeeper,
    holder: &PortHolder,
    needed: &[NeededPort],
    before: &[AllocPort],
) -> Result<Vec<AllocPort>, PortConflict> {
    keeper.reserve(holder, needed, before).map(|reservation| reservation.ports)
}
fn values(ports: &[AllocPort]) -> Vec<u16> {
    ports.iter().map(|port| port.value).collect()
}

#[test]
fn a_static_port_of_another_alloc_is_named_with_its_owner_and_nothing_is_reserved() {
    let keeper = keeper(20_000, 20_009, &[]);
    reserve(&keeper, &holder("a"), &[needed("http", Some(8080))], &[]).unwrap();
    let refused = reserve(&keeper, &holder("b"), &[needed("x", None), needed("web", Some(8080))], &[]).unwrap_err();
    assert_eq!(refused.to_string(), "port 8080 (web) is held by alloc a of job job-of-a");
    let requested = needed("web", Some(8080));
    assert_eq!(keeper.conflicts(&"other".into(), std::slice::from_ref(&requested)), [(requested, refused)]);
    assert_eq!(keeper.conflicts(&"job-of-a".into(), &[needed("web", Some(8080))]), [], "its own allocs end first");
    // All ten are there still.
    let needed_ports: Vec<_> = (0..10).map(|n| needed(&format!("p{n}"), None)).collect();
    assert_eq!(reserve(&keeper, &holder("c"), &needed_ports, &[]).unwrap().len(), 10);
    keeper.release(&"a".into());
    assert_eq!(values(&reserve(&keeper, &holder("b"), &[needed("web", Some(8080))], &[]).unwrap()), [8080]);
}

#[test]
fn a_port_of_another_program_is_passed_over_or_named() {
    let keeper = keeper(20_000, 20_003, &[20_000, 20_001, 20_003, 80]);
    assert_eq!(values(&reserve(&keeper, &holder("a"), &[needed("http", None)], &[]).unwrap()), [20_002]);
    let refused = reserve(&keeper, &holder("b"), &[needed("http", None)], &[]).unwrap_err();
    assert_eq!(refused.to_string(), "no dynamic port is free for http: each from 20000 to 20003 is held or in use");
    let refused = reserve(&keeper, &holder("b"), &[needed("http", Some(80))], &[]).unwrap_err();
    assert_eq!(refused.to_string(), "port 80 (http) is in use by another program");
    let named = |user: &str| refused.clone().with_user(Some(user.to_owned()));
    assert_eq!(named("nginx (PID 7)").to_string(), "port 80 (http) is in use by nginx (PID 7)");
    // A name that was not found this time is no news.
    assert!(refused.differs_from(None) && named("a").differs_from(Some(&refused)));
    assert!(named("b").differs_from(Some(&named("a"))) && !named("a").differs_from(Some(&named("a"))));
    assert!(!refused.differs_from(Some(&named("a"))) && !refused.differs_from(Some(&refused)));
}

#[test]
fn orphaned_reservation_releases_only_the_ports_that_it_added() {
    let keeper = keeper(20_000, 20_009, &[]);
    let (a, needed_ports) = (holder("a"), [needed("http", None)]);
    let reserve = || keeper.reserve(&a, &needed_ports, &[]).unwrap();
    let is_held = || keeper.held_by(&a.alloc).is_some();
    // Nothing else has them.
    keeper.take_back(&a.alloc, &reserve());
    assert!(!is_held());
    // The alloc had them before.
    let (first, late) = (reserve(), reserve());
    assert_eq!(first.ports, late.ports);
    keeper.take_back(&a.alloc, &late);
    assert!(is_held(), "the later one did not add them");
    keeper.take_back(&a.alloc, &first);
    assert!(is_held(), "the later one has returned them to the alloc");
    // The alloc was stopped, and got ports again.
    keeper.release(&a.alloc);
    let orphan = reserve();
    keeper.release(&a.alloc);
    let next = reserve();
    keeper.take_back(&a.alloc, &orphan);
    assert!(is_held(), "they are of the next one");
    keeper.take_back(&a.alloc, &next);
    assert!(!is_held());
    // Only while one reservation owns them, whatever became of the ports.
    let one = reserve();
    let taken = [TakenPort { port: one.ports[0].clone(), user: None }];
    let after = exchanged(&keeper, &needed_ports, &taken).unwrap().0;
    assert_ne!(after, one.ports);
    keeper.take_back(&a.alloc, &one);
    assert!(!is_held());
}

#[test]
fn a_static_port_is_of_its_address() {
    let keeper = keeper(20_000, 20_000, &[]);
    let at = |ip: [u8; 4]| NeededPort { host_ip: ip.into(), ..needed("dns", Some(53)) };
    reserve(&keeper, &holder("a"), &[at([10, 0, 0, 7])], &[]).unwrap();
    reserve(&keeper, &holder("b"), &[at([127, 0, 0, 1])], &[]).unwrap();
    assert!(reserve(&keeper, &holder("c"), &[at([0, 0, 0, 0])], &[]).is_err());
    let shared = NeededPort { ignore_collision: true, ..at([10, 0, 0, 7]) };
    reserve(&keeper, &holder("d"), &[shared], &[]).unwrap();
    keeper.release(&"a".into());
    assert!(reserve(&keeper, &holder("e"), &[at([10, 0, 0, 7])], &[]).is_err(), "d has it still");
}

#[test]
fn a_static_port_within_the_range_is_no_dynamic_one_of_the_same_alloc() {
    let keeper = keeper(20_000, 20_001, &[]);
    let ports = reserve(&keeper, &holder("a"), &[needed("any", None), needed("that", Some(20_000))], &[]).unwrap();
    assert_eq!(values(&ports), [20_001, 20_000]);
}

#[test]
fn port_targets_follow_the_job() {
    let keeper = keeper(20_000, 20_000, &[]);
    let needed_ports = [
        NeededPort { to: PortTarget::Same, ..needed("same", None) },
        NeededPort { to: PortTarget::Port(80), ..needed("http", Some(8080)) },
        needed("none", Some(9090)),
    ];
    let ports = reserve(&keeper, &holder("a"), &needed_ports, &[]).unwrap();
    assert_eq!(ports.iter().map(|port| port.to).collect::<Vec<_>>(), [20_000, 80, 0]);
}

#[test]
fn earlier_ports_are_reserved_again_if_free() {
    let keeper = keeper(20_000, 29_999, &[]);
    let needed_ports = [needed("a", None), needed("b", None)];
    let first = reserve(&keeper, &holder("x"), &needed_ports, &[]).unwrap();
    assert_eq!(reserve(&keeper, &holder("x"), &needed_ports, &[]).unwrap(), first, "held already");
    keeper.release(&"x".into());
    keeper.hold(&holder("y"), &first[..1]).unwrap();
    let again = reserve(&keeper, &holder("x"), &needed_ports, &first).unwrap();
    assert_ne!(again[0].value, first[0].value);
    assert_eq!(again[1].value, first[1].value);
}

#[test]
fn host_networks_are_addresses_and_an_unknown_one_is_named() {
    let host_networks = vec![HostNetwork::parse("lan=192.168.1.10").unwrap()];
    let config = NetworkConfig { host_networks, ..NetworkConfig::default() };
    let keeper = PortKeeper::new(config, Arc::new(Programs::default()), Metrics::new().ports);
    let known = Attributes::from([("unique.network.ip-address".to_owned(), "10.0.0.7".into())]);
    assert_eq!(keeper.address(None, &known), Some(IP));
    assert_eq!(keeper.address(None, &Attributes::new()), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_eq!(keeper.address(Some("lan"), &known), Some([192, 168, 1, 10].into()));
    assert_eq!(keeper.address(Some("wan"), &known), None);
    assert_eq!(keeper.networks(), "default, lan");
    // A name, or what the node has for a reference.
    let meta =
        [("net", "lan"), ("own", "default"), ("odd", "wan")].map(|(key, name)| (key.to_owned(), name.to_owned()));
    let node = NodeInfo {
        identity: NodeIdentity { meta: meta.into(), ..NodeIdentity::default() },
        hostname: String::new(),
        kernel: String::new(),
        boot_id: BootId(String::new()),
        booted_at: None,
        cpus: 1,
        memory_bytes: None,
        cgroup_mode: String::new(),
        capabilities: Vec::new(),
    };
    let at = |network: &str| {
        let port = format!("network {{\nport \"http\" {{\nhost_network = \"{network}\"\n}}\n}}");
        let task = "task \"t\" {\ndriver = \"mock\"\n}";
        let text = format!("job \"j\" {{\ngroup \"g\" {{\n{port}\n{task}\n}}\n}}\n");
        let job = crate::jobspec::parse("x.hcl", &text).unwrap().job;
        keeper
            .needed_ports(&job.groups[0], &node, &known)
            .map(|needed| needed[0].host_ip)
            .map_err(|unknown| unknown.name)
    };
    assert_eq!(at("lan"), Ok([192, 168, 1, 10].into()));
    assert_eq!(at("${meta.net}"), Ok([192, 168, 1, 10].into()));
    assert_eq!(at("${meta.own}"), Ok(IP));
    assert_eq!(at("${meta.odd}"), Err("wan".to_owned()));
    assert_eq!(at("${meta.none}"), Err("${meta.none}".to_owned()));
    for wrong in ["lan", "=1.2.3.4", "default=1.2.3.4", "a b=1.2.3.4", "lan=eth0"] {
        HostNetwork::parse(wrong).unwrap_err();
    }
}

#[derive(Debug, Clone)]
enum PortStep {
    Reserve(u8, Vec<Option<u16>>),
    Release(u8),
    /// The agent restarts: what is on record is held again.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<PortStep>> {
    let port = prop_oneof![3 => Just(None), 1 => (100u16..110).prop_map(Some)];
    let step = prop_oneof![
        4 => (0u8..12, proptest::collection::vec(port, 1..5)).prop_map(|(who, ports)| PortStep::Reserve(who, ports)),
        2 => (0u8..12).prop_map(PortStep::Release),
        1 => Just(PortStep::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever happens, no port is of two allocs, none is of a program, and what was released can be had.
    ///
    /// Promise (Ports): No port is held by two allocs, whatever is reserved, released and restarted; 1,000 dynamic
    /// ports are 1,000 ports
    #[test]
    fn no_port_is_held_by_two(steps in steps()) {
        let programs = [1_003, 1_004, 105];
        let mut keeper = keeper(1_000, 1_015, &programs);
        let mut records: BTreeMap<u8, Vec<AllocPort>> = BTreeMap::new();
        for step in steps {
            match step {
                PortStep::Reserve(who, mut requested) => {
                    let mut seen = BTreeSet::new();
                    requested.retain(|port| port.is_none_or(|port| seen.insert(port)));
                    let numbered = requested.iter().enumerate();
                    let needed_ports: Vec<_> = numbered.map(|(n, port)| needed(&n.to_string(), *port)).collect();
                    let taken: BTreeSet<u16> = records.values().flat_map(|ports| values(ports)).collect();
                    match reserve(&keeper, &holder(&who.to_string()), &needed_ports, &[]) {
                        Ok(ports) => {
                            records.entry(who).or_insert(ports);
                        }
                        Err(PortConflict::Exhausted { .. }) => {
                            let free = (1_000..=1_015).filter(|port| !taken.contains(port) && !programs.contains(port));
                            prop_assert!(free.count() < requested.iter().filter(|port| port.is_none()).count());
                        }
                        Err(PortConflict::Alloc { port, .. }) => prop_assert!(taken.contains(&port)),
                        Err(PortConflict::Program { at, .. }) => prop_assert!(programs.contains(&at.port())),
                    }
                }
                PortStep::Release(who) => {
                    records.remove(&who);
                    keeper.release(&AllocId::from(who.to_string().as_str()));
                }
                PortStep::Restart => {
                    keeper = self::keeper(1_000, 1_015, &programs);
                    for (who, ports) in &records {
                        prop_assert_eq!(keeper.hold(&holder(&who.to_string()), ports), Ok(()));
                    }
                }
            }
            let all: Vec<u16> = records.values().flat_map(|ports| values(ports)).collect();
            let apart: BTreeSet<u16> = all.iter().copied().collect();
            prop_assert_eq!(all.len(), apart.len());
            prop_assert!(programs.iter().all(|port| !apart.contains(port)));
        }
    }
}

#[test]
fn held_ports_are_counted_by_range_until_they_are_released() {
    let metrics = Metrics::new();
    let config = NetworkConfig { dynamic_ports: (20_000, 20_009), ..NetworkConfig::default() };
    let keeper = PortKeeper::new(config, Arc::new(Programs::default()), metrics.ports.clone());
    let counted = || {
        let values = |name: &str| {
            let families = metrics.gather();
            let family = families.iter().find(|family| family.name() == name).expect("it is registered");
            family.get_metric().iter().map(|one| one.get_gauge().get_value()).collect::<Vec<_>>()
        };
        (values("allostat_ports_held"), values("allostat_ports_dynamic"))
    };
    assert_eq!(counted(), (vec![0.0, 0.0], vec![10.0]));
    reserve(&keeper, &holder("a"), &[needed("http", Some(8080)), needed("x", None), needed("y", None)], &[]).unwrap();
    reserve(&keeper, &holder("b"), &[needed("http", Some(8080))], &[]).unwrap_err();
    let before = AllocPort { label: "z".to_owned(), value: 20_009, to: 0, host_ip: IP, task: None };
    let _ = keeper.hold(&holder("c"), &[before]);
    assert!(counted().0[0] >= 2.0 && counted().0[1] == 1.0, "{:?}", counted());
    for alloc in ["a", "a", "c"] {
        keeper.release(&alloc.into());
    }
    assert_eq!(counted().0, [0.0, 0.0]);
}

/// The ports that programs took, with their names.
async fn taken_by_name(keeper: &Arc<PortKeeper>, needed: &[NeededPort]) -> Vec<TakenPort> {
    let taken = keeper.taken(&"a".into(), needed);
    let users = keeper.programs(taken.iter().map(TakenPort::at).collect()).await;
    taken.into_iter().zip(users).map(|(port, user)| port.with_user(user)).collect()
}

/// Without another alloc in between.
fn exchanged(keeper: &PortKeeper, needed: &[NeededPort], taken: &[TakenPort]) -> Option<(Vec<AllocPort>, String)> {
    let found = keeper.replacements(&holder("a"), needed, taken, &PortsHeldMeanwhile::default());
    keeper.exchange(&holder("a"), needed, &found).expect("no other alloc gets them")
}

#[tokio::test(start_paused = true)]
async fn exchange_replaces_a_dynamic_port_that_a_program_took_and_names_a_static_one() {
    let config = NetworkConfig { dynamic_ports: (20_000, 20_003), ..NetworkConfig::default() };
    let programs = Arc::new(Programs::default());
    let keeper = Arc::new(PortKeeper::new(config, Arc::clone(&programs) as _, Metrics::new().ports));
    let needed_ports =
        [needed("admin", Some(9901)), NeededPort { to: PortTarget::Same, ..needed("http", None) }, needed("x", None)];
    let before = reserve(&keeper, &holder("a"), &needed_ports, &[]).unwrap();
    assert_eq!(keeper.taken(&"a".into(), &needed_ports), [], "none was taken");

    programs.0.lock().unwrap().extend([9901, before[1].value]);
    let taken = taken_by_name(&keeper, &needed_ports).await;
    let (after, text) = exchanged(&keeper, &needed_ports, &taken).unwrap();
    let new = after[1].value;
    assert!((20_000..=20_003).contains(&new) && new != before[1].value && new != before[2].value, "{after:?}");
    assert_eq!((&after[0], &after[2], after[1].to), (&before[0], &before[2], new));
    let old = before[1].value;
    let expected = format!(
        "port 9901 (admin) is in use by nginx (PID 7); \
         port {old} (http) is in use by nginx (PID 7); the alloc has port {new} instead"
    );
    assert_eq!(text, expected);
    assert_eq!(keeper.held_by(&"a".into()).unwrap(), after, "these are held now");

    assert_eq!(
        exchanged(&keeper, &needed_ports, &taken[1..]),
        Some((after.clone(), String::new())),
        "it has other ports now"
    );

    // None is left: the alloc keeps its own.
    programs.0.lock().unwrap().extend(20_000..=20_003);
    let taken = taken_by_name(&keeper, &needed_ports).await;
    assert_eq!(taken.len(), 3);
    let (same, text) = exchanged(&keeper, &needed_ports, &taken).unwrap();
    assert!(same == after && text.contains("no dynamic port is free"), "{text}");
    keeper.release(&"a".into());
    assert_eq!(exchanged(&keeper, &needed_ports, &taken), None, "it holds none");
    programs.0.lock().unwrap().clear();
    let all: Vec<_> = (0..4).map(|n| needed(&format!("p{n}"), None)).collect();
    assert_eq!(reserve(&keeper, &holder("b"), &all, &[]).unwrap().len(), 4, "none is lost");
}

#[tokio::test(start_paused = true)]
async fn port_exchange_names_the_programs_of_a_few_ports_and_counts_the_rest() {
    let config = NetworkConfig { dynamic_ports: (20_000, 20_099), ..NetworkConfig::default() };
    let programs = Arc::new(Programs::default());
    let keeper = Arc::new(PortKeeper::new(config, Arc::clone(&programs) as _, Metrics::new().ports));
    let needed_ports: Vec<_> = (0..20).map(|n| needed(&format!("p{n}"), None)).collect();
    let before = reserve(&keeper, &holder("a"), &needed_ports, &[]).unwrap();
    programs.0.lock().unwrap().extend(values(&before));
    let taken = taken_by_name(&keeper, &needed_ports).await;
    let by_name = taken.iter().filter(|taken| taken.user.is_some()).count();
    assert_eq!((taken.len(), by_name), (20, 3));
    let (after, text) = exchanged(&keeper, &needed_ports, &taken).unwrap();
    assert!(text.ends_with("; and 17 more") && text.matches("instead").count() == 3, "{text}");
    assert!(values(&after).iter().all(|port| !values(&before).contains(port)), "{after:?}");
}

/// Counts tests of ports, and checks the locks of the keeper during each of them and during look-ups of programs.
#[derive(Default)]
struct ObservedPorts {
    keeper: std::sync::OnceLock<std::sync::Weak<PortKeeper>>,
    used: Mutex<BTreeSet<u16>>,
    tests: std::sync::atomic::AtomicUsize,
    names: std::sync::atomic::AtomicUsize,
    /// The next free port that is tested goes to another alloc during the test.
    is_racing: std::sync::atomic::AtomicBool,
}

impl ObservedPorts {
    fn keeper(self: &Arc<ObservedPorts>, first: u16, last: u16) -> Arc<PortKeeper> {
        let config = NetworkConfig { dynamic_ports: (first, last), ..NetworkConfig::default() };
        let keeper = Arc::new(PortKeeper::new(config, Arc::clone(self) as _, Metrics::new().ports));
        self.keeper.set(Arc::downgrade(&keeper)).expect("once");
        keeper
    }
    fn tests(&self) -> usize {
        self.tests.swap(0, std::sync::atomic::Ordering::Relaxed)
    }
    fn race(&self) {
        self.is_racing.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl PortsInUse for ObservedPorts {
    fn is_used_at(&self, at: SocketAddr) -> bool {
        self.is_used(at.port())
    }
    fn user(&self, at: SocketAddr, _: Instant) -> Option<String> {
        let keeper = self.keeper.get().and_then(std::sync::Weak::upgrade).expect("it is there");
        assert!(keeper.held.try_lock().is_ok() && keeper.testing.try_lock().is_ok(), "no other alloc waits for a name");
        self.names.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.used.lock().unwrap().contains(&at.port()).then(|| "nginx (PID 7)".to_owned())
    }
    fn is_used(&self, port: u16) -> bool {
        self.tests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let keeper = self.keeper.get().and_then(std::sync::Weak::upgrade).expect("it is there");
        assert!(keeper.held.try_lock().is_ok(), "a test of port {port} runs under the lock of all allocs");
        assert!(keeper.testing.try_lock().is_err(), "a test of port {port} may meet the sockets of another one");
        let is_used = self.used.lock().unwrap().contains(&port);
        if !is_used && self.is_racing.swap(false, std::sync::atomic::Ordering::Relaxed) {
            let got = AllocPort { label: "x".to_owned(), value: port, to: 0, host_ip: IP, task: None };
            keeper.hold(&holder("racer"), &[got]).expect("it is free");
        }
        is_used
    }
}

#[tokio::test(start_paused = true)]
async fn tests_of_ports_hold_no_lock_and_an_exhausted_range_is_searched_once() {
    let tested = Arc::new(ObservedPorts::default());
    let keeper = tested.keeper(20_000, 20_099);
    let needed_ports = [needed("admin", Some(9901)), needed("a", None), needed("b", None), needed("c", None)];
    reserve(&keeper, &holder("a"), &needed_ports, &[]).unwrap();
    tested.used.lock().unwrap().extend(20_000..20_100);
    tested.tests();
    let taken = keeper.taken(&"a".into(), &needed_ports);
    assert_eq!((taken.len(), tested.tests() > 0), (3, true));
    let names = || tested.names.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(names(), 0, "no program was looked up");
    assert_eq!(taken_by_name(&keeper, &needed_ports).await.len(), 3);
    assert_eq!((names(), tested.tests() > 0), (3, true));
    let found = keeper.replacements(&holder("a"), &needed_ports, &taken, &PortsHeldMeanwhile::default());
    assert_eq!(tested.tests(), 97, "the ports of the range that no alloc holds");
    let (_, text) = keeper.exchange(&holder("a"), &needed_ports, &found).unwrap().unwrap();
    assert_eq!((text.matches("no dynamic port is free").count(), tested.tests()), (3, 0));
    let refused = reserve(&keeper, &holder("b"), &[needed("web", None), needed("other", None)], &[]).unwrap_err();
    assert!(refused.to_string().starts_with("no dynamic port is free for web: each from 20000 to 20099"));
    tested.used.lock().unwrap().insert(8080);
    assert_eq!(keeper.conflicts(&"b".into(), &[needed("web", Some(8080)), needed("admin", Some(9901))]).len(), 2);
    assert!(reserve(&keeper, &holder("b"), &[needed("web", Some(8080))], &[]).is_err());
    assert_eq!(names(), 3, "a search looks up no program");
}

#[test]
fn port_that_another_alloc_gets_during_the_search_is_not_given_twice() {
    let tested = Arc::new(ObservedPorts::default());
    let keeper = tested.keeper(20_000, 20_002);
    let needed_ports = [needed("http", None)];
    tested.race();
    let first = values(&reserve(&keeper, &holder("a"), &needed_ports, &[]).unwrap())[0];
    let racer = values(&keeper.held_by(&"racer".into()).unwrap())[0];
    assert_ne!(first, racer);

    keeper.release(&"racer".into());
    tested.used.lock().unwrap().insert(first);
    let taken = keeper.taken(&"a".into(), &needed_ports);
    tested.race();
    let found = keeper.replacements(&holder("a"), &needed_ports, &taken, &PortsHeldMeanwhile::default());
    let racer = values(&keeper.held_by(&"racer".into()).unwrap())[0];
    let meanwhile = keeper.exchange(&holder("a"), &needed_ports, &found).unwrap_err();
    assert_eq!(meanwhile, PortsHeldMeanwhile([racer].into()));
    assert_eq!(values(&keeper.held_by(&"a".into()).unwrap()), [first], "it keeps its own meanwhile");
    let found = keeper.replacements(&holder("a"), &needed_ports, &taken, &meanwhile);
    let (after, _) = keeper.exchange(&holder("a"), &needed_ports, &found).unwrap().unwrap();
    assert!(![first, racer].contains(&after[0].value), "{after:?}");

    // A static port that another alloc got meanwhile is its conflict.
    keeper.release(&"racer".into());
    tested.race();
    let refused = reserve(&keeper, &holder("b"), &[needed("web", Some(8080))], &[]).unwrap_err();
    assert_eq!(refused.to_string(), "port 8080 (web) is held by alloc racer of job job-of-racer");
}
