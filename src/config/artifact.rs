//! What can be set of artifacts: how much they may take of time and space. Nomad's names, where it has them.

use std::time::Duration;

use super::setting::{A_DAY, Setting, SettingKind};
use super::values::short;

const A_SECOND: Duration = Duration::from_secs(1);
/// 1 PiB, in MiB.
const LARGEST_MIB: u64 = 1 << 30;

pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "artifact",
        key: "http_read_timeout",
        env: "ALLOSTAT_ARTIFACT_HTTP_READ_TIMEOUT",
        about: "Maximum duration of one download over HTTP, redirects included.",
        kind: SettingKind::Duration(A_SECOND, A_DAY, |c, d| c.artifact.http_read_timeout = d),
        get: |c| Some(short(c.artifact.http_read_timeout)),
    },
    Setting {
        stanza: "artifact",
        key: "http_idle_timeout",
        env: "ALLOSTAT_ARTIFACT_HTTP_IDLE_TIMEOUT",
        about: "How long a server may send nothing before the download fails.",
        kind: SettingKind::Duration(A_SECOND, A_DAY, |c, d| c.artifact.http_idle_timeout = d),
        get: |c| Some(short(c.artifact.http_idle_timeout)),
    },
    Setting {
        stanza: "artifact",
        key: "http_max_size_mib",
        env: "ALLOSTAT_ARTIFACT_HTTP_MAX_SIZE_MIB",
        about: "Maximum size of one download over HTTP, in MiB. 0: no limit.",
        kind: SettingKind::Whole(0, LARGEST_MIB, |c, n| c.artifact.http_max_size = n << 20),
        get: |c| Some((c.artifact.http_max_size >> 20).to_string()),
    },
    Setting {
        stanza: "artifact",
        key: "git_timeout",
        env: "ALLOSTAT_ARTIFACT_GIT_TIMEOUT",
        about: "Maximum duration of cloning one repository, submodules included.",
        kind: SettingKind::Duration(A_SECOND, A_DAY, |c, d| c.artifact.git_timeout = d),
        get: |c| Some(short(c.artifact.git_timeout)),
    },
    Setting {
        stanza: "artifact",
        key: "decompression_size_limit_mib",
        env: "ALLOSTAT_ARTIFACT_DECOMPRESSION_SIZE_LIMIT_MIB",
        about: "Maximum size of an unpacked archive, and of the files of a repository, in MiB. 0: no limit.",
        kind: SettingKind::Whole(0, LARGEST_MIB, |c, n| c.artifact.decompression_size_limit = n << 20),
        get: |c| Some((c.artifact.decompression_size_limit >> 20).to_string()),
    },
    Setting {
        stanza: "artifact",
        key: "decompression_file_count_limit",
        env: "ALLOSTAT_ARTIFACT_DECOMPRESSION_FILE_COUNT_LIMIT",
        about: "Maximum number of entries of an archive. 0: no limit.",
        kind: SettingKind::Whole(0, 1_000_000_000, |c, n| c.artifact.decompression_file_count_limit = n),
        get: |c| Some(c.artifact.decompression_file_count_limit.to_string()),
    },
    Setting {
        stanza: "artifact",
        key: "git_file_count_limit",
        env: "ALLOSTAT_ARTIFACT_GIT_FILE_COUNT_LIMIT",
        about: "Maximum number of files and directories of a repository, git's own included. 0: no limit.",
        kind: SettingKind::Whole(0, 1_000_000_000, |c, n| c.artifact.git_file_count_limit = n),
        get: |c| Some(c.artifact.git_file_count_limit.to_string()),
    },
    Setting {
        stanza: "artifact",
        key: "free_space_reserve_mib",
        env: "ALLOSTAT_ARTIFACT_FREE_SPACE_RESERVE_MIB",
        about: "Space of the data directory's file system that artifacts leave free, in MiB: below it a download \
                fails.",
        kind: SettingKind::Whole(0, LARGEST_MIB, |c, n| c.artifact.free_space_reserve = n << 20),
        get: |c| Some((c.artifact.free_space_reserve >> 20).to_string()),
    },
];
