//! A JSON model that keeps texts as they are: the order of fields, duplicate fields, and the digits
//! of numbers.
//!
//! It is the reference for readers of JSON files, and a source of malformed files. The readers use
//! `serde_json`, so this shares no code with it. It accepts more than JSON allows, and is only used
//! on texts that a reader has accepted.

use cambium_seeds::Random;
use std::{fmt, ops::Range};

/// Maximum nesting of lists and objects, the same as in `serde_json`. Deeper values are
/// [`Json::Raw`].
const DEPTH_MAX: usize = 128;
/// Nesting of a text that would overflow the stack of any recursive reader.
const DEEP: usize = 10_000;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number in its original digits.
    Number(String),
    /// A string. Bytes that are not UTF-8 are replaced.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// Fields in the order of the text. Names may repeat.
    Object(Vec<(String, Json)>),
    /// Text that is printed unchanged, and may not be JSON.
    Raw(String),
}

impl Json {
    /// Parses a whole text. Returns `None` if it is not JSON.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.skip_space();
        (reader.at == text.len()).then_some(value)
    }

    /// Returns the last field of this name, the one that most readers use.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else {
            return None;
        };
        let found = fields.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }

    /// Returns the elements, if this is a list.
    pub fn elements(&self) -> Option<&[Self]> {
        match self {
            Self::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the string, if this is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn at(&mut self, path: &[usize]) -> &mut Self {
        path.iter().fold(self, |value, index| match value {
            Self::List(elements) => &mut elements[*index],
            Self::Object(fields) => &mut fields[*index].1,
            other => panic!("{other} has nothing in it"),
        })
    }

    /// Lists the position and the name of each value but the outermost.
    fn places(&self, above: &[usize], name: &str, found: &mut Vec<(Vec<usize>, String)>) {
        let below: Vec<(String, &Self)> = match self {
            Self::List(elements) => elements
                .iter()
                .enumerate()
                .map(|(index, element)| (format!("{name}[{index}]"), element))
                .collect(),
            Self::Object(fields) => fields
                .iter()
                .map(|(key, value)| (format!("{name}.{key}"), value))
                .collect(),
            _ => Vec::new(),
        };
        for (index, (name, value)) in below.into_iter().enumerate() {
            let path = [above, &[index]].concat();
            found.push((path.clone(), name.clone()));
            value.places(&path, &name, found);
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(text) | Self::Raw(text) => f.write_str(text),
            Self::Text(text) => write_text(f, text),
            Self::List(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Object(fields) => {
                f.write_str("{")?;
                for (index, (key, value)) in fields.iter().enumerate() {
                    f.write_str(if index > 0 { ",\n" } else { "" })?;
                    write_text(f, key)?;
                    write!(f, ": {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(f, "\\{letter}")?,
            '\0'..' ' => write!(f, "\\u{:04x}", u32::from(letter))?,
            letter => write!(f, "{letter}")?,
        }
    }
    f.write_str("\"")
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: &[u8]) -> Option<()> {
        let there = self.text.get(self.at..)?.starts_with(wanted);
        self.at += wanted.len();
        there.then_some(())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        self.skip_space();
        match self.peek()? {
            b'n' => self.take(b"null").map(|()| Json::Null),
            b't' => self.take(b"true").map(|()| Json::Bool(true)),
            b'f' => self.take(b"false").map(|()| Json::Bool(false)),
            b'"' => self.string().map(Json::Text),
            b'[' | b'{' if depth == DEPTH_MAX => self.skip().map(Json::Raw),
            b'[' => {
                let mut elements = Vec::new();
                self.row(b']', |reader| {
                    elements.push(reader.value(depth + 1)?);
                    Some(())
                })?;
                Some(Json::List(elements))
            }
            b'{' => {
                let mut fields = Vec::new();
                self.row(b'}', |reader| {
                    let key = reader.string()?;
                    reader.skip_space();
                    reader.take(b":")?;
                    fields.push((key, reader.value(depth + 1)?));
                    Some(())
                })?;
                Some(Json::Object(fields))
            }
            _ => {
                let rest = &self.text[self.at..];
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let len = rest.iter().take_while(|byte| is_part(byte)).count();
                self.at += len;
                let text = String::from_utf8_lossy(&rest[..len]).into_owned();
                (len > 0).then_some(Json::Number(text))
            }
        }
    }

    /// Returns the text of a list or object up to its closing bracket.
    fn skip(&mut self) -> Option<String> {
        let (start, mut open) = (self.at, 0);
        loop {
            match self.peek()? {
                b'"' => _ = self.string()?,
                byte => {
                    self.at += 1;
                    open += usize::from(b"[{".contains(&byte));
                    open -= usize::from(b"]}".contains(&byte));
                }
            }
            if open == 0 {
                let text = &self.text[start..self.at];
                return Some(String::from_utf8_lossy(text).into_owned());
            }
        }
    }

    /// Parses items that are separated by commas, up to the closing bracket `end`.
    fn row(&mut self, end: u8, mut one: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.at += 1;
        self.skip_space();
        if self.peek()? == end {
            self.at += 1;
            return Some(());
        }
        loop {
            self.skip_space();
            one(self)?;
            self.skip_space();
            let next = self.peek()?;
            self.at += 1;
            match next {
                b',' => {}
                next if next == end => return Some(()),
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        self.take(b"\"")?;
        let mut bytes = Vec::new();
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return Some(String::from_utf8_lossy(&bytes).into_owned()),
                b'\\' => {
                    let letter = self.escaped()?;
                    bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes());
                }
                byte => bytes.push(byte),
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let byte = self.peek()?;
        self.at += 1;
        Some(match byte {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4)?;
                self.at += 4;
                let digits = std::str::from_utf8(digits).ok()?;
                let code = u32::from_str_radix(digits, 16).ok()?;
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            byte => byte.into(),
        })
    }
}

/// A JSON text with one change, which its `Display` describes.
#[derive(Clone, Debug)]
pub struct ChangedJson {
    /// Path of the change, such as `.alloc.0x00..aa.balance`.
    pub place: String,
    /// Description of the change, such as `removed` or `is null`.
    pub what: String,
    /// The changed text.
    pub text: String,
    /// Range of the replaced value in the text, if the change is a replacement.
    pub replaced: Option<Range<usize>>,
}

impl ChangedJson {
    /// Returns whether the position at the end of an error's message, ` at line 3 column 14`, is in
    /// or next to the replaced value, or after it if the text is no longer JSON. Returns `None` if
    /// the change is not a replacement or the message has no position.
    pub fn is_placed_by(&self, message: &str) -> Option<bool> {
        let replaced = self.replaced.clone()?;
        let (_, place) = message.rsplit_once(" at line ")?;
        let (line, column) = place.split_once(" column ")?;
        let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
        let before = self.text.split_inclusive('\n').take(line - 1);
        let at = before.map(str::len).sum::<usize>() + column;
        // The character after a value shows that it has ended.
        let is_before_end = at <= replaced.end + 2 || Json::parse(self.text.as_bytes()).is_none();
        Some(replaced.start <= at && is_before_end)
    }
}

impl fmt::Display for ChangedJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place.as_str() {
            "" => "the whole",
            place => place,
        };
        write!(f, "{place} {}", self.what)
    }
}

/// Returns `json` with each value removed, repeated, or replaced by values of every type: invalid
/// ones, and the same value in another notation. If there are more than `count` changes, draws
/// about that many by `seed`, spread over all of `json`.
pub fn json_changes(
    json: &Json,
    count: usize,
    seed: u64,
) -> impl Iterator<Item = ChangedJson> + use<'_> {
    let mut places = vec![(Vec::new(), String::new())];
    json.places(&[], "", &mut places);
    let stretch = (places.len() * CHANGES_EACH).div_ceil(count).max(1) as u64;
    let mut random = Random::new(seed);
    let mut next = random.below(stretch);
    let all = places
        .into_iter()
        .flat_map(|(path, place)| changes_at(json, &path, &place));
    all.filter(move |_| {
        let is_drawn = next == 0;
        next = match is_drawn {
            true => random.below(2 * stretch - 1),
            false => next - 1,
        };
        is_drawn
    })
}

/// Approximate number of changes for each value.
const CHANGES_EACH: usize = 60;

fn changes_at(json: &Json, path: &[usize], place: &str) -> Vec<ChangedJson> {
    let mut changed = Vec::new();
    let mut add = |what: &str, text: String, replaced| {
        changed.push(ChangedJson {
            place: place.to_owned(),
            what: what.to_owned(),
            text,
            replaced,
        });
    };
    let mut marked = json.clone();
    let value = std::mem::replace(marked.at(path), Json::Raw("\0".to_owned()));
    let marked = marked.to_string();
    let start = marked.find('\0').expect("the mark");
    for (what, other) in others(&value) {
        let other = other.to_string();
        let end = start + other.len();
        add(&what, marked.replacen('\0', &other, 1), Some(start..end));
    }
    if let Some((index, above)) = path.split_last() {
        for (what, edit) in EDITS {
            let mut json = json.clone();
            if edit(json.at(above), *index) {
                add(what, json.to_string(), None);
            }
        }
    }
    changed
}

/// An edit of a list or object at an index. Returns false if it does not apply to this type.
type Edit = fn(&mut Json, usize) -> bool;

const EDITS: [(&str, Edit); 9] = [
    ("removed", |above, index| {
        match above {
            Json::List(elements) => drop(elements.remove(index)),
            Json::Object(fields) => drop(fields.remove(index)),
            _ => {}
        }
        true
    }),
    ("repeated", |above, index| {
        match above {
            Json::List(elements) => elements.insert(index, elements[index].clone()),
            Json::Object(fields) => fields.insert(index, fields[index].clone()),
            _ => {}
        }
        true
    }),
    ("repeated as null", |above, index| {
        again(above, index, |key| (key, Json::Null))
    }),
    ("repeated as a number", |above, index| {
        again(above, index, |key| (key, Json::Number("7".to_owned())))
    }),
    ("repeated as a string", |above, index| {
        again(above, index, |key| (key, Json::Text("0x07".to_owned())))
    }),
    ("repeated as a list", |above, index| {
        again(above, index, |key| (key, Json::List(vec![])))
    }),
    ("repeated as an object", |above, index| {
        again(above, index, |key| (key, Json::Object(vec![])))
    }),
    ("with its name in upper case", |above, index| {
        renamed(above, index, str::to_ascii_uppercase)
    }),
    ("with another name", |above, index| {
        renamed(above, index, |key| format!("{key}\u{1b}x"))
    }),
];

/// Inserts a second field of the same name after the one at `index`.
fn again(above: &mut Json, index: usize, make: fn(String) -> (String, Json)) -> bool {
    let Json::Object(fields) = above else {
        return false;
    };
    let field = make(fields[index].0.clone());
    fields.insert(index + 1, field);
    true
}

fn renamed(above: &mut Json, index: usize, rename: fn(&str) -> String) -> bool {
    let Json::Object(fields) = above else {
        return false;
    };
    fields[index].0 = rename(&fields[index].0);
    true
}

/// Returns replacements for a value, with their descriptions.
fn others(value: &Json) -> Vec<(String, Json)> {
    let raw = [
        "null",
        "true",
        "7",
        "-1",
        "-0",
        "0.5",
        "7.0",
        "7e0",
        "7e3",
        "1e400",
        "1e-400",
        "1e9999999999999999999",
        "18446744073709551615",
        "18446744073709551616",
        "100000000000000000001",
        "1.00000000000000000001e20",
        "\"text\"",
        "\"\"",
        "\"0x\"",
        "\"-1\"",
        "\"0x-1\"",
        "\"1e3\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "[]",
        "{}",
        "[[]]",
        "{\"a\": 1}",
        "[249, 1, 2]",
        "",
        "nul",
        "NaN",
        "'7'",
    ];
    let mut others: Vec<_> = raw
        .into_iter()
        .map(|text| (format!("is {text:?}"), Json::Raw(text.to_owned())))
        .collect();
    let mut add = |what: &str, text: String| others.push((what.to_owned(), Json::Raw(text)));
    add("in a list", format!("[{value}]"));
    add("in an object", format!("{{\"a\": {value}}}"));
    add("in space", format!(" \n\t\r{value}\r\n"));
    add("has a comma behind it", format!("{value},"));
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let (opened, closed) = (open.repeat(DEEP), close.repeat(DEEP));
        add("nested deep", format!("{opened}7{closed}"));
        add("opened deep", opened);
    }
    add("is 2^256", format!("\"0x1{}\"", "0".repeat(64)));
    add(
        "has 100,000 digits",
        format!("\"0x{}\"", "0".repeat(100_000)),
    );
    add(
        "is a number of 100,000 digits",
        format!("1{}", "0".repeat(100_000)),
    );
    add(
        "is a list of 100,000",
        format!("[{}7]", "7,".repeat(100_000)),
    );
    add(
        "is 100,000 bytes of no hex",
        format!("\"{}\"", "x\\u001b".repeat(15_000)),
    );
    match value {
        Json::Object(fields) => {
            let values = fields.iter().map(|(_, value)| value.clone()).collect();
            others.push(("is a list of its values".to_owned(), Json::List(values)));
        }
        Json::Text(text) => {
            for (what, text) in texts(text) {
                others.push((what.to_owned(), Json::Text(text)));
            }
        }
        Json::Number(text) => {
            for (what, text) in [
                ("quoted", format!("\"{text}\"")),
                ("negative", format!("-{text}")),
                ("with a plus", format!("+{text}")),
                ("with a fraction", format!("{text}.0")),
                ("with an exponent", format!("{text}e0")),
                ("with a zero before it", format!("0{text}")),
                ("with another digit", format!("{text}1")),
                ("with a last one", format!("{}1", &text[..text.len() - 1])),
            ] {
                others.push((what.to_owned(), Json::Raw(text)));
            }
        }
        _ => {}
    }
    others
}

