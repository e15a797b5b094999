//! Patterns that select allocs by ID, image or label, and rules that assign a workload to allocs with unique names.
//! Pure.
//!
//! ```text
//! docker:ci-*                             an ID as it is shown; * matches any text
//! image:registry.example/ci-*             the image, as the runtime names it
//! label:com.example.team=core             a container label or pod annotation
//! cgroup:/ci/* -> ci                      workload: a fixed text,
//! label:ci.job=* -> label:ci.project      or the value of a label
//! ```
//! Unknown values match no pattern: a container without the label, or one whose runtime does not respond.

use std::fmt;

use super::identity::{AllocCgroupRule, TaskNaming};

/// Selects allocs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedPattern {
    Id(String),
    Image(String),
    Label { name: String, value: String },
}

impl ObservedPattern {
    /// Errors: what is missing, as a sentence.
    pub fn parse(text: &str) -> Result<ObservedPattern, String> {
        if let Some(image) = text.strip_prefix(IMAGE) {
            let image =
                filled(image).ok_or_else(|| format!("{text:?} names no image: write image:registry.example/*"))?;
            return Ok(ObservedPattern::Image(image));
        }
        let Some(label) = text.strip_prefix(LABEL) else { return Ok(ObservedPattern::Id(text.to_owned())) };
        let (name, value) = label
            .split_once('=')
            .ok_or_else(|| format!("{text:?} has no value: write label:com.example.team=core, or =* for any value"))?;
        let name = label_name(name).map_err(|why| format!("{text:?} {why}"))?;
        Ok(ObservedPattern::Label { name, value: value.to_owned() })
    }

    /// `id`: the alloc's ID, or the ID that it would get.
    pub fn matches(&self, id: &str, naming: &TaskNaming) -> bool {
        match self {
            ObservedPattern::Id(pattern) => matches(pattern, id),
            ObservedPattern::Image(pattern) => naming.image.as_ref().is_some_and(|image| matches(pattern, image)),
            ObservedPattern::Label { name, value } => {
                naming.label(name).is_some_and(|reported| matches(value, reported))
            }
        }
    }

    /// The label that the pattern compares.
    pub fn label(&self) -> Option<&str> {
        match self {
            ObservedPattern::Label { name, .. } => Some(name),
            ObservedPattern::Id(_) | ObservedPattern::Image(_) => None,
        }
    }
}

impl fmt::Display for ObservedPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObservedPattern::Id(id) => f.write_str(id),
            ObservedPattern::Image(image) => write!(f, "{IMAGE}{image}"),
            ObservedPattern::Label { name, value } => write!(f, "{LABEL}{name}={value}"),
        }
    }
}

/// Assigns a workload to the allocs that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadRule {
    pub of: ObservedPattern,
    pub workload: RuleWorkload,
}

/// The workload that a rule assigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleWorkload {
    Text(String),
    /// The value of this label; without the label the rule does not apply.
    Label(String),
}

impl WorkloadRule {
    /// Errors: what is missing, as a sentence.
    pub fn parse(text: &str) -> Result<WorkloadRule, String> {
        let without = |what: &str| format!("{text:?} {what}: write cgroup:/ci/* {ARROW} ci");
        // The last arrow: a cgroup path may contain one.
        let (of, workload) = text.rsplit_once(ARROW).ok_or_else(|| without("has no workload"))?;
        let of = filled(of).ok_or_else(|| without("has no pattern"))?;
        let workload = filled(workload).ok_or_else(|| without("has no workload"))?;
        let workload = match workload.strip_prefix(LABEL) {
            Some(label) => RuleWorkload::Label(label_name(label).map_err(|why| format!("{text:?} {why}"))?),
            None => RuleWorkload::Text(workload),
        };
        Ok(WorkloadRule { of: ObservedPattern::parse(&of)?, workload })
    }

