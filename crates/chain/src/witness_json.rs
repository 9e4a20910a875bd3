//! Witnesses as JSON: our own form, and those of `debug_executionWitness`.
//!
//! | form | block | headers | keys |
//! |---|---|---|---|
//! | own | beside the witness, as RLP | RLP | yes |
//! | reth's `debug_executionWitness`, EIP-8025's fixtures | elsewhere | RLP | perhaps |
//! | geth's `debug_executionWitness` | elsewhere | objects | no |
//!
//! All of them are read without being told which one it is.

use crate::BlockWitness;
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use alloy_rlp::Decodable;
use cambium_trie::Witness;
use serde::{
    Deserialize, Serialize,
    de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, json};
use std::fmt;

/// A form of a witness as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessForm {
    /// With the block, for [`BlockWitness`] alone.
    Own,
    /// As reth answers to `debug_executionWitness`, and as EIP-8025's fixtures have it.
    Reth,
    /// As geth answers to `debug_executionWitness`.
    Geth,
}

/// Whatever a file of a witness may hold.
#[derive(Default, Deserialize)]
struct WitnessFile {
    block: Option<Bytes>,
    witness: Option<Lists>,
    #[serde(flatten)]
    lists: Lists,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lists {
    state: Option<Vec<Bytes>>,
    codes: Option<Vec<Bytes>>,
    keys: Option<Vec<Bytes>>,
    headers: Option<Vec<HeaderRlp>>,
}

/// A header's RLP, given as such or as an object.
struct HeaderRlp(Bytes);

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
        let rlp = text.parse().map_err(E::custom)?;
        Ok(HeaderRlp(rlp))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<HeaderRlp, M::Error> {
        let header = Header::deserialize(MapAccessDeserializer::new(map))?;
        Ok(HeaderRlp(alloy_rlp::encode(&header).into()))
    }
}

/// A header as a node tells it.
#[derive(Serialize)]
struct HeaderObject {
    hash: B256,
    #[serde(flatten)]
    header: Header,
}

impl BlockWitness {
    /// Reads a witness in any of the forms. `block` is the block's RLP, where the file has none; of
    /// a file that has one, it must be the same.
    pub fn from_json(text: &str, block: Option<Bytes>) -> Result<Self, serde_json::Error> {
        let file: WitnessFile = serde_json::from_str(text)?;
        let fail = |what: &str| serde_json::Error::custom(what);
        let lists = file.witness.unwrap_or(file.lists);
        let block = match (file.block, block) {
            (Some(own), Some(given)) if own != given => {
                return Err(fail("it has a block with it, which is not the one given"));
            }
            (Some(block), _) | (None, Some(block)) => block,
            (None, None) => return Err(fail("it has no block with it, and none is given")),
        };
        let there = |list: Option<Vec<Bytes>>, name: &str| {
            list.ok_or_else(|| fail(&format!("it has no field `{name}`")))
        };
        let headers = lists.headers.unwrap_or_default().into_iter();
        Ok(Self {
            block,
            witness: Witness {
                state: there(lists.state, "state")?,
                codes: there(lists.codes, "codes")?,
                keys: lists.keys.unwrap_or_default(),
                headers: headers.map(|header| header.0).collect(),
            },
        })
    }

    /// The witness in a form. Headers that are no headers are left as they are.
    pub fn to_json(&self, form: WitnessForm) -> Value {
        let Witness {
            state,
            codes,
            headers,
            ..
        } = &self.witness;
        let as_object = |rlp: &Bytes| match Header::decode(&mut &rlp[..]) {
            Ok(header) => json!(HeaderObject {
                hash: header.hash_slow(),
                header,
            }),
            Err(_) => json!(rlp),
        };
        match form {
            WitnessForm::Own => json!(self),
            WitnessForm::Reth => json!(self.witness),
            WitnessForm::Geth => {
                let headers: Vec<_> = headers.iter().map(as_object).collect();
                json!({ "headers": headers, "codes": codes, "state": state })
            }
        }
    }
}
