//! Server-sent events, out of pieces of text cut anywhere. Pure.
//!
//! Source: the HTML standard, "Interpreting an event stream". A block that ends the text without its empty line is
//! none.

/// One block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseBlock {
    pub id: Option<String>,
    /// Empty: none was named.
    pub event: String,
    /// Its lines, joined; empty where there were none.
    pub data: String,
}

#[derive(Debug, Default)]
pub struct SseParser {
    /// The line that has not ended yet.
    line: Vec<u8>,
    block: SseBlock,
    has_data: bool,
}

impl SseParser {
    /// The blocks that end in this piece. Comments alone make none.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<SseBlock> {
        let mut blocks = Vec::new();
        for byte in piece {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
            if line.is_empty() {
                self.has_data = false;
                let block = std::mem::take(&mut self.block);
                if block != SseBlock::default() {
                    blocks.push(block);
                }
            } else {
                self.field(&line);
            }
        }
        blocks
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.block.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.block.event),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.block.data.push('\n');
                }
                self.block.data.push_str(value);
            }
            // A comment (no name), or a field that a newer agent has.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str =
        ":\n\nid: 1\nevent: started\ndata: {\"a\":1}\n\n:\nid: 7\n\ndata: x\ndata:y\r\nretry: 5\n\nid: 9\n";

    fn block(id: Option<&str>, event: &str, data: &str) -> SseBlock {
        SseBlock { id: id.map(str::to_owned), event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn comments_are_none_and_an_id_may_stand_alone() {
        let expected = [block(Some("1"), "started", "{\"a\":1}"), block(Some("7"), "", ""), block(None, "", "x\ny")];
        assert_eq!(SseParser::default().feed(TEXT.as_bytes()), expected, "the last one has not ended");
    }

    proptest! {
        #[test]
        fn event_stream_parses_the_same_wherever_it_is_split(cuts in prop::collection::vec(0..TEXT.len(), 0..6)) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let mut parser = SseParser::default();
            let pieces = cuts.windows(2).map(|w| &TEXT.as_bytes()[w[0]..w[1]]);
            let blocks: Vec<SseBlock> = pieces.flat_map(|piece| parser.feed(piece)).collect();
            prop_assert_eq!(blocks, SseParser::default().feed(TEXT.as_bytes()));
        }
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            SseParser::default().feed(&text);
        }
    }
}
