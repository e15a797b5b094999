//! Web configuration files: what they mean, and that each mistake is reported with its place and no secret.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::jobspec::diagnostic::{Diagnostics, Severity};
use crate::model::fuzzed::each;

const HASH: &str = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";

fn read(text: &str) -> Result<file::WebFile, Diagnostics> {
    file::web_file(Path::new("/etc/allostat/web.yml"), &SourceText::new("web.yml", text))
}

/// Line, column and text of the only problem.
fn problem(text: &str) -> (usize, usize, String) {
    let Err(Diagnostics(all)) = read(text) else { panic!("it was read: {text}") };
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].severity, Severity::Error);
    (all[0].line, all[0].column, all[0].to_string())
}

#[test]
fn every_field_of_the_format_is_read() {
    let text = format!(
        "---\n# all of it\ntls_server_config:\n  cert_file: agent.pem\n  key_file: /keys/agent.key\n  client_auth_type: \
         'RequireAndVerifyClientCert'\n  client_ca_file: ca.pem\n  client_allowed_sans:\n  - prometheus.example\n  - \
         192.0.2.1\n  min_version: TLS12\n  max_version: TLS13\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n  \
         prefer_server_cipher_suites: false\n  curve_preferences: [X25519, CurveP256]\nhttp_server_config:\n  http2: false\n  \
         headers:\n    X-Frame-Options: deny\n    Strict-Transport-Security: max-age=31536000\nbasic_auth_users:\n  alice: \
         {HASH}\n  bob: \"{HASH}\"\nrate_limit:\n  interval: 100ms\n  burst: 20\n"
    );
    let read = read(&text).unwrap();
    let tls = read.tls.unwrap();
    assert!(matches!(&tls.certificate.value, file::Pem::File(path) if path == Path::new("/etc/allostat/agent.pem")));
    assert!(matches!(&tls.key.value, file::Pem::File(path) if path == Path::new("/keys/agent.key")));
    assert_eq!(tls.client_auth, ClientAuth::RequireAndVerify);
    assert_eq!(tls.allowed_names.unwrap(), ["prometheus.example", "192.0.2.1"]);
    assert_eq!((tls.versions.len(), tls.groups.len(), tls.prefers_own_order), (2, 2, false));
    assert_eq!(tls.suites.len(), 4, "those of TLS 1.3 stay");
    assert_eq!(read.users.keys().collect::<Vec<_>>(), ["alice", "bob"]);
    assert_eq!(read.headers.len(), 2);
    assert_eq!(read.rate, Some((Duration::from_millis(100), 20)));
    assert!(read.warnings.is_empty());
}

#[test]
fn empty_web_config_requires_nothing() {
    for text in ["", "# nothing\n", "---\n", "{}", "tls_server_config:\nbasic_auth_users: {}\n", "\u{feff}"] {
        let read = read(text).unwrap();
        assert!(read.tls.is_none() && read.users.is_empty() && read.rate.is_none(), "{text:?}");
    }
}

#[test]
fn http2_in_web_config_has_a_warning() {
    let read = read("http_server_config: { http2: true }\n").unwrap();
    assert_eq!((read.warnings.len(), read.warnings[0].line), (1, 1));
    assert!(read.warnings[0].message.contains("HTTP/1.1"));
}

#[test]
fn all_five_client_auth_types_are_accepted() {
    for word in ClientAuth::ALL {
        let authorities = if word.verifies() { "  client_ca_file: c\n" } else { "" };
        let text =
            format!("tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: {}\n", word.as_str());
        assert_eq!(read(&(text + authorities)).unwrap().tls.unwrap().client_auth, word);
    }
}

