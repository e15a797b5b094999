//! Renders the `template` stanzas of a task, before its start and while it runs.
//!
//! ```text
//! paths     paths of the job file on the host
//! keys      the key tree: files below `template.key_dir`
//! inputs    what a template has read, and the wait for a change of it
//! record    what the task was started with, for the next agent
//! ```
//! A template is hostile, and so is everything below the task's directory: each path is opened component by component,
//! without following a link, and everything that is read is bounded.

mod inputs;
mod keys;
mod paths;
mod record;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedMutexGuard, Semaphore};

pub use self::inputs::{InputWatch, MOST_COVERS, SETTLE, TemplateInput};
pub use self::keys::{KeyTree, NO_KEY_TREE};
pub use self::paths::TaskPaths;
pub use self::record::{TemplateRecord, TemplateState, digest_of};
use crate::host::addresses;
use crate::host::beneath::{self, FileRights};
use crate::host::roots::Roots;
use crate::jobspec::gotemplate::{GoTemplate, TemplateFault, TemplateSources};
use crate::jobspec::interpolate::Resolver;
use crate::jobspec::{env_file, templates};
use crate::model::address::InterfaceAddress;
use crate::model::env::Env;
use crate::model::id::AllocId;
use crate::model::template::TaskTemplate;
use crate::model::units::Timestamp;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::lock;

/// Of a `source`, or a file that a template reads, in bytes.
const LARGEST_FILE: usize = 4 << 20;
/// Of all templates of a task, one after another.
const LONGEST_PASS: Duration = Duration::from_secs(30);
/// inotify instances of all tasks together: a user may have 128, and other programs of root need theirs. Further tasks
/// poll.
const MOST_INSTANCES: usize = 32;
/// Of a destination that is compared with a new text.
const LARGEST_DESTINATION: usize = 16 << 20;

/// What the templates of one task are rendered from.
pub struct Rendering {
    pub places: TaskPaths,
    pub values: Resolver,
    /// Of the files, unless a template has its own.
    pub owner: Option<(u32, u32)>,
    /// `None`: the agent has no key tree.
    pub keys: Option<KeyTree>,
}

/// When a template is rendered.
#[derive(Debug, Clone, Copy)]
pub struct RenderTime {
    /// For the functions that have the time.
    pub now: Timestamp,
    /// Then it is abandoned.
    pub deadline: Instant,
}

impl RenderTime {
    /// Of all that is rendered one after another from now on.
    pub fn begin(now: Timestamp) -> RenderTime {
        RenderTime { now, deadline: Instant::now() + LONGEST_PASS }
    }
    pub fn is_over(self) -> bool {
        Instant::now() >= self.deadline
    }
}

/// Why a template is not rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderFault {
    pub message: String,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Another try changes nothing.
    Invalid,
    /// A file cannot be read or written.
    Failed,
    /// A key does not exist yet.
    Waits,
}

/// One try to render a template.
pub struct RenderTry {
    pub outcome: Result<String, RenderFault>,
    pub inputs: BTreeSet<TemplateInput>,
    /// Another time may give another text.
    pub has_time: bool,
}

impl Rendering {
    /// Renders one. Writes nothing.
    pub fn render(&self, template: &TaskTemplate, time: RenderTime) -> RenderTry {
        let (inputs, has_time, addresses) = (RefCell::default(), Cell::new(false), OnceCell::new());
        let sources = RenderSources { of: self, time, inputs, has_time, addresses };
        let outcome = self.text(template, &sources);
        let outcome = outcome.map_err(|fault| RenderFault {
            message: format!("template for {}: {}", self.shown(template), fault.message),
            ..fault
        });
        RenderTry { outcome, inputs: sources.inputs.into_inner(), has_time: sources.has_time.get() }
    }

    fn text(&self, template: &TaskTemplate, sources: &RenderSources<'_>) -> Result<String, RenderFault> {
        self.find(template)?;
        let data = match (&template.data, &template.source) {
            (Some(data), _) => data.clone(),
            (None, Some(source)) => sources.file(&self.resolve(source)?).map_err(failed)?,
            (None, None) => String::new(),
        };
        let fault = |message: String, waits: bool| RenderFault {
            kind: match waits {
                true => FaultKind::Waits,
                // A disk may be faster the next time.
                false if sources.time.is_over() => FaultKind::Failed,
                false => FaultKind::Invalid,
            },
            message,
        };
        let parsed = GoTemplate::parse_until(&data, &templates::options(template), sources.deadline());
        let parsed = parsed.map_err(|faults| fault(joined(&faults), false))?;
        let rendered = parsed.render(sources).map_err(|wrong| fault(wrong.to_string(), wrong.waits))?;
        if template.env {
            variables(&rendered)?;
        }
        Ok(rendered)
    }

