//! Parameters of a call, one after another.

use crate::{
    error::RpcError,
    signature::{Position, Signature},
};
use alloy_primitives::B256;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most parameters of a call.
const COUNT_MAX: usize = 64;

/// The parameters of a call that are not taken yet.
#[derive(Clone, Debug, Default)]
pub struct Params<'a> {
    items: Vec<&'a RawValue>,
    at: usize,
    /// Of the method that takes them, for messages.
    signature: Option<&'a Signature>,
}

impl<'a> Params<'a> {
    /// The parameters that a call has, in JSON without space around: an array, or nothing.
    pub(crate) fn parse(json: Option<&'a str>) -> Result<Self, RpcError> {
        let Some(json) = json.filter(|json| *json != "null") else {
            return Ok(Self::default());
        };
        if !json.starts_with('[') {
            return Err(RpcError::params("non-array args"));
        }
        let items: Vec<&RawValue> = serde_json::from_str(json)
            .map_err(|error| RpcError::params(format!("invalid arguments: {error}")))?;
        if items.len() > COUNT_MAX {
            return Err(RpcError::params(format!(
                "too many arguments, want at most {COUNT_MAX}"
            )));
        }
        Ok(Self {
            items,
            ..Self::default()
        })
    }

    /// Those of a method with this signature.
    pub(crate) fn of(self, signature: &'a Signature) -> Self {
        Self {
            signature: Some(signature),
            ..self
        }
    }

    const fn position(&self, at: usize) -> Position<'a> {
        Position(at, self.signature)
    }

    /// Asserts that a method takes what it declares.
    fn assert_declared(&self, is_required: bool) {
        let declared = self.signature.and_then(|own| own.params.as_ref());
        debug_assert!(
            declared.is_none_or(|all| {
                let own = all.get(self.at);
                own.is_some_and(|own| own.is_required == is_required)
            }),
            "parameter {} is not declared as it is taken: {:?}",
            self.at,
            self.signature
        );
    }

    /// The next one as it was sent; `None` at the end.
    pub fn raw(&mut self) -> Option<&'a RawValue> {
        let item = self.items.get(self.at).copied();
        self.at += 1;
        item
    }

    /// The next one, which may be missing or null.
    ///
    /// # Errors
    ///
    /// [`RpcError::PARAMS`] if it is something else.
    pub fn optional<T: Deserialize<'a>>(&mut self) -> Result<Option<T>, RpcError> {
        self.assert_declared(false);
        let at = self.position(self.at);
        match self.raw() {
            None => Ok(None),
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| invalid(&at, &error)),
        }
    }

    /// The next one.
    ///
    /// # Errors
    ///
    /// [`RpcError::PARAMS`] if it is missing, or something else.
    pub fn required<T: Deserialize<'a>>(&mut self) -> Result<T, RpcError> {
        self.assert_declared(true);
        let at = self.position(self.at);
        let missing = || RpcError::params(format!("missing value for required argument {at}"));
        let raw = self.raw().ok_or_else(missing)?;
        serde_json::from_str(raw.get()).map_err(|error| invalid(&at, &error))
    }

    /// The next one, which is a hash: 32 bytes in hex, with `0x` before them.
    ///
    /// # Errors
    ///
    /// As [`Params::required`].
    pub fn hash(&mut self) -> Result<B256, RpcError> {
        let at = self.at;
        let hash: B256 = self.required()?;
        match self.items[at].get().starts_with("\"0x") {
            true => Ok(hash),
            false => Err(RpcError::params(format!(
                "invalid argument {}: hex string without 0x prefix",
                self.position(at)
            ))),
        }
    }

    /// Refuses parameters that are left.
    ///
    /// # Errors
    ///
    /// [`RpcError::PARAMS`] if there are any.
    pub fn end(&self) -> Result<(), RpcError> {
        let declared = self.signature.and_then(|own| own.params.as_ref());
        debug_assert!(
            declared.is_none_or(|all| all.len() == self.at),
            "{} parameters are taken: {:?}",
            self.at,
            self.signature
        );
        match self.items.len() > self.at {
            true => Err(RpcError::params(format!(
                "too many arguments, want at most {}",
                self.at
            ))),
            false => Ok(()),
        }
    }
}

/// The error of an argument, without its place in the text.
pub(crate) fn invalid(at: &Position<'_>, error: &serde_json::Error) -> RpcError {
    let text = error.to_string();
    let what = text
        .rsplit_once(" at line")
        .map_or(&*text, |(what, _)| what);
    // What a client sends comes back to it shortened.
    let what: String = what.chars().take(300).collect();
    RpcError::params(format!("invalid argument {at}: {what}"))
}
