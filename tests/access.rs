//! Who is let in over TCP: a real agent with Prometheus's web configuration file, asked by clients that may, by such
//! that may not, and by a real Prometheus.

use crate::certificates;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    Agent, AgentOptions, Cli, Exposition, Prometheus, Response, allostat, exchange, is_root, part, patience, tcp,
    test_dir, wait_for, write_secret,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use certificates::{Authority, Shown};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, StreamOwned};

/// Of the word "secret".
const HASH: &str = "HASHED";
const TOKEN: &str = "2f9c1d7e55aa4b0c9d3e8f7a61b2c3d4";
const JOB: &str = "job \"j\" {\n type = \"batch\"\n group \"g\" {\n task \"t\" {\n driver = \"mock\"\n config {\n run_for = \"1h\"\n }\n }\n }\n}\n";

fn limit() -> Duration {
    Duration::from_secs(20) * patience()
}

/// An agent and all that it was given: its directory, who signs, what it shows.
struct Site {
    agent: Agent,
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Site {
    /// `web`: of the web configuration, below the certificate of the agent. `config`: of the agent's own.
    fn start(web: &str, config: &str) -> Site {
        let (dir, authority) = (test_dir(), Authority::new("ours"));
        authority.sign_named("agent.example").write(dir.path(), "agent");
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).expect("a file");
        write_secret(&dir.path().join("tokens"), &format!("# operators\n{TOKEN}\n"));
        write_web(dir.path(), web);
        let here = dir.path().display();
        let config = format!(
            "agent {{\n  web_config_file = \"{here}/web.yml\"\n  {}\n}}\ndrivers {{\n  enabled = [\"raw_exec\", \"mock\"]\n}}\n",
            config.replace("HERE", &here.to_string())
        );
        let mut agent = Agent::to_start(AgentOptions { config, ..AgentOptions::default() });
        agent.start_behind_its_socket();
        Site { agent, dir, authority }
    }
    fn client(&self, shows: Option<&Shown>) -> Arc<ClientConfig> {
        self.authority.client(shows, &[&TLS13, &TLS12])
    }
    fn request(&self, shows: Option<&Shown>, request: &Request) -> io::Result<Response> {
        https(self.agent.address, self.client(shows), request).map(|(response, _)| response)
    }
    fn get(&self, shows: Option<&Shown>, path: &str, authorization: &str) -> Response {
        self.request(shows, &Request::get(path, authorization)).expect("an answer")
    }
    /// Waits until so many were refused for this reason: a body says what was counted when its tick began.
    #[track_caller]
    fn wait_refused(&self, reason: &str, times: u64) {
        wait_for(reason, limit(), || (self.refused(reason) >= times).then_some(()));
        assert_eq!(self.refused(reason), times, "{reason}");
    }
    /// How often a client was refused for this reason.
    fn refused(&self, reason: &str) -> u64 {
        let body = self.agent.request("GET", "/metrics", "");
        let body = Exposition::parse(body.text());
        body.one("allostat_http_requests_refused_total", &[("reason", reason)]).expect("known from the start").u64()
    }
    fn is_in_effect(&self, file: &str) -> Option<u64> {
        let body = self.agent.request("GET", "/metrics", "");
        let body = Exposition::parse(body.text());
        Some(body.one("allostat_access_last_reload_successful", &[("file", file)])?.u64())
    }
    /// A command over https.
    fn cli(&self, args: &[&str]) -> Cli {
        let mut command = Command::new(allostat());
        command.args(args).env("ALLOSTAT_ADDR", format!("https://{}", self.agent.address)).env("NO_COLOR", "1");
        command.env("ALLOSTAT_CA", self.dir.path().join("ca.pem"));
        command.output().expect("the binary under test").into()
    }
    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}

fn write_web(dir: &Path, more: &str) {
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    let text =
        format!("tls_server_config:\n  cert_file: agent.pem\n  key_file: agent.key\n{}", more.replace(HASH, &hash));
    // As a careful person replaces a file.
    std::fs::write(dir.join("web.new"), text).expect("a file");
    std::fs::rename(dir.join("web.new"), dir.join("web.yml")).expect("a file");
}

struct Request<'a> {
    method: &'a str,
    path: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: &'a str,
}

impl<'a> Request<'a> {
    fn get(path: &'a str, authorization: &'a str) -> Request<'a> {
        Request { method: "GET", path, headers: authorized(authorization), body: "" }
    }
    fn post(path: &'a str, authorization: &'a str, body: &'a str) -> Request<'a> {
        Request { method: "POST", path, headers: authorized(authorization), body }
    }
}

