//! Promise (Devices): A task gets all requested devices, or none: free and healthy ones, by its constraints; a refusal
//! has the reason

use super::*;
use crate::model::attribute::Attribute;
use crate::model::demand::{Affinity, DeviceOption, Property};
use crate::model::operator::Operator;
use proptest::prelude::*;

pub(in crate::devices) fn kind(name: &str) -> DeviceKind {
    DeviceKind { vendor: "nvidia".to_owned(), kind: "gpu".to_owned(), name: name.to_owned() }
}

pub(in crate::devices) fn group(name: &str, memory: &str, ids: &[&str]) -> DeviceGroup {
    let device = |id: &&str| Device::of((*id).into());
    let attributes = [("memory".to_owned(), Attribute::parse(memory).unwrap())].into();
    DeviceGroup { kind: kind(name), attributes, devices: ids.iter().map(device).collect() }
}

pub(in crate::devices) fn request(name: &str, count: u32) -> DeviceRequest {
    let name = DeviceName::parse(name).unwrap();
    DeviceRequest { name, count, constraints: Vec::new(), affinities: Vec::new(), first_available: Vec::new() }
}

fn constraint(attribute: &str, operator: Operator, value: &str) -> Constraint {
    Constraint { attribute: Property::parse(attribute).unwrap(), operator, value: value.to_owned() }
}

fn holder(task: &str) -> DeviceHolder {
    DeviceHolder { alloc: "0b3c1f0a-aaaa".into(), task: task.into() }
}

fn free(_: &DeviceId) -> Option<DeviceHolder> {
    None
}

fn chosen(
    groups: &[&DeviceGroup],
    requests: &[DeviceRequest],
    held: impl Fn(&DeviceId) -> Option<DeviceHolder>,
) -> Result<Vec<String>, String> {
    let ids = choose(groups, requests, held).map_err(|refused| refused.to_string())?;
    Ok(ids.iter().map(ToString::to_string).collect())
}

/// Two small devices and one large one.
fn host() -> [DeviceGroup; 2] {
    [group("T4", "15 GiB", &["t-2", "t-1"]), group("A100", "40 GiB", &["a-1"])]
}

#[test]
fn the_same_question_has_the_same_answer_and_places_on_the_host_come_before_names() {
    let [mut t4, a100] = host();
    assert_eq!(chosen(&[&t4, &a100], &[request("nvidia/gpu/T4", 1)], free).unwrap(), ["t-1"]);
    t4.devices[0].facts.index = Some(0);
    assert_eq!(chosen(&[&t4, &a100], &[request("nvidia/gpu/T4", 1)], free).unwrap(), ["t-2"]);
    assert_eq!(chosen(&[&t4, &a100], &[request("gpu", 1)], free).unwrap(), ["a-1"], "makes by name");
    assert_eq!(chosen(&[&a100, &t4], &[request("gpu", 1)], free).unwrap(), ["a-1"]);
    assert_eq!(chosen(&[&t4, &a100], &[request("gpu", 2)], free).unwrap(), ["t-2", "t-1"], "of one make");
}

#[test]
fn affinities_rank_and_do_not_exclude() {
    let [t4, a100] = host();
    let likes = |weight| {
        let small = constraint("device.attr.memory", Operator::Less, "20 GiB");
        DeviceRequest { affinities: vec![Affinity { constraint: small, weight }], ..request("gpu", 1) }
    };
    assert_eq!(chosen(&[&t4, &a100], &[likes(50)], free).unwrap(), ["t-1"]);
    assert_eq!(chosen(&[&t4, &a100], &[likes(-50)], free).unwrap(), ["a-1"]);
    assert_eq!(chosen(&[&t4], &[likes(-50)], free).unwrap(), ["t-1"]);
    let this = constraint("device.ids", Operator::SetContainsAny, "t-2,x");
    let this = DeviceRequest { affinities: vec![Affinity { constraint: this, weight: 1 }], ..request("gpu", 1) };
    assert_eq!(chosen(&[&t4, &a100], &[this], free).unwrap(), ["t-2"], "one device of a make may be liked more");
}

