//! `/proc/PID/cgroup`: where a process is in each hierarchy.

use std::borrow::Cow;

use crate::kernel::text::lines;
use crate::model::raw_name;

/// Its place in the unified tree, from the root of that tree on: `/system.slice/x.service`. `None`: there is no unified tree, or
/// the text is none of this file.
///
/// Source: Documentation/admin-guide/cgroup-v2.rst: the line that begins with `0::`; of a cgroup that was removed since, the path
/// ends with ` (deleted)`, which is no place any more.
pub fn unified(bytes: &[u8]) -> Option<&str> {
    let path = lines(bytes).find_map(|(_, line)| line.strip_prefix(b"0::"))?;
    std::str::from_utf8(path).ok().filter(|path| path.starts_with('/') && !path.ends_with(" (deleted)"))
}

/// Its place in the hierarchy of a controller of cgroup v1; `None`: in the unified tree. As of [`unified`].
pub fn place<'t>(bytes: &'t [u8], controller: Option<&str>) -> Option<&'t str> {
    let Some(controller) = controller else { return unified(bytes) };
    let path = lines(bytes).find_map(|(_, line)| {
        let mut parts = std::str::from_utf8(line).ok()?.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    (path.starts_with('/') && !path.ends_with(" (deleted)")).then_some(path)
}

/// Its place in each hierarchy, in the order of the file. A place that was removed since is none.
pub fn places(bytes: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    lines(bytes).filter_map(|(_, line)| {
        let path = line.splitn(3, |b| *b == b':').nth(2)?;
        Some(path).filter(|path| path.starts_with(b"/") && !path.ends_with(b" (deleted)")).map(raw_name::text)
    })
}

/// The number of each hierarchy, and its controllers as the text calls them; the unified tree names none.
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
    fn the_place_in_the_unified_tree_is_found_beside_others() {
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
    fn what_is_gone_or_absent_is_no_place() {
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
