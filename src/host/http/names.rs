//! Addresses of host names. A name server that does not answer holds at most [`THREADS`] threads of its own, whatever
//! number of names is asked for; everything else that blocks goes on.
//!
//! Source: `getaddrinfo`. Concurrency: callers wait asynchronously; a caller that no longer waits withdraws its
//! question, unless another caller has the same one.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::watch;

/// Look-ups at once.
const THREADS: usize = 16;
/// How long an answer holds, a failure as well.
const FRESH: Duration = Duration::from_secs(5);
/// Answers that are kept, and questions that wait.
const MOST: usize = 1024;

static NAMES: LazyLock<Arc<NameCache>> = LazyLock::new(|| NameCache::new(resolve));

/// A TCP connection to `host:port`, IPv6 addresses in brackets. Errors: as the kernel or the resolver has them;
/// `InvalidInput`: not of this form.
pub(super) fn connect(authority: &str) -> impl Future<Output = io::Result<TcpStream>> + Send + '_ {
    async move {
        if let Ok(address) = authority.parse::<SocketAddr>() {
            return TcpStream::connect(address).await;
        }
        let malformed = || io::Error::new(io::ErrorKind::InvalidInput, format!("{authority:?} is not host:port"));
        let (host, port) = authority.rsplit_once(':').ok_or_else(malformed)?;
        let port: u16 = port.parse().map_err(|_| malformed())?;
        let found = NAMES.addresses(host).await?;
        let all: Vec<SocketAddr> = found.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        TcpStream::connect(all.as_slice()).await
    }
}

fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// The error as its kind and text: an `io::Error` has one owner.
type ResolvedHost = Result<Arc<[IpAddr]>, (io::ErrorKind, String)>;

/// Resolves host names on its own threads, and remembers the addresses.
struct NameCache {
    resolve: fn(&str) -> io::Result<Vec<IpAddr>>,
    state: Mutex<NameQueries>,
}

/// Queries and answers, shared by the threads.
#[derive(Default)]
struct NameQueries {
    waiting: VecDeque<String>,
    /// From the first question for a name to its answer.
    pending: HashMap<String, watch::Sender<Option<ResolvedHost>>>,
    answered: HashMap<String, (ResolvedHost, Instant)>,
    threads: usize,
}

impl NameCache {
    fn new(lookup: fn(&str) -> io::Result<Vec<IpAddr>>) -> Arc<NameCache> {
        Arc::new(NameCache { resolve: lookup, state: Mutex::default() })
    }

    async fn addresses(self: &Arc<Self>, host: &str) -> io::Result<Arc<[IpAddr]>> {
        let mut answer = match self.query(host)? {
            Ok(answer) => return answer.map_err(|(kind, text)| io::Error::new(kind, text)),
            Err(answer) => answer,
        };
        let closed = || io::Error::other("the look-up of the name was withdrawn");
        let found = answer.wait_for(Option::is_some).await.map_err(|_| closed())?.clone();
        found.ok_or_else(closed)?.map_err(|(kind, text)| io::Error::new(kind, text))
    }

