//! Tables of kernel files: where each file lies, when it can have changed, and how to parse it.

use super::file_replacement::{FileReplacement, file_replacement};
use super::hierarchy::FileHierarchy;
use super::raw::RawValues;
use crate::kernel::cgroup::limit;
use crate::kernel::{ParseError, Parsed, text};
use crate::model::measure::{ChangeTrigger, Measure, Nature, ValueSource};
use crate::model::units::Limit;
use crate::model::usage::{Field, Usage};

/// The files and measures of one subject.
#[derive(Debug)]
pub(super) struct SubjectFiles {
    pub(super) measures: &'static [Measure<Usage>],
    /// Files that contain only the number of a measure are derived from the measure: see [`KernelFile::of`].
    pub(super) files: &'static [KernelFile],
}

/// One kernel file of a cgroup.
#[derive(Debug, Clone, Copy)]
pub(super) struct KernelFile {
    pub(super) hierarchy: FileHierarchy,
    pub(super) name: &'static str,
    pub(super) when: ChangeTrigger,
    /// All fields that the file contributes to, alone or with others.
    pub(super) fields: &'static [Field],
    /// `false`: another file already provided the value.
    pub(super) needed: fn(&RawValues) -> bool,
    /// How a row of the kernel pass replaces the file, and its index among all files: see [`KernelFile::at`].
    pub(super) replacement: Option<FileReplacement>,
    pub(super) place: usize,
    /// A file of ancestor cgroups that must be read as well.
    pub(super) above: Option<AncestorFile>,
    parser: FileParser,
}

/// Files of the same hierarchy outside of the cgroup itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum AncestorFile {
    /// Of each ancestor below the root.
    Each(&'static KernelFile),
    /// Of the root only.
    Root(&'static KernelFile),
}

impl AncestorFile {
    pub(super) fn file(self) -> &'static KernelFile {
        match self {
            AncestorFile::Each(file) | AncestorFile::Root(file) => file,
        }
    }
    /// Levels above the cgroup at which the files lie. `depth`: level of the cgroup; the root's is 0.
    pub(super) fn up(self, depth: usize) -> std::ops::Range<usize> {
        match self {
            AncestorFile::Each(_) => 1..depth,
            AncestorFile::Root(_) => depth..depth + 1,
        }
    }
}

/// How the content of a file becomes values.
#[derive(Debug, Clone, Copy)]
enum FileParser {
    /// Parses the text into fields; `None`: the file does not exist. Returns the first parse error.
    Text(fn(&mut RawValues, Option<&[u8]>) -> Option<ParseError>),
    /// One number, or `max` for a limit.
    Number(Field),
}

impl KernelFile {
    pub(super) const fn new(
        hierarchy: FileHierarchy,
        name: &'static str,
        when: ChangeTrigger,
        fields: &'static [Field],
        parser: fn(&mut RawValues, Option<&[u8]>) -> Option<ParseError>,
    ) -> KernelFile {
        KernelFile {
            hierarchy,
            name,
            when,
            fields,
            needed: |_| true,
            replacement: None,
            place: usize::MAX,
            above: None,
            parser: FileParser::Text(parser),
        }
    }
    pub(super) const fn if_needed(mut self, needed: fn(&RawValues) -> bool) -> KernelFile {
        self.needed = needed;
        self
    }
    pub(super) const fn with_above(mut self, above: AncestorFile) -> KernelFile {
        self.above = Some(above);
        self
    }
    /// Assigns the index among all files.
    pub(super) fn at(self, place: usize) -> KernelFile {
        KernelFile { replacement: file_replacement(self.hierarchy, self.name), place, ..self }
    }
    /// The files that contain only the number of this measure.
    pub(super) fn of(measure: &'static Measure<Usage>) -> impl Iterator<Item = KernelFile> {
        let fields = measure.field.as_slice();
        let of = |hierarchy: fn(&'static str) -> FileHierarchy, source| match (source, measure.field) {
            (ValueSource::Number { controller, file, when }, Some(field)) => {
                let (hierarchy, needed, parser) =
                    (hierarchy(controller), |_: &RawValues| true, FileParser::Number(field));
                Some(KernelFile {
                    hierarchy,
                    name: file,
                    when,
                    fields,
                    needed,
                    replacement: None,
                    place: usize::MAX,
                    above: None,
                    parser,
                })
            }
            _ => None,
        };
        [of(FileHierarchy::V1, measure.v1), of(FileHierarchy::V2, measure.v2)].into_iter().flatten()
    }

    /// Parses the content into the file's fields; `None`: the file does not exist, so they become absent. Returns the
    /// first parse error.
    pub(super) fn apply(&self, raw: &mut RawValues, bytes: Option<&[u8]>) -> Option<ParseError> {
        let field = match self.parser {
            FileParser::Text(parser) => return parser(raw, bytes),
            FileParser::Number(field) => field,
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

    /// Part of the last sample: the file has more than live gauges.
    pub(super) fn is_read_at_end(&self) -> bool {
        self.fields.iter().any(|field| !field.nature().goes_with_the_end())
    }
    /// All fields of an alloc are sums over its tasks, so the file is not read for an alloc.
    pub(super) fn is_of_tasks_only(&self) -> bool {
        self.fields.iter().all(|field| field.nature().is_summed())
    }
    /// The kernel counts only events in this very cgroup, not below: too low for a cgroup with several tasks.
    pub(super) fn is_local(&self) -> bool {
        let on_v1 = matches!(self.hierarchy, FileHierarchy::V1(_));
        self.fields.contains(&Field::pids_limit_hits) || (on_v1 && self.fields.contains(&Field::oom_kills))
    }
    /// For example `memory/memory.stat`, `unified/cpu.pressure`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.hierarchy.label(), self.name)
    }
    pub(super) fn has_key(&self, key: &str) -> bool {
        key.strip_prefix(self.hierarchy.label()).and_then(|k| k.strip_prefix('/')) == Some(self.name)
    }
}

/// Parses a file with one number.
pub(super) fn number(file: &'static str, bytes: Option<&[u8]>) -> Parsed<Option<u64>> {
    value(bytes, |b| text::single(file, b))
}

/// Parses a file with one value.
pub(super) fn value<T>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Result<T, ParseError>) -> Parsed<Option<T>> {
    match bytes.map(parse) {
        None => (None, None),
        Some(Ok(value)) => (Some(value), None),
        Some(Err(error)) => (None, Some(error)),
    }
}

/// Parses a file with several values; each may be missing.
pub(super) fn values<T: Default>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Parsed<T>) -> Parsed<T> {
    bytes.map_or_else(|| (T::default(), None), parse)
}
