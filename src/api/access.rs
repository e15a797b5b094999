//! Who may use an endpoint.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// TCP and the Unix socket.
    Everyone,
    /// The Unix socket only. The words begin the refusal: "jobs are submitted".
    SocketOnly(&'static str),
}
