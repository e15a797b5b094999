//! `GET /`: the page for browsers; for other clients where everything is, in plain text.

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::http::{ApiRequest, Reply};
use super::{Method, ROUTES, Route, negotiate, page};

pub(super) static INDEX: Route = Route {
    method: Method::Get,
    path: "/",
    access: Access::Read,
    about: "this list of endpoints; to a browser (Accept: text/html) a live page of all workloads",
    query: QueryRule::Ignored,
    body: None,
    answers: &[EndpointAnswer::other(&["text/plain", "text/html"], "The list, or the page")],
    handler: |_, request| Box::pin(async { Ok(index(request)) }),
};

fn index(request: &ApiRequest) -> Reply {
    if negotiate::prefers_html(request.list_header("accept").as_deref()) {
        return page::page();
    }
    Reply::text(text()).header("vary", "accept")
}

fn text() -> String {
    let mut out = format!("allostat {}\n\n", env!("CARGO_PKG_VERSION"));
    let width = ROUTES.iter().map(|r| r.path.len()).max().unwrap_or(0);
    for route in ROUTES {
        let (method, note) = match (route.method, route.access) {
            (Method::Get, Access::SocketOnly(_)) => ("GET ", " (Unix socket, or who may act)"),
            (Method::Get, _) => ("GET ", ""),
            (Method::Post, _) => ("POST", " (Unix socket only)"),
        };
        out.push_str(&format!("{method} {:width$}  {}{note}\n", route.path, route.about));
    }
    out
}
