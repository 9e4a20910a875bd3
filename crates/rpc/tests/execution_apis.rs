//! The public cases of execution-apis: requests with the answers that clients have to give.

use crate::common::{ask, chain_of, service_of};
use cambium_conformance::Pack;
use cambium_rpc::{Limits, Service};
use cambium_testkit::say;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Cases that can't pass, with the reason. A name may be the beginning of names.
const OPEN: [(&str, &str); 0] = [];

/// Cases that have to pass.
const PASSED_MIN: usize = 232;

/// Fields that an answer need not have, or may have besides: the schemas do not require them.
const OPTIONAL: [&str; 6] = [
    "refund",
    "memory",
    "storage",
    "returnData",
    "error",
    "deleteStrategy",
];

/// A request and the answer.
struct Exchange {
    request: String,
    answer: Value,
    /// Whether values are examples, and only the form counts.
    is_form: bool,
}

fn exchanges(file: &Path) -> Vec<Exchange> {
    let text = fs::read_to_string(file).unwrap();
    let is_form = text.contains("// speconly");
    let mut all = Vec::new();
    let mut request = None;
    for line in text.lines() {
        if let Some(sent) = line.strip_prefix(">> ") {
            request = Some(sent.to_owned());
        } else if let Some(got) = line.strip_prefix("<< ") {
            all.push(Exchange {
                request: request.take().unwrap(),
                answer: serde_json::from_str(got).unwrap(),
                is_form,
            });
        }
    }
    all
}

fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut cases = Vec::new();
    for method in fs::read_dir(folder).unwrap() {
        let method = method.unwrap().path();
        if method.is_dir() {
            let files = fs::read_dir(method).unwrap();
            cases.extend(files.map(|file| file.unwrap().path()));
        }
    }
    cases.retain(|file| file.extension().is_some_and(|end| end == "io"));
    cases.sort();
    cases
}

/// What is different, at most a few places.
fn differences(at: &str, expected: &Value, got: &Value, is_form: bool, out: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                match b.get(key) {
                    Some(other) => differences(&format!("{at}.{key}"), value, other, is_form, out),
                    None => out.push(format!("{at}.{key} is missing")),
                }
            }
            let more = b.keys().filter(|key| !a.contains_key(*key));
            out.extend(more.map(|key| format!("{at}.{key} is too much")));
        }
        // How many items an example has says nothing.
        (Value::Array(a), Value::Array(b)) if is_form && (a.is_empty() || b.is_empty()) => {}
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}[{index}]"), a, b, is_form, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            let short = |value: &Value| value.to_string().chars().take(120).collect::<String>();
            out.push(format!("{at}: {} is expected, not {}", short(a), short(b)));
        }
    }
}

/// Whether a field is a key of a map rather than a name.
fn is_key(field: &str) -> bool {
    field.starts_with("0x") || field.bytes().all(|byte| byte.is_ascii_digit())
}

/// The kind of each value, for cases whose values are examples.
fn form(value: &Value) -> Value {
    match value {
        // A map from addresses or nonces: its keys are examples as well.
        Value::Object(fields) if !fields.is_empty() && fields.keys().all(|key| is_key(key)) => {
            form(&Value::Array(fields.values().take(1).cloned().collect()))
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.filter(|(key, _)| !OPTIONAL.contains(&key.as_str()));
            let fields = fields.map(|(key, value)| (key.clone(), form(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.first().map(form).into_iter().collect()),
        Value::String(text) if text.starts_with("0x") => Value::from("0x"),
        Value::String(_) => Value::from("text"),
        Value::Number(_) => Value::from(0),
        other => other.clone(),
    }
}

fn compare(service: &Service, exchange: &Exchange) -> Vec<String> {
    let got = ask(service, &exchange.request);
    let mut wrong = Vec::new();
    let expected = &exchange.answer;
    match (expected.get("error"), got.get("error")) {
        // Codes are compared; messages are other clients' words.
        (Some(expected), Some(got)) => {
            differences(
                "error.code",
                &expected["code"],
                &got["code"],
                false,
                &mut wrong,
            );
            if let Some(data) = expected.get("data") {
                differences("error.data", data, &got["data"], false, &mut wrong);
            }
        }
        _ if exchange.is_form => differences("", &form(expected), &form(&got), true, &mut wrong),
        _ => differences("", expected, &got, false, &mut wrong),
    }
    wrong
}

#[test]
fn the_cases_of_execution_apis() {
    let Some(folder) = Pack::ExecutionApis.open(&["execution-apis"]) else {
        return;
    };
    let tests = folder.join("execution-apis/tests");
    let chain = chain_of(&tests.join("genesis.json"), &tests.join("chain.rlp"));
    let service = service_of(chain, Limits::default());
    let (mut passed, mut failed) = (0, BTreeMap::new());
    let mut by_method = BTreeMap::<String, (usize, usize)>::new();
    for file in cases(&tests) {
        let name = file.strip_prefix(&tests).unwrap().with_extension("");
        let name = name.to_str().unwrap().to_owned();
        let method = name.split('/').next().unwrap().to_owned();
        let count = by_method.entry(method).or_default();
        count.1 += 1;
        let wrong: Vec<_> = exchanges(&file)
            .iter()
            .flat_map(|exchange| compare(&service, exchange))
            .collect();
        if wrong.is_empty() {
            passed += 1;
            count.0 += 1;
        } else {
            failed.insert(name, wrong);
        }
    }
    for (method, (passed, all)) in &by_method {
        say(&format!("  {method}: {passed} of {all}"));
    }
    let mut unexpected = Vec::new();
    for (name, wrong) in &failed {
        let reason = OPEN.iter().find(|(open, _)| name.starts_with(open));
        match reason {
            Some((_, reason)) => say(&format!("  {name}: {reason}")),
            None => unexpected.push(format!(
                "{name}: {}",
                wrong[..wrong.len().min(4)].join("; ")
            )),
        }
    }
    say(&format!(
        "execution-apis: {passed} cases pass, {} do not",
        failed.len()
    ));
    if std::env::var_os("CAMBIUM_SHOW").is_some() {
        say(&unexpected.join("\n"));
    }
    assert!(passed >= PASSED_MIN, "{}", unexpected.join("\n"));
}
