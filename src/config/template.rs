//! What templates of job files may read.

use super::otlp::shown;
use super::setting::{Setting, SettingKind};
use super::values::absolute;

pub(super) static SETTINGS: &[Setting] = &[Setting {
    stanza: "template",
    key: "key_dir",
    env: "ALLOSTAT_TEMPLATE_KEY_DIR",
    about: "Directory of the key tree: `key \"a/b\"` in a template is the content of its file a/b. Every job can read \
            all of it, so it is no place for secrets. Default: none, and jobs whose templates read keys are refused.",
    kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.template.key_dir = Some(path))),
    get: |c| shown(c.template.key_dir.as_deref()),
}];