fn authorized(value: &str) -> Vec<(&str, &str)> {
    Some(("Authorization", value)).filter(|_| !value.is_empty()).into_iter().collect()
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

fn https(
    address: SocketAddr,
    client: Arc<ClientConfig>,
    request: &Request,
) -> io::Result<(Response, Option<ProtocolVersion>)> {
    let name = address.ip().into();
    let connection = ClientConnection::new(client, name).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60) * patience()))?;
    let mut stream = StreamOwned::new(connection, stream);
    let body = request.body.as_bytes();
    let answer = exchange(&mut stream, &address.to_string(), request.method, request.path, &request.headers, body)?;
    Ok((answer, stream.conn.protocol_version()))
}

const ALL_OF_IT: &str =
    "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\nbasic_auth_users:\n  alice: HASHED\n";

/// Promise (Input validation): TLS, certificates and passwords over TCP follow Prometheus's web configuration file; a
/// real one scrapes so
#[test]
fn a_real_prometheus_scrapes_over_tls_with_a_certificate_and_a_password() {
    let site = Site::start(&format!("  client_allowed_sans: [prometheus.example]\n{ALL_OF_IT}"), "");
    site.authority.sign_named("prometheus.example").write(site.dir.path(), "prometheus");
    let scrape = |password: &str| {
        format!(
            "  scheme: https\n  basic_auth: {{username: alice, password: {password}}}\n  tls_config: {{ca_file: {}, cert_file: {}, \
             key_file: {}}}\n",
            site.path("ca.pem"),
            site.path("prometheus.pem"),
            site.path("prometheus.key")
        )
    };
    let Some(good) = Prometheus::start_with(site.agent.address, &scrape("secret")) else { skip_test!("no-prometheus") };
    good.wait_value("up", |up| up == 1.0);
    assert!(good.value("count({__name__=~\"allostat_.+\"})").is_some_and(|series| series > 50.0));
    let bad = Prometheus::start_with(site.agent.address, &scrape("sicret")).expect("there was one");
    bad.wait_value("up", |up| up == 0.0);
    let targets = bad.api("/api/v1/targets").to_string();
    assert!(targets.contains("401"), "{targets}");
    wait_for("it to be counted", limit(), || (site.refused("wrong_password") >= 1).then_some(()));
    site.agent.stop();
}

/// Promise (Input validation): A missing, expired, foreign or wrong certificate, password or token is refused, counted,
/// and answered with the reason
/// Promise (Input validation): A refusal reveals neither in text nor in time which part of a password was wrong
#[test]
fn each_wrong_thing_is_refused_with_its_reason_counted_and_logged() {
    let names = "  client_allowed_sans: [prometheus.example]\n";
    let site = Site::start(&format!("{names}{ALL_OF_IT}"), "token_file = \"HERE/tokens\"");
    let (own, stranger) = (&site.authority, Authority::new("another"));
    let good = own.sign_named("prometheus.example");
    let right = basic("alice", "secret");
    assert_eq!(site.get(Some(&good), "/metrics", &right).status, 200);

    // In the handshake: the reason that its alert gives, and ours.
    let unnamed = own.sign_named("other.example");
    let expired = own.sign(|params| {
        params.subject_alt_names.push(rcgen::SanType::DnsName("prometheus.example".try_into().expect("a name")));
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
    });
    let foreign = stranger.sign_named("prometheus.example");
    for (shows, reason, words) in [
        (None, "no_certificate", "it showed no certificate"),
        (Some(&expired), "certificate_expired", "expired"),
        (Some(&foreign), "certificate_untrusted", "UnknownIssuer"),
        (Some(&unnamed), "certificate_name", "client_allowed_sans"),
    ] {
        let failed = site.request(shows, &Request::get("/metrics", &right));
        assert!(failed.is_err(), "{reason}: {failed:?}");
        site.wait_refused(reason, 1);
        let is_logged =
            |line: &str| line.contains("a request was refused") && line.contains(reason) && line.contains(words);
        wait_for(words, limit(), || site.agent.log().lines().any(is_logged).then_some(()));
    }
    // After it.
    let (wrong, unknown) = (basic("alice", "sicret"), basic("carol", "secret"));
    for (authorization, status, words) in [
        ("", 401, "a user and a password are wanted"),
        ("Basic ???", 401, "a user and a password are wanted"),
        ("Digest x", 401, "a user and a password are wanted"),
        (wrong.as_str(), 401, "user or password is wrong"),
        (unknown.as_str(), 401, "user or password is wrong"),
        ("Bearer 0123456789abcdef0123456789abcdef", 401, "this token is none of the agent's"),
    ] {
        for path in ["/metrics", "/healthz", "/nothing", "/v1/jobs"] {
            let answer = site.get(Some(&good), path, authorization);
            assert_eq!(answer.status, status, "{authorization} {path}");
            assert!(answer.text().contains(words), "{}", answer.text());
            assert_eq!(answer.json()["code"], "unauthorized");
            assert!(
                answer.header("www-authenticate").is_some_and(|request| request.starts_with("Basic ")),
                "{answer:?}"
            );
        }
    }
    for (reason, times) in [("no_credentials", 12), ("wrong_password", 8), ("wrong_token", 4)] {
        site.wait_refused(reason, times);
    }
    let of_alice = site.get(Some(&good), "/metrics", &wrong).text().to_owned();
    assert_eq!(of_alice, site.get(Some(&good), "/metrics", &unknown).text(), "which part was wrong is not revealed");
    // Plain HTTP on that port.
    let plain = tcp(site.agent.address, "GET", "/metrics", &[], b"").expect("an answer");
    assert_eq!(plain.status, 400);
    site.wait_refused("plain_http", 1);
    assert!(plain.text().contains("use https://"), "{}", plain.text());
    // What is no TLS and no HTTP, and a client that only checks whether the port is open.
    io::Write::write_all(&mut TcpStream::connect(site.agent.address).expect("it listens"), b"\x16\x03\x01\x00\x02zz")
        .expect("it listens");
    site.wait_refused("tls", 1);
    drop(TcpStream::connect(site.agent.address).expect("it listens"));
    assert_eq!(site.get(Some(&good), "/metrics", &right).status, 200, "none of it hurt");
    let log = site.agent.log();
    assert!(!log.contains("sicret") && !log.contains("0123456789abcdef"), "{log}");
    site.agent.stop();
}

