//! Over TLS, to collectors that are believed and to such that are not.
//!
//! Promise (Measured values): Each OTLP signal has its own endpoint, headers, TLS, queue and counters, and can be
//! disabled

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rcgen::SanType;

use super::certificates::Authority;
use super::grpc::Collector;
use super::receiver::{Receiver, plain};
use super::{ledger, limit};
use crate::common::{Agent, AgentOptions, test_dir, wait_for};

fn text(path: &Path) -> &str {
    path.to_str().expect("a certificate")
}

/// How often TLS failed.
fn refused(agent: &Agent) -> u64 {
    let body = agent.metrics();
    body.one("allostat_otlp_requests_total", &[("code", "tls")]).map_or(0, |sample| sample.u64())
}

/// Promise (Measured values): OTLP uses TLS with configured or system authorities and a client certificate, renewed
/// without a restart
#[test]
fn collector_with_client_authentication_gets_points_over_tls() {
    let (dir, authority) = (test_dir(), Authority::new("ours"));
    let server = authority.sign(|_| ()).server(Some(&authority), b"http/1.1");
    let receiver = Receiver::with(Some(Box::new(move || Arc::clone(&server))), |_, _| plain(200));
    let (certificate, key) = authority.sign(|_| ()).write(dir.path(), "agent");
    let believed = dir.path().join("ca.pem");
    std::fs::write(&believed, authority.pem()).unwrap();
    let env = receiver.env(&[
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", text(&believed)),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", text(&certificate)),
        ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", text(&key)),
    ]);
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    wait_for("points to be taken", limit(), || ledger(&agent).filter(|counts| counts[1] > 500));
    assert_eq!(receiver.taken()[0].path, "/v1/metrics");
    assert_eq!(refused(&agent), 0);
    agent.stop();
}

/// By itself the agent believes whom the system believes.
#[test]
fn grpc_endpoint_without_scheme_uses_tls_with_the_system_authorities() {
    let (dir, authority) = (test_dir(), Authority::new("ours"));
    let collector = Collector::start(Some(authority.sign(|_| ()).server(None, b"h2")));
    let believed = dir.path().join("system.pem");
    std::fs::write(&believed, authority.pem()).unwrap();
    let endpoint = collector.address.to_string();
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "GRPC"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
        ("SSL_CERT_FILE", text(&believed)),
        ("OTEL_LOGS_EXPORTER", "none"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ];
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    wait_for("points to be taken", limit(), || ledger(&agent).filter(|counts| counts[1] > 500));
    assert_eq!(collector.seen()[0].header("scheme"), Some("https"));
    agent.stop();
}

/// Each is refused, counted and logged with its reason; with a good certificate the same agent goes on, and nothing is
/// lost.
///
/// Promise (Measured values): A collector with a wrong or expired certificate receives nothing; it is reported,
/// counted, and nothing is lost
#[test]
fn untrusted_collector_gets_nothing_and_the_reason_is_logged() {
    let (dir, authority, stranger) = (test_dir(), Authority::new("ours"), Authority::new("another"));
    let good = authority.sign(|_| ());
    let expired = authority.sign_expired();
    let elsewhere = authority.sign(|params| {
        params.subject_alt_names = vec![SanType::DnsName("collector.example".try_into().unwrap())];
    });
    let of_stranger = stranger.sign(|_| ());
    let (old_file, old_key) = expired.write(dir.path(), "expired");
    // What the server shows, whether it asks, what it is shown, and what is said of it.
    let nothing: Option<(PathBuf, PathBuf)> = None;
    let cases = [
        (&of_stranger, false, nothing.clone(), "UnknownIssuer"),
        (&expired, false, nothing.clone(), "expired"),
        (&elsewhere, false, nothing.clone(), "not valid for name"),
        (&good, true, nothing, "CertificateRequired"),
        (&good, true, Some((old_file, old_key)), "CertificateExpired"),
    ];
    for (shown, needs_credentials, client, reason) in cases {
        let requested = needs_credentials.then_some(&authority);
        let (bad, valid) = (shown.server(requested, b"http/1.1"), good.server(None, b"http/1.1"));
        let is_valid = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&is_valid);
        let tls = move || Arc::clone(if now.load(Ordering::SeqCst) { &valid } else { &bad });
        let receiver = Receiver::with(Some(Box::new(tls)), |_, _| plain(200));
        let believed = dir.path().join("ca.pem");
        std::fs::write(&believed, authority.pem()).unwrap();
        let mut env = receiver.env(&[("OTEL_EXPORTER_OTLP_CERTIFICATE", text(&believed))]);
        if let Some((certificate, key)) = &client {
            env.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE".to_owned(), text(certificate).to_owned()));
            env.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY".to_owned(), text(key).to_owned()));
        }
        let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
        // Who hangs up at once may cut his own reason off: then a later try has it.
        wait_for(&format!("{reason} to be logged"), limit(), || {
            let is_logged = |line: &str| line.contains("push failed; points are queued") && line.contains(reason);
            agent.log().lines().any(is_logged).then_some(())
        });
        assert!(refused(&agent) >= 1 && receiver.seen().is_empty(), "{reason}: counted, and nothing is sent");
        is_valid.store(true, Ordering::SeqCst);
        wait_for("all to be taken", limit(), || ledger(&agent).filter(|counts| counts[1] > 500));
        assert_eq!(ledger(&agent).map(|counts| [counts[2], counts[3]]), Some([0, 0]), "{reason}");
        agent.stop();
    }
}

/// What is renewed is seen without a restart; what cannot be read is logged.
#[test]
fn a_certificate_that_is_not_there_yet_is_taken_when_it_is() {
    let (dir, authority) = (test_dir(), Authority::new("ours"));
    let server = authority.sign(|_| ()).server(Some(&authority), b"http/1.1");
    let receiver = Receiver::with(Some(Box::new(move || Arc::clone(&server))), |_, _| plain(200));
    let (believed, certificate) = (dir.path().join("ca.pem"), dir.path().join("agent.pem"));
    let key = dir.path().join("agent.key");
    std::fs::write(&believed, "").unwrap();
    let env = receiver.env(&[
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", text(&believed)),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", text(&certificate)),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", text(&key)),
    ]);
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    wait_for("it to be refused", limit(), || (refused(&agent) >= 1).then_some(()));
    assert!(agent.log().contains("there is no certificate in"), "{}", agent.log());
    std::fs::write(&believed, authority.pem()).unwrap();
    let before = refused(&agent);
    wait_for("it to be refused again", limit(), || (refused(&agent) > before).then_some(()));
    authority.sign(|_| ()).write(dir.path(), "agent");
    wait_for("points to be taken", limit(), || ledger(&agent).filter(|counts| counts[1] > 500));
    assert_eq!(ledger(&agent).map(|counts| [counts[2], counts[3]]), Some([0, 0]));
    agent.stop();
}
