//! The way out of a session whose command does not react: `~.` at the beginning of a line, as in ssh and Nomad; `~~` is
//! one tilde.

/// Takes what is typed. A tilde at the beginning of a line is held back until the next byte.
#[derive(Debug)]
pub struct Escape {
    begins_line: bool,
    holds_tilde: bool,
}

impl Default for Escape {
    fn default() -> Escape {
        Escape { begins_line: true, holds_tilde: false }
    }
}

impl Escape {
    /// What goes on to the command: at most one byte more than came in. `None`: the user leaves.
    pub fn pass(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for byte in typed {
            if std::mem::take(&mut self.holds_tilde) {
                match byte {
                    b'.' => return None,
                    b'~' => {}
                    _ => passed.push(b'~'),
                }
            } else if *byte == b'~' && self.begins_line {
                self.holds_tilde = true;
                self.begins_line = false;
                continue;
            }
            passed.push(*byte);
            self.begins_line = matches!(byte, b'\r' | b'\n');
        }
        Some(passed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(pieces: &[&str]) -> Option<String> {
        let mut escape = Escape::default();
        let all: Option<Vec<Vec<u8>>> = pieces.iter().map(|piece| escape.pass(piece.as_bytes())).collect();
        all.map(|all| String::from_utf8(all.concat()).unwrap())
    }

    #[test]
    fn escape_counts_at_the_beginning_of_a_line_alone() {
        for (pieces, expected) in [
            (vec!["~."], None),
            (vec!["ls\r", "~", "."], None),
            (vec!["a~."], Some("a~.")),
            (vec!["~", "/bin\r"], Some("~/bin\r")),
            (vec!["~~."], Some("~.")),
            (vec!["~\r~."], None),
        ] {
            assert_eq!(passed(&pieces).as_deref(), expected, "{pieces:?}");
        }
    }

    proptest! {
        #[test]
        fn input_without_tilde_passes_unchanged(typed in "[a-z.\r\n]{0,40}", cut in 0_usize..40) {
            let cut = cut.min(typed.len());
            prop_assert_eq!(passed(&[&typed[..cut], &typed[cut..]]).unwrap(), typed);
        }
    }
}
