//! What goes wrong for a caller: the one place that knows status codes.

use schemars::JsonSchema;
use serde::Serialize;

use crate::jobspec::Diagnostic;
use crate::model::words;
use crate::runner::RunnerError;
use crate::telemetry::access::AccessRefusal;
use crate::telemetry::chain;

/// An error as its reader gets it: a code that never changes, a sentence, and the field it is about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: Code,
    pub message: String,
    /// The parameter, header or place in the body that is wrong.
    pub field: Option<String>,
    /// The errors of a job file, each with its place.
    pub problems: Vec<serde_json::Value>,
    /// Who was not let in is counted by it.
    pub refusal: Option<AccessRefusal>,
}

words! {
    /// Stable: programs compare these words.
    pub enum Code {
        BadRequest = "bad_request",
        /// The Host header does not name this agent.
        WrongHost = "wrong_host",
        /// This endpoint needs credentials over TCP: a password, a token or a client certificate.
        Unauthorized = "unauthorized",
        /// A token was sent as plain text.
        TokenInClear = "token_in_clear",
        /// Plain HTTP on a port that speaks TLS.
        TlsRequired = "tls_required",
        /// A web page used the client certificate of its browser: pages cannot act.
        NoPages = "no_pages",
        /// Only on the Unix socket, or over TCP for clients that may act.
        SocketOnly = "socket_only",
        /// The file is private to its task or outside of the directory of the alloc, or remote exec is disabled.
        Forbidden = "forbidden",
        NotFound = "not_found",
        /// More than one alloc has this ID prefix or name.
        Ambiguous = "ambiguous",
        MethodNotAllowed = "method_not_allowed",
        RequestTimeout = "request_timeout",
        /// The request does not fit the current state, such as a signal to a dead task.
        Conflict = "conflict",
        BodyTooLarge = "body_too_large",
        /// A job file or a value in it is wrong.
        InvalidJob = "invalid_job",
        /// The request was valid, but the operation failed.
        Failed = "failed",
        /// The agent has not recovered its tasks yet, or is stopping.
        NotReady = "not_ready",
        /// The sampler has missed ticks.
        Unhealthy = "unhealthy",
        TooManyConnections = "too_many_connections",
        /// Too many answers wait for clients that do not read them.
        UnsentAnswers = "unsent_answers",
        TooManyRequests = "too_many_requests",
    }
}

impl Code {
    pub fn status(self) -> u16 {
        match self {
            Code::BadRequest | Code::TlsRequired => 400,
            Code::Unauthorized => 401,
            Code::SocketOnly | Code::TokenInClear | Code::NoPages | Code::Forbidden => 403,
            Code::NotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::RequestTimeout => 408,
            Code::Ambiguous | Code::Conflict => 409,
            Code::BodyTooLarge => 413,
            Code::WrongHost => 421,
            Code::InvalidJob => 422,
            Code::TooManyRequests => 429,
            Code::Failed => 500,
            Code::NotReady | Code::Unhealthy | Code::TooManyConnections | Code::UnsentAnswers => 503,
        }
    }
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<String>) -> ApiError {
        ApiError { code, message: message.into(), field: None, problems: Vec::new(), refusal: None }
    }
    #[must_use]
    pub fn on(mut self, field: impl Into<String>) -> ApiError {
        self.field = Some(field.into());
        self
    }
    #[must_use]
    pub fn because(mut self, refusal: AccessRefusal) -> ApiError {
        self.refusal = Some(refusal);
        self
    }
    pub fn bad_parameter(name: &str, message: impl Into<String>) -> ApiError {
        ApiError::new(Code::BadRequest, message).on(name)
    }
    pub fn status(&self) -> u16 {
        self.code.status()
    }
    /// A whole answer, after which the connection is closed: for where no handler was reached.
    pub fn to_wire(&self) -> Vec<u8> {
        let body = self.to_json();
        let status = hyper::StatusCode::from_u16(self.status()).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
        let mut wire = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            status.as_str(),
            status.canonical_reason().unwrap_or(""),
            body.len()
        )
        .into_bytes();
        wire.extend(body);
        wire
    }
    /// `{"code","message","field"?,"problems"?}`
    pub fn to_json(&self) -> Vec<u8> {
        let body = ErrorBody {
            code: self.code,
            message: &self.message,
            field: self.field.as_deref(),
            problems: &self.problems,
        };
        serde_json::to_vec(&body).expect("plain strings must serialize")
    }
}

/// Why a request was refused.
#[derive(Serialize, JsonSchema)]
pub(super) struct ErrorBody<'a> {
    /// For programs: it does not change.
    code: Code,
    /// A sentence for people.
    message: &'a str,
    /// The parameter, header or field of the body that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    /// Every problem of a job file, with its place.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(with = "Vec<Diagnostic>")]
    problems: &'a [serde_json::Value],
}

/// A request that the runner refused.
impl From<RunnerError> for ApiError {
    fn from(refusal: RunnerError) -> ApiError {
        let (code, field) = match &refusal {
            RunnerError::UnknownDriver { .. }
            | RunnerError::DriverConfig { .. }
            | RunnerError::NoKeyTree { .. }
            | RunnerError::Name { .. } => (Code::InvalidJob, None),
            RunnerError::Unchanged { .. }
            | RunnerError::JobKind { .. }
            | RunnerError::NotRunning { .. }
            | RunnerError::InRecovery { .. }
            | RunnerError::NothingRunning(_)
            | RunnerError::Final { .. }
            | RunnerError::MayStillRun { .. } => (Code::Conflict, None),
            RunnerError::UnknownJob { .. } | RunnerError::NotLaunching { .. } => (Code::NotFound, Some("id")),
            RunnerError::Dispatch { refusal, .. } => (Code::BadRequest, refusal.field()),
            RunnerError::Migration { .. } => (Code::BadRequest, Some("migrate_from")),
            RunnerError::UnknownAlloc(_) => (Code::NotFound, None),
            RunnerError::UnknownTask { .. } => (Code::NotFound, Some("task")),
            RunnerError::UnknownSignal { .. } => (Code::BadRequest, Some("signal")),
            RunnerError::Signal { .. } | RunnerError::Exec { .. } => (Code::BadRequest, None),
            RunnerError::StateDb(_) => (Code::Failed, None),
            RunnerError::ShuttingDown => (Code::NotReady, None),
        };
        let error = ApiError::new(code, chain(&refusal));
        ApiError { field: field.map(str::to_owned), ..error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_json_with_a_stable_code_and_no_empty_fields() {
        let error = ApiError::bad_parameter("tail", "tail must be a number");
        assert_eq!(
            String::from_utf8(error.to_json()).unwrap(),
            r#"{"code":"bad_request","message":"tail must be a number","field":"tail"}"#
        );
    }

    #[test]
    fn every_code_is_an_error_status() {
        for code in Code::ALL {
            assert!((400..600).contains(&code.status()), "{code:?}");
        }
    }
}
