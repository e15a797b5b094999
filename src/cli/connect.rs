//! Finds the agent and talks to it: JSON in, JSON out, errors for people.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer;
use super::exit::{CliError, CliExit};
use crate::api::DEFAULT_PORT;
use crate::config;
use crate::host::http::tunnel::TunnelOpened;
use crate::host::http::{
    Address, BodyPiece, Client, HttpError, HttpResponse, HttpStream, Method, StreamOpening, TlsFiles,
};
use crate::host::peer::Trust;
use crate::host::{access, untrusted};
use crate::model::bounded_json;
use crate::telemetry::chain;

/// How long an agent may take to restore what ran before.
const RESTORE_PATIENCE: Duration = Duration::from_secs(10);
/// As much as an agent reads of one, in bytes.
const LARGEST_TOKEN_FILE: usize = 256 << 10;
/// A program may take its time to start: an engine loads it from a slow disk.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(45);
/// A disk may stand still for a while.
const DOWNLOAD_WAIT: Duration = Duration::from_secs(60);
/// Of one answer that is shown as JSON: five times those of 5,000 tasks. They take at most 700 MB of memory.
const MOST_VALUES: usize = 2_000_000;
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// Where to look for the agent.
#[derive(Debug, Clone, clap::Args)]
pub struct ConnectionArgs {
    /// Address of the agent: unix:/path/to/allostat.sock, http://host:port or https://host:port [default: the socket of
    /// the default data directory; read commands then try http://127.0.0.1:9740; both only if owned by you or root]
    #[arg(long, global = true, env = "ALLOSTAT_ADDR", hide_env_values = true, value_name = "ADDR")]
    pub address: Option<Address>,
    /// https://: trusted CA certificates, PEM [default: those of the system]
    #[arg(long, global = true, env = "ALLOSTAT_CA", hide_env_values = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// https://: client certificate with its chain, PEM
    #[arg(long, global = true, env = "ALLOSTAT_CERT", hide_env_values = true, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// https://: private key of the client certificate
    #[arg(long, global = true, env = "ALLOSTAT_KEY", hide_env_values = true, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// File with a token that allows all requests over https://, and over http:// on this host: its first line that is
    /// not empty and not a comment (#)
    #[arg(long, global = true, env = "ALLOSTAT_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// An agent, and how to get in there.
#[derive(Debug, Clone)]
pub struct AgentDoor {
    address: Address,
    trust: Trust,
    token: Option<String>,
}

impl AgentDoor {
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// A connection to an agent that answered.
pub struct AgentConnection {
    client: Client,
    door: AgentDoor,
    patience: RetryPeriod,
}

/// How long an agent that restores is asked again.
enum RetryPeriod {
    For(Duration),
    /// Until this is true.
    Until(Arc<AtomicBool>),
}

/// What a command is about to do there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Over TCP too, if root or the user of this command serves it.
    Read,
    /// Act, or send a job, which holds secrets: over a Unix socket of root or of the user, or at a given address.
    Act,
}

/// No agent that could be asked.
#[derive(Debug)]
pub struct NoAgent {
    failures: Vec<HttpError>,
    purpose: Purpose,
    /// The user gave its address.
    named: bool,
    /// What was given to show there cannot be used. At a given address, no agent was asked then.
    unusable: Option<CliError>,
    /// An agent of root answers read requests over TCP, and this user may not act on it.
    roots_agent: bool,
}

/// What another user than root does about an agent of root.
const OF_ROOT: &str = "use sudo, or set `agent.socket_group` to a group of yours";

impl NoAgent {
    /// Nothing listens wherever an agent might: not one that cannot be asked.
    pub fn is_unreachable(&self) -> bool {
        self.failures.iter().all(HttpError::is_unreachable)
    }
    /// An agent is there, of root, and this user may not use it.
    fn belongs_to_root(&self) -> bool {
        self.roots_agent || self.failures.iter().any(|error| error.is_permission_denied() && is_of_root(error))
    }
    /// Of each place, why not.
    pub fn why(&self) -> String {
        self.failures.iter().map(|e| chain(e)).collect::<Vec<_>>().join("\n  ")
    }
}

/// [`CliExit::NoAgent`], with each place that was searched.
impl From<NoAgent> for CliError {
    fn from(none: NoAgent) -> CliError {
        let unused = match none.unusable {
            Some(ref error) if none.named => return error.clone(),
            Some(ref error) => format!("\nand {}", error.message),
            None => String::new(),
        };
        if none.belongs_to_root() {
            return CliError::new(CliExit::NotPermitted, format!("the agent belongs to root: {OF_ROOT}{unused}"));
        }
        if none.failures.is_empty() {
            let message = "there is no home directory that could hold the agent's socket";
            return CliError::new(CliExit::NoAgent, message).hint("name it: --address unix:/path/to/allostat.sock");
        }
        let denied = none.failures.iter().any(HttpError::is_permission_denied);
        let exit = if denied { CliExit::NotPermitted } else { CliExit::NoAgent };
        let error = CliError::new(exit, format!("no agent answers: {}{unused}", none.why()));
        let stranger = none.failures.iter().any(HttpError::is_untrusted);
        match (denied, none.named, none.purpose) {
            (true, ..) => error.hint("the agent's socket is for its owner: run this as the user that runs the agent"),
            // Who answered is there, and what is wrong is said.
            _ if none.failures.iter().any(HttpError::is_tls_failure) => error,
            (_, true, _) if stranger => error.hint(
                "no token was sent: over http:// one goes to root's processes and your own alone; use https://, or the \
                 Unix socket",
            ),
            (_, true, _) => error.hint("is the address right (--address, ALLOSTAT_ADDR), and the agent running?"),
            _ if stranger => error.hint(
                "anybody can listen there; if you know that it is an agent, and whose, name it with --address or \
                 ALLOSTAT_ADDR",
            ),
            (.., Purpose::Act) => error.hint(
                "start one with `allostat agent`, try `allostat demo`, or name one elsewhere: --address \
                 unix:/path/to/allostat.sock",
            ),
            (.., Purpose::Read) => error.hint("start one with `allostat agent`, or try `allostat demo`"),
        }
    }
}

impl ConnectionArgs {
    pub fn connect(&self, purpose: Purpose) -> Result<AgentConnection, NoAgent> {
        let (tries, trust) = match &self.address {
            Some(address) => (vec![self.with_files(address)], Trust::Named),
            None => (default_addresses(purpose), Trust::OwnUser),
        };
        let mut failures = Vec::new();
        for address in tries {
            let token = match self.token(&address) {
                Ok(token) => token,
                Err(error) => {
                    return Err(NoAgent { failures, purpose, named: true, unusable: Some(error), roots_agent: false });
                }
            };
            // Any user may listen on a port of this host while the agent is down.
            let trust = match (&address, &token) {
                (Address::Tcp(_), Some(_)) => Trust::OwnUser,
                _ => trust,
            };
            match try_one(&AgentDoor { address, trust, token }) {
                Ok(agent) => return Ok(agent),
                Err(error) => failures.push(error),
            }
        }
        let named = self.address.is_some();
        // An agent that was only found would have been shown no token.
        let token = self.token_file.as_ref().filter(|_| !named);
        let unusable = token.and_then(|path| read_token(path).err());
        let roots_agent = !named && purpose == Purpose::Act && roots_agent_answers();
        Err(NoAgent { failures, purpose, named, unusable, roots_agent })
    }

