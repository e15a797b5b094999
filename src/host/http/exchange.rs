//! Asynchronous HTTP: one request on its own connection. The response is read completely up to a limit, or piece by
//! piece. The agent uses it to call container engines.
//!
//! Concurrency: runs on the caller's runtime. Only the connect has a deadline; the caller sets one for the rest.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use tokio::sync::mpsc::Receiver;

use super::{Address, HttpError, HttpResponse, broken, connect, interim, request_to};
use crate::host::peer::Trust;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestMethod {
    Get,
    Post,
    Delete,
}

impl RequestMethod {
    fn of_hyper(self) -> hyper::Method {
        match self {
            RequestMethod::Get => hyper::Method::GET,
            RequestMethod::Post => hyper::Method::POST,
            RequestMethod::Delete => hyper::Method::DELETE,
        }
    }
}

/// The body of a request.
pub enum Payload {
    Whole(Bytes),
    /// Chunks as they arrive; an error aborts the request.
    Piped(Receiver<io::Result<Bytes>>),
}

impl Body for Payload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Payload::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Payload::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Payload::Piped(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }
    fn is_end_stream(&self) -> bool {
        matches!(self, Payload::Whole(bytes) if bytes.is_empty())
    }
    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Payload::Piped(_) => SizeHint::default(),
        }
    }
}

/// A response whose head has arrived. Dropping it closes the connection.
pub struct HttpAnswer {
    pub status: u16,
    headers: hyper::HeaderMap,
    address: Address,
    body: Incoming,
    _sender: SendRequest<Payload>,
}

/// Sends a request on a new connection; returns the head of the response.
///
/// Errors: those of [`super::Client::request`].
pub fn send_request<'a>(
    (address, trust): (&'a Address, Trust),
    (verb, target): (RequestMethod, &'a str),
    headers: &'a [(&'a str, &'a str)],
    payload: Payload,
) -> impl Future<Output = Result<HttpAnswer, HttpError>> + Send + 'a {
    async move {
        let mut sender = connect((address, trust)).await?;
        let request =
            request_to(address, verb.of_hyper(), target, headers).body(payload).map_err(|e| broken(address, &e))?;
        let answer = interim::answer_to((&mut sender, address), request).await?;
        Ok(HttpAnswer::of(answer, address, sender))
    }
}

impl HttpAnswer {
    pub(super) fn of(answer: hyper::Response<Incoming>, address: &Address, sender: SendRequest<Payload>) -> HttpAnswer {
        let (parts, body) = answer.into_parts();
        let (status, address) = (parts.status.as_u16(), address.clone());
        HttpAnswer { status, headers: parts.headers, address, body, _sender: sender }
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The next piece of the body; `None`: the end.
    pub fn piece(&mut self) -> impl Future<Output = Result<Option<Bytes>, HttpError>> + Send + '_ {
        async move {
            loop {
                match self.body.frame().await {
                    None => return Ok(None),
                    // Trailers are ignored.
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => return Ok(Some(data)),
                        Err(_) => continue,
                    },
                    Some(Err(error)) => return Err(broken(&self.address, &error)),
                }
            }
        }
    }

    /// The complete body. Errors: it has more than `largest` bytes, or the connection fails.
    pub fn whole(self, largest: usize) -> impl Future<Output = Result<HttpResponse, HttpError>> + Send {
        async move {
            let HttpAnswer { status, headers, address, body, _sender } = self;
            let body = Limited::new(body, largest).collect().await.map_err(|e| broken(&address, &*e))?.to_bytes();
            Ok(HttpResponse { status, headers, body })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    /// Serves one request with this response; returns the request.
    fn server(answer: &'static [u8]) -> (tempfile::TempDir, Address, std::thread::JoinHandle<String>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let received = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"end\r\n0\r\n\r\n") && !request.ends_with(b"\r\n\r\n") {
                let n = stream.read(&mut piece).unwrap();
                request.extend_from_slice(&piece[..n]);
                if request.ends_with(b"\r\n\r\n") && request.starts_with(b"POST") && !request.ends_with(b"0\r\n\r\n") {
                    continue;
                }
            }
            let _ = stream.write_all(answer);
            String::from_utf8(request).unwrap()
        });
        (dir, Address::Unix(socket), received)
    }

    #[tokio::test]
    async fn an_answer_is_read_piece_by_piece_and_one_without_end_is_refused() {
        let (_dir, address, _) =
            server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        let at = (&address, Trust::OwnUser);
        let pending = send_request(at, (RequestMethod::Delete, "/x"), &[], Payload::Whole(Bytes::new()));
        let mut answer = tokio::time::timeout(LONG, pending).await.unwrap().unwrap();
        let mut all = Vec::new();
        while let Some(piece) = answer.piece().await.unwrap() {
            all.extend_from_slice(&piece);
        }
        assert_eq!((answer.is_success(), all.as_slice()), (true, &b"abcde"[..]));

        let (_dir, address, pending) = server(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot there");
        let answer = send_request(
            (&address, Trust::OwnUser),
            (RequestMethod::Delete, "/x?y=1"),
            &[("x-a", "b")],
            Payload::Whole(Bytes::new()),
        );
        let answer = answer.await.unwrap();
        assert!(answer.status == 404 && !answer.is_success());
        assert!(answer.whole(8).await.is_err(), "one byte more than is taken");
        let requested = pending.join().unwrap();
        assert!(requested.starts_with("DELETE /x?y=1 HTTP/1.1\r\n") && requested.contains("x-a: b\r\n"), "{requested}");
    }

    #[tokio::test]
    async fn piped_request_body_arrives_complete() {
        let (_dir, address, pending) = server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let (sender, pieces) = tokio::sync::mpsc::channel(1);
        let feed = tokio::spawn(async move {
            for piece in ["be", "gin", "end"] {
                sender.send(Ok(Bytes::from_static(piece.as_bytes()))).await.unwrap();
            }
        });
        let answer =
            send_request((&address, Trust::OwnUser), (RequestMethod::Post, "/load"), &[], Payload::Piped(pieces))
                .await
                .unwrap();
        assert_eq!(answer.whole(10).await.unwrap().status, 200);
        feed.await.unwrap();
        let requested = pending.join().unwrap();
        assert!(requested.contains("2\r\nbe\r\n3\r\ngin\r\n3\r\nend\r\n0\r\n\r\n"), "{requested}");
    }
}