#[test]
fn each_mistake_is_reported_with_line_column_and_correction() {
    const TLS: &str = "tls_server_config:\n  cert_file: a\n  key_file: b\n";
    let cases: &[(&str, (usize, usize), &str)] = &[
        ("tls_server_confg:\n  cert_file: a\n", (1, 1), "did you mean tls_server_config?"),
        ("tls_server_config:\n  cert_fil: a\n  cert_file: a\n  key_file: b\n", (2, 3), "did you mean cert_file?"),
        ("tls_server_config:\n  cert_file: a\n", (2, 3), "key_file is missing"),
        ("tls_server_config:\n  key_file: a\n", (2, 3), "cert_file is missing"),
        ("tls_server_config: yes\n", (1, 20), "fields are wanted here, this is a value"),
        ("- a\n", (1, 1), "fields are wanted here, this is a list"),
        ("basic_auth_users: {}\nbasic_auth_users: {}\n", (2, 1), "is there twice"),
        ("basic_auth_users:\n  alice:\n", (2, 3), "has no hash of a password"),
        ("basic_auth_users:\n  al:ice: x\n", (2, 3), "no colon"),
        ("http_server_config:\n  http2: maybe\n", (2, 10), "true or false is wanted"),
        ("http_server_config:\n  headers:\n    X-Frame-Options: allow\n", (3, 22), "it is deny or sameorigin"),
        ("http_server_config:\n  headers:\n    Server: x\n", (3, 5), "there is no field `Server` here"),
        ("http_server_config:\n  headers:\n    X-XSS-Protection: \"a\\nb\"\n", (3, 23), "cannot stand in a header"),
        ("rate_limit: { interval: 1 parsec, burst: 1 }\n", (1, 25), "is no duration"),
        ("rate_limit: { interval: 1s, burst: 0 }\n", (1, 36), "no whole number above 0"),
        ("rate_limit:\n  interval: 1s\n", (2, 3), "burst"),
        ("a: [\n", (2, 1), "this is no YAML"),
        ("a: &x 1\n", (1, 4), "anchors and aliases are not read here"),
        ("a: !!int 1\n", (1, 4), "tags are not read here"),
        ("{}\n---\n{}\n", (2, 1), "a second document"),
    ];
    let of_tls: &[(&str, (usize, usize), &str)] = &[
        ("  min_version: TLS10\n", (4, 16), "the oldest is TLS12"),
        ("  max_version: TLS11\n", (4, 16), "the oldest is TLS12"),
        ("  max_version: SSLv3\n", (4, 16), "there are TLS12, TLS13"),
        ("  min_version: TLS13\n  max_version: TLS12\n", (5, 16), "older than min_version"),
        (
            "  cipher_suites:\n  - TLS_RSA_WITH_AES_128_CBC_SHA\n",
            (5, 5),
            "suites with CBC are not spoken here; there are",
        ),
        ("  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n", (4, 19), "it is broken"),
        ("  cipher_suites: [TLS_FOO]\n", (4, 19), "no such cipher suite"),
        ("  cipher_suites: TLS_FOO\n", (4, 18), "a list is wanted here"),
        ("  max_version: TLS12\n  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", (5, 18), "none of these"),
        ("  curve_preferences: [CurveP521]\n", (4, 23), "there are CurveP256, CurveP384, X25519"),
        ("  client_auth_type: RequireAndVerifyClientCrt\n", (4, 21), "did you mean RequireAndVerifyClientCert?"),
        ("  client_auth_type: RequireAndVerifyClientCert\n", (4, 21), "client_ca_file is missing"),
        ("  client_ca_file: c\n", (4, 19), "client_auth_type: RequireAndVerifyClientCert"),
        ("  client_allowed_sans: [a]\n", (4, 24), "needs a certificate of everybody"),
        ("  cert: abc\n", (2, 14), "one of them is wanted"),
    ];
    let of_tls = of_tls.iter().map(|(text, at, words)| (format!("{TLS}{text}"), at, words));
    let cases = cases.iter().map(|(text, at, words)| ((*text).to_owned(), at, words));
    for (text, at, words) in cases.chain(of_tls) {
        let (line, column, message) = problem(&text);
        assert_eq!((line, column), *at, "{text}{message}");
        assert!(message.contains(words), "{text}{message}");
    }
}

#[test]
fn a_secret_is_in_no_message_whatever_else_is_wrong() {
    for text in [
        "basic_auth_users:\n  alice: hunter2\n",
        "basic_auth_users: { alice: hunter2, bob: }\n",
        "basic_auth_user: { alice: hunter2 }\n",
        "basic_auth_users: { alice: hunter2\n",
        "basic_auth_users:\n  alice: [hunter2]\n",
        "tls_server_config: { key: hunter2, cert_fil: a }\n",
        "basic_auth_users:\n  alice: \"hunter2\n",
    ] {
        let Err(all) = read(text) else { panic!("{text}") };
        assert!(!all.to_string().contains("hunter2"), "{text}{all}");
        assert!(!format!("{all:?}").contains("hunter2"), "{text}{all}");
    }
}

