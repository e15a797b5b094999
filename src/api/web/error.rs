//! Why it is not clear who may be let in.

use std::path::PathBuf;

use crate::jobspec::diagnostic::Diagnostics;

/// Why the files that say who is let in cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    File(Diagnostics),
    #[error("{}:{line}: error: {message}", path.display())]
    Token { path: PathBuf, line: usize, message: String },
    #[error("{}: {what} would go by this change: that takes a restart of the agent", path.display())]
    Opens { path: PathBuf, what: &'static str },
    /// Settings that are fine alone and give no client a right together.
    #[error(
        "agent.acting_certificates lets no client act: {} verifies no certificates of clients (client_auth_type: \
         RequireAndVerifyClientCert or VerifyClientCertIfGiven)", path.display()
    )]
    Unverified { path: PathBuf },
    #[error("the system gives no random bytes")]
    Random,
}
