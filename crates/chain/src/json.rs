//! What readers of JSON files share: objects field by field, and errors that name the field and are
//! short.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// What is left of a long message on each side of what is cut out of it, in characters.
const SIDE: usize = 160;

/// What reads the fields of a JSON object.
pub(crate) trait Fields<'de> {
    /// What the object is.
    const EXPECTED: &'static str;

    /// Takes one field: must take its value from `map`.
    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error>;
}

/// The next value of `map`, an object, its fields given to `fields`. False if there is `null`.
pub(crate) fn object<'de, F: Fields<'de>, M: MapAccess<'de>>(
    map: &mut M,
    field: impl fmt::Display,
    fields: &mut F,
) -> Result<bool, M::Error> {
    map.next_value_seed(Object(fields))
        .map_err(|error| named(field, error))
}

/// Reads an object with its [`Fields`]. False if there is `null`.
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

/// Puts a field's name before an error. (The place, which a JSON error's text ends with, stays.)
pub(crate) fn named<E: Error>(field: impl fmt::Display, error: E) -> E {
    E::custom(format_args!("{field}: {error}"))
}

/// The same error with a message of a few hundred characters at most: `serde_json` quotes a string that
/// it did not expect whole, and that may be megabytes of a stranger's. The beginning says which field
/// it is, the end what was expected and where.
pub fn brief_json_error(error: serde_json::Error) -> serde_json::Error {
    let message = error.to_string();
    let cut = message.char_indices().nth(SIDE).map(|(at, _)| at);
    let rest = message.char_indices().nth_back(SIDE).map(|(at, _)| at);
    match (cut, rest) {
        (Some(cut), Some(rest)) if cut < rest => {
            // Line and column are read from the message's end.
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
