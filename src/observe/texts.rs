//! Names and labels chosen by others (cgroups, containers, environments) are truncated, cleaned and counted here before
//! they become names and labels of allocs.
//!
//! ```text
//! each text   200 bytes, no terminal control characters       ── changed: counted
//! each alloc  8 KiB of labels, 1,000 tasks                    ── dropped labels: counted; further tasks: own allocs
//! all         cgroup paths: 400 bytes on average              ── further cgroups: counted by allostat_observed_left_out
//! ```

use super::identity::TaskNaming;
use crate::model::text::{LONGEST_LABEL_VALUE, label_value};

/// Limit for all labels of one alloc, names and values, in bytes.
const MOST_OF_LABELS: usize = 8 << 10;
/// Limit of tasks per alloc; ended tasks stay as long as the alloc.
pub const MOST_TASKS: usize = 1_000;
/// Limit for the total length of shown cgroup paths, in bytes per allowed task (`observe.max_allocs`). Each path is
/// stored about ten times.
const PATHS_OF_EACH: usize = 400;

/// Numbers of texts that were changed, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangedTextCounts {
    /// Truncated texts.
    pub length: u64,
    /// Cleaned texts.
    pub characters: u64,
    /// Dropped labels, because the budget of their alloc was used up.
    pub budget: u64,
}

impl ChangedTextCounts {
    pub fn add(&mut self, more: ChangedTextCounts) {
        self.length += more.length;
        self.characters += more.characters;
        self.budget += more.budget;
    }
    pub fn take(&mut self) -> ChangedTextCounts {
        std::mem::take(self)
    }
    fn fit(&mut self, text: String) -> String {
        match label_value(&text) {
            std::borrow::Cow::Borrowed(_) => text,
            std::borrow::Cow::Owned(fitting) => {
                let why = if text.len() > LONGEST_LABEL_VALUE { &mut self.length } else { &mut self.characters };
                *why += 1;
                fitting
            }
        }
    }
}

/// Truncates and cleans all texts. Valid texts stay unchanged and are not counted.
pub fn sanitize(naming: TaskNaming, counts: &mut ChangedTextCounts) -> TaskNaming {
    let TaskNaming { source, native, name, task, workload, group, namespace, driver, user, image, labels, created_at } =
        naming;
    let mut fit = |text: String| counts.fit(text);
    let [native, name, task, namespace] = [native, name, task, namespace].map(&mut fit);
    let [workload, group, driver, user, image] = [workload, group, driver, user, image].map(|text| text.map(&mut fit));
    let labels = labels.into_iter().map(|(name, value)| (name, fit(value))).collect();
    TaskNaming {
        source,
        native,
        name,
        task,
        workload,
        group,
        namespace,
        driver,
        user,
        image,
        labels: within_budget(labels, counts),
        created_at,
    }
}

fn within_budget(mut labels: Vec<(String, String)>, counts: &mut ChangedTextCounts) -> Vec<(String, String)> {
    let mut bytes = 0;
    let before = labels.len();
    labels.retain(|(name, value)| {
        bytes += name.len() + value.len();
        bytes <= MOST_OF_LABELS
    });
    counts.budget += (before - labels.len()) as u64;
    labels
}

/// Whether another cgroup fits, by the total length of the shown paths.
pub fn has_room(paths: usize, max_allocs: usize) -> bool {
    paths < max_allocs.saturating_mul(PATHS_OF_EACH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_text_is_cut_or_cleaned_once_and_counted() {
        let long = "A".repeat(100_000);
        let some = |text: &str| Some(text.to_owned());
        let naming = TaskNaming {
            user: some(&long),
            image: some("a\u{1b}[2J"),
            driver: some("docker"),
            labels: vec![("team".to_owned(), "\u{202e}".to_owned())],
            ..TaskNaming::of("1000\u{1b}/a.service")
        };
        let mut counts = ChangedTextCounts::default();
        let fitting = sanitize(naming, &mut counts);
        assert_eq!(counts, ChangedTextCounts { length: 1, characters: 5, budget: 0 });
        assert_eq!(fitting.user.as_ref().map(String::len), Some(LONGEST_LABEL_VALUE));
        assert!(fitting.image.as_deref().is_some_and(|image| image.starts_with("a?[2J~")), "{fitting:?}");
        assert!(fitting.native.starts_with("1000?/a.service~") && fitting.labels[0].1.starts_with("?~"), "{fitting:?}");
        assert_eq!(sanitize(fitting.clone(), &mut counts), fitting);
        assert_eq!(counts.take(), ChangedTextCounts { length: 1, characters: 5, budget: 0 }, "once");
    }

    #[test]
    fn labels_have_a_budget_and_those_above_it_are_left_out_and_counted() {
        let labels = (0..100).map(|n| (format!("label-{n}"), "x".repeat(300))).collect();
        let mut counts = ChangedTextCounts::default();
        let fitting = sanitize(TaskNaming { labels, ..TaskNaming::of("web") }, &mut counts);
        assert_eq!((fitting.labels.len(), counts.budget), (39, 61));
    }

    #[test]
    fn paths_have_room_for_400_bytes_per_allowed_task_and_no_more() {
        assert!(has_room(0, 1) && has_room(399, 1) && !has_room(400, 1) && !has_room(401, 1));
        assert!(has_room(1_999_999, 5_000) && !has_room(2_000_000, 5_000));
        assert!(!has_room(0, 0), "nothing is shown");
        assert!(has_room(usize::MAX - 1, usize::MAX), "the product has no room in a number");
    }

    proptest! {
        #[test]
        fn observed_texts_are_bounded_and_free_of_terminal_controls(texts in proptest::collection::vec(".{0,300}", 7)) {
            let some = |n: usize| Some(texts[n].clone());
            let naming = TaskNaming {
                workload: some(1), group: some(2), driver: some(3), user: some(4), image: some(5),
                namespace: texts[6].clone(), ..TaskNaming::of(&texts[0])
            };
            let fitting = sanitize(naming, &mut ChangedTextCounts::default());
            let all = [fitting.workload, fitting.group, fitting.driver, fitting.user, fitting.image];
            let all = all.into_iter().flatten().chain([fitting.native, fitting.name, fitting.task, fitting.namespace]);
            for text in all {
                prop_assert!(text.len() <= LONGEST_LABEL_VALUE);
                prop_assert!(!text.chars().any(crate::model::text::steers_a_terminal));
            }
        }
    }
}
