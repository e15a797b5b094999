//! What an answer of the agent can be: its format, its encoding, how much of it a reader may see.

use super::attribute::Attribute;
use super::event::{Event, EventKind};
use super::small_map::SmallMap;
use super::stat::{StatObject, StatReading, StatValue};
use super::task::ExitStatus;
use super::words;

words! {
    /// The formats of `/metrics`.
    pub enum Format {
        /// Prometheus text, 0.0.4 and 1.0.0: the default.
        Text = "text",
        OpenMetrics = "openmetrics",
        /// Delimited protocol buffers, with native histograms.
        Protobuf = "protobuf",
    }
}

words! {
    pub enum Encoding {
        Identity = "identity",
        Gzip = "gzip",
        Zstd = "zstd",
    }
}

/// How much a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Over TCP: no environment, arguments or meta, nor a text that may hold them; no user, process or place on this
    /// host.
    Public,
    /// Over the Unix socket: everything.
    Full,
}

/// What stands over TCP for a reason in free text: that of a failed start cites the command, the directory, the `PATH`.
pub const WITHHELD: &str = "details are on the Unix socket only";

impl Detail {
    /// An event as this reader may see it.
    pub fn event(self, event: &Event) -> Event {
        let mut event = event.clone();
        if self == Detail::Public && !is_plain(&event) {
            event.message = format!("{}; {WITHHELD}", event.kind.text().to_lowercase());
            event.details = SmallMap::default();
        }
        event
    }
    /// How an attempt ended, as this reader may see it.
    pub fn status(self, status: &ExitStatus) -> ExitStatus {
        match (self, status) {
            (Detail::Public, ExitStatus::NotStarted(_)) => ExitStatus::NotStarted(WITHHELD.to_owned()),
            (Detail::Public, ExitStatus::Unknown(_)) => ExitStatus::Unknown(WITHHELD.to_owned()),
            (Detail::Public, ExitStatus::Code(_) | ExitStatus::Signal(_)) | (Detail::Full, _) => status.clone(),
        }
    }
    /// What a plugin reports, as this reader may see it: its texts may be anything.
    pub fn stats(self, stats: &StatObject) -> StatObject {
        if self == Detail::Full {
            return stats.clone();
        }
        let shown = stats.attributes.iter().filter(|(_, stat)| !matches!(stat.value, Some(StatReading::Text(_))));
        let bare = |stat: &StatValue| StatValue { description: None, ..stat.clone() };
        StatObject {
            attributes: shown.map(|(name, stat)| (name.clone(), bare(stat))).collect(),
            nested: stats.nested.iter().map(|(name, nested)| (name.clone(), self.stats(nested))).collect(),
        }
    }
    /// Whether this reader may see it.
    pub fn shows(self, attribute: &Attribute) -> bool {
        self == Detail::Full || !matches!(attribute, Attribute::Text(_))
    }
}

/// Whether all that it says is our own words and numbers. A detail that is called `error` never is.
fn is_plain(event: &Event) -> bool {
    use EventKind::{
        AllocUnhealthy, ArtifactFailed, Device, DownloadingArtifacts, Driver, DriverFailure, ExecEnded, ExecStarted,
        FailedRestore, FailedValidation, HookFailed, Killed, Killing, LeaderDead, MainTasksDead, Migration, Network,
        NotPlaced, NotRescheduling, NotRestarting, Received, Rescheduling, RestartSignaled, Restarting, Restored,
        SetupFailure, ShutdownDelay, SiblingFailed, Signaling, Started, TaskSetup, Template, Terminated, Update,
    };
    match event.kind {
        ArtifactFailed | DownloadingArtifacts | NotPlaced | SetupFailure | FailedValidation | Migration | Network
        | Driver | DriverFailure | ExecEnded | ExecStarted | FailedRestore | HookFailed | Template => false,
        Received | AllocUnhealthy | Rescheduling | NotRescheduling | Device | TaskSetup | Started | Terminated
        | RestartSignaled | Restarting | NotRestarting | Signaling | SiblingFailed | LeaderDead | MainTasksDead
        | ShutdownDelay | Killing | Killed | Restored | Update => !event.details.contains("error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Timestamp;

    fn event(kind: EventKind, details: &[(&str, &str)]) -> Event {
        Event {
            seq: 3,
            task_seq: 1,
            time: Timestamp(1),
            kind,
            workload: Some("j".into()),
            alloc_id: Some("a".into()),
            task: Some("t".into()),
            message: "a SECRET".to_owned(),
            details: details.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            fails_task: true,
        }
    }

    #[test]
    fn a_reason_in_free_text_is_for_the_socket() {
        for kind in EventKind::ALL {
            let with_reason = event(*kind, &[("error", "SECRET"), ("outcome", "error")]);
            let shown = Detail::Public.event(&with_reason);
            assert!(!format!("{shown:?}").contains("SECRET"), "{shown:?}");
            assert!(shown.message.contains(WITHHELD) && (shown.seq, shown.fails_task) == (3, true), "{shown:?}");
            assert_eq!(Detail::Full.event(&with_reason), with_reason);
        }
        assert!(!Detail::Public.event(&event(EventKind::SetupFailure, &[])).message.contains("SECRET"));
        let plain = event(EventKind::Terminated, &[("exit_code", "3")]);
        assert_eq!(Detail::Public.event(&plain), plain, "its words are ours");
    }

    #[test]
    fn texts_of_plugins_are_for_the_owner_and_their_numbers_for_everybody() {
        let stat = |value| StatValue { value: Some(value), description: Some("SECRET".to_owned()) };
        let below = StatObject {
            attributes: [("n".to_owned(), stat(StatReading::number(7u64, None)))].into(),
            ..StatObject::default()
        };
        let of = [
            ("t".to_owned(), stat(StatReading::Text("SECRET".into()))),
            ("b".to_owned(), stat(StatReading::Bool(true))),
        ];
        let all = StatObject { attributes: of.into(), nested: [("below".to_owned(), below)].into() };
        let shown = serde_json::to_string(&Detail::Public.stats(&all)).unwrap();
        assert_eq!(
            shown,
            r#"{"attributes":{"b":{"value":{"bool":true}}},"nested":{"below":{"attributes":{"n":{"value":{"ratio":{"numerator":7}}}}}}}"#
        );
        assert_eq!(Detail::Full.stats(&all), all);
        let text = Attribute::Text("SECRET".into());
        assert!(
            !Detail::Public.shows(&text) && Detail::Full.shows(&text) && Detail::Public.shows(&Attribute::Bool(true))
        );
    }

    #[test]
    fn codes_and_signals_are_for_everybody() {
        for status in [ExitStatus::Code(3), ExitStatus::Signal(9)] {
            assert_eq!(Detail::Public.status(&status), status);
        }
        for status in [ExitStatus::NotStarted("SECRET".into()), ExitStatus::Unknown("SECRET".into())] {
            assert!(!format!("{:?}", Detail::Public.status(&status)).contains("SECRET"));
            assert_eq!(Detail::Full.status(&status), status);
        }
    }
}