    /// What is known, or where the answer arrives.
    fn query(self: &Arc<Self>, host: &str) -> io::Result<Result<ResolvedHost, watch::Receiver<Option<ResolvedHost>>>> {
        let mut state = self.lock();
        if let Some((answer, at)) = state.answered.get(host)
            && at.elapsed() < FRESH
        {
            return Ok(Ok(answer.clone()));
        }
        if let Some(waiter) = state.pending.get(host) {
            return Ok(Err(waiter.subscribe()));
        }
        if state.waiting.len() >= MOST {
            let NameQueries { waiting, pending: waiter, .. } = &mut *state;
            waiting.retain(|name| has_waiters(waiter, name));
        }
        if state.waiting.len() >= MOST {
            return Err(io::Error::other(format!("{MOST} names wait for the name server")));
        }
        let (sender, receiver) = watch::channel(None);
        state.pending.insert(host.to_owned(), sender);
        state.waiting.push_back(host.to_owned());
        if state.threads < THREADS {
            let names = Arc::clone(self);
            match thread::Builder::new().name("names".into()).spawn(move || names.work()) {
                Ok(_) => state.threads += 1,
                // Another thread comes to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    state.pending.remove(host);
                    state.waiting.pop_back();
                    return Err(error);
                }
            }
        }
        Ok(Err(receiver))
    }

    /// Until no question waits.
    fn work(&self) {
        loop {
            let host = {
                let mut state = self.lock();
                let Some(host) = state.next() else {
                    state.threads -= 1;
                    return;
                };
                host
            };
            let found = (self.resolve)(&host);
            let answer = found.map(Arc::from).map_err(|error| (error.kind(), error.to_string()));
            self.lock().close(host, answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, NameQueries> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a caller still waits; if not, the question is forgotten.
fn has_waiters(pending: &mut HashMap<String, watch::Sender<Option<ResolvedHost>>>, host: &str) -> bool {
    let is_selected = pending.get(host).is_some_and(|pending| pending.receiver_count() > 0);
    if !is_selected {
        pending.remove(host);
    }
    is_selected
}

impl NameQueries {
    /// The oldest question that a caller still waits for.
    fn next(&mut self) -> Option<String> {
        while let Some(host) = self.waiting.pop_front() {
            if has_waiters(&mut self.pending, &host) {
                return Some(host);
            }
        }
        None
    }

    fn close(&mut self, host: String, answer: ResolvedHost) {
        if let Some(pending) = self.pending.remove(&host) {
            pending.send_replace(Some(answer.clone()));
        }
        if self.answered.len() >= MOST {
            self.answered.retain(|_, (_, at)| at.elapsed() < FRESH);
        }
        if self.answered.len() < MOST {
            self.answered.insert(host, (answer, Instant::now()));
        }
    }
}

/// Promise (Input validation): Host names that no name server answers hold at most 16 threads of the agent
#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn run(future: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
    }

    #[test]
    fn unanswered_name_lookups_occupy_few_threads_and_later_ones_are_answered() {
        static ANSWERS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let names = NameCache::new(|host| {
            CALLS.fetch_add(1, Ordering::SeqCst);
            let answers = ANSWERS.0.lock().unwrap();
            drop(ANSWERS.1.wait_while(answers, |answers| !*answers).unwrap());
            assert!(host.starts_with("dead") || host == "alive");
            Ok(vec![IpAddr::from([127, 0, 0, 1])])
        });
        run(async {
            let held: Vec<_> = (0..THREADS).map(|n| names.query(&format!("dead{n}")).unwrap()).collect();
            while CALLS.load(Ordering::SeqCst) < THREADS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for n in THREADS..10_000 {
                let host = format!("dead{n}");
                let pending = tokio::time::timeout(Duration::ZERO, names.addresses(&host));
                assert!(pending.await.is_err());
            }
            assert_eq!((names.lock().threads, held.len()), (THREADS, THREADS));
            assert!(names.lock().waiting.len() <= MOST);
            let alive = names.addresses("alive");
            tokio::pin!(alive);
            assert!(tokio::time::timeout(Duration::ZERO, &mut alive).await.is_err());
            *ANSWERS.0.lock().unwrap() = true;
            ANSWERS.1.notify_all();
            assert_eq!(*alive.await.unwrap(), [IpAddr::from([127, 0, 0, 1])]);
        });
        // Withdrawn questions were never looked up.
        assert!(CALLS.load(Ordering::SeqCst) <= THREADS + 1, "{CALLS:?}");
    }

    #[test]
    fn name_of_several_callers_is_resolved_once_and_a_failure_is_an_answer() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let names = NameCache::new(|host| {
            CALLS.fetch_add(1, Ordering::SeqCst);
            Err(io::Error::new(io::ErrorKind::NotFound, format!("no address of {host}")))
        });
        run(async {
            for _ in 0..3 {
                let error = names.addresses("nowhere").await.unwrap_err();
                assert_eq!(
                    (error.kind(), error.to_string()),
                    (io::ErrorKind::NotFound, "no address of nowhere".into())
                );
            }
        });
        assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn connection_needs_a_port_and_accepts_names_and_addresses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        run(async {
            connect(&format!("127.0.0.1:{port}")).await.unwrap();
            connect(&format!("localhost:{port}")).await.unwrap();
            for malformed in ["localhost", "localhost:", "localhost:http", "localhost:65536"] {
                let error = connect(malformed).await.unwrap_err();
                assert_eq!(error.to_string(), format!("{malformed:?} is not host:port"));
            }
        });
    }
}
