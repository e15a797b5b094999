//! The `template` stanzas of a task: rendered before each start, into files below its directories and into its environment.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::env::{context_of, inherited};
use super::frame::{Hook, HookError, HookOutcome, Phase};
use super::subject::OfTask;
use crate::host::beneath::{self, FileRights};
use crate::host::clock::Clock;
use crate::jobspec::gotemplate::{GoTemplate, TemplateFault, TemplateSources};
use crate::jobspec::interpolate::Resolver;
use crate::jobspec::{env_file, templates};
use crate::model::env::Env;
use crate::model::event::EventKind;
use crate::model::job::TaskTemplate;
use crate::runner::drivers::{BoxFuture, SeenDirs};
use crate::runner::kept::datadir::TaskDirs;

/// Of a `source`, or a file that a template reads, in bytes.
const LARGEST_FILE: usize = 4 << 20;

pub struct Templates;

impl Hook<OfTask> for Templates {
    fn name(&self) -> &'static str {
        "template"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate", "task_dir", "devices", "dispatch", "artifact"]
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prestart]
    }
    fn run<'a>(&'a self, _: Phase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            if subject.task().templates.is_empty() {
                return Ok(HookOutcome::Again);
            }
            let Some(dirs) = subject.dirs.clone() else {
                return Err(HookError::setup("its directories are not there yet"));
            };
            let Some(driver) = subject.ctx.drivers.get(subject.task().driver.as_str()) else {
                return Err(HookError::setup("its driver is not there"));
            };
            let seen = driver.seen(&dirs);
            let inherited = inherited(subject, driver.as_ref());
            let values = context_of(subject, &seen, &inherited, Resolver::new);
            let owner = subject.account.as_ref().filter(|_| rustix::process::geteuid().is_root());
            let job = Rendering {
                places: Places { dirs, seen },
                values,
                owner: owner.map(|account| (account.uid, account.gid)),
                clock: Arc::clone(&subject.ctx.clock),
            };
            let all = subject.task().templates.clone();
            let rendered = move || all.iter().try_fold(Env::new(), |made, one| job.render(one, made));
            let made = subject.ctx.blocking.block(rendered).await.map_err(HookError::setup)??;
            subject.template_env = made;
            Ok(HookOutcome::Again)
        })
    }
}

struct Rendering {
    places: Places,
    values: Resolver,
    owner: Option<(u32, u32)>,
    clock: Arc<dyn Clock>,
}

impl Rendering {
    /// Renders one and adds its variables to `made`.
    fn render(&self, template: &TaskTemplate, mut made: Env) -> Result<Env, HookError> {
        let text = |written: &str| self.values.resolve("template", written).map_err(|e| invalid(e.to_string()));
        let destination = text(&template.destination)?;
        let of = |why: String| format!("template for {destination}: {why}");
        let (root, path) = self.places.find(&destination).map_err(|why| invalid(of(why)))?;
        let data = match (&template.data, &template.source) {
            (Some(data), _) => data.clone(),
            (None, Some(source)) => self.places.read(&text(source)?).map_err(|why| failed(of(why)))?,
            (None, None) => String::new(),
        };
        let parsed = GoTemplate::parse(&data, &templates::options(template));
        let parsed = parsed.map_err(|faults| invalid(of(joined(&faults))))?;
        let rendered = parsed.render(self).map_err(|fault| match fault.waits {
            true => failed(of(fault.to_string())),
            false => invalid(of(fault.to_string())),
        })?;
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
        beneath::write(&root, &components, rendered.as_bytes(), rights)
            .map_err(|e| failed(of(format!("cannot write it: {e}"))))?;
        if template.env {
            let variables = env_file::variables(&rendered);
            let wrong = |(line, why): (usize, String)| invalid(of(format!("line {line} is no NAME=value: {why}")));
            made.extend(variables.map_err(wrong)?);
        }
        Ok(made)
    }
}

impl TemplateSources for Rendering {
    fn env(&self, name: &str) -> Option<String> {
        self.values.lookup(name).map(str::to_owned)
    }
    fn file(&self, path: &str) -> Result<String, String> {
        self.places.read(path)
    }
    fn key(&self, _: &str) -> Result<Option<String>, String> {
        Err(NO_KEYS.to_owned())
    }
    fn keys(&self, _: &str) -> Result<Vec<(String, String)>, String> {
        Err(NO_KEYS.to_owned())
    }
    fn now(&self) -> Result<(i64, u32), String> {
        let now = self.clock.now().0;
        let seconds = i64::try_from(now / 1_000_000_000).map_err(|e| e.to_string())?;
        Ok((seconds, u32::try_from(now % 1_000_000_000).unwrap_or(0)))
    }
}