    fn with_files(&self, address: &Address) -> Address {
        let client = self.cert.clone().zip(self.key.clone());
        let files = || TlsFiles { authorities: self.ca.clone(), client, is_unverified: false };
        match address {
            Address::Tls(host, _) => Address::Tls(host.clone(), Arc::new(files())),
            other => other.clone(),
        }
    }

    /// What is shown there. The Unix socket needs none, and an agent that was only found gets none.
    ///
    /// Errors: it, or a certificate, cannot be read; it would be sent as plain text to another host.
    fn token(&self, address: &Address) -> Result<Option<String>, CliError> {
        if let Address::Tls(..) = address {
            let files = [("--ca", &self.ca), ("--cert", &self.cert), ("--key", &self.key)];
            for (flag, path) in files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
                File::open(path).map_err(|error| unreadable(flag, path, &error))?;
            }
        }
        let Some(path) = self.token_file.as_ref().filter(|_| self.address.is_some()) else { return Ok(None) };
        match address {
            Address::Unix(_) => Ok(None),
            Address::Tcp(host) if !is_here(host) => {
                let message = format!("the token would go to {host} as plain text, for others to read: use https://");
                Err(CliError::new(CliExit::NotPermitted, message))
            }
            Address::Tcp(_) | Address::Tls(..) => read_token(path).map(Some),
        }
    }
}