/// Promise (Input validation): Only clients with a token or a named certificate act over TCP; the commands do, over
/// https
#[test]
fn only_a_caller_with_an_acting_token_or_certificate_acts() {
    let web =
        "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\nbasic_auth_users:\n  alice: HASHED\n";
    let config = "token_file = \"HERE/tokens\"\n  acting_certificates = [\"operator.example\"]";
    let site = Site::start(web, config);
    let (operator, reader) =
        (site.authority.sign_named("operator.example"), site.authority.sign_named("reader.example"));
    let (password, token) = (basic("alice", "secret"), format!("Bearer {TOKEN}"));
    let submit = |shows: Option<&Shown>, authorization: &str| {
        site.request(shows, &Request::post("/v1/jobs?plan=1", authorization, JOB)).expect("an answer")
    };
    for (shows, authorization, status) in [
        (None, "", 401),
        (None, password.as_str(), 403),
        (Some(&reader), "", 401),
        (Some(&reader), password.as_str(), 403),
        (Some(&operator), "", 200),
        (Some(&operator), password.as_str(), 200),
        (None, token.as_str(), 200),
        (Some(&reader), token.as_str(), 200),
    ] {
        let answer = submit(shows, authorization);
        assert_eq!(answer.status, status, "{authorization}: {}", answer.text());
    }
    // A browser shows its certificate to whichever page asks; no page knows the token.
    let page = |shows: Option<&Shown>, authorization| {
        let mut request = Request::post("/v1/jobs?plan=1", authorization, JOB);
        request.headers.push(("Origin", "https://evil.example"));
        site.request(shows, &request).expect("an answer")
    };
    let refused = page(Some(&operator), "");
    assert_eq!((refused.status, refused.json()["code"].as_str()), (403, Some("no_pages")));
    assert_eq!(page(None, &token).status, 200);
    site.wait_refused("page", 1);
    site.wait_refused("socket_only", 2);
    // All that the commands do.
    std::fs::write(site.path("job.hcl"), JOB).expect("a file");
    let with_token = ["--token-file", &site.path("tokens")];
    let (certificate, key) = operator.write(site.dir.path(), "operator");
    let text = |path: &Path| path.display().to_string();
    let (certificate, key) = (text(&certificate), text(&key));
    let with_certificate = ["--cert", certificate.as_str(), "--key", key.as_str()];
    let started = site.cli(&[&["run", "--detach", &site.path("job.hcl")], &with_token[..]].concat()).ok();
    assert_eq!(started.trim(), site.agent.alloc_ids()[0]);
    for who in [&with_token[..], &with_certificate[..]] {
        let id = &site.agent.alloc_ids()[0];
        assert!(site.cli(&[&["status"], who].concat()).ok().contains(&id[..8]));
        let whole = site.cli(&[&["status", id, "--json"], who].concat()).ok();
        assert!(whole.contains("\"definition\""), "a client that may act sees all: {whole}");
    }
    let denied = site.cli(&["stop", "--all"]);
    assert!(denied.code == Some(77) && denied.stderr.contains("--token-file"), "{denied:?}");
    site.cli(&[&["stop", "--all"], &with_certificate[..]].concat()).ok();
    let broken = site.cli(&["status", "--ca", &site.path("agent.key")]);
    assert!(broken.stderr.contains("there is no certificate in"), "{broken:?}");
    site.agent.stop();
}

