//! What a chain stores with each block, and what can be found in it.
//!
//! A body is the bytes that the engine stores with a block and never interprets
//! ([`BlockMeta::body`](cambium_state::BlockMeta::body)):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 32 | total difficulty including this block, big-endian |
//! | 32 | | the block's RLP, a list |
//! | then | | the RLP of its access list, a list, if it is stored |
//! | then | | the RLP of a string, if there are receipts: the RLP of their list, as consensus has it, compressed by Snappy |

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::{Encodable, Header};

/// Largest size of the receipts of a block, not compressed, in bytes: what no chain comes near.
const RECEIPTS_BYTES_MAX: usize = 1 << 30;

/// The bytes that a chain stores with a block, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBody {
    /// Total difficulty including the block.
    pub total_difficulty: U256,
    /// The block's RLP.
    pub rlp: Bytes,
    /// The RLP of its access list; empty if none is stored.
    pub access_list: Bytes,
    /// Its receipts, compressed: see [`pack_receipts`]. `None` if they are not stored.
    pub receipts: Option<Bytes>,
}

/// Why bytes are not what a chain stores with a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoredBodyError(pub(crate) String);

impl StoredBodyError {
    fn new(what: &str) -> Self {
        Self(what.to_owned())
    }
}

impl From<alloy_rlp::Error> for StoredBodyError {
    fn from(error: alloy_rlp::Error) -> Self {
        Self(error.to_string())
    }
}

impl StoredBody {
    /// Encodes a body from its parts.
    pub fn encode(
        total_difficulty: U256,
        rlp: &[u8],
        access_list: &[u8],
        receipts: Option<&[u8]>,
    ) -> Bytes {
        let packed = receipts.map_or(0, <[u8]>::len);
        let mut out = Vec::with_capacity(41 + rlp.len() + access_list.len() + packed);
        out.extend_from_slice(&total_difficulty.to_be_bytes::<32>());
        out.extend_from_slice(rlp);
        out.extend_from_slice(access_list);
        if let Some(receipts) = receipts {
            receipts.encode(&mut out);
        }
        out.into()
    }

    /// Takes a body apart.
    ///
    /// # Errors
    ///
    /// If these bytes are none.
    pub fn decode(body: &Bytes) -> Result<Self, StoredBodyError> {
        let Some((difficulty, mut rest)) = body.split_at_checked(32) else {
            return Err(StoredBodyError::new("it is too short"));
        };
        let mut at = 32;
        let mut item = |rest: &mut &[u8], list: bool| -> Result<Bytes, StoredBodyError> {
            let before = rest.len();
            Header::decode_bytes(rest, list)?;
            let item = body.slice(at..at + before - rest.len());
            at += item.len();
            Ok(item)
        };
        let rlp = item(&mut rest, true)?;
        let access_list = match rest.first() {
            Some(0xc0..) => item(&mut rest, true)?,
            _ => Bytes::new(),
        };
        let receipts = match rest.is_empty() {
            true => None,
            false => {
                let payload = Header::decode_bytes(&mut rest, false)?;
                Some(body.slice_ref(payload))
            }
        };
        if !rest.is_empty() {
            return Err(StoredBodyError::new("there is more behind its receipts"));
        }
        Ok(Self {
            total_difficulty: U256::from_be_slice(difficulty),
            rlp,
            access_list,
            receipts,
        })
    }

    /// The RLP of the receipts' list, not compressed. `None` if they are not stored.
    ///
    /// # Errors
    ///
    /// If they can't be decompressed.
    pub fn receipts_rlp(&self) -> Result<Option<Vec<u8>>, StoredBodyError> {
        let packed = self.receipts.as_ref();
        packed.map(|packed| unpack_receipts(packed)).transpose()
    }

    /// The encodings of the transactions, as their hashes are computed (EIP-2718), in the block's order.
    ///
    /// # Errors
    ///
    /// If the block's RLP is not that of a block.
    pub fn transactions(&self) -> Result<Vec<&[u8]>, StoredBodyError> {
        let mut block = &self.rlp[..];
        let mut block = Header::decode_bytes(&mut block, true)?;
        Header::decode_bytes(&mut block, true)?;
        items_of(&mut block)
    }

    /// Hash of the block, from its header.
    ///
    /// # Errors
    ///
    /// If the block's RLP is not that of a block.
    pub fn hash(&self) -> Result<B256, StoredBodyError> {
        let mut block = &self.rlp[..];
        let block = Header::decode_bytes(&mut block, true)?;
        let mut rest = block;
        Header::decode_bytes(&mut rest, true)?;
        Ok(keccak256(&block[..block.len() - rest.len()]))
    }
}

/// The items of a list of transactions or receipts: a typed one without the string around it.
fn items_of<'a>(bytes: &mut &'a [u8]) -> Result<Vec<&'a [u8]>, StoredBodyError> {
    let mut list = Header::decode_bytes(bytes, true)?;
    let mut items = Vec::new();
    while !list.is_empty() {
        let whole = list;
        let header = Header::decode(&mut list)?;
        let (payload, rest) = list
            .split_at_checked(header.payload_length)
            .ok_or_else(|| StoredBodyError::new("an item is longer than its list"))?;
        list = rest;
        items.push(match header.list {
            true => &whole[..whole.len() - rest.len()],
            false => payload,
        });
    }
    Ok(items)
}

