//! What messages have in common: their limits, errors, and lists of byte strings.

use alloy_primitives::Bytes;
use alloy_rlp::{Decodable, Encodable, Header as RlpHeader};

/// An encoded request or bag is malformed, or a request is for too much.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The RLP is malformed.
    #[error("malformed message: {0}")]
    Rlp(#[from] alloy_rlp::Error),
    /// It asks for more than is allowed.
    #[error("a request for {got} {what}: at most {max} are allowed")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        got: usize,
        /// How many are allowed.
        max: usize,
    },
}

/// Most bytes of an encoded request or bag.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Fewest bytes of a node that is not inside its parent.
pub(crate) const NODE_BYTES_MIN: usize = 32;

pub(crate) fn check_length(bytes: &[u8]) -> Result<(), RequestError> {
    match bytes.len() {
        ..=MESSAGE_BYTES_MAX => Ok(()),
        got => Err(RequestError::TooMuch {
            what: "bytes",
            got,
            max: MESSAGE_BYTES_MAX,
        }),
    }
}

/// More than `max`: how many more is not counted.
pub(crate) const fn too_much(what: &'static str, max: usize) -> RequestError {
    RequestError::TooMuch {
        what,
        got: max + 1,
        max,
    }
}

/// Decodes a list of byte strings, each of at least `bytes_min` bytes: so that the list takes little more memory than its
/// encoding.
pub(crate) fn decode_items(
    bytes: &mut &[u8],
    what: &'static str,
    bytes_min: usize,
    items_max: usize,
) -> Result<Vec<Bytes>, RequestError> {
    let mut rest = unlisted(bytes)?;
    let mut items = Vec::new();
    while !rest.is_empty() {
        if items.len() == items_max {
            return Err(too_much(what, items_max));
        }
        let item = Bytes::decode(&mut rest)?;
        if item.len() < bytes_min {
            return Err(alloy_rlp::Error::InputTooShort.into());
        }
        items.push(item);
    }
    Ok(items)
}

pub(crate) fn list(parts: &[&dyn Encodable], out: &mut Vec<u8>) {
    let payload_length = parts.iter().map(|part| part.length()).sum();
    RlpHeader {
        list: true,
        payload_length,
    }
    .encode(out);
    for part in parts {
        part.encode(out);
    }
}

pub(crate) fn unlisted<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], alloy_rlp::Error> {
    RlpHeader::decode_bytes(bytes, true)
}

pub(crate) fn is_all(rest: &[u8]) -> Result<(), alloy_rlp::Error> {
    match rest.is_empty() {
        true => Ok(()),
        false => Err(alloy_rlp::Error::UnexpectedLength),
    }
}