#[test]
fn an_expensive_hash_is_refused_before_anybody_waits_for_it() {
    let dear = HASH.replace("$10$", "$31$");
    let (line, _, message) = problem(&format!("basic_auth_users:\n  alice: {dear}\n"));
    assert!(line == 2 && message.contains("its cost of 31 is not between 4 and 16"), "{message}");
    assert!(!message.contains("X0h1"), "{message}");
}

#[test]
fn a_rate_lets_a_burst_through_and_then_one_each_interval() {
    let (rate, start) = ((Duration::from_secs(1), 3), Instant::now());
    let mut bucket = RateBucket { left: 0.0, since: None };
    assert_eq!((0..5).filter(|_| bucket.takes(rate, start)).count(), 3);
    let later = start + Duration::from_millis(1500);
    assert_eq!((0..5).filter(|_| bucket.takes(rate, later)).count(), 1);
    assert!(bucket.takes(rate, start + Duration::from_secs(2)), "halves add up");
    assert_eq!((0..9).filter(|_| bucket.takes(rate, start + Duration::from_secs(900))).count(), 3);
}

#[test]
fn tokens_are_read_by_line_and_errors_do_not_contain_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    let read = |text: &str| {
        write_secret(&path, text);
        Tokens::read(&path, &mut FileStamps::default())
    };
    let tokens = read("# alice\n 0123456789abcdef \r\n\nfedcba9876543210\n").unwrap_or_else(|error| panic!("{error}"));
    assert!(tokens.has("0123456789abcdef") && tokens.has("fedcba9876543210"));
    for wrong in ["", "# alice", "0123456789abcde", "0123456789abcdef0", " 0123456789abcdef"] {
        assert!(!tokens.has(wrong), "{wrong:?}");
    }
    for (text, line, words) in [
        ("", 1, "there is no token in it"),
        ("# alice\nhunter2\n", 2, "this token has 7 characters"),
        ("hunter2 hunter2 hunter2\n", 1, "visible ASCII"),
        ("hunter2hunter2h\u{fc}nter2\n", 1, "visible ASCII"),
    ] {
        let error = read(text).err().expect("it is wrong").to_string();
        assert!(error.contains(&format!("tokens:{line}: ")) && error.contains(words), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Tokens::read(&path, &mut FileStamps::default()), Err(AccessError::Read { .. })));
}

/// From elsewhere over plain HTTP a token does not count: it may have been overheard.
#[test]
fn token_sent_as_plain_text_from_elsewhere_gives_no_rights() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    write_secret(&path, "0123456789abcdef\n");
    let config = Config { token_file: Some(path), ..Config::default() };
    let gate = Gate::open(&config, &Arc::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let request = |token: &str, guest: &ConnectionIdentity, from_here: bool| {
        let headers =
            HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(format!("bearer {token}")).unwrap())]);
        runtime.block_on(gate.who(guest, &headers, from_here)).map_err(|error| error.refusal)
    };
    let web = WebAccess { tls: None, headers: Vec::new(), users: BTreeMap::new(), rate: None, warnings: Vec::new() };
    let (plain, secured) =
        (ConnectionIdentity::default(), ConnectionIdentity { web: Some(Arc::new(web)), operates: false, uid: None });
    let operator = Ok(TcpCaller::Operator { by_certificate: false });
    for token in ["0123456789abcdef", "another"] {
        assert_eq!(request(token, &plain, false), Err(Some(AccessRefusal::TokenInClear)), "right or wrong");
    }
    assert_eq!(request("0123456789abcdef", &plain, true), operator);
    assert_eq!(request("0123456789abcdef", &secured, false), operator);
    assert_eq!(request("another", &secured, false), Err(Some(AccessRefusal::WrongToken)));
}

#[test]
fn acting_certificates_without_verification_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.yml");
    std::fs::write(&path, "http_server_config:\n  http2: false\n").unwrap();
    let config = Config { web_config_file: Some(path), acting_certificates: vec!["*".into()], ..Config::default() };
    let error = Gate::open(&config, &Arc::default()).err().expect("it is refused").to_string();
    assert!(error.contains("web.yml verifies no certificates of clients"), "{error}");
    assert!(check_access(&config).unwrap_err()[0].to_string().contains("lets no client act"), "`check` says so before");
    Gate::open(&Config { acting_certificates: Vec::new(), ..config }, &Arc::default()).unwrap();
}