/// The first line that is neither empty nor a remark.
fn read_token(path: &Path) -> Result<String, CliError> {
    let text = read_private(path).map_err(|error| unreadable("--token-file", path, &error))?;
    let mut lines = text.lines().map(str::trim);
    let token = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let token = token.filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
    token.map(str::to_owned).ok_or_else(|| {
        let message = format!("--token-file {}: there is no token in it: a line of visible ASCII", path.display());
        CliError::new(CliExit::InvalidFile, message)
    })
}

/// A file or a pipe (`<(pass show token)`) that its owner alone may read: the agent refuses any other too.
fn read_private(path: &Path) -> io::Result<String> {
    let denied = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if let Some(why) = access::exposed(path)? {
        return denied(why.to_string());
    }
    let file = File::open(path)?;
    let found = file.metadata()?;
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 && !found.is_dir() {
        return denied(format!("other users may read or write it (mode {mode:04o}): chmod 600 {}", path.display()));
    }
    let text = untrusted::read_all(file, LARGEST_TOKEN_FILE)?;
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Of a file that was given to reach the agent with.
fn unreadable(flag: &str, path: &Path, error: &io::Error) -> CliError {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied => CliExit::NotPermitted,
        io::ErrorKind::InvalidData => CliExit::InvalidFile,
        _ => CliExit::NotFound,
    };
    let error = CliError::new(exit, format!("{flag}: cannot read {}: {error}", path.display()));
    error.hint(format!("is the path right ({flag}, ALLOSTAT_{})?", flag[2..].to_uppercase().replace('-', "_")))
}

/// Of `host:port`.
fn is_here(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn default_addresses(purpose: Purpose) -> Vec<Address> {
    let system = Path::new(config::SYSTEM_DATA_DIR);
    let own: Option<PathBuf> = config::default_data_dir();
    // Members of `agent.socket_group` use the socket of root's agent. Where root runs none it is not worth a word.
    let roots = Some(system.to_owned()).filter(|dir| own.as_ref() != Some(dir) && dir.exists());
    let sockets = own.into_iter().chain(roots).map(|dir| Address::Unix(dir.join(crate::api::SOCKET_NAME)));
    let tcp = (purpose == Purpose::Read).then(default_port);
    sockets.chain(tcp).collect()
}

fn default_port() -> Address {
    Address::Tcp(format!("127.0.0.1:{DEFAULT_PORT}"))
}

/// This user is not root, and a process of root answers at the default port.
fn roots_agent_answers() -> bool {
    let door = AgentDoor { address: default_port(), trust: Trust::Root, token: None };
    !rustix::process::geteuid().is_root() && try_one(&door).is_ok()
}

/// Its socket is there, and root's: a directory alone is no agent.
fn is_of_root(error: &HttpError) -> bool {
    let HttpError::Connect { address: Address::Unix(path), .. } = error else { return false };
    std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() == 0)
}

fn try_one(door: &AgentDoor) -> Result<AgentConnection, HttpError> {
    let mut client = Client::new(door.address.clone(), door.trust)?;
    if let Some(token) = &door.token {
        client.set_token(token);
    }
    client.connect()?;
    Ok(AgentConnection { client, door: door.clone(), patience: RetryPeriod::For(RESTORE_PATIENCE) })
}

