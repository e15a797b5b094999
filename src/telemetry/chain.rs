//! Errors in one line: reported once, where no caller can handle them.

use std::error::Error;

/// An error with all its causes. One that repeats its cause says it once.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {0}")]
    struct OuterError(&'static str, #[source] std::io::Error);

    #[test]
    fn each_cause_is_reported_once() {
        let why = || std::io::Error::other("why");
        assert_eq!(chain(&OuterError("x", why())), "cannot read x: why");
        assert_eq!(chain(&OuterError("x: why", why())), "cannot read x: why");
    }
}