/// Returns other notations of a string, which often has hex digits.
fn texts(text: &str) -> Vec<(&'static str, String)> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let mut texts = vec![
        ("in upper case", text.to_ascii_uppercase()),
        (
            "with digits in upper case",
            format!("0x{}", digits.to_ascii_uppercase()),
        ),
        ("in lower case", text.to_ascii_lowercase()),
        ("without 0x", digits.to_owned()),
        ("with 0X", format!("0X{digits}")),
        ("with 0x twice", format!("0x0x{digits}")),
        ("with a digit more", format!("{text}1")),
        ("with a zero before it", format!("0x0{digits}")),
        ("with a byte more", format!("{text}00")),
        ("with a letter that is no digit", format!("{text}0g")),
        ("with a letter of two bytes", format!("{text}\u{e9}")),
        ("with space before it", format!(" {text}")),
        ("with space behind it", format!("{text} ")),
        ("with a null behind it", format!("{text}\0")),
    ];
    if let Some((last, _)) = text.char_indices().next_back() {
        texts.push(("with a digit less", text[..last].to_owned()));
        for digit in ["0", "1"] {
            texts.push((
                "with another last digit",
                format!("{}{digit}", &text[..last]),
            ));
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        let text = r#"{"a": [1, -2.50, "x\u00e9\n"],
"b": {},
"a": null,
"c": [true, false, []]}"#;
        let json = Json::parse(text.as_bytes()).unwrap();
        let again = json.to_string();
        assert_eq!(
            again,
            text.replace("\\u00e9", "\u{e9}").replace("\\n", "\\u000a")
        );
        assert_eq!(Json::parse(again.as_bytes()).unwrap(), json);
        assert_eq!(json.field("a"), Some(&Json::Null));
        for broken in ["", "[1", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"a"] {
            assert_eq!(Json::parse(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn what_is_nested_deep_is_kept_as_text() {
        let deep = format!("{}\"]\"{}", "[".repeat(200), "]".repeat(200));
        let json = Json::parse(deep.as_bytes()).unwrap();
        assert_eq!(json.to_string(), deep);
        assert_eq!(Json::parse(&deep.as_bytes()[..399]), None);
    }

    #[test]
    fn each_value_is_changed_in_many_ways_and_no_two_are_the_same() {
        let json = Json::parse(br#"{"a": ["0x12"], "b": 7}"#).unwrap();
        let changes: Vec<_> = json_changes(&json, usize::MAX, 1).collect();
        for place in ["", ".a", ".a[0]", ".b"] {
            let here = changes.iter().filter(|change| change.place == place);
            assert!(here.count() > 40, "{place}");
        }
        let removed: Vec<_> = changes
            .iter()
            .filter(|change| change.what == "removed")
            .map(|change| change.text.as_str())
            .collect();
        assert_eq!(
            removed,
            [
                "{\"b\": 7}",
                "{\"a\": [],\n\"b\": 7}",
                "{\"a\": [\"0x12\"]}"
            ]
        );
    }
}
