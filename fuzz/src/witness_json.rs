//! Witnesses in JSON.

use crate::input::Input;
use alloy_primitives::{Bytes, hex};
use cambium_chain::{BlockWitness, WitnessForm};
use serde_json::Value;

/// Maximum length of an error message that is of use.
const MESSAGE_BYTES_MAX: usize = 1000;

/// Input: a byte whose bit 0 passes a block beside the text; then the text.
///
/// The witness equals that of another JSON reader, and is read again from each format in which it
/// is written. An error has a short message.
pub fn witness_json(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let given = (input.u8() & 1 != 0).then(|| Bytes::from_static(&[0xc1, 0xc0]));
    let Ok(text) = std::str::from_utf8(input.rest()) else {
        return;
    };
    let read = match BlockWitness::from_json(text, given.clone()) {
        Ok(read) => read,
        Err(error) => {
            let error = error.to_string();
            return assert!(error.len() < MESSAGE_BYTES_MAX, "{error}");
        }
    };
    // The other reader may fail at fields that are skipped here, such as deeply nested ones.
    if let Ok(json) = serde_json::from_str::<Value>(text) {
        check_lists(&read, &json, given.as_ref());
    }
    for form in WitnessForm::ALL {
        let text = read.to_json(form).to_string();
        let block = (form != WitnessForm::Own).then(|| read.block.clone());
        let again = BlockWitness::from_json(&text, block).expect("what was just written");
        // Geth's form is known by the headers that are objects.
        let mut expected = BlockWitness {
            form: again.form,
            ..read.clone()
        };
        if matches!(form, WitnessForm::Eip8025 | WitnessForm::Geth) {
            expected.witness.keys.clear();
        }
        assert_eq!(again, expected, "another witness in the form {form:?}");
    }
}

fn check_lists(read: &BlockWitness, json: &Value, given: Option<&Bytes>) {
    let own = Some(&json["block"])
        .filter(|block| !block.is_null())
        .map(bytes);
    assert_eq!(Some(&read.block), own.as_ref().or(given));
    let lists = match &json["witness"] {
        Value::Null => json,
        lists => lists,
    };
    let list = |name: &str| lists[name].as_array().cloned().unwrap_or_default();
    for (name, got) in [
        ("state", &read.witness.state),
        ("codes", &read.witness.codes),
        ("keys", &read.witness.keys),
    ] {
        let expected: Vec<_> = list(name).iter().map(bytes).collect();
        assert_eq!(*got, expected, "{name}");
    }
    let mut headers = list("headers");
    if read.form == WitnessForm::Geth {
        headers.reverse();
    }
    assert_eq!(read.witness.headers.len(), headers.len());
    for (got, header) in read.witness.headers.iter().zip(&headers) {
        if header.is_string() {
            assert_eq!(*got, bytes(header));
        }
    }
}

fn bytes(json: &Value) -> Bytes {
    let text = json.as_str().expect("a string is read");
    hex::decode(text).expect("hex is read").into()
}
