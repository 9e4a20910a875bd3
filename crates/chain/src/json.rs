//! Reading JSON files field by field, with short errors that name the field.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// Characters that remain of a long message on each side of the cut.
const SIDE: usize = 160;

/// A reader of the fields of a JSON object.
pub(crate) trait Fields<'de> {
    /// Description of the object, for errors.
    const EXPECTED: &'static str;

    /// Reads one field, taking its value from `map`.
    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error>;
}

/// Reads the next value of `map`, an object, into `fields`. False if the value is `null`.
pub(crate) fn object<'de, F: Fields<'de>, M: MapAccess<'de>>(
    map: &mut M,
    field: impl fmt::Display,
    fields: &mut F,
) -> Result<bool, M::Error> {
    map.next_value_seed(Object(fields))
        .map_err(|error| named(field, error))
}

/// Reads an object into its [`Fields`]. False if the value is `null`.
pub(crate) struct Object<'a, F>(pub(crate) &'a mut F);

impl<'de, F: Fields<'de>> DeserializeSeed<'de> for Object<'_, F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: Fields<'de>> Visitor<'de> for Object<'_, F> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::EXPECTED)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<bool, M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.0.take(&key, &mut map)?;
        }
        Ok(true)
    }
}

/// Prefixes an error with a field's name. The line and column at the end of a JSON error's text
/// stay.
pub(crate) fn named<E: Error>(field: impl fmt::Display, error: E) -> E {
    E::custom(format_args!("{field}: {error}"))
}

/// Shortens an error's message to a few hundred characters. `serde_json` quotes an unexpected
/// string in full, which may be megabytes of untrusted input. The beginning of the message, which
/// names the field, and its end, which says what was expected and where, are kept.
pub fn brief_json_error(error: serde_json::Error) -> serde_json::Error {
    let message = error.to_string();
    let cut = message.char_indices().nth(SIDE).map(|(at, _)| at);
    let rest = message.char_indices().nth_back(SIDE).map(|(at, _)| at);
    match (cut, rest) {
        (Some(cut), Some(rest)) if cut < rest => {
            // `serde_json` parses line and column from the end of the message.
            serde_json::Error::custom(format_args!("{} .. {}", &message[..cut], &message[rest..]))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_keeps_its_beginning_its_end_and_its_place() {
        let error = serde_json::from_str::<u64>("\n  \"\u{e9}\"").unwrap_err();
        let message = error.to_string();
        assert_eq!(brief_json_error(error).to_string(), message);
        let text = format!("\n  \"{}\"", "\u{e9}".repeat(10_000));
        let error = serde_json::from_str::<u64>(&text).unwrap_err();
        let (line, column) = (error.line(), error.column());
        let brief = brief_json_error(error);
        assert_eq!((brief.line(), brief.column()), (line, column));
        let message = brief.to_string();
        assert!(
            message.starts_with("invalid type: string \"\u{e9}"),
            "{message}"
        );
        let end = format!("expected u64 at line {line} column {column}");
        assert!(message.ends_with(&end), "{message}");
        assert!(message.chars().count() < 400, "{message}");
    }
}