impl AgentConnection {
    /// Of a socket in a directory of our own.
    pub fn at(address: Address) -> Result<AgentConnection, CliError> {
        try_one(&AgentDoor { address, trust: Trust::OwnUser, token: None }).map_err(|e| lost(&e))
    }
    /// Where another connection to it is to be had.
    pub fn door(&self) -> AgentDoor {
        self.door.clone()
    }
    pub fn through(door: &AgentDoor) -> Result<AgentConnection, CliError> {
        try_one(door).map_err(|e| lost(&e))
    }
    fn address(&self) -> &Address {
        self.client.address()
    }
    /// Larger answers are refused.
    pub fn set_largest_answer(&mut self, bytes: usize) {
        self.client.set_largest_answer(bytes);
    }
    /// From now on it may restore for as long as it takes, or until this is true.
    pub fn wait_until(&mut self, stop: Arc<AtomicBool>) {
        self.patience = RetryPeriod::Until(stop);
    }
    fn waits(&self, since: Instant) -> bool {
        match &self.patience {
            RetryPeriod::For(time) => since.elapsed() < *time,
            RetryPeriod::Until(stop) => !stop.load(Ordering::Relaxed),
        }
    }
    pub fn get<T: DeserializeOwned>(&mut self, target: &str) -> Result<T, CliError> {
        let answer = self.get_raw(target, &[])?;
        self.read(&answer)
    }
    /// As it came: [`CliSession::json`](super::CliSession::json) shows it so that it steers nothing.
    pub fn get_json(&mut self, target: &str) -> Result<Value, CliError> {
        let answer = self.get_raw(target, &[])?;
        bounded_json::parse_up_to(&answer.body, MOST_VALUES).map_err(|error| self.unexpected_answer(&error))
    }
    /// The answer as it is; one that is an error is an error here.
    pub fn get_raw(&mut self, target: &str, headers: &[(&str, &str)]) -> Result<HttpResponse, CliError> {
        self.patiently(|client| client.get(target, headers))
    }
    pub fn post<T: DeserializeOwned>(&mut self, target: &str, body: impl Into<Bytes>) -> Result<T, CliError> {
        let body = body.into();
        let answer = self.patiently(|client| client.request(Method::Post, target, &[], body.clone()))?;
        self.read(&answer)
    }