/// Compresses the RLP of a list of receipts, as [`StoredBody::encode`] takes it.
#[must_use]
pub fn pack_receipts(rlp: &[u8]) -> Vec<u8> {
    let packed = snap::raw::Encoder::new().compress_vec(rlp);
    // The only error is one of inputs over 4 GiB, which no gas pays for.
    packed.unwrap_or_default()
}

fn unpack_receipts(packed: &[u8]) -> Result<Vec<u8>, StoredBodyError> {
    let broken = |error: snap::Error| StoredBodyError(format!("its receipts: {error}"));
    let len = snap::raw::decompress_len(packed).map_err(broken)?;
    // Snappy compresses to a 64th at best: a length beyond that is not the truth.
    if len > RECEIPTS_BYTES_MAX.min(packed.len().saturating_mul(64)) {
        return Err(StoredBodyError::new("its receipts: an impossible length"));
    }
    snap::raw::Decoder::new()
        .decompress_vec(packed)
        .map_err(broken)
}

/// Calls `visit` with the address and the topics of each log of a list of receipts, in the block's order.
pub(crate) fn each_log(
    mut receipts: &[u8],
    visit: &mut dyn FnMut(Address, &[B256]),
) -> Result<(), StoredBodyError> {
    for item in items_of(&mut receipts)? {
        let mut receipt = match item.first() {
            Some(0xc0..) => item,
            _ => item.get(1..).unwrap_or_default(),
        };
        let mut fields = Header::decode_bytes(&mut receipt, true)?;
        for _ in ["status", "cumulative gas", "bloom"] {
            Header::decode_bytes(&mut fields, false)?;
        }
        let mut logs = Header::decode_bytes(&mut fields, true)?;
        while !logs.is_empty() {
            let mut log = Header::decode_bytes(&mut logs, true)?;
            let address = Header::decode_bytes(&mut log, false)?;
            let address = Address::try_from(address)
                .map_err(|_| StoredBodyError::new("the address of a log has not 20 bytes"))?;
            let mut list = Header::decode_bytes(&mut log, true)?;
            let (mut topics, mut count) = ([B256::ZERO; 4], 0);
            while !list.is_empty() {
                let topic = B256::try_from(Header::decode_bytes(&mut list, false)?);
                let topic = topic.map_err(|_| StoredBodyError::new("a topic has not 32 bytes"))?;
                let place = topics.get_mut(count);
                *place.ok_or_else(|| StoredBodyError::new("a log has more than four topics"))? =
                    topic;
                count += 1;
            }
            visit(address, &topics[..count]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rlp_of(parts: &[&[u8]], list: bool) -> Vec<u8> {
        let payload = parts.concat();
        let mut out = Vec::new();
        let header = Header {
            list,
            payload_length: payload.len(),
        };
        header.encode(&mut out);
        out.extend_from_slice(&payload);
        out
    }

    fn block() -> Vec<u8> {
        let header = rlp_of(&[&[0x80]], true);
        let legacy = rlp_of(&[&[7], &[8]], true);
        let typed = rlp_of(&[&[2, 0xc1, 5]], false);
        let transactions = rlp_of(&[&legacy, &typed], true);
        rlp_of(&[&header, &transactions, &[0xc0]], true)
    }

    #[test]
    fn a_body_survives_in_all_its_forms_and_every_cut_is_refused_or_another_form() {
        let (block, list) = (block(), rlp_of(&[&[1]], true));
        let receipts = pack_receipts(&rlp_of(&[], true));
        for access_list in [&[][..], &list] {
            for receipts in [None, Some(&receipts[..])] {
                let bytes = StoredBody::encode(U256::from(9), &block, access_list, receipts);
                let body = StoredBody::decode(&bytes).unwrap();
                assert_eq!(body.total_difficulty, U256::from(9));
                assert_eq!(
                    (&body.rlp[..], &body.access_list[..]),
                    (&block[..], access_list)
                );
                assert_eq!(body.receipts.as_ref().map(|packed| &packed[..]), receipts);
                let expected = receipts.map(|_| vec![0xc0]);
                assert_eq!(body.receipts_rlp().unwrap(), expected);
                for end in 0..bytes.len() {
                    if let Ok(other) = StoredBody::decode(&bytes.slice(..end)) {
                        assert_eq!(other.rlp, body.rlp);
                        assert_ne!(other, body);
                    }
                }
            }
        }
    }

    #[test]
    fn transactions_are_as_they_are_hashed() {
        let bytes = StoredBody::encode(U256::ZERO, &block(), &[], None);
        let body = StoredBody::decode(&bytes).unwrap();
        assert_eq!(
            body.transactions().unwrap(),
            [&[0xc2, 7, 8][..], &[2, 0xc1, 5]]
        );
        assert_eq!(body.hash().unwrap(), keccak256([0xc1, 0x80]));
    }

    #[test]
    fn receipts_that_claim_an_impossible_length_are_refused() {
        // A length of almost 4 GiB, and nothing behind it.
        let body = StoredBody::encode(
            U256::ZERO,
            &block(),
            &[],
            Some(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
        );
        let body = StoredBody::decode(&body).unwrap();
        assert!(body.receipts_rlp().is_err());
    }
}
