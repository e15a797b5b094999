use super::*;

fn detected(id: &str) -> Detected {
    Detected { id: id.into(), healthy: true, ..Detected::default() }
}

fn fine() -> Group {
    let fact = Fact { value: Some(FactValue::Int(16)), unit: "GiB".into() };
    Group {
        vendor: "acme".into(),
        device_type: "fpga".into(),
        device_name: "F1".into(),
        devices: vec![detected("a"), detected("b")],
        attributes: [("memory".to_owned(), fact)].into(),
    }
}

fn refused(change: impl FnOnce(&mut Group)) -> String {
    let mut wrong = fine();
    wrong.device_name = "F2".into();
    wrong.devices = vec![detected("c")];
    change(&mut wrong);
    groups(FingerprintAnswer { device_group: vec![fine(), wrong] }).unwrap_err().to_string()
}

fn fact(group: &mut Group, value: Option<FactValue>, unit: &str) {
    group.attributes.insert("x".into(), Fact { value, unit: unit.into() });
}

#[test]
fn a_sound_report_becomes_groups_whole() {
    let mut reported = fine();
    reported.devices[1] = Detected {
        id: "b".into(),
        healthy: false,
        health_description: "too hot".into(),
        hw_locality: Some(super::super::super::protocol::messages::Locality { pci_bus_id: "0000:3b:00.0".into() }),
    };
    fact(&mut reported, Some(FactValue::Bool(false)), "");
    let groups = groups(FingerprintAnswer { device_group: vec![reported] }).unwrap();
    assert_eq!(groups[0].kind.to_string(), "acme/fpga/F1");
    assert_eq!(groups[0].attributes["memory"].to_string(), "16 GiB");
    assert_eq!(groups[0].attributes["x"], Attribute::Bool(false));
    let [well, ill] = groups[0].devices.as_slice() else { panic!("{groups:?}") };
    assert_eq!((well.id.as_str(), &well.unhealthy), ("a", &None));
    assert_eq!(ill.unhealthy.as_deref(), Some("too hot"));
    assert_eq!(ill.facts.pci_bus_id, "0000:3b:00.0");
}

#[test]
fn no_devices_at_all_is_a_report_too() {
    assert_eq!(groups(FingerprintAnswer::default()).unwrap(), []);
}

#[test]
fn device_report_with_one_wrong_field_is_refused_by_name() {
    assert_eq!(refused(|g| g.vendor.clear()), "device_group[1].vendor is empty");
    assert_eq!(refused(|g| g.device_type.clear()), "device_group[1].device_type is empty");
    assert_eq!(refused(|g| g.device_name.clear()), "device_group[1].device_name is empty");
    assert_eq!(refused(|g| g.device_name = "F1".into()), "device_group[1] lists acme/fpga/F1 twice");
    assert_eq!(refused(|g| g.devices.push(detected(""))), "device_group[1].devices[1].id is empty");
    assert_eq!(refused(|g| g.devices.push(detected("c"))), "device_group[1].devices[1].id lists \"c\" twice");
    assert_eq!(refused(|g| g.devices.push(detected("a"))), "device_group[1].devices[1].id lists \"a\" twice");
    let float = |float| move |g: &mut Group| fact(g, Some(FactValue::Float(float)), "");
    assert_eq!(refused(float(f64::NAN)), "device_group[1].attributes[\"x\"].float_val is not finite");
    assert_eq!(refused(float(f64::INFINITY)), "device_group[1].attributes[\"x\"].float_val is not finite");
    assert_eq!(refused(|g| fact(g, None, "")), "device_group[1].attributes[\"x\"].value is missing");
    let text = FactValue::Text("4".into());
    let unit = "device_group[1].attributes[\"x\"].unit is set, but the value is not a number";
    assert_eq!(refused(|g| fact(g, Some(text), "GiB")), unit);
}

#[test]
fn device_report_above_a_limit_is_refused_by_name() {
    let many = |n: usize| (0..n).map(|n| detected(&format!("d{n}"))).collect::<Vec<_>>();
    assert_eq!(refused(|g| g.devices = many(10_000)), "device_group[1].devices has more than 10000");
    let facts =
        |n: usize| (0..n).map(|n| (n.to_string(), Fact { value: Some(FactValue::Bool(true)), unit: String::new() }));
    assert_eq!(refused(|g| g.attributes = facts(1_001).collect()), "device_group[1].attributes has more than 1000");
    let long = "x".repeat(5_000);
    assert_eq!(refused(|g| g.vendor = long.clone()), "device_group[1].vendor has 5000 bytes, more than 200");
    let steers = "device_group[1].device_name has a control or bidirectional character";
    assert_eq!(refused(|g| g.device_name = "T4\u{1b}[2J".to_owned()), steers);
    let text = FactValue::Text(long);
    let path = "device_group[1].attributes[\"x\"].string_val has 5000 bytes, more than 4096";
    assert_eq!(refused(|g| fact(g, Some(text), "")), path);
}