    /// A connection of its own that stops being HTTP and carries `protocol`. `None`: this agent does not know how.
    pub fn tunnel(&mut self, protocol: &str, target: &str, body: Bytes) -> Result<Option<UnixStream>, CliError> {
        let since = Instant::now();
        loop {
            let mut client = Client::new(self.door.address.clone(), self.door.trust).map_err(|e| lost(&e))?;
            client.set_timeout(TUNNEL_TIMEOUT);
            if let Some(token) = &self.door.token {
                client.set_token(token);
            }
            match client.tunnel(protocol, target, body.clone()).map_err(|e| lost(&e))? {
                TunnelOpened::Open(stream) => return Ok(Some(stream)),
                TunnelOpened::Refused(answer) if is_restoring(&answer) && self.waits(since) => {
                    std::thread::sleep(RETRY_EVERY);
                }
                TunnelOpened::Refused(answer) => {
                    self.checked(answer)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Server-sent events. `None`: this agent does not know how to go on.
    pub fn open(&mut self, target: &str) -> Result<Option<HttpStream>, CliError> {
        let since = Instant::now();
        loop {
            match self.client.open(target).map_err(|e| lost(&e))? {
                StreamOpening::Stream(stream) => return Ok(Some(stream)),
                StreamOpening::Answer(answer) if is_restoring(&answer) && self.waits(since) => {
                    std::thread::sleep(RETRY_EVERY);
                }
                StreamOpening::Answer(answer) => return self.checked(answer).map(|_| None),
            }
        }
    }
    /// An answer of this content type, written as it comes. Errors: it breaks off.
    pub fn download(
        &mut self,
        (target, kind): (&str, &str),
        mut write: impl FnMut(&[u8]) -> io::Result<bool>,
    ) -> Result<(), CliError> {
        let mut stream = match self.client.open_kind(target, kind).map_err(|e| lost(&e))? {
            StreamOpening::Stream(stream) => stream,
            StreamOpening::Answer(answer) => {
                self.checked(answer)?;
                return Err(
                    CliError::failed(format!("the answer is no {kind}")).hint("is the agent of another version?")
                );
            }
        };
        loop {
            match self.client.next(&mut stream, DOWNLOAD_WAIT).map_err(|e| lost(&e))? {
                BodyPiece::Data(bytes) if write(&bytes)? => {}
                BodyPiece::Data(_) | BodyPiece::End => return Ok(()),
                BodyPiece::Nothing => return Err(CliError::new(CliExit::NoAgent, "the agent sends nothing more")),
            }
        }
    }
    /// What comes within `wait`. An agent that is lost ends it as well.
    pub fn next(&mut self, stream: &mut HttpStream, wait: Duration) -> BodyPiece {
        self.client.next(stream, wait).unwrap_or(BodyPiece::End)
    }

    /// An agent that has just been started answers that it is not ready: nothing was done then, so it is asked again.
    fn patiently(
        &mut self,
        mut request: impl FnMut(&mut Client) -> Result<HttpResponse, HttpError>,
    ) -> Result<HttpResponse, CliError> {
        let since = Instant::now();
        loop {
            let answer = request(&mut self.client).map_err(|e| lost(&e))?;
            if !is_restoring(&answer) || !self.waits(since) {
                return self.checked(answer);
            }
            std::thread::sleep(RETRY_EVERY);
        }
    }

    fn checked(&self, answer: HttpResponse) -> Result<HttpResponse, CliError> {
        if answer.is_success() {
            return Ok(answer);
        }
        let error = bounded_json::parse(&answer.body).unwrap_or_default();
        let Some(message) = error["message"].as_str() else {
            return Err(CliError::failed(format!("{} answered {}", self.address(), answer.status)));
        };
        Err(refusal(&error, message))
    }

    fn read<T: DeserializeOwned>(&self, answer: &HttpResponse) -> Result<T, CliError> {
        answer::read(&answer.body).map_err(|error| self.unexpected_answer(&error))
    }

    fn unexpected_answer(&self, error: &serde_json::Error) -> CliError {
        CliError::failed(format!("{} answered what this version does not understand: {error}", self.address()))
            .hint("is the agent of another version?")
    }
}

fn is_restoring(answer: &HttpResponse) -> bool {
    answer.status == 503 && bounded_json::parse(&answer.body).is_some_and(|error| error["code"] == "not_ready")
}

fn lost(error: &HttpError) -> CliError {
    let text = chain(error);
    if error.is_unreachable() || error.is_permission_denied() {
        return CliError::new(CliExit::NoAgent, text).hint("is the agent still running?");
    }
    CliError::new(CliExit::NoAgent, text)
}

/// An error of the API, for people.
fn refusal(error: &Value, message: &str) -> CliError {
    let (code, problems) = (error["code"].as_str().unwrap_or(""), &error["problems"]);
    // Which tasks there are the message says itself.
    let of_allocs = error["field"] != "task" && error["field"] != "path";
    let exit = match code {
        "not_found" | "ambiguous" => CliExit::NotFound,
        "invalid_job" => CliExit::InvalidFile,
        "socket_only" | "forbidden" | "wrong_host" | "unauthorized" | "token_in_clear" => CliExit::NotPermitted,
        _ => CliExit::Failed,
    };
    let mut text = message.to_owned();
    for problem in problems.as_array().into_iter().flatten() {
        match serde_json::from_value::<crate::jobspec::diagnostic::Diagnostic>(problem.clone()) {
            Ok(diagnostic) => text.push_str(&format!("\n\n{diagnostic}")),
            Err(_) => text.push_str(&format!("\n  {problem}")),
        }
    }
    let error = CliError { is_ambiguous: code == "ambiguous", ..CliError::new(exit, text) };
    match code {
        "socket_only" => error.hint(
            "on this host use sudo if the agent belongs to root, or join the group of `agent.socket_group`; from \
             elsewhere give --token-file or --cert",
        ),
        "unauthorized" => error.hint("give a valid token of the agent: --token-file, ALLOSTAT_TOKEN_FILE"),
        "tls_required" => error.hint("use --address https://host:port"),
        "not_found" if of_allocs => {
            error.hint("`allostat status` lists the allocs, `allostat history` those that ended and are gone")
        }
        _ => error,
    }
}

/// Promise (Event streams): A follower waits for a recovering agent for as long as it recovers; other commands for 10 s
#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tail::{EventTail, TailItem};
    use crate::cli::testing::{self, RESTORING};

    #[test]
    fn user_that_may_not_use_an_agent_of_root_gets_sudo_as_advice_and_no_agent_to_start() {
        let of = |purpose, roots_agent, failures| {
            CliError::from(NoAgent { failures, purpose, named: false, unusable: None, roots_agent })
        };
        let advice = of(Purpose::Act, true, Vec::new());
        assert_eq!(advice.exit, CliExit::NotPermitted);
        let text = advice.to_string();
        assert!(text.contains("the agent belongs to root: use sudo") && text.contains("agent.socket_group"), "{text}");
        assert!(!text.contains("allostat agent") && !text.contains("no agent answers"), "{text}");
        let dir = tempfile::tempdir().unwrap();
        let failed = |kind: io::ErrorKind| {
            let address = Address::Unix(dir.path().join("allostat.sock"));
            vec![HttpError::Connect { address, source: kind.into() }]
        };
        let hidden = of(Purpose::Act, false, failed(io::ErrorKind::PermissionDenied));
        assert!(!hidden.message.contains("belongs to root"), "of a socket that is not seen nothing is known: {hidden}");
        std::fs::write(dir.path().join("allostat.sock"), "").unwrap();
        let denied = of(Purpose::Act, false, failed(io::ErrorKind::PermissionDenied));
        assert_eq!(denied.exit, CliExit::NotPermitted);
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(denied.message.contains("belongs to root"), is_root, "its socket is of this user: {denied}");
        let absent = of(Purpose::Act, false, failed(io::ErrorKind::NotFound));
        assert!(absent.exit == CliExit::NoAgent && absent.to_string().contains("allostat agent"), "{absent}");
    }

    /// Restores until the flag says that it is through.
    fn restoring() -> (AgentConnection, Arc<AtomicBool>, tempfile::TempDir) {
        let through = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&through);
        let (mut agent, dir) = testing::agent(Arc::new(move |target| match seen.load(Ordering::SeqCst) {
            false => Some((503, RESTORING.to_owned())),
            true if target.contains("follow") => Some((200, "id: 7\n\n".to_owned())),
            true => Some((200, "1".to_owned())),
        }));
        agent.patience = RetryPeriod::For(Duration::from_millis(120));
        (agent, through, dir)
    }

    #[test]
    fn client_retries_a_restoring_agent_for_a_while_and_followers_until_it_is_ready() {
        let (mut agent, through, _dir) = restoring();
        let error = agent.get::<u64>("/").unwrap_err();
        assert_eq!((error.exit, error.message.as_str()), (CliExit::Failed, "still restoring"));
        assert!(EventTail::open(&mut agent, 0, "").is_err());
        let stop = Arc::new(AtomicBool::new(false));
        agent.wait_until(Arc::clone(&stop));
        let later = std::thread::spawn({
            let through = Arc::clone(&through);
            move || {
                std::thread::sleep(Duration::from_millis(500));
                through.store(true, Ordering::SeqCst);
            }
        });
        let mut tail = EventTail::open(&mut agent, 0, "").unwrap().expect("it can be followed");
        while !matches!(tail.next(&mut agent, Duration::from_secs(1)).unwrap(), TailItem::End) {}
        later.join().unwrap();
        assert_eq!((tail.place(), agent.get::<u64>("/").unwrap()), (7, 1));
        // An agent that is back and restores again; then Ctrl-C.
        through.store(false, Ordering::SeqCst);
        let interrupt = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                std::thread::sleep(Duration::from_millis(500));
                stop.store(true, Ordering::SeqCst);
            }
        });
        assert!(tail.again(&mut agent, || stop.load(Ordering::SeqCst)).unwrap().is_none());
        interrupt.join().unwrap();
    }
}
