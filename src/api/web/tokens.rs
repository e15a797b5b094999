//! Tokens of clients that may act over TCP: one on each line of a file. Only their sums are kept.

use std::path::Path;

use ring::hmac;

use super::error::AccessError;
use super::passwords::random_key;
use super::reload::FileStamps;

/// 16 characters of `openssl rand -hex` are 64 bits: what is shorter can be guessed.
const SHORTEST: usize = 16;
const LONGEST: usize = 1024;

pub(super) struct Tokens {
    key: hmac::Key,
    sums: Vec<hmac::Tag>,
}

impl Tokens {
    /// A line that begins with `#` is a remark. Errors: with the line, and never with what stands there.
    pub(super) fn read(path: &Path, files: &mut FileStamps) -> Result<Tokens, AccessError> {
        let read = |source| AccessError::Read { path: path.to_owned(), source };
        let bytes = files.read_secret(path).map_err(read)?;
        let wrong = |line: usize, message: String| AccessError::Token { path: path.to_owned(), line, message };
        let key = random_key()?;
        let mut sums = Vec::new();
        for (i, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let token = line.trim_ascii();
            if token.is_empty() || token.starts_with(b"#") {
                continue;
            }
            if !(SHORTEST..=LONGEST).contains(&token.len()) {
                let length = token.len();
                let message = format!("this token has {length} characters; {SHORTEST} to {LONGEST} are wanted");
                return Err(wrong(i + 1, message));
            }
            if !token.iter().all(u8::is_ascii_graphic) {
                let message = "a token is visible ASCII without spaces, one on each line".to_owned();
                return Err(wrong(i + 1, message));
            }
            sums.push(hmac::sign(&key, token));
        }
        if sums.is_empty() {
            return Err(wrong(1, "there is no token in it".to_owned()));
        }
        Ok(Tokens { key, sums })
    }

    /// No client has one.
    pub(super) fn none() -> Result<Tokens, AccessError> {
        Ok(Tokens { key: random_key()?, sums: Vec::new() })
    }

    /// Takes as long whichever it is, and if it is none.
    pub(super) fn has(&self, token: &str) -> bool {
        let is_this = |known: &hmac::Tag| hmac::verify(&self.key, token.as_bytes(), known.as_ref()).is_ok();
        self.sums.iter().fold(false, |found, known| is_this(known) | found)
    }
}