    fn workload(&self, id: &str, naming: &TaskNaming) -> Option<String> {
        let is_of = self.of.matches(id, naming);
        let workload = match &self.workload {
            RuleWorkload::Text(text) => Some(text.as_str()),
            RuleWorkload::Label(name) => naming.label(name).filter(|workload| !workload.is_empty()),
        };
        workload.filter(|_| is_of).map(str::to_owned)
    }

    /// The labels that the rule reads.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        let label = match &self.workload {
            RuleWorkload::Label(name) => Some(name.as_str()),
            RuleWorkload::Text(_) => None,
        };
        self.of.label().into_iter().chain(label)
    }
}

impl fmt::Display for WorkloadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.workload {
            RuleWorkload::Text(text) => write!(f, "{} {ARROW} {text}", self.of),
            RuleWorkload::Label(name) => write!(f, "{} {ARROW} {LABEL}{name}", self.of),
        }
    }
}

/// Applies the first matching rule and returns its index. Totals are kept per task name of a workload, so a task with
/// its alloc's unique name is renamed to the workload. A task with a name of its own (a Compose service, a container of
/// a pod) keeps it.
pub fn ruled(
    rules: &[WorkloadRule],
    id: &str,
    alloc_cgroup: AllocCgroupRule,
    naming: TaskNaming,
) -> (TaskNaming, Option<usize>) {
    let fits = |(n, rule): (usize, &WorkloadRule)| Some((n, rule.workload(id, &naming)?));
    let Some((n, workload)) = rules.iter().enumerate().find_map(fits) else { return (naming, None) };
    let above = naming.native.strip_suffix(&naming.task);
    let is_called_alike =
        alloc_cgroup == AllocCgroupRule::Task && above.is_some_and(|above| above.is_empty() || above.ends_with('/'));
    let task = if is_called_alike { workload.clone() } else { naming.task };
    (TaskNaming { task, workload: Some(workload), ..naming }, Some(n))
}

const IMAGE: &str = "image:";
const LABEL: &str = "label:";
const ARROW: &str = "->";

fn filled(text: &str) -> Option<String> {
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Errors: the reason, as the rest of a sentence.
fn label_name(text: &str) -> Result<String, &'static str> {
    let name = filled(text).ok_or("names no label")?;
    if name.contains(['*', '=']) { Err("has no valid label name: * is allowed in values only") } else { Ok(name) }
}

