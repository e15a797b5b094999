//! What is counted of who was not let in.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::registered::{counters, gauges};
use crate::model::metric::{MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static REQUESTS_REFUSED: MetricDesc = MetricDesc::counter(
    "allostat_http_requests_refused_total",
    Unit::None,
    "Refused HTTP requests and TCP connections, by reason.",
    &["reason"],
)
.from_profile(Profile::Standard)
.otlp("allostat.http.requests_refused", "{request}");

pub static LAST_RELOAD_SUCCESSFUL: MetricDesc = MetricDesc::gauge(
    "allostat_access_last_reload_successful",
    Unit::None,
    "1 if the file is in effect; 0 if it or a file it names is unreadable and the previous content still applies.",
    &["file"],
)
.absent_when("the file is not configured (agent.web_config_file, agent.token_file)")
.otlp("allostat.access.last_reload_successful", "1");
}

words! {
    /// Why a request was refused.
    pub enum AccessRefusal {
        WrongHost = "wrong_host",
        SocketOnly = "socket_only",
        NoCredentials = "no_credentials",
        /// Or an unknown user: the client cannot distinguish the two.
        WrongPassword = "wrong_password",
        WrongToken = "wrong_token",
        TokenInClear = "token_in_clear",
        Page = "page",
        RateLimit = "rate_limit",
        TooManyConnections = "too_many_connections",
        /// Answers that no reader takes use up the memory for them.
        UnsentAnswers = "unsent_answers",
        PlainHttp = "plain_http",
        NoCertificate = "no_certificate",
        CertificateExpired = "certificate_expired",
        /// Signed by no authority of ours.
        CertificateUntrusted = "certificate_untrusted",
        /// It has none of the names that are let in.
        CertificateName = "certificate_name",
        CertificateInvalid = "certificate_invalid",
        /// Versions, cipher suites, or a handshake that broke off.
        Tls = "tls",
    }
}

words! {
    /// A file that says who is let in.
    pub enum AccessFile {
        WebConfig = "web_config",
        Tokens = "tokens",
    }
}

/// Who was not let in, and whether the files that say so could be read.
pub struct Admission {
    refused: IntCounterVec,
    reloads: IntGaugeVec,
}

impl Admission {
    pub(super) fn new(registry: &Registry) -> Admission {
        let refused = counters(registry, &REQUESTS_REFUSED);
        for reason in AccessRefusal::ALL {
            refused.with_label_values(&[reason.as_str()]);
        }
        Admission { refused, reloads: gauges(registry, &LAST_RELOAD_SUCCESSFUL) }
    }
    pub fn refused(&self, reason: AccessRefusal) {
        self.refused.with_label_values(&[reason.as_str()]).inc();
    }
    /// How often requests were refused for this reason.
    pub fn count(&self, reason: AccessRefusal) -> u64 {
        self.refused.with_label_values(&[reason.as_str()]).get()
    }
    pub fn read(&self, file: AccessFile, in_effect: bool) {
        self.reloads.with_label_values(&[file.as_str()]).set(i64::from(in_effect));
    }
}
