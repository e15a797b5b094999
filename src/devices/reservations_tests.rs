use super::super::choose::tests::{group, request};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn holder(task: &str) -> DeviceHolder {
    DeviceHolder { alloc: "a".into(), task: task.into() }
}

fn ids(ids: &[&str]) -> Vec<DeviceId> {
    ids.iter().map(|id| (*id).into()).collect()
}

#[test]
fn a_device_is_one_tasks_until_it_is_freed() {
    let (mut table, host) = (Reservations::default(), group("T4", "15 GiB", &["t-1", "t-2"]));
    let one = [request("gpu", 1)];
    assert_eq!(table.reserve(&holder("a"), &one, &[&host]), Ok(ids(&["t-1"])));
    assert_eq!(table.reserve(&holder("b"), &one, &[&host]), Ok(ids(&["t-2"])));
    let refused = table.reserve(&holder("c"), &one, &[&host]).unwrap_err();
    assert!(matches!(refused, ChooseError::Held { free: 0, .. }), "{refused:?}");
    assert_eq!(table.held_by(&holder("c")), []);
    assert_eq!(table.holder(&"t-1".into()), Some(&holder("a")));
    assert_eq!((table.free(&holder("a")), table.free(&holder("a"))), (ids(&["t-1"]), ids(&[])));
    assert_eq!(table.reserve(&holder("c"), &one, &[&host]), Ok(ids(&["t-1"])));
}

#[test]
fn repeated_device_reservation_is_unchanged_even_if_devices_became_unhealthy() {
    let (mut table, mut host) = (Reservations::default(), group("T4", "15 GiB", &["t-1", "t-2"]));
    let one = [request("gpu", 1)];
    let first = table.reserve(&holder("a"), &one, &[&host]);
    host.devices[0].unhealthy = Some("lost".to_owned());
    assert_eq!(table.reserve(&holder("a"), &one, &[&host]), first);
    table.free(&holder("a"));
    assert_eq!(table.reserve(&holder("a"), &one, &[&host]), Ok(ids(&["t-2"])));
}

#[test]
fn a_request_that_cannot_be_had_whole_takes_nothing() {
    let (mut table, host) = (Reservations::default(), group("T4", "15 GiB", &["t-1", "t-2"]));
    assert!(table.reserve(&holder("a"), &[request("gpu", 1), request("fpga", 1)], &[&host]).is_err());
    assert!(table.reserve(&holder("a"), &[request("gpu", 3)], &[&host]).is_err());
    assert_eq!((table.holders.len(), table.held.len()), (0, 0));
}

#[test]
fn recorded_reservation_is_held_again_unless_another_task_holds_it() {
    let mut table = Reservations::default();
    assert_eq!(table.hold(&holder("a"), &ids(&["t-1", "t-2"])), Ok(()));
    assert_eq!(table.hold(&holder("a"), &ids(&["t-2", "t-3"])), Ok(()), "as it is recorded now");
    let conflict = table.hold(&holder("b"), &ids(&["t-1", "t-2"])).unwrap_err();
    assert_eq!(conflict.to_string(), "device t-2 is held by a/a");
    assert_eq!((table.held_by(&holder("b")), table.holder(&"t-1".into())), (&[] as &[_], None));
}

proptest! {
    #[test]
    fn device_reservations_agree_by_holder_and_by_device(
        steps in proptest::collection::vec((0u8..3, 0u8..4, 0usize..5), 0..40),
    ) {
        let host = group("T4", "15 GiB", &["0", "1", "2", "3", "4"]);
        let mut table = Reservations::default();
        for (what, who, n) in steps {
            let who = holder(&who.to_string());
            match what {
                0 => drop(table.reserve(&who, &[request("gpu", u32::try_from(n).unwrap() + 1)], &[&host])),
                1 => drop(table.hold(&who, &ids(&["0", "1", "2", "3", "4"])[n..])),
                _ => drop(table.free(&who)),
            }
            let by_holder: BTreeSet<(DeviceId, DeviceHolder)> = table.held.iter()
                .flat_map(|(holder, ids)| ids.iter().map(|id| (id.clone(), holder.clone()))).collect();
            prop_assert_eq!(by_holder.len(), table.held.values().map(Vec::len).sum::<usize>());
            prop_assert_eq!(by_holder, table.holders.clone().into_iter().collect::<BTreeSet<_>>());
            prop_assert!(table.held.values().all(|ids| !ids.is_empty()));
        }
    }
}
