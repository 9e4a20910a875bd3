//! `proto/shard.proto`, which other languages are given, says what the program does: its messages and fields are those of the source.

use std::{collections::BTreeMap, fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

type Fields = BTreeMap<u32, (String, String)>;

/// Messages with their fields by number: name and type.
fn of_proto(text: &str) -> BTreeMap<String, Fields> {
    let mut messages = BTreeMap::<String, Fields>::new();
    let mut name = None;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["message", message, ..] => {
                messages.entry(message.to_owned()).or_default();
                name = Some(message.to_owned()).filter(|_| !line.ends_with("{}"));
            }
            ["enum", ..] => name = None,
            _ => {}
        }
        let field = line
            .strip_suffix(';')
            .and_then(|line| line.split_once(" = "));
        if let (Some(name), Some((field, number))) = (&name, field) {
            let (kind, field) = field.rsplit_once(' ').unwrap();
            let field = (
                field.to_owned(),
                kind.trim_start_matches("optional ").to_owned(),
            );
            let own = messages.get_mut(name).unwrap();
            assert!(own.insert(number.parse().unwrap(), field).is_none());
        }
    }
    messages
}

/// The same from the source: attributes of `prost`, each before its field.
fn of_source(text: &str) -> BTreeMap<String, Fields> {
    let mut messages = BTreeMap::<String, Fields>::new();
    let (mut name, mut attribute) = (String::new(), None);
    for line in text.lines().map(str::trim) {
        let start = ["pub struct ", "pub(crate) struct ", "pub(crate) enum "];
        let begun = start.iter().find_map(|start| line.strip_prefix(start));
        if let Some(begun) = begun {
            let own = begun.split([' ', '{']).next().unwrap();
            name = match own {
                "Answer" => "ReadReply".to_owned(),
                "Which" => "UpdateCall".to_owned(),
                own => own.to_owned(),
            };
            messages.entry(name.clone()).or_default();
        }
        if let Some(own) = line.strip_prefix("#[prost(") {
            attribute = own.strip_suffix(")]").map(str::to_owned);
            continue;
        }
        let Some(own) = attribute.take().filter(|own| !own.starts_with("oneof")) else {
            continue;
        };
        let number = own.split("tag = \"").nth(1).unwrap();
        let number: u32 = number.trim_end_matches('"').parse().unwrap();
        let field = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub ");
        let (field, of_type) = field.split_once([':', '(']).unwrap();
        let kind = match own.split([' ', ',']).next().unwrap() {
            "message" => {
                let inner = of_type.rsplit(['<', ' ']).next().unwrap();
                inner.trim_end_matches([',', '>', ')']).to_owned()
            }
            "enumeration" => "FaultKind".to_owned(),
            kind => kind.to_owned(),
        };
        let own = messages.get_mut(&name).unwrap();
        own.insert(number, (field.to_lowercase(), kind));
    }
    messages.remove("FaultKind");
    messages
}

#[test]
fn the_file_for_other_languages_is_what_the_program_does() {
    let proto = of_proto(&read("proto/shard.proto"));
    assert_eq!(proto["StatusReply"].len(), 16);
    assert_eq!(proto, of_source(&read("src/rpc/wire.rs")));
    // Methods.
    let build = read("build.rs");
    for method in ["Status", "Read", "Update", "Snapshot"] {
        assert!(build.contains(&format!("\"{method}\"")));
    }
}