const NO_KEYS: &str = "this agent has no tree of keys: there is no Consul here";

/// Paths of a job file, as the task sees them, on the host.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub dirs: TaskDirs,
    pub seen: SeenDirs,
}

impl Places {
    /// The directory below which a path is, and its components there. Relative paths are below the task's directory; `alloc/` is what
    /// the tasks of the alloc share.
    ///
    /// Errors: it leads out of them, in a sentence.
    pub fn find(&self, path: &str) -> Result<(PathBuf, Vec<String>), String> {
        let (root, components) = self.locate(path)?;
        if components.is_empty() {
            return Err("its path names no file".to_owned());
        }
        Ok((root, components))
    }

    /// The same; no components: that directory itself.
    pub fn locate(&self, path: &str) -> Result<(PathBuf, Vec<String>), String> {
        let given = Path::new(path);
        let known = [
            (&self.seen.local, &self.dirs.local),
            (&self.seen.secrets, &self.dirs.secrets),
            (&self.seen.shared, &self.dirs.shared),
            (&self.dirs.task, &self.dirs.task),
        ];
        let beneath = known.into_iter().find_map(|(seen, host)| {
            let rest = given.strip_prefix(seen).ok().filter(|_| given.is_absolute())?;
            Some((host.clone(), rest.to_owned()))
        });
        let (mut root, rest) =
            beneath.unwrap_or_else(|| (self.dirs.task.clone(), given.strip_prefix("/").unwrap_or(given).to_owned()));
        let mut components: Vec<String> = Vec::new();
        let mut above_task = false;
        for component in rest.components() {
            match component {
                Component::Normal(name) => {
                    let name = name.to_str().ok_or_else(|| "its path is no UTF-8".to_owned())?;
                    components.push(name.to_owned());
                }
                Component::CurDir => {}
                Component::ParentDir if components.pop().is_some() => {}
                // `../alloc/x` of old job files.
                Component::ParentDir if root == self.dirs.task && !above_task => above_task = true,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(OUTSIDE.to_owned()),
            }
        }
        if root == self.dirs.task && components.first().is_some_and(|name| name == "alloc") {
            components.remove(0);
            root.clone_from(&self.dirs.shared);
        } else if above_task {
            return Err(OUTSIDE.to_owned());
        }
        Ok((root, components))
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let (root, components) = self.find(path)?;
        let components: Vec<&str> = components.iter().map(String::as_str).collect();
        let bytes = beneath::read(&root, &components, LARGEST_FILE).map_err(|e| format!("cannot read {path}: {e}"))?;
        String::from_utf8(bytes).map_err(|_| format!("{path} is no UTF-8"))
    }
}

const OUTSIDE: &str = "its path leads out of the directories of the task";

fn joined(faults: &[TemplateFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Trying again changes nothing.
fn invalid(message: String) -> HookError {
    HookError { kind: EventKind::FailedValidation, message, recoverable: false }
}

fn failed(message: String) -> HookError {
    HookError::setup(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        let task = PathBuf::from("/data/alloc/1/web");
        let dirs = TaskDirs {
            shared: "/data/alloc/1/alloc".into(),
            local: task.join("local"),
            secrets: task.join("secrets"),
            tmp: task.join("tmp"),
            logs: "/data/alloc/1/alloc/logs".into(),
            run: "/data/run/1/web/0".into(),
            task,
        };
        let seen = SeenDirs { shared: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        Places { dirs, seen }
    }

    #[test]
    fn paths_as_the_task_sees_them_are_found_below_its_directories() {
        for (path, expected) in [
            ("local/a.conf", "/data/alloc/1/web/local/a.conf"),
            ("/local/a.conf", "/data/alloc/1/web/local/a.conf"),
            ("/secrets/x/../env", "/data/alloc/1/web/secrets/env"),
            ("./secrets/env", "/data/alloc/1/web/secrets/env"),
            ("a.conf", "/data/alloc/1/web/a.conf"),
            ("/etc/a.conf", "/data/alloc/1/web/etc/a.conf"),
            ("alloc/data/x", "/data/alloc/1/alloc/data/x"),
            ("../alloc/x", "/data/alloc/1/alloc/x"),
            ("/alloc/data/x", "/data/alloc/1/alloc/data/x"),
            ("/data/alloc/1/web/local/y", "/data/alloc/1/web/local/y"),
        ] {
            let (root, components) = places().find(path).unwrap();
            assert_eq!(components.iter().fold(root, |at, name| at.join(name)), Path::new(expected), "{path}");
        }
        for path in ["../x", "../../alloc/x", "local/../../x", "/local/../x", "", ".", "alloc", "/alloc/../../x"] {
            assert!(places().find(path).is_err(), "{path}");
        }
    }
}
