//! A strict parser of the text format of Prometheus, and what the documentation says of figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The labels of a sample.
pub type Labels = BTreeMap<String, String>;

/// A page of figures.
#[derive(Debug)]
pub struct Exposition(Vec<Family>);

#[derive(Debug)]
struct Family {
    name: String,
    kind: String,
    help: String,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

impl Exposition {
    /// Parses a page: HELP, TYPE and the samples of each family, together, once.
    ///
    /// # Errors
    ///
    /// What is wrong, with the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(text) = text.strip_suffix('\n') else {
            return Err("the last line does not end".to_owned());
        };
        let (mut families, mut seen) = (Vec::<Family>::new(), BTreeSet::new());
        let mut lines = text.split('\n').peekable();
        while let Some(line) = lines.next() {
            let wrong = |what: &str| format!("{what}: {line:?}");
            let help = line.strip_prefix("# HELP ");
            let help = help.ok_or_else(|| wrong("a family does not begin with HELP"))?;
            let (name, help) = help.split_once(' ').ok_or_else(|| wrong("no help"))?;
            if !is_name(name) || help.is_empty() {
                return Err(wrong("no name, or no help"));
            }
            if families.iter().any(|family| family.name == name) {
                return Err(wrong("the family is there twice"));
            }
            let next = lines.next().unwrap_or_default();
            let kind = next.strip_prefix(&format!("# TYPE {name} "));
            let kind = kind.ok_or_else(|| format!("no TYPE of {name}: {next:?}"))?;
            if !["counter", "gauge", "summary"].contains(&kind) {
                return Err(format!("kind {kind}"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                return Err(wrong("only counters end in _total"));
            }
            let mut samples = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let sample = sample_of(line).ok_or_else(|| format!("no sample: {line:?}"))?;
                sample
                    .check(name, kind)
                    .map_err(|what| format!("{what}: {line:?}"))?;
                let key = (sample.name.clone(), sample.labels.clone());
                if !seen.insert(key) {
                    return Err(format!("the sample is there twice: {line:?}"));
                }
                samples.push(sample);
            }
            if samples.is_empty() {
                return Err(wrong("no samples"));
            }
            families.push(Family {
                name: name.to_owned(),
                kind: kind.to_owned(),
                help: help.replace("\\n", "\n").replace("\\\\", "\\"),
                samples,
            });
        }
        Ok(Self(families))
    }

    /// The value of the sample with this name and these labels.
    ///
    /// # Panics
    ///
    /// Panics if there is none.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found = self.find(name, labels);
        found.unwrap_or_else(|| panic!("no {name} {labels:?}"))
    }

    /// As [`Self::value`]; `None` if there is none.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels: Labels = labels.iter().map(owned).collect();
        let mut samples = self.0.iter().flat_map(|family| &family.samples);
        let found = samples.find(|sample| sample.name == name && sample.labels == labels);
        found.map(|sample| sample.value)
    }

    /// The rows of a table of the families: name, kind, labels and help.
    pub fn rows(&self) -> Vec<String> {
        let rows = self.0.iter().map(|family| {
            let labels = family.samples[0].labels.keys();
            let labels: Vec<_> = labels
                .filter(|label| *label != "quantile")
                .map(|label| format!("`{label}`"))
                .collect();
            let Family {
                name, kind, help, ..
            } = family;
            let labels = labels.join(", ");
            format!("| `{name}` | {kind} | {labels} | {help} |")
        });
        rows.collect()
    }
}

