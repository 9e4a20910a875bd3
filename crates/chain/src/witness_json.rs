//! JSON formats of witnesses: Cambium's own, and those of `debug_executionWitness`.
//!
//! | format | block | headers | keys |
//! |---|---|---|---|
//! | own, the only one of the commitment `layered` | included, as RLP | RLP, the oldest first | yes |
//! | reth's `debug_executionWitness` | separate | RLP, the oldest first | yes |
//! | EIP-8025's | separate | RLP, the oldest first | no |
//! | geth's `debug_executionWitness` | separate | objects, the newest first | no |
//!
//! Reading recognizes the format by itself.

use crate::{
    BlockWitness, LayeredWitness, WitnessForm,
    json::{Fields, Object, brief_json_error, named, object},
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use alloy_rlp::Decodable;
use cambium_trie::Witness;
use serde::{
    Deserialize, Serialize,
    de::{
        DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
        value::MapAccessDeserializer,
    },
};
use serde_json::{Value, json};
use std::fmt;

/// The fields of all formats. A duplicate field is an error.
#[derive(Default)]
struct WitnessFile {
    block: Option<Hex>,
    layered: Option<LayeredWitness>,
    witness: Option<Lists>,
    lists: Lists,
}

impl<'de> Fields<'de> for WitnessFile {
    const EXPECTED: &'static str = "an object with a witness";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "block" => take_once(&mut self.block, "block", map),
            "layered" => take_once(&mut self.layered, "layered", map),
            "witness" if self.witness.is_some() => Err(M::Error::duplicate_field("witness")),
            "witness" => {
                let mut lists = Lists::default();
                self.witness = object(map, "witness", &mut lists)?.then_some(lists);
                Ok(())
            }
            key => self.lists.take(key, map),
        }
    }
}

#[derive(Default)]
struct Lists {
    state: Option<Vec<Hex>>,
    codes: Option<Vec<Hex>>,
    keys: Option<Vec<Hex>>,
    headers: Option<Vec<HeaderRlp>>,
}

impl<'de> Fields<'de> for Lists {
    const EXPECTED: &'static str = "an object with a witness's lists";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "state" => take_once(&mut self.state, "state", map),
            "codes" => take_once(&mut self.codes, "codes", map),
            "keys" => take_once(&mut self.keys, "keys", map),
            "headers" => take_once(&mut self.headers, "headers", map),
            _ => map.next_value::<IgnoredAny>().map(|_| ()),
        }
    }
}

/// Reads a field that must not be a duplicate; `None` if it is `null`.
fn take_once<'de, T: Deserialize<'de>, M: MapAccess<'de>>(
    place: &mut Option<T>,
    field: &'static str,
    map: &mut M,
) -> Result<(), M::Error> {
    if place.is_some() {
        return Err(M::Error::duplicate_field(field));
    }
    *place = map.next_value().map_err(|error| named(field, error))?;
    Ok(())
}

/// Bytes as a hex string.
struct Hex(Bytes);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HexVisitor)
    }
}

struct HexVisitor;

impl Visitor<'_> for HexVisitor {
    type Value = Hex;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes in hex")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Hex, E> {
        // The error quotes a single character of the string, with its position.
        text.parse().map(Hex).map_err(E::custom)
    }
}

/// A header, read from hex or from a header object.
struct HeaderRlp {
    rlp: Bytes,
    is_object: bool,
}

impl<'de> Deserialize<'de> for HeaderRlp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = HeaderRlp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header: its RLP in hex, or an object")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<HeaderRlp, E> {
        HexVisitor.visit_str(text).map(|rlp| HeaderRlp {
            rlp: rlp.0,
            is_object: false,
        })
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<HeaderRlp, M::Error> {
        let header = Header::deserialize(MapAccessDeserializer::new(map))?;
        let rlp = alloy_rlp::encode(&header);
        // RLP identifies fields by their order, so a missing field shifts those after it.
        if !Header::decode(&mut &rlp[..]).is_ok_and(|again| again == header) {
            return Err(M::Error::custom(
                "a header that lacks a field but has one of a later fork",
            ));
        }
        Ok(HeaderRlp {
            rlp: rlp.into(),
            is_object: true,
        })
    }
}

