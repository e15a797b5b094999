//! Settings of migrations: the agents that data is fetched from, and the limits.

use std::time::Duration;

use super::otlp::shown;
use super::setting::{A_DAY, Setting, SettingKind};
use super::values::{absolute, each, short, written};
use crate::runner::{MigrationPeer, PeerToken};

const A_SECOND: Duration = Duration::from_secs(1);
/// 1 PiB, in MiB.
const LARGEST_MIB: u64 = 1 << 30;

pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "migrate",
        key: "peers",
        env: "ALLOSTAT_MIGRATE_PEERS",
        about: "Agents from which `run --migrate-from` may fetch the data of an alloc: NAME=https://HOST:PORT, on this \
                host also http:// and unix:. Default: none.",
        kind: SettingKind::Texts(|c, texts| {
            c.migrate.peers = each(&texts, MigrationPeer::parse)?;
            Ok(())
        }),
        get: |c| written(&c.migrate.peers),
    },
    Setting {
        stanza: "migrate",
        key: "tokens",
        env: "ALLOSTAT_MIGRATE_TOKENS",
        about: "Token files for peers, PEER=/PATH: one of the tokens in the peer's agent.token_file. Read for each \
                request. Default: none.",
        kind: SettingKind::Texts(|c, texts| {
            c.migrate.tokens = each(&texts, PeerToken::parse)?;
            Ok(())
        }),
        get: |c| written(&c.migrate.tokens),
    },
    Setting {
        stanza: "migrate",
        key: "ca_file",
        env: "ALLOSTAT_MIGRATE_CA_FILE",
        about: "https: trusted CA certificates of peers, PEM. Reloaded for each connection. Default: those of the \
                system.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.migrate.ca_file = Some(path))),
        get: |c| shown(c.migrate.ca_file.as_deref()),
    },
    Setting {
        stanza: "migrate",
        key: "cert_file",
        env: "ALLOSTAT_MIGRATE_CERT_FILE",
        about: "https: client certificate that this agent shows to peers, PEM with its chain. Its name is one of the \
                peer's agent.acting_certificates. Default: none.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.migrate.cert_file = Some(path))),
        get: |c| shown(c.migrate.cert_file.as_deref()),
    },
    Setting {
        stanza: "migrate",
        key: "key_file",
        env: "ALLOSTAT_MIGRATE_KEY_FILE",
        about: "https: key of the client certificate, PEM.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.migrate.key_file = Some(path))),
        get: |c| shown(c.migrate.key_file.as_deref()),
    },
    Setting {
        stanza: "migrate",
        key: "deadline",
        env: "ALLOSTAT_MIGRATE_DEADLINE",
        about: "Maximum duration of a migration, from the submission of the job: waiting for the end of the old alloc, \
                retries and restarts of the agent included.",
        kind: SettingKind::Duration(A_SECOND, Duration::from_secs(7 * 86_400), |c, d| c.migrate.deadline = d),
        get: |c| Some(short(c.migrate.deadline)),
    },
    Setting {
        stanza: "migrate",
        key: "idle_timeout",
        env: "ALLOSTAT_MIGRATE_IDLE_TIMEOUT",
        about: "How long a peer may send nothing before the transfer is retried.",
        kind: SettingKind::Duration(A_SECOND, A_DAY, |c, d| c.migrate.idle_timeout = d),
        get: |c| Some(short(c.migrate.idle_timeout)),
    },
    Setting {
        stanza: "migrate",
        key: "max_size_mib",
        env: "ALLOSTAT_MIGRATE_MAX_SIZE_MIB",
        about: "Maximum size of the data of one alloc, holes of sparse files included, in MiB. 0: no limit.",
        kind: SettingKind::Whole(0, LARGEST_MIB, |c, n| c.migrate.max_size = n << 20),
        get: |c| Some((c.migrate.max_size >> 20).to_string()),
    },
    Setting {
        stanza: "migrate",
        key: "max_entries",
        env: "ALLOSTAT_MIGRATE_MAX_ENTRIES",
        about: "Maximum number of files, directories and links of one alloc. A peer sends at most 1,000,000, so larger \
                values and 0 have no effect.",
        kind: SettingKind::Whole(0, 1_000_000_000, |c, n| c.migrate.max_entries = n),
        get: |c| Some(c.migrate.max_entries.to_string()),
    },
    Setting {
        stanza: "migrate",
        key: "free_space_reserve_mib",
        env: "ALLOSTAT_MIGRATE_FREE_SPACE_RESERVE_MIB",
        about: "Space of the data directory's file system that migrations leave free, in MiB: below it a migration \
                fails.",
        kind: SettingKind::Whole(0, LARGEST_MIB, |c, n| c.migrate.free_space_reserve = n << 20),
        get: |c| Some((c.migrate.free_space_reserve >> 20).to_string()),
    },
];
