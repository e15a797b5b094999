//! The fields of `config` that `raw_exec` has in addition to those of all drivers with processes.

use crate::runner::drivers::UnenforcedField;
use crate::runner::drivers::fields::{ConfigFields, error};

/// The kernel's highest value, which makes a process the first victim. Source: proc(5), `oom_score_adj`.
const MOST: u64 = 1000;
const OVERRIDES: [(&str, &str); 2] =
    [("cgroup_v1_override", "config.cgroup_v1_override"), ("cgroup_v2_override", "config.cgroup_v2_override")];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    pub oom_score_adj: Option<u16>,
    /// Names of variables; `*` matches any text.
    pub denied_envvars: Vec<String>,
    /// Fields that name another cgroup.
    pub overrides: Vec<&'static str>,
}

impl Config {
    /// Pure. Errors are collected in `fields`.
    pub fn of(fields: &mut ConfigFields) -> Config {
        let overrides = OVERRIDES.iter().filter(|(name, _)| fields.value(name).is_some()).map(|(_, path)| *path);
        let overrides: Vec<&'static str> = overrides.collect();
        if overrides.len() > 1 {
            let message = "cannot be set beside cgroup_v1_override: a host has one of the two".to_owned();
            fields.refuse(error("cgroup_v2_override", message));
        }
        Config { oom_score_adj: oom_score_adj(fields), denied_envvars: fields.texts("denied_envvars"), overrides }
    }

    pub fn deny(&self, env: &mut Vec<(String, String)>) {
        env.retain(|(name, _)| !self.denied_envvars.iter().any(|pattern| matches(pattern, name)));
    }

    pub fn unenforced(&self) -> Vec<UnenforcedField> {
        let why = "its task stays in a cgroup of allostat, which measures and limits it";
        self.overrides.iter().map(|field| UnenforcedField { field, why: why.to_owned() }).collect()
    }
}

fn oom_score_adj(fields: &mut ConfigFields) -> Option<u16> {
    let value = fields.number("oom_score_adj")?;
    let in_range = u16::try_from(value).ok().filter(|_| value <= MOST);
    fields.or_collect(in_range.ok_or_else(|| error("oom_score_adj", format!("must be 0 to {MOST}, not {value}"))))
}

/// Matches the texts between the stars, each as early as possible: no pattern takes long.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(config: &Value) -> Result<Config, String> {
        let map = config.as_object().unwrap().clone();
        let mut fields = ConfigFields::new(&map);
        let config = Config::of(&mut fields);
        fields.done().map(|()| config).map_err(|e| e.to_string())
    }

    /// The remaining names, in order.
    fn remaining_names(config: &Config, env: &[&str]) -> Vec<String> {
        let mut env: Vec<(String, String)> = env.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        config.deny(&mut env);
        let mut names: Vec<String> = env.into_iter().map(|(name, _)| name).collect();
        names.sort();
        names
    }

    #[test]
    fn denied_variables_are_left_out_by_name_and_pattern() {
        let config = read(&json!({"denied_envvars": ["HOME", "AWS_*", "*_TOKEN", "A*B*C"]})).unwrap();
        let env = ["HOME", "HOMES", "AWS_KEY", "AWS", "GIT_TOKEN", "TOKEN_", "AxBxC", "ABxCx"];
        assert_eq!(remaining_names(&config, &env), ["ABxCx", "AWS", "HOMES", "TOKEN_"]);
        let all = Config { denied_envvars: vec!["*".to_owned()], ..Config::default() };
        assert_eq!(remaining_names(&all, &env), Vec::<String>::new());
    }

    #[test]
    fn oom_score_is_a_number_that_the_kernel_takes() {
        assert_eq!(read(&json!({"oom_score_adj": 500})).unwrap().oom_score_adj, Some(500));
        assert_eq!(read(&json!({"oom_score_adj": 1001})).unwrap_err(), "oom_score_adj: must be 0 to 1000, not 1001");
        assert_eq!(read(&json!({"oom_score_adj": -1})).unwrap_err(), "oom_score_adj: must be a whole number, not -1");
    }

    #[test]
    fn another_cgroup_is_accepted_with_a_warning() {
        let config = read(&json!({"cgroup_v2_override": "custom.slice"})).unwrap();
        assert_eq!(config.unenforced()[0].field, "config.cgroup_v2_override");
        let both = json!({"cgroup_v1_override": [{"pids": "/x"}], "cgroup_v2_override": "custom.slice"});
        assert!(read(&both).unwrap_err().starts_with("cgroup_v2_override: cannot be set beside"));
    }
}