#[test]
fn on_this_host_a_token_is_enough_over_plain_http_and_the_cli_sends_it_nowhere_else() {
    let dir = test_dir();
    let tokens = dir.path().join("tokens").display().to_string();
    write_secret(Path::new(&tokens), &format!("{TOKEN}\n"));
    let config = format!("agent {{\n  token_file = \"{tokens}\"\n}}\ndrivers {{\n  enabled = [\"mock\"]\n}}\n");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let request = |token: &str| {
        let headers = [("Authorization", format!("Bearer {token}"))];
        let headers = headers.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>();
        tcp(agent.address, "POST", "/v1/jobs?plan=1", &headers, JOB.as_bytes()).expect("an answer").status
    };
    assert_eq!((request(TOKEN), request("0123456789abcdef")), (200, 401));
    let plain = tcp(agent.address, "POST", "/v1/jobs?plan=1", &[], JOB.as_bytes()).expect("an answer");
    assert_eq!((plain.status, plain.json()["code"].as_str()), (403, Some("socket_only")));
    // A token more, and one less, without a restart.
    std::fs::write(&tokens, "another-token-of-32-characters-x\n").expect("a file");
    wait_for("the new token", limit(), || (request("another-token-of-32-characters-x") == 200).then_some(()));
    // Files that let no client in: one that others may read or write, one that waits for a writer, none at all. And the
    // right one again.
    use std::os::unix::fs::PermissionsExt;
    let mode = |bits| std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(bits)).expect("our own");
    let refused =
        |what: &str| wait_for(what, limit(), || (request("another-token-of-32-characters-x") != 200).then_some(()));
    for bits in [0o666, 0o644, 0o640, 0o604] {
        mode(bits);
        refused("a file that is not its owner's alone");
        let output = agent.cli(&["status", "--address", &format!("http://{}", agent.address), "--token-file", &tokens]);
        assert!(output.code == Some(77) && output.stderr.contains("chmod 600"), "{bits:o}: {output:?}");
        mode(0o600);
        wait_for("the token again", limit(), || (request("another-token-of-32-characters-x") == 200).then_some(()));
    }
    mode(0o644);
    refused("a file that other users may read");
    std::fs::remove_file(&tokens).expect("our own");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &tokens, fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).expect("a FIFO");
    refused("a FIFO");
    std::fs::remove_file(&tokens).expect("our own");
    refused("no file");
    write_secret(Path::new(&tokens), "another-token-of-32-characters-x\n");
    wait_for("the token again", limit(), || (request("another-token-of-32-characters-x") == 200).then_some(()));
    assert_eq!(request(TOKEN), 401);
    let elsewhere =
        crate::common::alone(dir.path(), &["status", "--address", "http://192.0.2.1:1", "--token-file", &tokens]);
    assert!(elsewhere.stderr.contains("as plain text") && elsewhere.stderr.contains("https://"), "{elsewhere:?}");
    agent.stop();
}

/// Neither an agent nor `check` takes a token or a key that other users may read, wherever it is named.
#[test]
fn a_token_or_key_that_other_users_may_read_is_refused_by_agent_and_check() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, authority) = (test_dir(), Authority::new("ours"));
    authority.sign_named("agent.example").write(dir.path(), "agent");
    write_secret(&dir.path().join("tokens"), TOKEN);
    write_web(dir.path(), "");
    let (here, read) =
        (dir.path().display(), |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("ours"));
    let key = read("agent.key");
    let inline =
        format!("tls_server_config:\n  cert_file: agent.pem\n  key: |\n    {}\n", key.trim().replace('\n', "\n    "));
    write_secret(&dir.path().join("inline.yml"), &inline);
    for (name, config) in [
        ("tokens", format!("agent {{\n  token_file = \"{here}/tokens\"\n}}\n")),
        ("agent.key", format!("agent {{\n  web_config_file = \"{here}/web.yml\"\n}}\n")),
        ("inline.yml", format!("agent {{\n  web_config_file = \"{here}/inline.yml\"\n}}\n")),
        (
            "agent.key",
            format!(
                "otlp {{\n  endpoint = \"https://127.0.0.1:1\"\n  client_certificate = \"{here}/agent.pem\"\n  client_key = \
                 \"{here}/agent.key\"\n}}\n"
            ),
        ),
    ] {
        let file = dir.path().join("agent.hcl");
        std::fs::write(&file, &config).expect("a file");
        let file = file.to_str().expect("UTF-8");
        let data = dir.path().join("data");
        let check = || crate::common::alone(dir.path(), &["check", file]);
        let start = || {
            let data = data.to_str().expect("UTF-8");
            crate::common::alone(dir.path(), &["agent", "--listen", "none", "--config", file, "--data-dir", data])
        };
        check().ok();
        for bits in [0o644, 0o640, 0o604] {
            let path = dir.path().join(name);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).expect("our own");
            let checked = check();
            assert!(checked.code == Some(65) && checked.stderr.contains("chmod 600"), "{config}: {checked:?}");
            let started = start();
            assert!(matches!(started.code, Some(65 | 73)) && started.stderr.contains("chmod 600"), "{started:?}");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("our own");
        }
    }
}

