//! Names and cgroup paths of Kubernetes pods, as the kubelet and the controllers make them. Pure.
//!
//! ```text
//! …/kubepods-burstable-pod<uid, _ for ->.slice/…   systemd driver
//! …/kubepods/burstable/pod<uid>/…                  cgroupfs driver
//! web-7d4b9c6f5-x2x7z                              deployment web, replica set web-7d4b9c6f5
//! backup-28912345-x7x8z                            cron job backup, job backup-28912345
//! ```

/// The UID of a pod, from the name of its cgroup. `above`: names of the ancestors, nearest first.
pub fn uid_of_cgroup<'a>(name: &str, mut above: impl Iterator<Item = &'a str>) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.split_once("kubepods")?.1.rsplit_once("-pod")?.1.replace('_', "-"),
        None => {
            let uid = name.strip_prefix("pod")?;
            if !above.any(|name| name == "kubepods") {
                return None;
            }
            uid.to_owned()
        }
    };
    let digits = uid.bytes().filter(|b| *b != b'-').count();
    // The UID of a static pod is a hash without dashes.
    (digits == 32 && uid.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())).then_some(uid)
}

/// The UID that the API server knows, from the path of a pod's cgroup or one inside. `None` for a static pod: its path
/// has the hash of its file, and the API server gives the mirror pod another UID.
pub fn uid_in_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let uid = |at: usize| uid_of_cgroup(parts[at], parts[..at].iter().rev().copied());
    (0..parts.len()).rev().find_map(uid).filter(|uid| uid.contains('-'))
}

/// The controllers of a pod whose kinds follow from its name, as OpenTelemetry names kinds: the owner first.
pub fn controllers(pod: &str) -> Vec<(&'static str, &str)> {
    match generated(pod) {
        Some((set, Some((owner, ControllerKind::ReplicaSet)))) => vec![("deployment", owner), ("replicaset", set)],
        Some((set, Some((owner, ControllerKind::Scheduled)))) => vec![("cronjob", owner), ("job", set)],
        Some((_, None)) | None => Vec::new(),
    }
}

/// The controller of a pod: `web` for `web-7d4b9c6f5-x2x7z`, `db` for `db-0`. A pod without one is its own.
pub fn owner(pod: &str) -> &str {
    match pod.rsplit_once('-') {
        Some((rest, last)) if (1..5).contains(&last.len()) && last.bytes().all(|b| b.is_ascii_digit()) => rest,
        Some(_) | None => match generated(pod) {
            Some((_, Some((owner, _)))) => owner,
            Some((set, None)) => set,
            None => pod,
        },
    }
}

/// What a controller of a controller creates.
enum ControllerKind {
    ReplicaSet,
    Scheduled,
}

/// The controller that generated the name, and if it follows from that name, its own controller.
fn generated(pod: &str) -> Option<(&str, Option<(&str, ControllerKind)>)> {
    /// The characters of generated names.
    const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
    let is_random = |text: &str, least: usize, most: usize| {
        (least..=most).contains(&text.len()) && text.chars().all(|c| RANDOM.contains(c))
    };
    let (set, _) = pod.rsplit_once('-').filter(|(_, last)| is_random(last, 5, 5))?;
    let above = set.rsplit_once('-').and_then(|(owner, last)| {
        // Minutes since 1970.
        let is_scheduled = last.len() == 8 && last.parse::<u64>().is_ok();
        let run = if is_scheduled { ControllerKind::Scheduled } else { ControllerKind::ReplicaSet };
        (is_scheduled || is_random(last, 6, 10)).then_some((owner, run))
    });
    Some((set, above))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_owner_of_a_pod_is_what_its_controller_is_called() {
        for (pod, subject) in [
            ("web-7d4b9c6f5-x2x7z", "web"),
            ("node-exporter-x7x8z", "node-exporter"),
            ("db-0", "db"),
            ("backup-28912345-x7x8z", "backup"),
            ("kube-apiserver-node1", "kube-apiserver-node1"),
            ("web", "web"),
        ] {
            assert_eq!(owner(pod), subject, "{pod}");
        }
    }

    #[test]
    fn kinds_of_controllers_follow_from_generated_names_alone() {
        assert_eq!(controllers("web-7d4b9c6f5-x2x7z"), [("deployment", "web"), ("replicaset", "web-7d4b9c6f5")]);
        assert_eq!(controllers("backup-28912345-x7x8z"), [("cronjob", "backup"), ("job", "backup-28912345")]);
        // A daemon set or a job; a stateful set or a name given by hand.
        for pod in ["node-exporter-x7x8z", "db-0", "web", "", "-", "a-b-c"] {
            assert_eq!(controllers(pod), [], "{pod}");
        }
    }

    #[test]
    fn uid_is_read_from_paths_of_both_cgroup_drivers_and_not_of_static_pods() {
        const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        for path in [
            format!("/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-0f.scope"),
            format!("/kubepods.slice/kubepods-burstable.slice/{slice}"),
            format!("/kubelet.slice/kubelet-{slice}/crio-0f.scope"),
            format!("/kubepods/besteffort/pod{UID}/0f"),
        ] {
            assert_eq!(uid_in_path(&path).as_deref(), Some(UID), "{path}");
        }
        let of_static = format!("/kubepods/burstable/pod{}/0f", UID.replace('-', ""));
        for path in [of_static, format!("/other/pod{UID}"), "/kubepods/podx".to_owned(), String::new()] {
            assert_eq!(uid_in_path(&path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(pod|kubepods|-|/|ä|[0-9a-f]{1,8}|.slice|.){0,12}") {
            let _ = (uid_in_path(&text), controllers(&text), owner(&text).len() <= text.len());
        }
    }
}