#[test]
fn a_request_gives_way_to_one_that_can_have_nothing_else() {
    let [t4, a100] = host();
    let large = DeviceRequest {
        constraints: vec![constraint("device.attr.memory", Operator::GreaterOrEqual, "20 GiB")],
        ..request("gpu", 1)
    };
    let requests = [request("gpu", 1), large.clone(), request("gpu", 1)];
    assert_eq!(chosen(&[&t4, &a100], &requests, free).unwrap(), ["t-1", "a-1", "t-2"]);
    let this =
        DeviceRequest { constraints: vec![constraint("device.ids", Operator::Equal, "t-1")], ..request("gpu", 1) };
    assert_eq!(chosen(&[&t4], &[request("gpu", 1), this], free).unwrap(), ["t-2", "t-1"], "within a make as well");
    let together = "each request alone could be satisfied, but not all of them together";
    assert_eq!(chosen(&[&t4, &a100], &[large.clone(), large], free).unwrap_err(), together);
    assert_eq!(chosen(&[&t4, &a100], &[request("gpu", 2), request("gpu", 2)], free).unwrap_err(), together);
}

#[test]
fn the_first_option_that_can_be_satisfied_is_taken() {
    let [t4, a100] = host();
    let at_least = |memory: &str| constraint("device.attr.memory", Operator::GreaterOrEqual, memory);
    let option = |count, memory: &str| DeviceOption { count, constraints: vec![at_least(memory)], affinities: vec![] };
    let first = |options: Vec<DeviceOption>| DeviceRequest { first_available: options, ..request("gpu", 1) };
    let either = first(vec![option(1, "80 GiB"), option(2, "10 GiB")]);
    assert_eq!(
        chosen(&[&t4, &a100], std::slice::from_ref(&either), free).unwrap(),
        ["t-1", "t-2"],
        "the first one is too large"
    );
    let both = first(vec![option(1, "20 GiB"), option(2, "10 GiB")]);
    assert_eq!(chosen(&[&t4, &a100], std::slice::from_ref(&both), free).unwrap(), ["a-1"]);
    let is_held = |id: &DeviceId| (id.as_str() == "a-1").then(|| holder("train"));
    assert_eq!(chosen(&[&t4, &a100], std::slice::from_ref(&both), is_held).unwrap(), ["t-1", "t-2"]);
    // A request without a choice comes first, wherever it stands.
    let large = DeviceRequest { constraints: vec![at_least("20 GiB")], ..request("gpu", 1) };
    assert_eq!(chosen(&[&t4, &a100], &[both.clone(), large], free).unwrap(), ["t-1", "t-2", "a-1"]);
    // A constraint of the request is one of each option.
    let none = DeviceRequest { constraints: vec![at_least("80 GiB")], ..both };
    let refused = chosen(&[&t4, &a100], &[none], free).unwrap_err();
    assert!(refused.starts_with("no gpu meets the constraints"), "{refused}");
    let two = first(vec![option(3, "1 GiB"), option(4, "1 GiB")]);
    let refused = chosen(&[&t4, &a100], &[two], free).unwrap_err();
    assert_eq!(refused, "requested 3 of gpu; no suitable group has more than 2", "the reason is that of the first");
}

