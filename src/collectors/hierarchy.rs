//! The hierarchy in which a kernel file of a cgroup lies.

use crate::host::hierarchy::{CgroupVersion, Hierarchy, Layout};

/// The hierarchy in which a kernel file lies, and so the hosts on which it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileHierarchy {
    /// The v1 hierarchy of this controller.
    V1(&'static str),
    /// The unified tree, if this controller belongs to it.
    V2(&'static str),
    /// The unified tree, with any controllers.
    Unified,
    /// The unified tree, unless a v1 hierarchy of this controller provides the same value more exactly.
    UnifiedUnlessV1(&'static str),
    /// The unified tree of a hybrid host, beside the v1 hierarchy of this controller.
    HybridUnified(&'static str),
}

impl FileHierarchy {
    pub(super) fn is(self, layout: &Layout, hierarchy: &Hierarchy) -> bool {
        self.find(layout).is_some_and(|home| std::ptr::eq(home, hierarchy))
    }
    /// The hierarchy on this host; `None` if it does not exist.
    pub(super) fn find(self, layout: &Layout) -> Option<&Hierarchy> {
        let of = |controller, version| layout.controller(controller).filter(|h| h.version == version);
        match self {
            FileHierarchy::V1(controller) => of(controller, CgroupVersion::V1),
            FileHierarchy::V2(controller) => of(controller, CgroupVersion::V2),
            FileHierarchy::Unified => layout.unified(),
            FileHierarchy::UnifiedUnlessV1(controller) if of(controller, CgroupVersion::V1).is_some() => None,
            FileHierarchy::UnifiedUnlessV1(_) => layout.unified(),
            FileHierarchy::HybridUnified(controller) => of(controller, CgroupVersion::V1).and(layout.unified()),
        }
    }
    /// The cgroup version of the files there.
    pub(super) fn version(self) -> CgroupVersion {
        match self {
            FileHierarchy::V1(_) => CgroupVersion::V1,
            FileHierarchy::V2(_)
            | FileHierarchy::Unified
            | FileHierarchy::UnifiedUnlessV1(_)
            | FileHierarchy::HybridUnified(_) => CgroupVersion::V2,
        }
    }
    /// The first part of a key: the v1 controller, `unified` or `hybrid`.
    pub(super) fn label(self) -> &'static str {
        match self {
            FileHierarchy::V1(controller) => controller,
            FileHierarchy::V2(_) | FileHierarchy::Unified | FileHierarchy::UnifiedUnlessV1(_) => "unified",
            // A separate key: the file means something else than on a v2 host.
            FileHierarchy::HybridUnified(_) => "hybrid",
        }
    }
}