/// `*` matches any text; all other characters match themselves.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = pattern.contains('*').then(|| parts.next_back()).flatten() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, text, matching) in [
            ("docker:web", "docker:web", true),
            ("docker:web", "docker:web-1", false),
            ("docker:*", "docker:web-1", true),
            ("*", "", true),
            ("*:web*1", "docker:web-1", true),
            ("*web*web", "a:web", false),
            ("docker:*", "systemd:a", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, text), matching, "{pattern} {text}");
        }
    }

    fn container(image: Option<&str>, labels: &[(&str, &str)]) -> TaskNaming {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        TaskNaming { image: image.map(str::to_owned), labels, ..TaskNaming::of("runner-x7f3") }
    }

    #[test]
    fn a_pattern_matches_id_image_or_label_and_absent_values_match_none() {
        let labelled = container(Some("registry.example/ci-go:1"), &[("team", "core=a"), ("empty", "")]);
        let unlabelled = container(None, &[]);
        for (pattern, fits) in [
            ("docker:runner-*", [true, true]),
            ("docker:web", [false, false]),
            ("image:registry.example/ci-*", [true, false]),
            ("image:registry.example/web*", [false, false]),
            ("image:*", [true, false]),
            ("label:team=core=a", [true, false]),
            ("label:team=*", [true, false]),
            ("label:team=co", [false, false]),
            ("label:empty=", [true, false]),
            ("label:other=*", [false, false]),
        ] {
            let of = ObservedPattern::parse(pattern).unwrap();
            assert_eq!(
                [&labelled, &unlabelled].map(|naming| of.matches("docker:runner-x7f3", naming)),
                fits,
                "{pattern}"
            );
            assert_eq!(of.to_string(), pattern);
        }
    }

    #[test]
    fn invalid_observed_pattern_or_rule_is_refused_with_the_missing_part() {
        let pattern = |text: &str| ObservedPattern::parse(text).unwrap_err();
        for (text, why) in [
            ("image:", "names no image"),
            ("label:team", "has no value"),
            ("label:=a", "names no label"),
            ("label:te*=a", "has no valid label name"),
        ] {
            assert!(pattern(text).contains(why), "{text}: {}", pattern(text));
        }
        let rule = |text: &str| WorkloadRule::parse(text).unwrap_err();
        for (text, why) in [
            ("cgroup:/ci/*", "has no workload"),
            ("cgroup:/ci/* ->", "has no workload"),
            ("-> ci", "has no pattern"),
            ("image: -> ci", "names no image"),
            ("label:a -> ci", "has no value"),
            ("label:a=* -> label:", "names no label"),
            ("label:a=* -> label:b=*", "has no valid label name"),
        ] {
            assert!(rule(text).contains(why), "{text}: {}", rule(text));
        }
    }

    fn rules(texts: &[&str]) -> Vec<WorkloadRule> {
        texts.iter().map(|text| WorkloadRule::parse(text).unwrap()).collect()
    }

    #[test]
    fn workload_is_that_of_the_first_matching_rule_with_its_label_present() {
        let rules = rules(&["label:job=* -> label:project", "image:ci-* -> builds", "docker:* -> others"]);
        let given = |naming: &TaskNaming| {
            let (naming, rule) = ruled(&rules, "docker:runner-x7f3", AllocCgroupRule::Task, naming.clone());
            (naming.workload.unwrap(), rule.unwrap())
        };
        let both = [("job", "1"), ("project", "shop/web")];
        assert_eq!(given(&container(Some("ci-go"), &both)), ("shop/web".to_owned(), 0));
        assert_eq!(given(&container(Some("ci-go"), &both[..1])), ("builds".to_owned(), 1));
        let empty = [("job", "1"), ("project", "")];
        assert_eq!(given(&container(None, &empty)), ("others".to_owned(), 2));
        let untouched = container(None, &both);
        assert_eq!(ruled(&rules[1..2], "docker:a", AllocCgroupRule::Task, untouched.clone()), (untouched, None));
    }

    #[test]
    fn task_named_like_its_alloc_gets_the_workload_name_and_other_names_are_unchanged() {
        let rules = rules(&["* -> ci"]);
        let task = |alloc_cgroup: AllocCgroupRule, native: &str, task: &str| {
            let naming = TaskNaming { task: task.to_owned(), ..TaskNaming::of(native) };
            ruled(&rules, "any", alloc_cgroup, naming).0.task
        };
        assert_eq!(task(AllocCgroupRule::Task, "runner-x7f3", "runner-x7f3"), "ci");
        assert_eq!(task(AllocCgroupRule::Task, "/ci/job-123", "job-123"), "ci");
        assert_eq!(task(AllocCgroupRule::Task, "shop-web-1", "web"), "web", "a service of Compose's");
        assert_eq!(task(AllocCgroupRule::Task, "shop-web", "web"), "web", "a service of Compose's");
        assert_eq!(task(AllocCgroupRule::Parent, "shop/web-x2x7z", "app"), "app", "a container of a pod");
        assert_eq!(task(AllocCgroupRule::Parent, "42", "42"), "42", "a step of Slurm's");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_is_written_as_it_can_be_read_again(text in "(image:|label:|->|[=* a,]|.){0,12}") {
            let _ = matches(&text, &text);
            if let Ok(pattern) = ObservedPattern::parse(&text) {
                prop_assert_eq!(ObservedPattern::parse(&pattern.to_string()), Ok(pattern));
            }
            if let Ok(rule) = WorkloadRule::parse(&text) {
                prop_assert_eq!(WorkloadRule::parse(&rule.to_string()), Ok(rule));
            }
        }
    }
}