#[test]
fn missing_device_is_reported() {
    let [mut t4, a100] = host();
    let by = |id: &DeviceId| (id.as_str() == "t-1").then(|| holder("train"));
    let query = |request: &DeviceRequest, t4: &DeviceGroup| {
        chosen(&[t4, &a100], std::slice::from_ref(request), by).unwrap_err()
    };
    assert_eq!(query(&request("amd/gpu", 1), &t4), "this host has no amd/gpu; it has nvidia/gpu/A100, nvidia/gpu/T4");
    assert_eq!(chosen(&[], &[request("gpu", 1)], free).unwrap_err(), "this host has no gpu");
    let huge = DeviceRequest {
        constraints: vec![constraint("device.attr.memory", Operator::GreaterOrEqual, "80 GiB")],
        ..request("gpu", 1)
    };
    assert_eq!(
        query(&huge, &t4),
        "no gpu meets the constraints: nvidia/gpu/A100: device.attr.memory >= 80 GiB (actual: 40 GiB), \
         nvidia/gpu/T4: device.attr.memory >= 80 GiB (actual: 15 GiB)"
    );
    let odd =
        DeviceRequest { constraints: vec![constraint("device.attr.x", Operator::IsSet, "")], ..request("gpu", 1) };
    assert_eq!(
        chosen(&[&a100], &[odd], free).unwrap_err(),
        "no gpu meets the constraints: nvidia/gpu/A100: device.attr.x is_set (actual: unknown)"
    );
    assert_eq!(query(&request("gpu", 3), &t4), "requested 3 of gpu; no suitable group has more than 2");
    assert_eq!(
        query(&request("nvidia/gpu", 2), &t4),
        "requested 2 of nvidia/gpu; only 1 free: t-1 is held by 0b3c1f0a/train"
    );
    t4.devices[0].unhealthy = Some("XID 79".to_owned());
    assert_eq!(query(&request("nvidia/gpu", 2), &t4), "requested 2 of nvidia/gpu; only 1 healthy: t-2 (XID 79)");
    assert_eq!(
        query(&request("nvidia/gpu/T4", 1), &t4),
        "requested 1 of nvidia/gpu/T4; only 0 free: t-1 is held by 0b3c1f0a/train"
    );
    let ids: Vec<String> = (0..9).map(|n| format!("g-{n}")).collect();
    let many = group("T4", "1 GiB", &ids.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = chosen(&[&many], &[request("gpu", 1)], |_| Some(holder("x"))).unwrap_err();
    assert!(refused.ends_with("g-4 is held by 0b3c1f0a/x and 4 more"), "{refused}");
}

#[test]
fn a_device_that_is_divided_is_given_in_its_parts_only() {
    let (whole, mut parts) = (group("A100", "40 GiB", &["a-1", "a-2"]), group("A100 MIG 1g", "5 GiB", &["m-1", "m-2"]));
    parts.devices.iter_mut().for_each(|part| part.facts.parent = Some("a-1".into()));
    assert_eq!(chosen(&[&whole, &parts], &[request("nvidia/gpu/A100", 1)], free).unwrap(), ["a-2"]);
    assert_eq!(chosen(&[&whole, &parts], &[request("gpu", 2)], free).unwrap(), ["m-1", "m-2"]);
}

proptest! {
    /// Computed by brute force.
    #[test]
    fn device_choice_succeeds_if_possible_and_meets_every_request(
        sizes in proptest::collection::vec(0usize..4, 0..4),
        requested in proptest::collection::vec((1u32..3, 0u8..16), 0..4),
        held in 0u16..4096,
    ) {
        let ids = |g: usize, n: usize| (0..n).map(|d| format!("{g}-{d}")).collect::<Vec<_>>();
        let groups: Vec<DeviceGroup> = sizes.iter().enumerate().map(|(g, n)| {
            let ids = ids(g, *n);
            group(&format!("m{g}"), "1 GiB", &ids.iter().map(String::as_str).collect::<Vec<_>>())
        }).collect();
        let at = |id: &DeviceId| id.as_str().bytes().map(u32::from).sum::<u32>() % 12;
        let is_held = |id: &DeviceId| (held >> at(id) & 1 == 1).then(|| holder("x"));
        // For each request, the groups that it accepts.
        let requests: Vec<DeviceRequest> = requested.iter().map(|(count, makes)| {
            let makes: Vec<String> = (0..4).filter(|g| makes >> g & 1 == 1).map(|g| format!("m{g}")).collect();
            let value = format!("^({})$", makes.join("|"));
            DeviceRequest { constraints: vec![constraint("device.model", Operator::Regexp, &value)], ..request("gpu", *count) }
        }).collect();
        let refs: Vec<&DeviceGroup> = groups.iter().collect();
        let free: Vec<usize> =
            groups.iter().map(|g| g.devices.iter().filter(|d| is_held(&d.id).is_none()).count()).collect();
        fn possible(free: &mut Vec<usize>, requested: &[(u32, u8)]) -> bool {
            let Some(((count, makes), rest)) = requested.split_first() else { return true };
            (0..free.len()).any(|g| {
                let count = *count as usize;
                let takes = makes >> g & 1 == 1 && free[g] >= count;
                if takes { free[g] -= count }
                let done = takes && possible(free, rest);
                if takes { free[g] += count }
                done
            })
        }
        match choose(&refs, &requests, is_held) {
            Err(_) => prop_assert!(!possible(&mut free.clone(), &requested)),
            Ok(ids) => {
                let all: BTreeSet<&DeviceId> = ids.iter().collect();
                prop_assert!(all.len() == ids.len() && ids.iter().all(|id| is_held(id).is_none()));
                let mut rest = ids.as_slice();
                for request in &requests {
                    let (own, remaining) = rest.split_at(requested_count(request));
                    rest = remaining;
                    let of = groups.iter().find(|g| g.devices.iter().any(|d| d.id == own[0])).unwrap();
                    prop_assert!(own.iter().all(|id| of.devices.iter().any(|d| d.id == *id && meets(request, of, d))));
                }
                prop_assert!(rest.is_empty());
            }
        }
    }
}
