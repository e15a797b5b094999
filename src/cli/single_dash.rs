//! Nomad's spelling of two flags, with one dash: `-var NAME=VALUE`, `-var-file FILE`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// As they are spelled here. What follows is the flag's value, or begins with `=`.
const FLAGS: [&str; 2] = ["var", "var-file"];

/// The command line with two dashes before these flags, where its command has them.
pub(super) fn rewritten(root: &clap::Command, line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut rest = line.into_iter();
    let mut all: Vec<OsString> = rest.by_ref().take(1).collect();
    let mut is_value = false;
    let mut command = None;
    for arg in rest.by_ref() {
        let is_flag = arg.as_bytes().starts_with(b"-");
        let is_command = !is_value && !is_flag;
        is_value = !is_value && is_flag && takes_value(root, &arg);
        command = arg.to_str().filter(|_| is_command).and_then(|name| root.find_subcommand(name));
        all.push(arg);
        if is_command {
            break;
        }
    }
    if !command.is_some_and(|command| command.get_arguments().any(|arg| arg.get_long() == Some(FLAGS[0]))) {
        all.extend(rest);
        return all;
    }
    let mut is_over = false;
    all.extend(rest.map(|arg| {
        is_over |= arg == "--";
        if is_over || !has_one_dash(&arg) { arg } else { OsString::from_vec([b"-", arg.as_bytes()].concat()) }
    }));
    all
}

/// Of a flag before the command, such as `--socket PATH`: the next word is its value.
fn takes_value(root: &clap::Command, flag: &OsStr) -> bool {
    let Some(flag) = flag.to_str() else { return false };
    let is_selected = |arg: &&clap::Arg| match (flag.strip_prefix("--"), flag.strip_prefix('-')) {
        (Some(long), _) => arg.get_long() == Some(long),
        (None, Some(short)) => arg.get_short().is_some_and(|own| own.to_string() == short),
        (None, None) => false,
    };
    root.get_arguments().find(is_selected).is_some_and(|arg| arg.get_action().takes_values())
}

fn has_one_dash(arg: &OsStr) -> bool {
    let Some(rest) = arg.as_bytes().strip_prefix(b"-") else { return false };
    FLAGS.iter().any(|flag| rest.strip_prefix(flag.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_read(line: &str) -> String {
        let line = line.split(' ').map(OsString::from);
        let all = rewritten(&crate::cli::command(), line);
        all.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn single_dash_becomes_two_for_flags_of_the_command() {
        for (line, read) in [
            ("allostat run -var a=1 x.hcl", "allostat run --var a=1 x.hcl"),
            ("allostat run -var=a=1 -var-file=f x.hcl", "allostat run --var=a=1 --var-file=f x.hcl"),
            ("allostat plan -var-file f x.hcl", "allostat plan --var-file f x.hcl"),
            ("allostat --socket run check -var a=1", "allostat --socket run check --var a=1"),
            ("allostat check x.hcl -- -var", "allostat check x.hcl -- -var"),
            ("allostat check -variable -v", "allostat check -variable -v"),
            ("allostat exec a1 echo -var x", "allostat exec a1 echo -var x"),
            ("allostat -var a=1", "allostat -var a=1"),
            ("allostat", "allostat"),
        ] {
            assert_eq!(as_read(line), read);
        }
    }
}
