//! Settings of what is removed of ended allocs.

use std::time::Duration;

use super::{Kind, Setting, duration, not_between, short};
use crate::jobspec::fields::{Stanza, Word};

pub(super) static STANZA: Stanza = Stanza {
    name: "gc",
    words: &[
        Word::value("max_terminal"),
        Word::value("max_age"),
        Word::value("disk_used_percent"),
        Word::value("inodes_used_percent"),
    ],
};

const MOST: u64 = 1_000_000;

fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    text.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| not_between(least, most))
}

pub(super) const MAX_TERMINAL: Setting = Setting {
    stanza: "gc",
    key: "max_terminal",
    env: "ALLOSTAT_GC_MAX_TERMINAL",
    about: "Ended allocs that are kept; the oldest above it go, once their final series were fetched.",
    kind: Kind::Whole(0, MOST),
    set: |c, text| {
        c.gc.max_terminal = usize::try_from(whole(text, 0, MOST)?).map_err(|_| not_between(0, MOST))?;
        Ok(())
    },
    get: |c| Some(c.gc.max_terminal.to_string()),
};

pub(super) const MAX_AGE: Setting = Setting {
    stanza: "gc",
    key: "max_age",
    env: "ALLOSTAT_GC_MAX_AGE",
    about: "Allocs that ended longer ago than this go, once their final series were fetched. Default: none.",
    kind: Kind::Duration,
    set: |c, text| {
        c.gc.max_age = Some(duration(text, Duration::ZERO, Duration::from_secs(3_650 * 86_400))?);
        Ok(())
    },
    get: |c| c.gc.max_age.map(short),
};

pub(super) const DISK_USED: Setting = Setting {
    stanza: "gc",
    key: "disk_used_percent",
    env: "ALLOSTAT_GC_DISK_USED_PERCENT",
    about: "The data directory's file system is fuller than this: the oldest ended allocs go. 100: never.",
    kind: Kind::Whole(1, 100),
    set: |c, text| {
        c.gc.disk_used_percent = whole(text, 1, 100)?;
        Ok(())
    },
    get: |c| Some(c.gc.disk_used_percent.to_string()),
};

pub(super) const INODES_USED: Setting = Setting {
    stanza: "gc",
    key: "inodes_used_percent",
    env: "ALLOSTAT_GC_INODES_USED_PERCENT",
    about: "The same of its inodes.",
    kind: Kind::Whole(1, 100),
    set: |c, text| {
        c.gc.inodes_used_percent = whole(text, 1, 100)?;
        Ok(())
    },
    get: |c| Some(c.gc.inodes_used_percent.to_string()),
};