fn read(stat: Stat) -> Result<StatValue, String> {
    let stats = Stats { attributes: [("t".to_owned(), stat)].into(), ..Stats::default() };
    let reported = InstanceStats { stats: Some(stats), ..InstanceStats::default() };
    let group = GroupStats { instance_stats: [("a".to_owned(), reported)].into(), ..GroupStats::default() };
    let (readings, _) = readings(StatsAnswer { groups: vec![group] }, &[DeviceId::from("a")].into(), Timestamp(7))
        .map_err(|e| e.to_string())?;
    assert!(readings[0].up && readings[0].at == Timestamp(7) && readings[0].processes.is_none());
    Ok(readings[0].stats.attributes["t"].clone())
}

/// Promise (Device plugins): Unset, 0, false and "" of a plugin stay four different values
#[test]
fn unset_zero_false_and_empty_come_through_as_four_things() {
    let value = |stat| read(stat).unwrap().value;
    assert_eq!(value(Stat::default()), None);
    assert_eq!(value(Stat { int_numerator: Some(0), ..Stat::default() }), Some(StatReading::number(0i64, None)));
    assert_eq!(value(Stat { bool: Some(false), ..Stat::default() }), Some(StatReading::Bool(false)));
    assert_eq!(value(Stat { text: Some(String::new()), ..Stat::default() }), Some(StatReading::Text(String::new())));
    let of = Stat {
        float_numerator: Some(1.5),
        int_denominator: Some(0),
        unit: "°F".into(),
        desc: "d".into(),
        ..Stat::default()
    };
    let unit = Some(UnitName::Opaque("°F".into()));
    let ratio = StatReading::Ratio { numerator: Number::float(1.5).unwrap(), denominator: Some(0i64.into()), unit };
    assert_eq!(read(of).unwrap(), StatValue { value: Some(ratio), description: Some("d".into()) });
}

#[test]
fn a_value_that_cannot_be_is_refused_with_its_path() {
    let refused = |stat| read(stat).unwrap_err();
    let path = "groups[0].instance_stats[\"a\"].stats.attributes[\"t\"]";
    let nan = Stat { float_numerator: Some(f64::NAN), ..Stat::default() };
    assert_eq!(refused(nan), format!("{path}.float_numerator_val is not finite"));
    let both = Stat { float_numerator: Some(1.0), int_numerator: Some(1), ..Stat::default() };
    assert_eq!(refused(both), format!("{path}.int_numerator_val is set together with float_numerator_val"));
    let alone = Stat { int_denominator: Some(1), ..Stat::default() };
    assert_eq!(refused(alone), format!("{path}.numerator_val is missing although a denominator is set"));
    let kinds = Stat { bool: Some(true), text: Some("x".into()), ..Stat::default() };
    assert_eq!(refused(kinds), format!("{path}.value has two types"));
}

#[test]
fn times_are_those_of_the_plugin_where_it_gives_one() {
    let moment = |seconds, nanos| moment(Moment { seconds, nanos });
    assert_eq!(moment(2, 3), Some(Timestamp(2_000_000_003)));
    assert_eq!((moment(-1, 0), moment(0, -1), moment(0, 1_000_000_000), moment(i64::MAX, 0)), (None, None, None, None));
}

#[test]
fn device_without_report_has_no_reading_and_is_named() {
    let reported = |id: &str| (id.to_owned(), InstanceStats::default());
    let group = |id| GroupStats { instance_stats: [reported(id)].into(), ..GroupStats::default() };
    let known = [DeviceId::from("a")].into();
    let (found, unknown) =
        readings(StatsAnswer { groups: vec![group("a"), group("z")] }, &known, Timestamp(1)).unwrap();
    assert_eq!((found.len(), unknown), (1, vec![DeviceId::from("z")]));
    let twice = readings(StatsAnswer { groups: vec![group("a"), group("a")] }, &known, Timestamp(1)).unwrap_err();
    assert_eq!(twice.to_string(), "groups[1].instance_stats[\"a\"] is listed twice");
}

#[test]
fn a_reservation_is_taken_whole_or_not_at_all() {
    let node = |permissions: &str| Node {
        task_path: "/dev/x".into(),
        host_path: "/dev/acme0".into(),
        permissions: permissions.into(),
    };
    let mount = Mount { task_path: "/opt".into(), host_path: "/opt/acme".into(), read_only: true };
    let envs = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let reported = Container { envs: envs("ACME", "a"), mounts: vec![mount.clone()], devices: vec![node("rw")] };
    let taken = reservation(reported).unwrap();
    assert_eq!((taken.env["ACME"].as_str(), taken.nodes[0].permissions.as_str()), ("a", "rw"));
    assert!(taken.mounts[0].read_only);
    let refused = |reported| reservation(reported).unwrap_err().to_string();
    let of = |devices| Container { devices, ..Container::default() };
    assert_eq!(refused(of(vec![node("rw"), node("x")])), "devices[1].permissions is not a combination of r, w and m");
    let mounts = vec![Mount { host_path: "x".into(), ..mount }];
    assert_eq!(refused(Container { mounts, ..Container::default() }), "mounts[0].host_path is not an absolute path");
    let bad = Container { envs: envs("A=B", ""), ..Container::default() };
    assert_eq!(refused(bad), "envs[\"A=B\"] is not a valid environment variable");
}