fn write_secret(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A web configuration with a certificate of its own, and `more` of `tls_server_config`.
fn secured(dir: &Path, more: &str) -> PathBuf {
    let pair = rcgen::generate_simple_self_signed(vec!["agent.example".to_owned()]).unwrap();
    let pem = |what: &str, der: &[u8]| {
        let text = BASE64_STANDARD.encode(der);
        format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
    };
    std::fs::write(dir.join("a.pem"), pem("CERTIFICATE", pair.cert.der())).unwrap();
    write_secret(&dir.join("a.key"), &pem("PRIVATE KEY", &pair.signing_key.serialize_der()));
    let path = dir.join("web.yml");
    std::fs::write(&path, format!("tls_server_config:\n  cert_file: a.pem\n  key_file: a.key\n{more}")).unwrap();
    path
}

/// Promise (Input validation): A reload never admits more than before: TLS, certificates, their allowed names,
/// passwords
#[test]
fn reload_that_stops_requiring_certificates_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let read = |word: &str, before: Option<&WebAccess>| {
        let more = format!("  client_auth_type: {word}\n  client_ca_file: a.pem\n");
        WebAccess::read(&secured(dir.path(), &more), &mut FileStamps::default(), before)
    };
    let (must, may) = ("RequireAndVerifyClientCert", "VerifyClientCertIfGiven");
    let strict = read(must, None).unwrap();
    let error = read(may, Some(&strict)).err().expect("it opens what was shut").to_string();
    assert!(error.contains("the certificates of clients"), "{error}");
    let lax = read(may, None).unwrap();
    assert!(read(must, Some(&lax)).is_ok() && read(must, Some(&strict)).is_ok());
}

#[test]
fn a_reload_that_lets_in_certificates_of_any_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let read = |names: &str, before: Option<&WebAccess>| {
        let more = format!("  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: a.pem\n{names}");
        WebAccess::read(&secured(dir.path(), &more), &mut FileStamps::default(), before)
    };
    let strict = read("  client_allowed_sans: [a]\n", None).unwrap();
    let error = read("", Some(&strict)).err().expect("it opens what was shut").to_string();
    assert!(error.contains("client_allowed_sans"), "{error}");
    let lax = read("", None).unwrap();
    assert!(read("  client_allowed_sans: [b]\n", Some(&lax)).is_ok());
    assert!(read("  client_allowed_sans: [b]\n", Some(&strict)).is_ok(), "who is allowed may change");
}

/// What a web configuration has, for texts put together in any order: more of them come through the parser than of any
/// text.
const PIECES: &[&str] = &[
    "tls_server_config",
    "http_server_config",
    "basic_auth_users",
    "rate_limit",
    "cert_file",
    "key",
    "headers",
    "client_auth_type",
    "cipher_suites",
    "min_version",
    "burst",
    ":",
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "'",
    "\"",
    "|\n",
    ">\n",
    "#",
    "&a",
    "*a",
    "!!str ",
    "---\n",
    "...\n",
    "?",
    " ",
    "\t",
    "true",
    "~",
    "TLS13",
    "1s",
    "\u{e9}",
    "\u{feff}",
    "\r\n",
    "%YAML 1.1\n",
    "\\x",
    HASH,
];

/// Read, or refused with at least one problem that lies in the text.
#[track_caller]
fn has_its_place(text: &str) {
    if let Err(Diagnostics(all)) = read(text) {
        assert!(!all.is_empty(), "{text:?}");
        for problem in all {
            let lines = text.matches('\n').count() + 1;
            assert!(problem.line >= 1 && problem.line <= lines, "{text:?} {problem}");
            assert!(problem.column >= 1 && !problem.message.is_empty() && !problem.to_string().is_empty(), "{text:?}");
        }
    }
}

/// Promise (Input validation): No text of a web configuration panics, and each problem points into it
#[test]
fn no_text_panics_and_each_problem_of_a_web_configuration_has_its_place() {
    let good = include_str!("../../../examples/web-config.yml");
    each("web configurations", 3_000, |fuzz| match fuzz.below(4) {
        0 => has_its_place(&fuzz.text(200)),
        1 => has_its_place(&fuzz.pieces(PIECES, 40)),
        _ => has_its_place(&String::from_utf8_lossy(&fuzz.damaged(good.as_bytes(), PIECES))),
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_authorization_panics_and_what_was_encoded_comes_back(user in "[^:]{0,20}", password in ".{0,20}", junk in ".{0,60}") {
        let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
        prop_assert_eq!(basic(("bAsIc", &encoded)), Some((user, password)));
        let _ = basic(("basic", &junk));
    }
}