/// A header object with its hash, as in JSON-RPC.
#[derive(Serialize)]
struct HeaderObject {
    hash: B256,
    #[serde(flatten)]
    header: Header,
}

fn read_file(text: &str) -> Result<WitnessFile, serde_json::Error> {
    let mut file = WitnessFile::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let is_object = Object(&mut file).deserialize(&mut deserializer)?;
    deserializer.end()?;
    match is_object {
        true => Ok(file),
        false => Err(serde_json::Error::custom("null")),
    }
}

impl BlockWitness {
    /// Reads a witness in any of the formats. `block` is the RLP of the block, for formats without
    /// it.
    ///
    /// # Errors
    ///
    /// If the text is malformed, lacks a field, or if `block` is missing or differs from the block
    /// in the text. The error names the field, or the line and column.
    pub fn from_json(text: &str, block: Option<Bytes>) -> Result<Self, serde_json::Error> {
        let file = read_file(text).map_err(brief_json_error)?;
        let fail = |what: &str| serde_json::Error::custom(what);
        let lists = file.witness.unwrap_or(file.lists);
        let has_block = file.block.is_some();
        let block = match (file.block, block) {
            (Some(own), Some(given)) if own.0 != given => {
                return Err(fail("it includes a block other than the one given"));
            }
            (Some(Hex(block)), _) | (None, Some(block)) => block,
            (None, None) => return Err(fail("it does not include the block, and none is given")),
        };
        let bytes = |list: Vec<Hex>| list.into_iter().map(|hex| hex.0).collect();
        let there = |list: Option<Vec<Hex>>, name: &str| {
            let list = list.ok_or_else(|| fail(&format!("it lacks the field `{name}`")))?;
            Ok(bytes(list))
        };
        let mut headers = lists.headers.unwrap_or_default();
        let form = match () {
            () if has_block => WitnessForm::Own,
            () if headers.iter().any(|header| header.is_object) => WitnessForm::Geth,
            () if lists.keys.is_some() => WitnessForm::Reth,
            () => WitnessForm::Eip8025,
        };
        if form == WitnessForm::Geth {
            headers.reverse();
        }
        Ok(Self {
            form,
            block,
            witness: Witness {
                state: there(lists.state, "state")?,
                codes: there(lists.codes, "codes")?,
                keys: bytes(lists.keys.unwrap_or_default()),
                headers: headers.into_iter().map(|header| header.rlp).collect(),
            },
            layered: file.layered,
        })
    }

    /// Writes the witness in a format. Headers that can't be decoded are written as hex.
    pub fn to_json(&self, form: WitnessForm) -> Value {
        let Witness {
            state,
            codes,
            headers,
            ..
        } = &self.witness;
        let as_object = |rlp: &Bytes| match Header::decode(&mut &rlp[..]) {
            Ok(header) if alloy_rlp::encode(&header) == *rlp => json!(HeaderObject {
                hash: header.hash_slow(),
                header,
            }),
            _ => json!(rlp),
        };
        match form {
            WitnessForm::Own => json!(self),
            WitnessForm::Reth => json!(self.witness),
            WitnessForm::Eip8025 => {
                json!({ "headers": headers, "codes": codes, "state": state })
            }
            WitnessForm::Geth => {
                let mut headers: Vec<_> = headers.iter().map(as_object).collect();
                if headers.iter().any(Value::is_object) {
                    headers.reverse();
                }
                json!({ "headers": headers, "codes": codes, "state": state })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_header_is_written_as_it_is() {
        let header = alloy_rlp::encode(Header::default());
        for rlp in [&header[..], &[], &[0xc0], &[&header[..], &[0x80]].concat()] {
            let mut witness = BlockWitness {
                form: WitnessForm::Own,
                block: Bytes::from_static(&[0xc0]),
                witness: Witness {
                    headers: vec![Bytes::copy_from_slice(rlp)],
                    ..Witness::default()
                },
                layered: None,
            };
            for form in WitnessForm::ALL {
                let text = witness.to_json(form).to_string();
                let block = (form != WitnessForm::Own).then(|| witness.block.clone());
                let read = BlockWitness::from_json(&text, block).unwrap();
                // Bytes that don't decode as a header are written in hex, and geth's form is recognized by its objects.
                witness.form = read.form;
                assert_eq!(read, witness, "{form:?}: {text}");
            }
        }
    }
}