impl Sample {
    /// Whether it can be one of a family.
    fn check(&self, name: &str, kind: &str) -> Result<(), String> {
        let is_whole = self.value >= 0.0 && self.value.fract() == 0.0;
        let own = self.name.strip_prefix(name);
        let is_good = match (kind, own) {
            ("counter" | "gauge", Some("")) => is_whole && !self.labels.contains_key("quantile"),
            ("summary", Some("")) => {
                let quantile = self.labels.get("quantile");
                let quantile = quantile.and_then(|it| it.parse::<f64>().ok());
                quantile.is_some_and(|it| (0.0..=1.0).contains(&it))
                    && (self.value >= 0.0 || self.value.is_nan())
            }
            ("summary", Some("_count")) => is_whole && !self.labels.contains_key("quantile"),
            _ => false,
        };
        match is_good {
            true => Ok(()),
            false => Err(format!("no {kind} of {name}")),
        }
    }
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    let first = letters.next();
    first.is_some_and(|it| it.is_ascii_alphabetic() || it == '_')
        && letters.all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// A name, labels in braces, and a value without a timestamp.
fn sample_of(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, quoted) = rest.split_once("=\"")?;
            let (mut value, mut letters) = (String::new(), quoted.char_indices());
            let end = loop {
                match letters.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match letters.next()?.1 {
                        'n' => '\n',
                        other @ ('\\' | '"') => other,
                        _ => return None,
                    }),
                    (_, letter) => value.push(letter),
                }
            };
            let is_new = labels.insert(label.to_owned(), value).is_none();
            if !is_name(label) || !is_new {
                return None;
            }
            rest = &quoted[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break rest = rest.strip_prefix('}')?,
            }
        }
    }
    let value = rest.strip_prefix(' ')?;
    let is_number = |it: char| it.is_ascii_digit() || it == '.';
    let value = match value {
        "NaN" => f64::NAN,
        text if text.chars().all(is_number) => text.parse().ok()?,
        _ => return None,
    };
    is_name(name).then(|| Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// An answer over HTTP/1.1: status line and headers, and the body.
#[derive(Debug)]
pub struct Answer {
    /// The status line and the headers.
    pub head: String,
    /// What follows the head, decoded as UTF-8.
    pub body: String,
}

impl Answer {
    /// Status of the answer: 200, say.
    pub fn status(&self) -> u16 {
        let status = self.head.split(' ').nth(1);
        status.and_then(|it| it.parse().ok()).unwrap_or_default()
    }
}

/// What a server answers to bytes, until it closes the connection.
///
/// # Panics
///
/// Panics if it does not answer within half a minute.
pub fn ask(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).expect("a server listens");
    let long = Some(Duration::from_secs(30));
    stream.set_read_timeout(long).expect("a socket");
    // A server that has read enough may have closed it.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend(&buffer[..count]),
            Err(error) => {
                assert!(!bytes.is_empty(), "no answer: {error}");
                break;
            }
        }
    }
    let text = String::from_utf8(bytes).expect("a text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Answer {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// The answer to GET.
pub fn get(address: SocketAddr, path: &str) -> Answer {
    ask(
        address,
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes(),
    )
}

/// The page of a server.
///
/// # Panics
///
/// Panics if there is none, or a malformed one.
#[track_caller]
pub fn scrape(address: SocketAddr) -> Exposition {
    let answer = get(address, "/metrics");
    assert_eq!(answer.status(), 200, "{answer:?}");
    let page = Exposition::parse(&answer.body);
    page.unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

/// Rows of tables of figures by the headings above them.
#[derive(Debug)]
pub struct FigureTables(BTreeMap<String, Vec<String>>);

impl FigureTables {
    /// The tables of a page of documentation, whose rows have name, kind, labels and help, below headings of the third level.
    pub fn of(text: &str) -> Self {
        let (mut tables, mut heading) = (BTreeMap::<String, Vec<String>>::new(), String::new());
        for line in text.lines() {
            if let Some(text) = line.strip_prefix("### ") {
                heading = text.to_owned();
            }
            let kind = line.split(" | ").nth(1);
            let is_row = matches!(kind, Some("counter" | "gauge" | "summary"));
            if is_row && line.starts_with("| `") {
                tables
                    .entry(heading.clone())
                    .or_default()
                    .push(line.to_owned());
            }
        }
        Self(tables)
    }

    /// Adds the table of a database's figures, of name, kind and help, as what is below the heading `of_engine`.
    pub fn add_engine(&mut self, of_engine: &str, text: &str) {
        let rows = text.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
            let (name, kind, help) = (cells.next()?, cells.next()?, cells.next()?);
            let name = name.strip_suffix('`')?;
            let (name, kind) = match kind {
                "counter" => (format!("{name}_total"), kind),
                "gauge" => (name.to_owned(), kind),
                "latency" => (format!("{name}_seconds"), "summary"),
                _ => return None,
            };
            Some(format!("| `cambium_{name}` | {kind} |  | {help} |"))
        });
        self.0.insert(of_engine.to_owned(), rows.collect());
    }

    /// Names of all figures, and of the counts of summaries.
    pub fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for row in self.0.values().flatten() {
            let mut cells = row.split(" | ");
            let name = cells.next().unwrap_or_default();
            let name = name.trim_start_matches("| ").trim_matches('`');
            names.insert(name.to_owned());
            if cells.next() == Some("summary") {
                names.insert(format!("{name}_count"));
            }
        }
        names
    }

    /// Checks that the families of a page are those of the tables below some headings, in any order. Those in `may_lack` may be missing.
    ///
    /// # Panics
    ///
    /// Panics with the rows that are missing, on either side.
    #[track_caller]
    pub fn check(&self, page: &Exposition, headings: &[&str], may_lack: &[&str]) {
        let found: BTreeSet<String> = page.rows().into_iter().collect();
        let rows = headings.iter().flat_map(|heading| {
            let table = self.0.get(*heading);
            table.unwrap_or_else(|| panic!("no table below {heading:?}"))
        });
        let table: BTreeSet<String> = rows.cloned().collect();
        let is_needed = |row: &&String| !may_lack.iter().any(|name| row.contains(name));
        let lacking: Vec<_> = table.difference(&found).filter(is_needed).collect();
        assert!(
            lacking.is_empty(),
            "figures that are not shown: {lacking:#?}"
        );
        let new = page.rows().into_iter().filter(|row| !table.contains(row));
        let new: Vec<_> = new.collect();
        assert!(
            new.is_empty(),
            "rows that are not in the tables:\n{}",
            new.join("\n")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_parsed_strictly() {
        let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"c\\\"\\\\\\n\",d=\"\"} 1\na_total 2\n";
        let page = Exposition::parse(good).unwrap();
        assert_eq!(page.value("a_total", &[("b", "c\"\\\n"), ("d", "")]), 1.0);
        assert_eq!(page.rows(), ["| `a_total` | counter | `b`, `d` | A. |"]);
        for (from, to) in [
            ("\na_total 2\n", "\na_total 2"),
            ("\na_total 2\n", "\n\na_total 2\n"),
            ("\na_total 2\n", "\na_total 2\r\n"),
            ("\na_total 2\n", "\na_total 2 3\n"),
            ("\na_total 2\n", "\na_total -2\n"),
            ("\na_total 2\n", "\na_total{} 2\n"),
            ("\na_total 2\n", "\na_total{b=\"\\x\"} 2\n"),
            ("\na_total 2\n", "\na_total{b=\"1\",b=\"1\"} 2\n"),
            ("\na_total 2\n", "\nb_total 2\n"),
            ("\na_total 2\n", "\na_total 2\na_total 2\n"),
            ("counter", "gauge"),
            ("counter", "histogram"),
            ("# TYPE a_total", "# TYPE b_total"),
            ("# HELP a_total A.\n", ""),
            (" A.", ""),
        ] {
            let bad = good.replace(from, to);
            assert!(Exposition::parse(&bad).is_err(), "{bad}");
        }
        assert!(Exposition::parse(&format!("{good}{good}")).is_err());
    }
}
