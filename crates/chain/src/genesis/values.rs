//! Values in genesis files, in every form that is in use.

use crate::json::named;
use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Unexpected, Visitor};
use std::{fmt, marker::PhantomData};

/// A value that knows how genesis files write it.
pub(super) trait Value: Sized {
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
            // As geth has it, no text is zero.
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

/// Reads a value, or nothing where the file has `null`.
pub(super) struct Seed<T>(PhantomData<T>);

impl<T> Seed<T> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: Value> DeserializeSeed<'de> for Seed<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Value> Visitor<'de> for Seed<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<T>, E> {
        let known = T::from_bool(value).map(Some);
        known.ok_or_else(|| E::invalid_value(Unexpected::Bool(value), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<T>, E> {
        let known = T::from_number(U256::from(value)).map(Some);
        known.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    /// A number over 64 bits. Up to 15 digits before its zeros it is exact, as mainnet's terminal
    /// total difficulty is, which geth writes as a number.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<T>, E> {
        let text = value.to_string();
        let exact = text.trim_end_matches('0').len() <= 15;
        let number = if exact { U256::from_text(&text) } else { None };
        let known = number.and_then(T::from_number).map(Some);
        known.ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<T>, E> {
        T::from_text(text).map(Some).ok_or_else(|| {
            // A stranger's text: quoted, and no more of it than helps.
            E::invalid_value(Unexpected::Str(&shown(text)), &self)
        })
    }
}

/// The next value of `map`, its errors saying which `field` it is; nothing where there is `null`.
pub(super) fn optional<'de, T: Value, M: MapAccess<'de>>(
    map: &mut M,
    field: impl fmt::Display,
) -> Result<Option<T>, M::Error> {
    map.next_value_seed(Seed::new())
        .map_err(|error| named(field, error))
}

/// As [`optional`], but `null` is an error.
pub(super) fn required<'de, T: Value, M: MapAccess<'de>>(
    map: &mut M,
    field: impl fmt::Display,
) -> Result<T, M::Error> {
    match optional(map, &field)? {
        Some(value) => Ok(value),
        None => Err(M::Error::custom(format_args!("{field}: null"))),
    }
}

/// The fields that were passed over: each once, and no more than help a reader.
#[derive(Debug, Default)]
pub(super) struct Ignored(pub(super) Vec<String>);

impl Ignored {
    const MAX: usize = 64;

    /// Passes over the next value of `map`.
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

/// A key out of the file, cut to what fits into a message.
pub(super) fn shown(key: &str) -> String {
    key.chars().take(80).collect()
}
