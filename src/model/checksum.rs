//! Checksums of files, as `artifact` writes them: `sha256:HEX`, or `file:URL` of a file that lists them.

use super::words;

words! {
    pub enum ChecksumKind {
        Md5 = "md5",
        Sha1 = "sha1",
        Sha256 = "sha256",
        Sha512 = "sha512",
    }
}

impl ChecksumKind {
    /// In bytes.
    pub fn length(self) -> usize {
        match self {
            ChecksumKind::Md5 => 16,
            ChecksumKind::Sha1 => 20,
            ChecksumKind::Sha256 => 32,
            ChecksumKind::Sha512 => 64,
        }
    }
    fn of_length(bytes: usize) -> Option<ChecksumKind> {
        ChecksumKind::ALL.into_iter().find(|kind| kind.length() == bytes)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    pub kind: ChecksumKind,
    pub bytes: Vec<u8>,
}

/// What a file must have.
#[derive(Clone, PartialEq, Eq)]
pub enum ChecksumSource {
    Known(Checksum),
    /// The address of a file of checksums.
    File(String),
}

impl ChecksumSource {
    /// `TYPE:HEX`, `file:URL`, or hexadecimal digits alone, whose number says which.
    ///
    /// Errors: it is none, in a sentence.
    pub fn parse(text: &str) -> Result<ChecksumSource, String> {
        let text = text.trim();
        match text.split_once(':') {
            None if text.is_empty() => Err("its `checksum` is empty".to_owned()),
            None => bare(text).map(ChecksumSource::Known).ok_or_else(|| wrong(text)),
            Some(("file", url)) => {
                let is_http = url.starts_with("http://") || url.starts_with("https://");
                if is_http {
                    Ok(ChecksumSource::File(url.to_owned()))
                } else {
                    Err("a `checksum` of type `file` is the address of a file: file:https://...".to_owned())
                }
            }
            Some((word, digits)) => {
                let kind = ChecksumKind::ALL.into_iter().find(|kind| kind.as_str() == word);
                let kind = kind.ok_or_else(|| {
                    let known = ChecksumKind::ALL.map(ChecksumKind::as_str).join(", ");
                    format!("{word:?} is no type of `checksum`: there are {known} and file")
                })?;
                let bytes = hexadecimal(digits).filter(|bytes| bytes.len() == kind.length());
                let length = kind.length() * 2;
                let bytes = bytes.ok_or_else(|| format!("a checksum of {word} has {length} hexadecimal digits"))?;
                Ok(ChecksumSource::Known(Checksum { kind, bytes }))
            }
        }
    }
}

fn wrong(text: &str) -> String {
    let shown: String = text.chars().take(200).collect();
    format!("{shown:?} is no checksum: write TYPE:HEXADECIMAL, as sha256:6b86b2...")
}

impl Checksum {
    /// Of a file of that name, in the text of a file of checksums: `sha256sum`'s lines, BSD's `SHA256 (NAME) = ...`, or
    /// one checksum alone.
    pub fn in_file(text: &str, name: &str) -> Option<Checksum> {
        let of_line = |line: &str| -> Option<(Option<String>, Checksum)> {
            if let Some((head, digits)) = line.rsplit_once(" = ")
                && let Some((_, file)) = head.split_once(" (")
            {
                return Some((Some(file.strip_suffix(')')?.to_owned()), bare(digits)?));
            }
            let (digits, file) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let file = file.trim_start().trim_start_matches('*').trim();
            Some((Some(file.to_owned()).filter(|file| !file.is_empty()), bare(digits)?))
        };
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).filter_map(of_line).collect();
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let named = lines.iter().find(|(file, _)| file.as_deref().is_some_and(|file| base(file) == name));
        match (named, lines.as_slice()) {
            (Some((_, checksum)), _) | (None, [(None, checksum)]) => Some(checksum.clone()),
            _ => None,
        }
    }
    pub fn to_text(&self) -> String {
        let digits: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}:{digits}", self.kind.as_str())
    }
}

fn bare(digits: &str) -> Option<Checksum> {
    let bytes = hexadecimal(digits.trim())?;
    Some(Checksum { kind: ChecksumKind::of_length(bytes.len())?, bytes })
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    if odd.is_empty() { pairs.iter().map(byte).collect() } else { None }
}