    /// The variables that a rendered template adds to its task's.
    ///
    /// Errors: a line is none.
    pub fn variables(&self, template: &TaskTemplate, rendered: &str) -> Result<Env, RenderFault> {
        if template.env { variables(rendered) } else { Ok(Env::new()) }
    }

    /// Replaces the destination by a text.
    pub fn write(&self, template: &TaskTemplate, rendered: &str) -> Result<(), RenderFault> {
        let (root, path) = self.find(template)?;
        let owner = |own: Option<u32>, of_task: u32| own.unwrap_or(of_task);
        let rights = FileRights {
            mode: template.perms,
            owner: self.owner.map(|(uid, gid)| (owner(template.uid, uid), owner(template.gid, gid))).or_else(|| {
                let own = rustix::process::getuid().as_raw();
                (template.uid.is_some() || template.gid.is_some())
                    .then(|| (owner(template.uid, own), owner(template.gid, rustix::process::getgid().as_raw())))
            }),
        };
        let components: Vec<&str> = path.iter().map(String::as_str).collect();
        let written = beneath::write(&root, &components, rendered.as_bytes(), rights);
        written.map_err(|e| failed(format!("template for {}: cannot write it: {e}", self.shown(template))))
    }

    /// Whether the destination has exactly this text.
    pub fn is_on_disk(&self, template: &TaskTemplate, rendered: &str) -> bool {
        let Ok((root, path)) = self.find(template) else { return false };
        let components: Vec<&str> = path.iter().map(String::as_str).collect();
        beneath::read(&root, &components, LARGEST_DESTINATION).is_ok_and(|bytes| bytes == rendered.as_bytes())
    }

    /// Its destination, for messages.
    pub fn shown(&self, template: &TaskTemplate) -> String {
        self.values.tolerant(&template.destination)
    }

    fn find(&self, template: &TaskTemplate) -> Result<(PathBuf, Vec<String>), RenderFault> {
        self.places.find(&self.resolve(&template.destination)?).map_err(invalid)
    }
    fn resolve(&self, written: &str) -> Result<String, RenderFault> {
        self.values.resolve("template", written).map_err(|e| invalid(e.to_string()))
    }
    fn keys(&self) -> Result<&KeyTree, String> {
        self.keys.as_ref().ok_or_else(|| NO_KEY_TREE.to_owned())
    }
}

/// What one rendering reads, and a record of that.
struct RenderSources<'r> {
    of: &'r Rendering,
    time: RenderTime,
    inputs: RefCell<BTreeSet<TemplateInput>>,
    has_time: Cell<bool>,
    /// Read once: a template may ask for them many times.
    addresses: OnceCell<Result<Vec<InterfaceAddress>, String>>,
}

impl RenderSources<'_> {
    fn note(&self, input: TemplateInput) {
        inputs::note(&mut self.inputs.borrow_mut(), input);
    }
}

impl TemplateSources for RenderSources<'_> {
    fn env(&self, name: &str) -> Option<String> {
        self.of.values.lookup(name).map(str::to_owned)
    }
    fn file(&self, path: &str) -> Result<String, String> {
        let (root, components) = self.of.places.find(path)?;
        self.note(TemplateInput::file(root.clone(), components.clone()));
        let components: Vec<&str> = components.iter().map(String::as_str).collect();
        let bytes = beneath::read(&root, &components, LARGEST_FILE).map_err(|e| format!("cannot read {path}: {e}"))?;
        String::from_utf8(bytes).map_err(|_| format!("{path} is no UTF-8"))
    }
    fn key(&self, path: &str) -> Result<Option<String>, String> {
        let tree = self.of.keys()?;
        self.note(tree.input(path)?);
        tree.value(path)
    }
    fn keys(&self, prefix: &str, is_flat: bool) -> Result<Vec<(String, String)>, String> {
        let tree = self.of.keys()?;
        self.note(tree.input_below(prefix, is_flat)?);
        tree.values(prefix, is_flat, self.time.deadline)
    }
    fn addresses(&self) -> Result<Vec<InterfaceAddress>, String> {
        let read = || addresses::all(&Roots::default()).map_err(|e| format!("cannot read the interfaces: {e}"));
        self.addresses.get_or_init(read).clone()
    }
    fn now(&self) -> Result<(i64, u32), String> {
        self.has_time.set(true);
        let now = self.time.now.0;
        let seconds = i64::try_from(now / 1_000_000_000).map_err(|e| e.to_string())?;
        Ok((seconds, u32::try_from(now % 1_000_000_000).unwrap_or(0)))
    }
    fn deadline(&self) -> Option<Instant> {
        Some(self.time.deadline)
    }
}