/// Promise (Input validation): Certificates, passwords and tokens change without a restart; a broken file closes and
/// opens nothing
#[test]
fn renewed_certificates_and_passwords_apply_at_once_and_a_broken_file_is_ignored() {
    let web =
        "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\nbasic_auth_users:\n  alice: HASHED\n";
    let site = Site::start(web, "");
    let request = |user: &str| site.get(None, "/metrics?name[]=allostat_series", &basic(user, "secret")).status;
    assert_eq!((request("alice"), request("bob"), site.is_in_effect("web_config")), (200, 401, Some(1)));
    // Another user.
    write_web(site.dir.path(), &web.replace("alice", "bob"));
    wait_for("bob", limit(), || (request("bob") == 200).then_some(()));
    assert_eq!(request("alice"), 401, "also from what was remembered");
    // A certificate whose key is not written yet, then both.
    let shown = |client: Arc<ClientConfig>| {
        let connection = ClientConnection::new(client, site.agent.address.ip().into()).expect("a client");
        let mut stream = StreamOwned::new(connection, TcpStream::connect(site.agent.address).expect("it listens"));
        io::Write::flush(&mut stream)
            .and_then(|()| stream.conn.complete_io(&mut stream.sock).map(drop))
            .expect("a handshake");
        stream.conn.peer_certificates().expect("a certificate")[0].clone()
    };
    let before = shown(site.client(None));
    let renewed = site.authority.sign_named("agent.example");
    let key = std::fs::read(site.path("agent.key")).expect("a file");
    renewed.write(site.dir.path(), "agent");
    let new_key = std::fs::read(site.path("agent.key")).expect("a file");
    std::fs::write(site.path("agent.key"), key).expect("a file");
    wait_for("the half to be seen", limit(), || {
        assert_eq!(shown(site.client(None)), before, "half of a pair changes nothing");
        (site.is_in_effect("web_config") == Some(0)).then_some(())
    });
    assert!(site.agent.log().contains("this key is not that of cert_file"), "{}", site.agent.log());
    std::fs::write(site.path("agent.key"), new_key).expect("a file");
    wait_for("the renewed one", limit(), || (shown(site.client(None)) == renewed.certificate).then_some(()));
    wait_for("it to be reported", limit(), || (site.is_in_effect("web_config") == Some(1)).then_some(()));
    // What is broken, or would open what was shut.
    let good = std::fs::read_to_string(site.path("web.yml")).expect("a file");
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    let cases = [
        (good.replace("cert_file", "cert_fil"), "did you mean cert_file?"),
        (String::new(), "TLS would go by this change"),
        (good.split("basic_auth_users").next().unwrap_or("").to_owned(), "every password would go by this change"),
        (
            format!(
                "tls_server_config:\n  cert_file: agent.pem\n  key_file: agent.key\nbasic_auth_users:\n  bob: {hash}\n"
            ),
            "the certificates of clients would go by this change",
        ),
    ];
    for (text, words) in cases {
        std::fs::write(site.path("web.yml"), text).expect("a file");
        wait_for(words, limit(), || {
            assert_eq!((request("bob"), request("alice")), (200, 401), "{words}");
            (site.is_in_effect("web_config") == Some(0) && site.agent.log().contains(words)).then_some(())
        });
        std::fs::write(site.path("web.yml"), &good).expect("a file");
        wait_for("it to be repaired", limit(), || {
            assert_eq!(request("bob"), 200);
            (site.is_in_effect("web_config") == Some(1)).then_some(())
        });
    }
    site.agent.stop();
}

