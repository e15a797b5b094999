//! What a subject says about its kernel files: where each stands, when it can have changed, how its text becomes values.

use super::home::Home;
use super::raw::Raw;
use super::told::{Told, told};
use crate::kernel::cgroup::limit;
use crate::kernel::{ParseError, Parsed, text};
use crate::model::measure::{Measure, Nature, ValueSource, When};
use crate::model::units::Limit;
use crate::model::usage::{Field, Usage};

/// What is read and told of one subject.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) measures: &'static [Measure<Usage>],
    /// Those that hold nothing but the number of a measure stand in the measure: see [`File::of`].
    pub(super) files: &'static [File],
}

/// One kernel file of a cgroup.
#[derive(Debug, Clone, Copy)]
pub(super) struct File {
    pub(super) home: Home,
    pub(super) name: &'static str,
    pub(super) when: When,
    /// What it tells, alone or together with others: nothing else is lost without it.
    pub(super) fields: &'static [Field],
    /// `false`: another file has told it already.
    pub(super) needed: fn(&Raw) -> bool,
    /// How the kernel pass tells it, and its place among all files: see [`File::at`].
    pub(super) told: Option<Told>,
    pub(super) place: usize,
    /// What else has to be read for it, of cgroups above.
    pub(super) above: Option<Above>,
    tell: Tell,
}

/// Files of the same hierarchy that are not the cgroup's own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Above {
    /// Of each cgroup above it; the root has none.
    Each(&'static File),
    /// Of the root alone.
    Root(&'static File),
}

impl Above {
    pub(super) fn file(self) -> &'static File {
        match self {
            Above::Each(file) | Above::Root(file) => file,
        }
    }
    /// How many cgroups above one they stand. `depth`: of that one; the root's is 0.
    pub(super) fn up(self, depth: usize) -> std::ops::Range<usize> {
        match self {
            Above::Each(_) => 1..depth,
            Above::Root(_) => depth..depth + 1,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Tell {
    /// Puts the file's text into what is its own; `None`: there is no such file. Gives the first thing that could not be understood.
    Text(fn(&mut Raw, Option<&[u8]>) -> Option<ParseError>),
    /// It holds one number, or `max` in place of a limit.
    Number(Field),
}

impl File {
    pub(super) const fn new(
        home: Home,
        name: &'static str,
        when: When,
        fields: &'static [Field],
        tell: fn(&mut Raw, Option<&[u8]>) -> Option<ParseError>,
    ) -> File {
        File {
            home,
            name,
            when,
            fields,
            needed: |_| true,
            told: None,
            place: usize::MAX,
            above: None,
            tell: Tell::Text(tell),
        }
    }
    pub(super) const fn if_needed(mut self, needed: fn(&Raw) -> bool) -> File {
        self.needed = needed;
        self
    }
    pub(super) const fn with_above(mut self, above: Above) -> File {
        self.above = Some(above);
        self
    }
    /// As it stands in the list of all.
    pub(super) fn at(self, place: usize) -> File {
        File { told: told(self.home, self.name), place, ..self }
    }
    /// Those that hold nothing but the number of a measure.
    pub(super) fn of(measure: &'static Measure<Usage>) -> impl Iterator<Item = File> {
        let fields = measure.field.as_slice();
        let of = |home: fn(&'static str) -> Home, source| match (source, measure.field) {
            (ValueSource::Number { controller, file, when }, Some(field)) => {
                let (home, needed, tell) = (home(controller), |_: &Raw| true, Tell::Number(field));
                Some(File { home, name: file, when, fields, needed, told: None, place: usize::MAX, above: None, tell })
            }
            _ => None,
        };
        [of(Home::V1, measure.v1), of(Home::V2, measure.v2)].into_iter().flatten()
    }

    /// Puts its text into the fields that are its own; `None`: there is no such file, so they are absent. Gives the first thing
    /// that could not be understood.
    pub(super) fn apply(&self, raw: &mut Raw, bytes: Option<&[u8]>) -> Option<ParseError> {
        let field = match self.tell {
            Tell::Text(tell) => return tell(raw, bytes),
            Tell::Number(field) => field,
        };
        let (value, error) = match field.nature() {
            Nature::Limit => {
                let (limit, error) = value(bytes, |b| limit::parse(self.name, b));
                (limit.and_then(Limit::finite), error)
            }
            _ => number(self.name, bytes),
        };
        raw.usage.set(field, value);
        error
    }

    /// Read after the last process is gone, too: not what is used now only.
    pub(super) fn is_read_at_end(&self) -> bool {
        self.fields.iter().any(|field| !field.nature().goes_with_the_end())
    }
    /// It tells nothing but what an alloc shows as the sum over its tasks: not read of an alloc.
    pub(super) fn is_of_tasks_only(&self) -> bool {
        self.fields.iter().all(|field| field.nature().is_summed())
    }
    /// The kernel counts it in the cgroup where it happens, and in none above: of several tasks together it would say too little.
    pub(super) fn is_local(&self) -> bool {
        let on_v1 = matches!(self.home, Home::V1(_));
        self.fields.contains(&Field::pids_limit_hits) || (on_v1 && self.fields.contains(&Field::oom_kills))
    }
    /// `memory/memory.stat`, `unified/cpu.pressure`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.home.label(), self.name)
    }
    pub(super) fn has_key(&self, key: &str) -> bool {
        key.strip_prefix(self.home.label()).and_then(|k| k.strip_prefix('/')) == Some(self.name)
    }
}

/// Of a file with one number.
pub(super) fn number(file: &'static str, bytes: Option<&[u8]>) -> Parsed<Option<u64>> {
    value(bytes, |b| text::single(file, b))
}

/// Of a file that is one value.
pub(super) fn value<T>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Result<T, ParseError>) -> Parsed<Option<T>> {
    match bytes.map(parse) {
        None => (None, None),
        Some(Ok(value)) => (Some(value), None),
        Some(Err(error)) => (None, Some(error)),
    }
}

/// Of a file with several values, each of which may be missing.
pub(super) fn values<T: Default>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Parsed<T>) -> Parsed<T> {
    bytes.map_or_else(|| (T::default(), None), parse)
}