fn variables(rendered: &str) -> Result<Env, RenderFault> {
    let wrong = |(line, why): (usize, String)| invalid(format!("line {line} is no NAME=value: {why}"));
    env_file::variables(rendered).map_err(wrong).map(|found| found.into_iter().collect())
}

fn joined(faults: &[TemplateFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn invalid(message: String) -> RenderFault {
    RenderFault { message, kind: FaultKind::Invalid }
}

fn failed(message: String) -> RenderFault {
    RenderFault { message, kind: FaultKind::Failed }
}

/// What all renderings of an agent share.
pub struct RenderShared {
    locks: Mutex<BTreeMap<AllocId, Weak<tokio::sync::Mutex<()>>>>,
    instances: Arc<Semaphore>,
}

impl Default for RenderShared {
    fn default() -> RenderShared {
        RenderShared { locks: Mutex::default(), instances: Arc::new(Semaphore::new(MOST_INSTANCES)) }
    }
}

impl RenderShared {
    /// A watch that ends late never writes an older text over that of the next start: both hold the lock of their
    /// alloc. The wait for it occupies no thread.
    pub async fn hold(&self, alloc: &AllocId) -> OwnedMutexGuard<()> {
        let of_alloc = {
            let mut locks = lock(&self.locks);
            locks.retain(|_, known| known.strong_count() > 0);
            locks.get(alloc).and_then(Weak::upgrade).unwrap_or_else(|| {
                let of_alloc = Arc::default();
                locks.insert(alloc.clone(), Arc::downgrade(&of_alloc));
                of_alloc
            })
        };
        of_alloc.lock_owned().ends_with(Ends::Permit).await
    }
    /// Within the runtime.
    pub fn watch(&self) -> InputWatch {
        InputWatch::new(Arc::clone(&self.instances).try_acquire_owned().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::drivers::SeenDirs;
    use crate::runner::persistence::datadir::TaskDirs;

    /// A task may write a source that is parsed for long, again and again.
    #[test]
    fn deadline_of_a_pass_ends_the_parse_of_a_template() {
        let at = |name: &str| PathBuf::from("/none").join(name);
        let dirs = TaskDirs {
            shared: at("shared"),
            task: at("task"),
            local: at("task/local"),
            secrets: at("task/secrets"),
            tmp: at("task/tmp"),
            logs: at("shared/logs"),
            run: at("run"),
        };
        let rendering = Rendering {
            places: TaskPaths { seen: SeenDirs::on_host(&dirs), dirs },
            values: serde_json::from_str(r#"{"env": {}, "meta": {}, "attributes": {}}"#).unwrap(),
            owner: None,
            keys: None,
        };
        let template = r#"{"data": "{{ if nosuch }}", "destination": "local/x", "perms": 420}"#;
        let template: TaskTemplate = serde_json::from_str(template).unwrap();
        let fault = |time| rendering.render(&template, time).outcome.unwrap_err();
        let over = fault(RenderTime { now: Timestamp(0), deadline: Instant::now() });
        assert_eq!((over.message.contains("it takes too long"), over.kind), (true, FaultKind::Failed), "{over:?}");
        let wrong = fault(RenderTime { now: Timestamp(0), deadline: Instant::now() + Duration::from_secs(600) });
        assert_eq!((wrong.message.contains("nosuch"), wrong.kind), (true, FaultKind::Invalid), "{wrong:?}");
    }

    /// The wait for the lock holds neither a thread nor the lock of another alloc.
    #[tokio::test]
    async fn renderings_of_one_alloc_are_serialized_and_those_of_two_allocs_run_in_parallel() {
        let (shared, one, other) = (RenderShared::default(), AllocId::random(), AllocId::random());
        let held = shared.hold(&one).await;
        assert!(tokio::time::timeout(Duration::from_millis(1), shared.hold(&one)).await.is_err());
        drop(shared.hold(&other).await);
        drop(held);
        drop(shared.hold(&one).await);
        drop(shared.hold(&other).await);
        assert_eq!(lock(&shared.locks).len(), 1, "what no rendering holds is forgotten");
    }
}
