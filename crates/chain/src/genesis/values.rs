//! Values in genesis files, in all forms in use.

use crate::json::named;
use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde::de::{Error, IgnoredAny, MapAccess, Unexpected};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// A value that can be read from a genesis file.
pub(crate) trait Value: Sized {
    const EXPECTED: &'static str;

    fn from_text(text: &str) -> Option<Self>;

    fn from_number(_: U256) -> Option<Self> {
        None
    }

    fn from_bool(_: bool) -> Option<Self> {
        None
    }
}

impl Value for U256 {
    const EXPECTED: &'static str = "a number of at most 256 bits, or a decimal or 0x-string of one";

    fn from_text(text: &str) -> Option<Self> {
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Self::from_str_radix(digits, 16).ok()
            }
            Some(_) => None,
            // An empty string is zero, as in geth.
            None if text.is_empty() => Some(Self::ZERO),
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Self::from_str_radix(text, 10).ok()
            }
            None => None,
        }
    }

    fn from_number(number: U256) -> Option<Self> {
        Some(number)
    }
}

impl Value for u64 {
    const EXPECTED: &'static str = "a number of at most 64 bits, or a decimal or 0x-string of one";

    fn from_text(text: &str) -> Option<Self> {
        U256::from_text(text)?.try_into().ok()
    }

    fn from_number(number: U256) -> Option<Self> {
        number.try_into().ok()
    }
}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn from_bool(value: bool) -> Option<Self> {
        Some(value)
    }
}

impl Value for Address {
    const EXPECTED: &'static str = "an address of 40 hex digits, with or without 0x";

    fn from_text(text: &str) -> Option<Self> {
        hex::decode_to_array(text).ok().map(Self::new)
    }
}

impl Value for B256 {
    const EXPECTED: &'static str = "at most 64 hex digits, with or without 0x";

    fn from_text(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.len() > 64 {
            return None;
        }
        hex::decode_to_array(format!("{digits:0>64}"))
            .ok()
            .map(Self::new)
    }
}

impl Value for Bytes {
    const EXPECTED: &'static str = "an even number of hex digits, with or without 0x";

    fn from_text(text: &str) -> Option<Self> {
        hex::decode(text).ok().map(Self::from)
    }
}

/// Reads the next value of `map`; `None` if it is `null`. Errors name the `field`.
pub(crate) fn optional<'de, T: Value, M: MapAccess<'de>>(
    map: &mut M,
    field: impl fmt::Display,
) -> Result<Option<T>, M::Error> {
    // Read as text: the JSON parser would round a number over 64 bits to a floating-point number.
    map.next_value::<Box<RawValue>>()
        .and_then(|raw| value_of(raw.get()))
        .map_err(|error| named(field, error))
}

/// Parses a JSON text; `None` if it is `null`.
fn value_of<T: Value, E: Error>(json: &str) -> Result<Option<T>, E> {
    let invalid = |what: Unexpected<'_>| E::invalid_value(what, &T::EXPECTED);
    let known = match json.as_bytes().first() {
        Some(b'n') => return Ok(None),
        Some(b't' | b'f') => {
            let value = json == "true";
            T::from_bool(value).ok_or_else(|| invalid(Unexpected::Bool(value)))
        }
        Some(b'"') => {
            let text = serde_json::from_str::<Cow<'_, str>>(json);
            let text = text.map_err(|_| invalid(Unexpected::Other("a malformed string")))?;
            // Untrusted text is quoted and shortened.
            T::from_text(&text).ok_or_else(|| invalid(Unexpected::Str(&shown(&text))))
        }
        Some(b'[') => Err(E::invalid_type(Unexpected::Seq, &T::EXPECTED)),
        Some(b'{') => Err(E::invalid_type(Unexpected::Map, &T::EXPECTED)),
        _ => whole_number(json).and_then(T::from_number).ok_or_else(|| {
            let number = format!("number {}", shown(json));
            invalid(Unexpected::Other(&number))
        }),
    };
    known.map(Some)
}

/// Parses a JSON number that is an integer of at most 256 bits, including `7.0` and `5875e19`.
fn whole_number(text: &str) -> Option<U256> {
    const DIGITS_MAX: usize = 78;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(U256::ZERO);
    }
    let exponent: i64 = exponent.parse().ok()?;
    let point = exponent.checked_sub(fraction.len() as i64)?;
    let zeros = point.checked_add((digits.len() - significant.len()) as i64)?;
    let zeros = usize::try_from(zeros).ok()?;
    if zeros > DIGITS_MAX {
        return None;
    }
    U256::from_str_radix(&format!("{significant}{}", "0".repeat(zeros)), 10).ok()
}

/// Reads the next value of `map`, which must not be `null`. Errors name the `field`.
pub(crate) fn required<'de, T: Value, M: MapAccess<'de>>(
    map: &mut M,
    field: impl fmt::Display,
) -> Result<T, M::Error> {
    match optional(map, &field)? {
        Some(value) => Ok(value),
        None => Err(M::Error::custom(format_args!("{field}: null"))),
    }
}

/// Names of skipped fields, without duplicates, up to a maximum.
#[derive(Debug, Default)]
pub(super) struct Ignored(pub(super) Vec<String>);

impl Ignored {
    const MAX: usize = 64;

    /// Skips the next value of `map` and notes the field.
    pub(super) fn pass<'de, M: MapAccess<'de>>(
        &mut self,
        map: &mut M,
        field: impl fmt::Display,
    ) -> Result<(), M::Error> {
        map.next_value::<IgnoredAny>()?;
        let name = field.to_string();
        if self.0.len() < Self::MAX && !self.0.contains(&name) {
            self.0.push(name);
        }
        Ok(())
    }
}

/// A key from the file, shortened for messages, with control characters replaced so that it can't
/// control a terminal.
pub(crate) fn shown(key: &str) -> String {
    let harmless = |letter: char| match letter.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    };
    key.chars().take(80).map(harmless).collect()
}
