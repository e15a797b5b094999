//! Asks runtimes what their containers are called and how they ended: on a thread for each source, so that one that hangs costs
//! its own names and nobody else's.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use super::identity::{Naming, Recognised};
use super::table::ExitFacts;
use super::{Config, ObservedSource};
use crate::host::inotify::Bell;
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;
use crate::telemetry::lock;

/// So many questions wait for a source; those above it are not asked.
const MOST_WAITING: usize = 1024;

/// What a source is asked about.
#[derive(Debug, Clone)]
pub struct Inquiry {
    /// The cgroup of the task.
    pub path: String,
    pub found: Recognised,
    /// Where its processes are listed.
    pub lists: Vec<PathBuf>,
    pub about: About,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Name,
    Exit,
}

/// Where sources find what they ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimePlaces {
    pub roots: Roots,
    /// `/`, but for tests.
    pub root: PathBuf,
    pub docker: PathBuf,
}

impl RuntimePlaces {
    pub fn new(roots: Roots, config: &Config) -> RuntimePlaces {
        RuntimePlaces { roots, root: "/".into(), docker: config.docker_socket.clone() }
    }
    /// A file of this host.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// Asks one source. Concurrency: on a thread of its own; it may block.
pub trait Runtime: Send {
    /// `None`: the source does not know it, or cannot be asked.
    fn name(&mut self, inquiry: &Inquiry) -> Option<Naming>;
    /// `None`: nobody says.
    fn exit(&mut self, inquiry: &Inquiry) -> Option<ExitFacts> {
        let _ = inquiry;
        None
    }
}

/// What a source said.
#[derive(Debug)]
pub enum SourceReply {
    Name(String, Option<Box<Naming>>),
    Exit(String, Option<ExitFacts>),
}

pub struct Inquiries {
    places: RuntimePlaces,
    askers: HashMap<AllocSource, Option<SyncSender<Inquiry>>>,
    replies: Arc<Mutex<Vec<SourceReply>>>,
    bell: Bell,
}

impl Inquiries {
    /// Errors: the system has no descriptor left.
    pub fn new(places: RuntimePlaces) -> std::io::Result<Inquiries> {
        let bell = Bell::new()?;
        Ok(Inquiries { places, askers: HashMap::new(), replies: Arc::default(), bell })
    }

    /// Rings when somebody has answered.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Whether the source will be asked: it may not answer all the same.
    pub fn ask(&mut self, source: &'static ObservedSource, inquiry: Inquiry) -> bool {
        let Some(make) = source.runtime else { return false };
        let asker = self.askers.entry(source.word).or_insert_with(|| {
            let (sender, inquiries) = sync_channel(MOST_WAITING);
            let (replies, bell, places) = (Arc::clone(&self.replies), self.bell.clone(), self.places.clone());
            let work = move || answer(make, places, &inquiries, &replies, &bell);
            let name = format!("ask-{}", source.word.as_str());
            std::thread::Builder::new().name(name).spawn(work).ok().map(|_| sender)
        });
        asker.as_ref().is_some_and(|sender| sender.try_send(inquiry).is_ok())
    }

    /// What was answered since.
    pub fn replies(&self) -> Vec<SourceReply> {
        std::mem::take(&mut *lock(&self.replies))
    }
}

fn answer(
    make: fn(&RuntimePlaces) -> Box<dyn Runtime>,
    places: RuntimePlaces,
    inquiries: &Receiver<Inquiry>,
    replies: &Mutex<Vec<SourceReply>>,
    bell: &Bell,
) {
    let mut runtime = make(&places);
    // Ends with the last one who asks.
    for inquiry in inquiries {
        let reply = match inquiry.about {
            About::Name => SourceReply::Name(inquiry.path.clone(), runtime.name(&inquiry).map(Box::new)),
            About::Exit => SourceReply::Exit(inquiry.path.clone(), runtime.exit(&inquiry)),
        };
        lock(replies).push(reply);
        bell.ring();
    }
}
