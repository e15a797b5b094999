//! `/proc/PID/cgroup`: the cgroup of a process in each hierarchy.

use std::borrow::Cow;

use crate::kernel::text::lines;
use crate::model::raw_name;

/// The process's path in the unified tree, such as `/system.slice/x.service`. `None`: no unified tree, or invalid text.
///
/// Source: Documentation/admin-guide/cgroup-v2.rst: the line that starts with `0::`. The path of a removed cgroup ends
/// with ` (deleted)` and is ignored.
pub fn unified(bytes: &[u8]) -> Option<&str> {
    let path = lines(bytes).find_map(|(_, line)| line.strip_prefix(b"0::"))?;
    std::str::from_utf8(path).ok().filter(|path| path.starts_with('/') && !path.ends_with(" (deleted)"))
}

/// The path in the hierarchy of a v1 controller; `None` as controller: in the unified tree. As [`unified`].
pub fn place<'t>(bytes: &'t [u8], controller: Option<&str>) -> Option<&'t str> {
    let Some(controller) = controller else { return unified(bytes) };
    let path = lines(bytes).find_map(|(_, line)| {
        let mut parts = std::str::from_utf8(line).ok()?.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    (path.starts_with('/') && !path.ends_with(" (deleted)")).then_some(path)
}

/// The paths in all hierarchies, in file order. Removed cgroups are left out.
pub fn places(bytes: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    lines(bytes).filter_map(|(_, line)| {
        let path = line.splitn(3, |b| *b == b':').nth(2)?;
        Some(path).filter(|path| path.starts_with(b"/") && !path.ends_with(b" (deleted)")).map(raw_name::text)
    })
}

/// ID and controllers of each hierarchy; the unified tree has none.
pub fn hierarchies(bytes: &[u8]) -> impl Iterator<Item = (u64, Vec<&str>)> {
    lines(bytes).filter_map(|(_, line)| {
        let mut parts = std::str::from_utf8(line).ok()?.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        path.starts_with('/').then_some(())?;
        Some((id, controllers.split(',').filter(|name| !name.is_empty()).collect()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_places_in_all_hierarchies_are_those_that_are_there() {
        let text = b"12:pids:/a:b\n4:memory:/gone (deleted)\n3::\nx\n1:name=systemd:/user.slice\n2:cpu:/o\xff\n0::/\n";
        assert_eq!(places(text).collect::<Vec<_>>(), ["/a:b", "/user.slice", "/o\u{efff}", "/"]);
        let of = |controller| place(text, controller);
        assert_eq!([of(Some("pids")), of(Some("memory")), of(None)], [Some("/a:b"), None, Some("/")]);
    }

    #[test]
    fn unified_cgroup_path_is_found_beside_v1_hierarchies() {
        assert_eq!(unified(b"0::/system.slice/x.service\n"), Some("/system.slice/x.service"));
        let hybrid = b"12:pids:/user.slice\n4:memory:/\n1:name=systemd:/user.slice/session-1.scope\n0::/a b\\x2d:c\n";
        assert_eq!(unified(hybrid), Some("/a b\\x2d:c"));
    }

    #[test]
    fn hierarchies_have_numbers_and_the_unified_tree_has_no_controllers() {
        let text = b"4:cpu,cpuacct:/a:b\n1:name=systemd:/\nx:memory:/\n0::/\n";
        let expected = [(4, vec!["cpu", "cpuacct"]), (1, vec!["name=systemd"]), (0, vec![])];
        assert_eq!(hierarchies(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn deleted_or_absent_cgroup_has_no_path() {
        for text in [&b""[..], b"4:memory:/\n", b"0::/x (deleted)\n", b"0::\n", b"0::/\xff\n", b"0:/x\n"] {
            assert_eq!(unified(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            unified(&bytes);
            places(&bytes).for_each(drop);
            hierarchies(&bytes).for_each(drop);
        }
    }
}
