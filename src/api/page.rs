//! The page at `/` for browsers: three files in the binary, which read this API and nothing else.
//!
//! Texts of tasks reach the page as JSON and enter it as text nodes. The policy below lets it load its own files,
//! connect to this agent, and be shown in no frame; no text becomes markup, because no sink for markup is allowed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::http::{ApiRequest, Reply, tagged};
use super::{ApiError, Method, Route};

const HTML: &str = include_str!("page/index.html");
const FILES: [&str; 4] =
    [HTML, include_str!("page/app.js"), include_str!("page/app.css"), include_str!("page/icon.svg")];

pub(super) static SCRIPT: Route = Route {
    method: Method::Get,
    path: "/ui/app.js",
    access: Access::Read,
    about: "the script of the page at /",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::other(&["text/javascript"], "The script")],
    handler: |_, request| {
        Box::pin(async { file(request, "text/javascript; charset=utf-8", include_str!("page/app.js")) })
    },
};

pub(super) static STYLE: Route = Route {
    method: Method::Get,
    path: "/ui/app.css",
    access: Access::Read,
    about: "the style of the page at /",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::other(&["text/css"], "The style")],
    handler: |_, request| Box::pin(async { file(request, "text/css; charset=utf-8", include_str!("page/app.css")) }),
};

pub(super) static ICON: Route = Route {
    method: Method::Get,
    path: "/ui/icon.svg",
    access: Access::Read,
    about: "the icon of the page at /",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::other(&["image/svg+xml"], "The icon")],
    handler: |_, request| Box::pin(async { file(request, "image/svg+xml", include_str!("page/icon.svg")) }),
};

/// `require-trusted-types-for`: assigning text as markup is an error, also for code that is added later.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The page itself.
pub(super) fn page() -> Reply {
    guarded(Reply::new("text/html; charset=utf-8", HTML)).header("vary", "accept")
}

fn file(request: &ApiRequest, kind: &'static str, text: &'static str) -> Result<Reply, ApiError> {
    static TAG: LazyLock<String> = LazyLock::new(|| {
        let mut hash = DefaultHasher::new();
        FILES.hash(&mut hash);
        format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hash.finish())
    });
    Ok(tagged(request, &TAG, guarded(Reply::new(kind, text))))
}

fn guarded(reply: Reply) -> Reply {
    reply
        .header("content-security-policy", POLICY)
        .header("referrer-policy", "no-referrer")
        .header("x-frame-options", "DENY")
        .header("cross-origin-opener-policy", "same-origin")
        .header("cross-origin-resource-policy", "same-origin")
}

#[cfg(test)]
mod tests {
    use crate::model::task::{ExitStatus, Outcome};
    use crate::model::{exit_text, signal};

    #[test]
    fn script_of_the_page_has_the_words_of_each_end_and_of_each_signal() {
        let script = include_str!("page/app.js");
        let of = |status, outcome| exit_text::ending(&status, outcome);
        for words in [
            of(ExitStatus::Code(137), Outcome::Oom),
            of(ExitStatus::Code(3), Outcome::Error).replace('3', "${status.code}"),
            of(ExitStatus::Code(3), Outcome::Killed).replace('3', "${status.code}"),
            of(ExitStatus::Signal(15), Outcome::Killed),
            of(ExitStatus::Signal(77), Outcome::Signal).replace("77", "${status.signal}"),
            of(ExitStatus::NotStarted("WHY".to_owned()), Outcome::Error).replace("WHY", ""),
            of(ExitStatus::NotStarted("WHY".to_owned()), Outcome::Killed),
            of(ExitStatus::Unknown("WHY".to_owned()), Outcome::Unknown).replace("WHY", ""),
        ] {
            assert!(["\"", "`"].iter().any(|quote| script.contains(&format!("{quote}{words}"))), "{words}");
        }
        let names: Vec<&str> = signal::names().map(|name| name.trim_start_matches("SIG")).collect();
        assert!(script.contains(&format!("\"{}\".split", names.join(" "))), "signals by number: {names:?}");
    }
}
