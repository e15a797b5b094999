//! The least that takes OTLP over HTTP: it reads each request whole, hands the body to a closure, and answers 200.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Listens on a port of its own until the process ends; `take` sees each request's path and body.
pub fn start(take: impl Fn(&str, &[u8]) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let take = Arc::new(take);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let take = Arc::clone(&take);
            thread::spawn(move || {
                let _ = serve(stream, &*take);
            });
        }
    });
    address
}

/// One connection, request after request, with one buffer for all of them.
fn serve(stream: TcpStream, take: &dyn Fn(&str, &[u8])) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut answers = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or("").to_owned();
        let mut length = 0;
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().expect("a length is a number");
                }
                Some(_) => {}
                None => break,
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        take(&path, &body);
        answers.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
}
