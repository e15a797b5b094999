//! Who may use an endpoint. docs/endpoints.md says what each exposes over TCP and why that is safe;
//! [`Gate`](super::Gate) identifies the caller there.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// TCP and the Unix socket, whatever is set: whether the agent lives.
    Health,
    /// The Unix socket; TCP unless `telemetry.public` is `none`.
    Metrics,
    /// The Unix socket; TCP if `telemetry.public` is `read`.
    Read,
    /// The Unix socket, and over TCP who may act. The words begin the refusal: "jobs are submitted".
    SocketOnly(&'static str),
}

/// What TCP gives to everybody who is let in and may not act: `telemetry.public`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PublicAccess {
    /// Health alone: who watches and restarts agents needs no more. Who wants no port at all sets `agent.listen` to
    /// `none`.
    None,
    Metrics,
    /// What the commands read as well, without what is its owner's.
    #[default]
    Read,
}

impl PublicAccess {
    pub const ALL: [PublicAccess; 3] = [PublicAccess::Metrics, PublicAccess::Read, PublicAccess::None];
    pub fn as_str(self) -> &'static str {
        match self {
            PublicAccess::None => "none",
            PublicAccess::Metrics => "metrics",
            PublicAccess::Read => "read",
        }
    }
    pub fn parse(text: &str) -> Option<PublicAccess> {
        PublicAccess::ALL.into_iter().find(|public| public.as_str() == text)
    }
}

impl Access {
    /// From which setting on TCP answers readers. `None`: never.
    pub fn on_tcp_from(self) -> Option<PublicAccess> {
        match self {
            Access::Health => Some(PublicAccess::None),
            Access::Metrics => Some(PublicAccess::Metrics),
            Access::Read => Some(PublicAccess::Read),
            Access::SocketOnly(_) => None,
        }
    }
    /// Why TCP does not answer a reader; `None`: it does.
    pub(super) fn refused_on_tcp(self, public: PublicAccess) -> Option<String> {
        const WHERE: &str = "only on the agent's Unix socket, and over TCP with a token or a certificate that may act";
        if self.on_tcp_from().is_some_and(|from| public >= from) {
            return None;
        }
        Some(match self {
            Access::SocketOnly(what) => format!("{what} {WHERE}"),
            _ => format!("this is served {WHERE}: telemetry.public is {:?}", public.as_str()),
        })
    }
}
