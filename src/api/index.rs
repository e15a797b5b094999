//! `GET /`: where everything is, in plain text.

use super::access::Access;
use super::http::Reply;
use super::{Method, ROUTES, Route};

pub(super) static INDEX: Route = Route {
    method: Method::Get,
    path: "/",
    access: Access::Read,
    about: "this list of endpoints",
    handler: |_, _| Box::pin(async { Ok(Reply::text(text())) }),
};

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
