//! The page at `/`: what is served, under which policy, and that no text can become markup.
//!
//! Promise (Devices): A browser gets the page under a strict policy, below 150 kB; other clients get the list

use super::*;

const ACCEPT: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";
const FILES: [(&str, &str); 3] =
    [("/ui/app.js", "text/javascript"), ("/ui/app.css", "text/css"), ("/ui/icon.svg", "image/svg+xml")];
/// All that a browser loads.
const MOST: usize = 150_000;

fn text(answer: &TestResponse) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

#[test]
fn a_browser_gets_the_page_and_any_other_client_the_list_of_endpoints() {
    let server = server();
    let page = server.tcp("GET", "/", ACCEPT);
    assert!(page.head.contains("content-type: text/html; charset=utf-8") && page.head.contains("vary: accept"));
    assert!(text(&page).starts_with("<!doctype html>"), "{}", page.head);
    for headers in ["", "Accept: */*\r\n", "Accept: text/plain\r\n", "Accept: application/json\r\n"] {
        let list = server.tcp("GET", "/", headers);
        assert!(list.head.contains("text/plain") && text(&list).contains("/v1/allocs/{id}/history"), "{headers}");
    }
    let closed = start(Config { public: PublicAccess::Metrics, ..Config::default() }, true);
    assert_eq!(closed.tcp("GET", "/", ACCEPT).code(), "socket_only");
    assert_eq!(server.tcp("GET", "/", &format!("Host: evil.example\r\n{ACCEPT}")).status, 421);
}

#[test]
fn every_file_of_the_page_has_a_strict_policy_and_together_they_are_small() {
    let server = server();
    let mut bytes = 0;
    let html = [("/", "text/html")];
    for (path, kind) in html.iter().chain(&FILES) {
        let answer = server.tcp("GET", path, ACCEPT);
        assert_eq!(answer.status, 200, "{path}");
        bytes += answer.body.len();
        for header in [
            &format!("content-type: {kind}"),
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(answer.head.contains(header), "{path}: {header}: {}", answer.head);
        }
        let policy = answer.head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
        let rules: Vec<&str> = policy.split(';').map(str::trim).collect();
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"] {
            assert!(rules.contains(&rule), "{path}: {rule}: {policy}");
        }
        assert!(rules.contains(&"require-trusted-types-for 'script'"), "{policy}");
        for word in ["unsafe", "*", "data:", "http", "blob:"] {
            assert!(!policy.contains(word), "{path}: {policy}");
        }
    }
    assert!(bytes < MOST, "{bytes} bytes");
}

#[test]
fn a_file_of_the_page_that_a_browser_has_is_not_sent_again() {
    let server = server();
    for (path, _) in FILES {
        let first = server.tcp("GET", path, "");
        let tag = first.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
        let again = server.tcp("GET", path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
        assert_eq!(server.tcp("GET", path, "If-None-Match: \"other\"\r\n").status, 200, "{path}");
    }
}

/// Every element is closed in order, no attribute is given twice, and no ID; nothing in it runs or styles by itself.
#[test]
fn the_html_is_well_formed_and_has_no_inline_script_or_style() {
    const VOID: [&str; 5] = ["meta", "link", "img", "input", "br"];
    let html = include_str!("../page/index.html");
    let (mut open, mut ids) = (Vec::new(), Vec::new());
    let mut rest = html.strip_prefix("<!doctype html>").unwrap();
    while let Some(begin) = rest.find('<') {
        let end = begin + rest[begin..].find('>').unwrap();
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes something else; open are {open:?}");
            continue;
        }
        let name = tag.split([' ', '\n']).next().unwrap();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{tag}");
        let quotes = tag.matches('"').count();
        assert_eq!(quotes % 2, 0, "{tag}");
        let mut names: Vec<&str> = tag.split('"').step_by(2).flat_map(str::split_whitespace).skip(1).collect();
        names.iter_mut().for_each(|name| *name = name.trim_end_matches('='));
        for (at, attribute) in names.iter().enumerate() {
            assert!(!names[at + 1..].contains(attribute), "twice {attribute}: {tag}");
            assert!(!attribute.starts_with("on") && *attribute != "style", "{tag}");
        }
        ids.extend(tag.split_once(" id=\"").and_then(|(_, id)| id.split('"').next()));
        let is_file = name == "script" && tag.contains("src=\"/ui/") && rest.starts_with("</script>");
        assert!(is_file || !["script", "style", "iframe", "object", "base"].contains(&name), "{tag}");
        if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an ID is given twice");
    for requested in ["lang=\"en\"", "name=\"viewport\"", "aria-live=\"polite\"", "role=\"tablist\"", "class=\"skip\""]
    {
        assert!(html.contains(requested), "{requested}");
    }
}

/// Text of tasks reaches the document by `append` and `textContent` alone, and nothing is loaded from elsewhere.
///
/// Promise (Devices): No name with markup or reordering marks becomes more than text on the page
#[test]
fn the_script_has_no_sink_for_markup_and_names_no_other_host() {
    let script = include_str!("../page/app.js");
    for sink in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "setHTML",
        "DOMParser",
        "createContextualFragment",
        "srcdoc",
        "javascript:",
        "import(",
    ] {
        assert!(!script.contains(sink), "{sink}");
    }
    let style = include_str!("../page/app.css");
    assert!(!style.contains("url(") && !style.contains("@import"));
    let icon = include_str!("../page/icon.svg");
    for (name, text) in [("app.js", script), ("app.css", style), ("index.html", include_str!("../page/index.html"))] {
        let hosts = text.matches("://").count() - text.matches("\"http://www.w3.org/2000/svg\"").count();
        assert_eq!(hosts, 0, "{name}");
    }
    assert!(!icon.contains("<script") && icon.matches("://").count() == 1);
}

/// Promise (Devices): Clients that poll the task table share one body for each snapshot
#[test]
fn clients_that_poll_share_one_table_for_each_snapshot() {
    let server = server();
    let first = server.tcp("GET", "/v1/tasks", "");
    let tag =
        |answer: &TestResponse| answer.head.lines().find_map(|l| l.strip_prefix("etag: ").map(str::to_owned)).unwrap();
    let requests = format!("If-None-Match: {}\r\n", tag(&first));
    assert_eq!(server.tcp("GET", "/v1/tasks", &requests).status, 304);
    server.publisher.defer();
    let next = server.tcp("GET", "/v1/tasks", &requests);
    assert_eq!(next.status, 200, "another tick has read");
    assert_ne!(tag(&next), tag(&first));
    let series = server.tcp("GET", "/v1/history/series", "");
    assert_eq!(series.status, 200);
    let json: Value = serde_json::from_slice(&series.body).unwrap();
    assert_eq!((&json["tasks"], &json["max_bytes"]), (&json!([]), &json!(8 << 20)));
    assert_eq!(server.tcp("GET", "/v1/allocs/none/history", "").status, 404);
    assert_eq!(server.tcp("GET", "/v1/history/series?x=1", "").status, 400);
}