#[test]
fn tls_versions_headers_names_and_rate_limits_follow_the_web_file() {
    let web = "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\nhttp_server_config:\n  headers:\n    \
               X-Frame-Options: deny\n    Strict-Transport-Security: max-age=60\nrate_limit:\n  interval: 1h\n  burst: 5\n";
    let site = Site::start(web, "");
    let request = Request::get("/healthz", "");
    let (answer, version) = https(site.agent.address, site.client(None), &request).expect("an answer");
    assert_eq!((answer.status, version), (200, Some(ProtocolVersion::TLSv1_2)));
    assert_eq!(answer.header("x-frame-options"), Some("deny"));
    assert_eq!(answer.header("strict-transport-security"), Some("max-age=60"));
    let newer = https(site.agent.address, site.authority.client(None, &[&TLS13]), &request);
    assert!(newer.is_err(), "{newer:?}");
    site.wait_refused("tls", 1);
    // By the name in its certificate it is asked without a word in agent.host_names; by another it is not.
    for (host, status) in [("agent.example:9740", 200), ("evil.example", 421)] {
        let request = Request { headers: vec![("Host", host)], ..Request::get("/healthz", "") };
        assert_eq!(site.request(None, &request).expect("an answer").status, status, "{host}");
    }
    // Two of five are gone; a request with a wrong Host header takes none.
    let statuses: Vec<u16> = (0..5).map(|_| site.get(None, "/healthz", "").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    site.wait_refused("rate_limit", 2);
    site.agent.stop();
}

/// Promise (Input validation): Each mistake in a web configuration is reported with its place, by `check` and by a
/// start, without secrets
/// Promise (Input validation): Acting certificates without verification are refused by `check` as by a start
#[test]
fn check_reads_a_web_configuration_with_its_files_and_so_does_a_start() {
    let (dir, authority) = (test_dir(), Authority::new("ours"));
    let file = |name: &str| dir.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(file(name), text).expect("a file");
    let example = include_str!("../examples/web-config.yml");
    write("web.yml", example);
    write("ca.pem", &authority.pem());
    authority.sign(|_| ()).write(dir.path(), "agent");
    let check = |name: &str| crate::common::alone(dir.path(), &["check", &file(name)]);
    assert!(check("web.yml").ok().contains("ok (web configuration)"));
    let hash = example.lines().find_map(|line| line.trim().strip_prefix("prometheus: ")).expect("a user");
    assert_eq!(bcrypt::verify("example", hash.trim_matches('"')).ok(), Some(true), "the password that it names");
    write("agent.hcl", &format!("agent {{\n  web_config_file = \"{}\"\n}}\n", file("web.yml")));
    assert!(check("agent.hcl").ok().contains("ok (configuration)"));

    authority.sign(|_| ()).write(dir.path(), "other");
    let cases = [
        ("key_file: agent.key", "key_file: other.key", ":8:13: error: this key is not that of cert_file"),
        ("key_file: agent.key", "key_file: none.key", ":8:13: error: cannot read "),
        ("cert_file: agent.pem", "cert_file: agent.key", ":7:14: error: there is no certificate in it"),
        ("client_ca_file: ca.pem", "client_ca_file: agent.key", ":12:19: error: there is no certificate in it"),
        (
            "min_version: TLS12",
            "min_version: TLS10",
            "error: TLS10 is not spoken here, it is broken: the oldest is TLS12",
        ),
    ];
    for (right, wrong, words) in cases {
        write("web.yml", &example.replace(right, wrong));
        for (args, code) in [
            (vec!["check", &file("web.yml")], 65),
            (vec!["check", &file("agent.hcl")], 65),
            (vec!["agent", "--config", &file("agent.hcl"), "--data-dir", &file("data"), "--listen", "127.0.0.1:0"], 65),
        ] {
            let checked = crate::common::alone(dir.path(), &args);
            assert!(checked.stderr.contains(words) && checked.code == Some(code), "{words}: {checked:?}");
        }
    }
    // Certificates that act must be verified.
    let acting = "  acting_certificates = [\"*\"]\n";
    write("agent.hcl", &format!("agent {{\n{acting}}}\n"));
    let checked = check("agent.hcl");
    assert!(checked.code == Some(65) && checked.stderr.contains("needs agent.web_config_file"), "{checked:?}");
    write("agent.hcl", &format!("agent {{\n  web_config_file = \"{}\"\n{acting}}}\n", file("web.yml")));
    write("web.yml", "tls_server_config:\n  cert_file: agent.pem\n  key_file: agent.key\n");
    let checked = check("agent.hcl");
    assert!(checked.code == Some(65) && checked.stderr.contains("verifies no certificates of clients"), "{checked:?}");
    write("web.yml", example);
    assert!(check("agent.hcl").ok().contains("ok (configuration)"));

    write("web.yml", "http_server_config:\n  http2: true\n");
    let checked = check("web.yml");
    assert!(checked.code == Some(0) && checked.stderr.contains("HTTP/2 is not spoken here"), "{checked:?}");
}

/// As `openssl req -x509` makes them, with and without `basicConstraints=critical,CA:FALSE`; and one for another name,
/// and an expired one.
///
/// Promise (Input validation): A self-signed certificate named as CA is trusted for its name and time, an authority too
#[test]
fn self_signed_certificate_given_as_ca_is_trusted_for_its_name_and_time() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType, date_time_ymd};
    let authority = IsCa::Ca(BasicConstraints::Unconstrained);
    let here = [127, 0, 0, 1];
    for (is_ca, address, until, reason) in [
        (IsCa::ExplicitNoCa, here, 2100, None),
        (authority, here, 2100, None),
        (authority, [127, 0, 0, 9], 2100, Some("127.0.0.1")),
        (authority, here, 2001, Some("expired")),
    ] {
        let site = Site::start("", "");
        let key = KeyPair::generate().expect("a certificate");
        let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
        params.subject_alt_names = vec![SanType::IpAddress(address.into())];
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(until, 1, 1));
        let is_authority = matches!(is_ca, IsCa::Ca(_));
        params.is_ca = is_ca;
        let own = Shown { certificate: params.self_signed(&key).expect("a certificate").der().clone(), key };
        own.write(site.dir.path(), "agent");
        std::fs::copy(site.path("agent.pem"), site.path("ca.pem")).expect("a file");
        let checked = crate::common::alone(site.dir.path(), &["check", &site.path("web.yml")]);
        let warns = checked.stderr.contains("web.yml:2:14: warning");
        assert_eq!((checked.code, warns), (Some(0), is_authority), "{checked:?}");
        let requested = site.cli(&["status"]);
        match reason {
            None => assert_eq!(requested.code, Some(0), "{requested:?}"),
            Some(reason) => {
                assert_eq!(requested.code, Some(69), "{requested:?}");
                assert!(requested.stderr.contains(reason), "{requested:?}");
            }
        }
    }
}

