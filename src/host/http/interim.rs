//! Interim answers (1xx) before the answer to a request. A few are usual; a server that sends them without end would
//! cost a core until the timeout of the request.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};
use tokio::sync::Notify;

use super::{Address, HttpError, broken};

/// Before one answer. `103 Early Hints` may come several times.
const MOST: usize = 16;

/// Errors: the connection fails, or more interim answers than [`MOST`] come.
pub(super) fn answer_to<'a, B>(
    (sender, address): (&'a mut SendRequest<B>, &'a Address),
    mut request: Request<B>,
) -> impl Future<Output = Result<Response<Incoming>, HttpError>> + 'a
where
    B: Body + 'static,
{
    let too_many = Arc::new(Notify::new());
    let (seen, bell) = (AtomicUsize::new(0), Arc::clone(&too_many));
    hyper::ext::on_informational(&mut request, move |_| {
        if seen.fetch_add(1, Ordering::Relaxed) == MOST {
            bell.notify_one();
        }
    });
    let answer = sender.send_request(request);
    async move {
        tokio::select! {
            answer = answer => answer.map_err(|e| broken(address, &e as &(dyn Error + 'static))),
            () = too_many.notified() => Err(HttpError::Protocol {
                address: address.clone(),
                message: format!("more than {MOST} interim answers (1xx)"),
            }),
        }
    }
}
