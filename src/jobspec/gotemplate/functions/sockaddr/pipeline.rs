//! A pipeline of `sockaddr`, checked before it is executed.

use regex_syntax::ast::parse::Parser;

use super::blocks;
use crate::jobspec::gotemplate::literals;
use crate::model::address::{self, AddressBlock};
use crate::model::nearest::nearest;

/// Message and advice.
type PipelineResult<T> = Result<T, (String, String)>;

const LONGEST: usize = 4_096;
const MOST_STAGES: usize = 32;
const EXAMPLE: &str = "write for example sockaddr \"GetPrivateInterfaces | attr \\\"address\\\"\"";

#[derive(Debug)]
pub(super) enum SockaddrPipeline {
    Ip(AddressSet),
    Ips(AddressSet),
    List { source: ListSource, filters: Vec<SockaddrFilter>, end: SockaddrOutput },
}

/// The addresses of `GetPrivateIP` and its kin.
#[derive(Debug)]
pub(super) enum AddressSet {
    Private,
    Public,
    /// A pattern.
    Interface(String),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ListSource {
    All,
    Default,
    Private,
    Public,
}

#[derive(Debug)]
pub(super) enum SockaddrFilter {
    Include(AddressTest),
    Exclude(AddressTest),
    /// Each with whether it is descending.
    Sort(Vec<(SortKey, bool)>),
    UniqueAddress,
    UniqueName,
    Limit(usize),
    Offset(usize),
    /// From the end.
    OffsetBack(usize),
}

#[derive(Debug)]
pub(super) enum AddressTest {
    /// A pattern.
    Address(String),
    /// A pattern.
    Name(String),
    /// All these flags of the interface, or one of these kinds of address.
    Flags(u32, Vec<AddressKind>),
    /// One of these.
    Within(Vec<AddressBlock>),
    MaskBits(u8),
    Family {
        v4: bool,
        v6: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum AddressKind {
    Forwardable,
    GlobalUnicast,
    LinkLocalUnicast,
    Loopback,
    Multicast,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SortKey {
    Address,
    Default,
    Name,
    Size,
    Family,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SockaddrAttribute {
    Address,
    Flags,
    MaskBits,
    Name,
    Netmask,
    Network,
    Text,
    Family,
}

#[derive(Debug)]
pub(super) enum SockaddrOutput {
    /// Of the first one; empty if there is none.
    First(SockaddrAttribute),
    Join(SockaddrAttribute, String),
}

const SOURCES: &[(&str, ListSource)] = &[
    ("GetAllInterfaces", ListSource::All),
    ("GetDefaultInterfaces", ListSource::Default),
    ("GetPrivateInterfaces", ListSource::Private),
    ("GetPublicInterfaces", ListSource::Public),
];
/// Each is a whole pipeline.
const WHOLE: &[&str] =
    &["GetInterfaceIP", "GetInterfaceIPs", "GetPrivateIP", "GetPrivateIPs", "GetPublicIP", "GetPublicIPs"];
const STAGES: &[&str] = &["attr", "exclude", "include", "join", "limit", "offset", "sort", "unique"];
const SELECTORS: &[&str] = &["address", "flags", "name", "network", "rfc", "size", "type"];
const ATTRIBUTES: &[(&str, SockaddrAttribute)] = &[
    ("address", SockaddrAttribute::Address),
    ("flags", SockaddrAttribute::Flags),
    ("mask_bits", SockaddrAttribute::MaskBits),
    ("name", SockaddrAttribute::Name),
    ("netmask", SockaddrAttribute::Netmask),
    ("network", SockaddrAttribute::Network),
    ("string", SockaddrAttribute::Text),
    ("type", SockaddrAttribute::Family),
];
const SORT_KEYS: &[(&str, SortKey)] = &[
    ("address", SortKey::Address),
    ("default", SortKey::Default),
    ("name", SortKey::Name),
    ("size", SortKey::Size),
    ("type", SortKey::Family),
];
/// Flags of an interface; `loopback` and `multicast` are those of an address, too.
const FLAGS: &[(&str, u32, Option<AddressKind>)] = &[
    ("broadcast", address::BROADCAST, None),
    ("forwardable", 0, Some(AddressKind::Forwardable)),
    ("global unicast", 0, Some(AddressKind::GlobalUnicast)),
    ("link-local unicast", 0, Some(AddressKind::LinkLocalUnicast)),
    ("loopback", address::LOOPBACK, Some(AddressKind::Loopback)),
    ("multicast", address::MULTICAST, Some(AddressKind::Multicast)),
    ("point-to-point", address::POINT_TO_POINT, None),
    ("up", address::UP, None),
];

/// A word, or a text in quotes.
#[derive(Debug)]
enum PipelineToken {
    Word(String),
    Text(String),
    Pipe,
}

/// Errors: what is wrong, and what to write instead.
pub(super) fn parse(pipeline: &str) -> PipelineResult<SockaddrPipeline> {
    if pipeline.len() > LONGEST {
        return Err((format!("the pipeline is longer than {LONGEST} bytes"), EXAMPLE.to_owned()));
    }
    let tokens = tokens(pipeline)?;
    let stages: Vec<&[PipelineToken]> = tokens.split(|token| matches!(token, PipelineToken::Pipe)).collect();
    if stages.len() > MOST_STAGES {
        return Err((format!("the pipeline has more than {MOST_STAGES} stages"), EXAMPLE.to_owned()));
    }
    let stages = stages.into_iter().map(SockaddrStage::new).collect::<PipelineResult<Vec<_>>>()?;
    let Some((first, rest)) = stages.split_first() else { return Err(missing()) };
    if let Some(whole) = whole(first)? {
        return match rest.first() {
            Some(next) => {
                let advice = format!("end the pipeline after {}, or begin it with GetAllInterfaces", first.name);
                Err((format!("{} gives a text, which {} does not take", first.name, next.name), advice))
            }
            None => Ok(whole),
        };
    }
    let Some((_, source)) = SOURCES.iter().find(|(name, _)| *name == first.name) else {
        let names = SOURCES.iter().map(|(name, _)| *name).chain(WHOLE.iter().copied());
        return Err(unknown("a pipeline cannot begin with", first.name, &names.collect::<Vec<_>>()));
    };
    first.texts(0, "")?;
    let Some((last, filters)) = rest.split_last() else { return Err(unended()) };
    let filters = filters.iter().map(filter).collect::<PipelineResult<Vec<_>>>()?;
    let end = match last.name {
        "attr" => {
            let texts = last.texts(1, "attr \"address\"")?;
            SockaddrOutput::First(attribute(texts.first().copied().unwrap_or(""))?)
        }
        "join" => {
            let texts = last.texts(2, "join \"address\" \" \"")?;
            let between = texts.get(1).copied().unwrap_or("").to_owned();
            SockaddrOutput::Join(attribute(texts.first().copied().unwrap_or(""))?, between)
        }
        _ => {
            // A stage that there is not is the first fault.
            filter(last)?;
            return Err(unended());
        }
    };
    Ok(SockaddrPipeline::List { source: *source, filters, end })
}

/// A function with its arguments.
struct SockaddrStage<'t> {
    name: &'t str,
    arguments: &'t [PipelineToken],
}

impl<'t> SockaddrStage<'t> {
    fn new(tokens: &'t [PipelineToken]) -> PipelineResult<SockaddrStage<'t>> {
        match tokens.split_first() {
            Some((PipelineToken::Word(name), arguments)) => Ok(SockaddrStage { name, arguments }),
            Some((PipelineToken::Text(text), _)) => {
                Err((format!("a stage begins with a function, not with the text {text:?}"), EXAMPLE.to_owned()))
            }
            Some((PipelineToken::Pipe, _)) | None => Err(missing()),
        }
    }
    fn texts(&self, count: usize, right: &str) -> PipelineResult<Vec<&'t str>> {
        let text = |argument: &'t PipelineToken| match argument {
            PipelineToken::Text(text) => Some(text.as_str()),
            PipelineToken::Word(_) | PipelineToken::Pipe => None,
        };
        let texts: Option<Vec<&str>> = self.arguments.iter().map(text).collect();
        texts.filter(|texts| texts.len() == count).ok_or_else(|| self.wrong(count, "text", right))
    }
    fn number(&self, right: &str) -> PipelineResult<i64> {
        let number = match self.arguments {
            [PipelineToken::Word(digits)] => digits.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong(1, "number", right))
    }
    fn wrong(&self, count: usize, what: &str, right: &str) -> (String, String) {
        let takes = match count {
            0 => "no argument".to_owned(),
            1 => format!("one {what}"),
            count => format!("{count} {what}s"),
        };
        let advice = match right {
            "" => format!("write {} alone", self.name),
            right => format!("write for example {right}"),
        };
        (format!("{} takes {takes}", self.name), advice)
    }
}

fn whole(stage: &SockaddrStage<'_>) -> PipelineResult<Option<SockaddrPipeline>> {
    if !WHOLE.contains(&stage.name) {
        return Ok(None);
    }
    let set = match stage.name {
        "GetInterfaceIP" | "GetInterfaceIPs" => {
            let right = format!("{} \"eth0\"", stage.name);
            AddressSet::Interface(pattern(stage.texts(1, &right)?.first().copied().unwrap_or(""), "^eth0$")?)
        }
        name => {
            stage.texts(0, "")?;
            if name.starts_with("GetPrivate") { AddressSet::Private } else { AddressSet::Public }
        }
    };
    Ok(Some(if stage.name.ends_with("IPs") { SockaddrPipeline::Ips(set) } else { SockaddrPipeline::Ip(set) }))
}

fn filter(stage: &SockaddrStage<'_>) -> PipelineResult<SockaddrFilter> {
    match stage.name {
        "include" | "exclude" => {
            let right = format!("{} \"network\" \"10.0.0.0/8\"", stage.name);
            let texts = stage.texts(2, &right)?;
            let test = test(texts.first().copied().unwrap_or(""), texts.get(1).copied().unwrap_or(""))?;
            Ok(if stage.name == "include" { SockaddrFilter::Include(test) } else { SockaddrFilter::Exclude(test) })
        }
        "sort" => {
            let texts = stage.texts(1, "sort \"default,type,size\"")?;
            let clauses = texts.first().copied().unwrap_or("").split(',');
            Ok(SockaddrFilter::Sort(clauses.map(sort_key).collect::<PipelineResult<Vec<_>>>()?))
        }
        "unique" => match stage.texts(1, "unique \"address\"")?.first().copied().unwrap_or("") {
            key if key.eq_ignore_ascii_case("address") => Ok(SockaddrFilter::UniqueAddress),
            key if key.eq_ignore_ascii_case("name") => Ok(SockaddrFilter::UniqueName),
            key => Err(unknown("unique does not know", key, &["address", "name"])),
        },
        "limit" => {
            let number = stage.number("limit 1")?;
            usize::try_from(number)
                .map(SockaddrFilter::Limit)
                .map_err(|_| stage.wrong(1, "number that is not negative", "limit 1"))
        }
        "offset" => {
            let number = stage.number("offset 1")?;
            let distance = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
            Ok(if number < 0 { SockaddrFilter::OffsetBack(distance) } else { SockaddrFilter::Offset(distance) })
        }
        "attr" | "join" => {
            let advice = format!("let {} be the last stage", stage.name);
            Err((format!("{} gives a text, which no stage takes", stage.name), advice))
        }
        "math" => Err(("allostat has no math in sockaddr".to_owned(), "write the address itself".to_owned())),
        name => Err(unknown("there is no stage", name, STAGES)),
    }
}

fn test(selector: &str, value: &str) -> PipelineResult<AddressTest> {
    match selector.to_ascii_lowercase().as_str() {
        "address" => Ok(AddressTest::Address(pattern(value, "^10\\\\.")?)),
        "name" => Ok(AddressTest::Name(pattern(value, "^eth0$")?)),
        "flag" | "flags" => flags(value),
        "network" => {
            let block = |text: &str| {
                let advice = "write a network, such as 10.0.0.0/8".to_owned();
                AddressBlock::parse(text).ok_or_else(|| (format!("{text:?} is no network"), advice))
            };
            Ok(AddressTest::Within(value.split('|').map(block).collect::<PipelineResult<Vec<_>>>()?))
        }
        "rfc" | "rfcs" => {
            let known: Vec<&str> = blocks::rfcs().collect();
            let of =
                |text: &str| blocks::of_rfc(text).ok_or_else(|| unknown("allostat does not have RFC", text, &known));
            Ok(AddressTest::Within(value.split('|').map(of).collect::<PipelineResult<Vec<_>>>()?.concat()))
        }
        "size" => {
            let advice = "write for example include \"size\" \"24\"".to_owned();
            let bits = value.parse().ok().filter(|bits| *bits <= 128);
            bits.map(AddressTest::MaskBits).ok_or_else(|| (format!("{value:?} is no length of a prefix"), advice))
        }
        "type" => {
            let (mut v4, mut v6) = (false, false);
            for one in value.split('|') {
                let (four, six) = match one.to_ascii_lowercase().as_str() {
                    "ip" => (true, true),
                    "ipv4" => (true, false),
                    "ipv6" => (false, true),
                    _ => return Err(unknown("there is no type", one, &["ip", "ipv4", "ipv6"])),
                };
                (v4, v6) = (v4 || four, v6 || six);
            }
            Ok(AddressTest::Family { v4, v6 })
        }
        _ => Err(unknown("include and exclude do not know", selector, SELECTORS)),
    }
}

fn flags(value: &str) -> PipelineResult<AddressTest> {
    let (mut bits, mut kinds) = (0, Vec::new());
    for name in value.split('|') {
        let lower = name.to_ascii_lowercase();
        let Some((_, flag, kind)) = FLAGS.iter().find(|(known, ..)| *known == lower) else {
            let names: Vec<&str> = FLAGS.iter().map(|(name, ..)| *name).collect();
            return Err(unknown("allostat has no flag", name, &names));
        };
        bits |= flag;
        kinds.extend(*kind);
    }
    Ok(AddressTest::Flags(bits, kinds))
}

fn sort_key(clause: &str) -> PipelineResult<(SortKey, bool)> {
    let clause = clause.trim().to_ascii_lowercase();
    let (name, is_descending) = match clause.strip_prefix('-') {
        Some(name) => (name, true),
        None => (clause.strip_prefix('+').unwrap_or(&clause), false),
    };
    let found = SORT_KEYS.iter().find(|(known, _)| *known == name);
    let names = || SORT_KEYS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    found.map(|(_, key)| (*key, is_descending)).ok_or_else(|| unknown("allostat does not sort by", name, &names()))
}

fn attribute(name: &str) -> PipelineResult<SockaddrAttribute> {
    let lower = name.to_ascii_lowercase();
    let found = ATTRIBUTES.iter().find(|(known, _)| *known == lower);
    let names = || ATTRIBUTES.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    found.map(|(_, attribute)| *attribute).ok_or_else(|| unknown("allostat has no attribute", name, &names()))
}

/// A regular expression with correct syntax. It is compiled when the pipeline is executed: a short pattern may compile
/// to 1 MiB, and a template may have many of them. `example`: a correct one, for the advice.
fn pattern(pattern: &str, example: &str) -> PipelineResult<String> {
    match Parser::new().parse(pattern) {
        Ok(_) => Ok(pattern.to_owned()),
        Err(_) => {
            let advice = format!("write for example \"{example}\"");
            Err((format!("{pattern:?} is no regular expression"), advice))
        }
    }
}

fn unknown(message: &str, name: &str, known: &[&'static str]) -> (String, String) {
    let advice = match nearest(name, known.iter().copied()) {
        Some(close) => format!("did you mean {close}?"),
        None => format!("write one of {}", known.join(", ")),
    };
    (format!("{message} {name}"), advice)
}

fn missing() -> (String, String) {
    ("a stage of the pipeline is empty".to_owned(), EXAMPLE.to_owned())
}

fn unended() -> (String, String) {
    let advice = "end the pipeline with attr \"address\", or with join \"address\" \" \"".to_owned();
    ("the pipeline gives a list of interfaces, not a text".to_owned(), advice)
}

fn tokens(pipeline: &str) -> PipelineResult<Vec<PipelineToken>> {
    let mut tokens = Vec::new();
    let mut rest = pipeline.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '|' => 1,
            '"' | '`' => quoted_length(rest, c).ok_or_else(|| (format!("a {c} is not closed"), EXAMPLE.to_owned()))?,
            _ => rest.find(|c: char| c.is_whitespace() || matches!(c, '|' | '"' | '`')).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(match c {
            '|' => PipelineToken::Pipe,
            '"' => PipelineToken::Text(literals::quoted(token).map_err(|why| (why, EXAMPLE.to_owned()))?),
            '`' => PipelineToken::Text(token.trim_matches('`').to_owned()),
            _ => PipelineToken::Word(token.to_owned()),
        });
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// With both quotes, in bytes.
fn quoted_length(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if quote == '"' => is_escaped = true,
            c if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}