/// With the real `openssl`; each certificate is its own CA file, unless it says otherwise.
///
/// Promise (Input validation): What `openssl req -x509` makes by default is trusted as CA for the host in its subject
#[test]
fn default_certificate_of_openssl_is_trusted_as_ca_for_the_host_in_its_subject() {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
    let Some(openssl) = part("openssl") else { skip_test!("no-python") };
    let site = Site::start("", "");
    let port = site.agent.address.port();
    let status = |host: &str| {
        let mut command = Command::new(allostat());
        command.arg("status").env("ALLOSTAT_ADDR", format!("https://{host}:{port}")).env("NO_COLOR", "1");
        command.env("ALLOSTAT_CA", site.path("ca.pem"));
        Cli::from(command.output().expect("the binary under test"))
    };
    let check = |host: &str, what: &str, refusal: Option<&str>| {
        let requested = status(host);
        match refusal {
            None => assert_eq!(requested.code, Some(0), "{what} {host}: {requested:?}"),
            Some(words) => {
                assert_eq!(requested.code, Some(69), "{what} {host}: {requested:?}");
                assert!(requested.stderr.contains(words), "{what} {host}: {requested:?}");
            }
        }
    };
    let not_authority = "basicConstraints=critical,CA:FALSE";
    for (subject, added, host, refusal) in [
        ("/CN=127.0.0.1", "", "127.0.0.1", None),
        ("/CN=localhost", "", "localhost", None),
        ("/O=Shop/CN=LocalHost", "", "localhost", None),
        ("/CN=127.0.0.1", not_authority, "127.0.0.1", None),
        ("/CN=127.0.0.1", "extendedKeyUsage=serverAuth", "127.0.0.1", None),
        ("/CN=127.0.0.1", "extendedKeyUsage=clientAuth", "127.0.0.1", Some("InvalidPurpose")),
        ("/CN=127.0.0.9", "", "127.0.0.1", Some("is for \"127.0.0.9\" (CN) alone: use that name, or create it again")),
        ("/CN=127.0.0.9", not_authority, "127.0.0.1", Some("-addext subjectAltName=IP:127.0.0.1")),
        ("/CN=agent.example", "", "localhost", Some("-addext subjectAltName=DNS:localhost")),
        ("/CN=localhost", "", "127.0.0.1", Some("-addext subjectAltName=IP:127.0.0.1")),
        ("/CN=*", "", "localhost", Some("-addext subjectAltName=DNS:localhost")),
        ("/CN=127.0.0.1/CN=other", "", "127.0.0.1", Some("has no subjectAltName: create it again")),
        ("/O=127.0.0.1", "", "127.0.0.1", Some("has no subjectAltName: create it again")),
        // With a subjectAltName the subject counts no more.
        ("/CN=127.0.0.1", "subjectAltName=DNS:agent.example", "127.0.0.1", Some("agent.example")),
        ("/CN=localhost", "subjectAltName=email:a@agent.example", "localhost", Some("not valid for name")),
    ] {
        let mut command = Command::new(&openssl);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
        command.args(["-subj", subject, "-keyout", "agent.key", "-out", "agent.pem"]).current_dir(site.dir.path());
        if !added.is_empty() {
            command.args(["-addext", added]);
        }
        let made = command.output().expect("it must start");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::copy(site.path("agent.pem"), site.path("ca.pem")).expect("a file");
        check(host, &format!("{subject} {added}"), refusal);
        if added.is_empty() {
            let checked = crate::common::alone(site.dir.path(), &["check", &site.path("web.yml")]);
            assert!(checked.stderr.contains("no name in a subjectAltName: Prometheus"), "{checked:?}");
        }
    }

    // Another certificate of the same subject is not the one that is named.
    let own = |until: i32| {
        let key = KeyPair::generate().expect("a certificate");
        let mut params = CertificateParams::new(Vec::new()).expect("a certificate");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "127.0.0.1");
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(until, 1, 1));
        Shown { certificate: params.self_signed(&key).expect("a certificate").der().clone(), key }
    };
    own(2100).write(site.dir.path(), "agent");
    own(2100).write(site.dir.path(), "ca");
    check("127.0.0.1", "another one", Some("certificate"));
    std::fs::copy(site.path("agent.pem"), site.path("ca.pem")).expect("a file");
    check("127.0.0.1", "its own", None);
    own(2001).write(site.dir.path(), "agent");
    std::fs::copy(site.path("agent.pem"), site.path("ca.pem")).expect("a file");
    check("127.0.0.1", "expired", Some("expired"));
    // What an authority signs needs a subjectAltName, as everywhere.
    let signed = site.authority.sign(|params| {
        params.subject_alt_names.clear();
        params.distinguished_name.push(DnType::CommonName, "127.0.0.1");
    });
    signed.write(site.dir.path(), "agent");
    std::fs::write(site.path("ca.pem"), site.authority.pem()).expect("a file");
    check(
        "127.0.0.1",
        "signed",
        Some("has no subjectAltName: create it again with -addext subjectAltName=IP:127.0.0.1"),
    );
    site.agent.stop();
}

/// A member of the group asks with the group alone.
///
/// Promise (Input validation): With `agent.socket_group` its members use the socket, others do not
#[test]
fn the_members_of_a_group_may_use_the_socket_if_one_is_set() {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    if !is_root() {
        skip_test!("not-root");
    }
    let config = "agent {\n  socket_group = \"4711\"\n}\ndrivers {\n  enabled = [\"mock\"]\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let socket = agent.socket().metadata().expect("a socket");
    assert_eq!((socket.mode() & 0o777, socket.uid(), socket.gid()), (0o660, 0, 4711));
    std::fs::set_permissions(agent.scratch(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("our own");
    let request = |gid: u32| {
        let mut command = Command::new("/usr/bin/env");
        let copy = agent.scratch().join("allostat");
        std::fs::copy(allostat(), &copy).expect("a copy");
        command.arg(copy).arg("status").uid(65534).gid(gid).current_dir("/");
        command.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
        Cli::from(command.output().expect("a command"))
    };
    assert_eq!(request(4711).code, Some(0));
    let stranger = request(65534);
    assert_eq!(stranger.code, Some(77), "for others it stays shut");
    let advice = "the agent belongs to root: use sudo, or set `agent.socket_group`";
    assert!(stranger.stderr.contains(advice) && !stranger.stderr.contains("start one"), "{}", stranger.stderr);
    agent.stop();
    let dir = test_dir();
    let data = dir.path().join("data").display().to_string();
    let mut refused = Command::new(allostat());
    refused.args(["agent", "--data-dir", &data, "--listen", "none"]).env("ALLOSTAT_SOCKET_GROUP", "no-such-group");
    let refused = Cli::from(refused.output().expect("a command"));
    assert!(refused.stderr.contains("there is no group \"no-such-group\" on this host"), "{refused:?}");
}
