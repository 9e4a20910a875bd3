//! Data that a chain stores with each block, and its encoding.
//!
//! A body is the bytes that the engine stores with a block and never interprets
//! ([`BlockMeta::body`](cambium_state::BlockMeta::body)):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 32 | total difficulty including this block, big-endian |
//! | 32 | | the block's RLP, a list |
//! | then | | the RLP of its access list, a list, if it is stored |
//! | then | | the RLP of a string, if there are receipts: the RLP of their list, as consensus has it, compressed by Snappy; empty if there are none and preimages follow |
//! | then | | the RLP of a string, if there are preimages: [`BlockPreimages`], compressed by Snappy |

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::{Encodable, Header};

/// Largest size of the receipts or preimages of a block, not compressed, in bytes: far above that of any chain.
const PART_BYTES_MAX: usize = 1 << 30;

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
    /// The addresses and keys of slots that it has created, compressed: see [`BlockPreimages::pack`]. `None` if the
    /// chain kept no preimages.
    pub preimages: Option<Bytes>,
}

/// The addresses of the accounts that a block has created, and the keys of the slots that had no value before it and
/// have one after it: the preimages of all hashes that are new in the state.
///
/// Encoded as the number of addresses in 4 bytes, little-endian; then 20 bytes for each address, and 32 for each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockPreimages {
    /// Addresses of accounts.
    pub addresses: Vec<Address>,
    /// Keys of slots of any accounts.
    pub slots: Vec<B256>,
}

impl BlockPreimages {
    /// Encodes and compresses them, as [`StoredBody::encode`] takes them.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let Self { addresses, slots } = self;
        let mut out = Vec::with_capacity(4 + 20 * addresses.len() + 32 * slots.len());
        out.extend_from_slice(&(addresses.len() as u32).to_le_bytes());
        out.extend(addresses.iter().flatten());
        out.extend(slots.iter().flatten());
        pack(&out)
    }

    fn unpack(packed: &[u8]) -> Result<Self, StoredBodyError> {
        let bytes = unpack("preimages", packed)?;
        let broken =
            || StoredBodyError::new("its preimages: not as many bytes as addresses and slots take");
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        let len = (u32::from_le_bytes(*count) as usize).checked_mul(20);
        let split = len.and_then(|len| rest.split_at_checked(len));
        let (addresses, slots) = split.ok_or_else(broken)?;
        let (addresses, (slots, more)) = (addresses.chunks_exact(20), slots.as_chunks::<32>());
        match more {
            [] => Ok(Self {
                addresses: addresses.map(Address::from_slice).collect(),
                slots: slots.iter().map(B256::from).collect(),
            }),
            _ => Err(broken()),
        }
    }
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
    /// Encodes a body from its parts. `receipts` and `preimages` are compressed.
    pub fn encode(
        total_difficulty: U256,
        rlp: &[u8],
        access_list: &[u8],
        receipts: Option<&[u8]>,
        preimages: Option<&[u8]>,
    ) -> Bytes {
        let parts = [
            rlp,
            access_list,
            receipts.unwrap_or(&[]),
            preimages.unwrap_or(&[]),
        ];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(50 + len);
        out.extend_from_slice(&total_difficulty.to_be_bytes::<32>());
        out.extend_from_slice(rlp);
        out.extend_from_slice(access_list);
        if receipts.is_some() || preimages.is_some() {
            receipts.unwrap_or(&[]).encode(&mut out);
        }
        if let Some(preimages) = preimages {
            preimages.encode(&mut out);
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
        let mut string = || match rest.is_empty() {
            true => Ok(None),
            false => Header::decode_bytes(&mut rest, false).map(Some),
        };
        let (receipts, preimages) = (string()?, string()?);
        // A compressed part is never empty.
        if preimages.or(receipts).is_some_and(<[u8]>::is_empty) {
            return Err(StoredBodyError::new("its last part is empty"));
        }
        let part = |payload| body.slice_ref(payload);
        let receipts = receipts.filter(|payload| !payload.is_empty()).map(part);
        let preimages = preimages.map(part);
        if !rest.is_empty() {
            return Err(StoredBodyError::new("there is more behind its preimages"));
        }
        Ok(Self {
            total_difficulty: U256::from_be_slice(difficulty),
            rlp,
            access_list,
            receipts,
            preimages,
        })
    }

    /// The same body with other receipts, and without preimages.
    #[must_use]
    pub fn with_receipts(&self, receipts: Option<&[u8]>) -> Bytes {
        Self::encode(
            self.total_difficulty,
            &self.rlp,
            &self.access_list,
            receipts,
            None,
        )
    }

    /// The preimages of the block's created addresses and slots. `None` if the chain kept none.
    ///
    /// # Errors
    ///
    /// If they can't be decompressed or decoded.
    pub fn preimages(&self) -> Result<Option<BlockPreimages>, StoredBodyError> {
        let packed = self.preimages.as_ref();
        packed
            .map(|packed| BlockPreimages::unpack(packed))
            .transpose()
    }

    /// The RLP of the receipts' list, not compressed. `None` if they are not stored.
    ///
    /// # Errors
    ///
    /// If they can't be decompressed.
    pub fn receipts_rlp(&self) -> Result<Option<Vec<u8>>, StoredBodyError> {
        let packed = self.receipts.as_ref();
        packed.map(|packed| unpack("receipts", packed)).transpose()
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
    pack(rlp)
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let packed = snap::raw::Encoder::new().compress_vec(bytes);
    // The only error is one of inputs over 4 GiB, which no gas pays for.
    packed.unwrap_or_default()
}

fn unpack(what: &str, packed: &[u8]) -> Result<Vec<u8>, StoredBodyError> {
    let broken = |error: snap::Error| StoredBodyError(format!("its {what}: {error}"));
    let len = snap::raw::decompress_len(packed).map_err(broken)?;
    // Snappy compresses to a 64th at best: a length beyond that is not the truth.
    if len > PART_BYTES_MAX.min(packed.len().saturating_mul(64)) {
        return Err(StoredBodyError(format!("its {what}: an impossible length")));
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
        let created = BlockPreimages {
            addresses: vec![Address::repeat_byte(7), Address::repeat_byte(8)],
            slots: vec![B256::repeat_byte(9)],
        };
        let preimages = created.pack();
        for access_list in [&[][..], &list] {
            for receipts in [None, Some(&receipts[..])] {
                for preimages in [None, Some(&preimages[..])] {
                    let bytes =
                        StoredBody::encode(U256::from(9), &block, access_list, receipts, preimages);
                    let body = StoredBody::decode(&bytes).unwrap();
                    assert_eq!(body.total_difficulty, U256::from(9));
                    assert_eq!(
                        (&body.rlp[..], &body.access_list[..]),
                        (&block[..], access_list)
                    );
                    assert_eq!(body.receipts.as_ref().map(|packed| &packed[..]), receipts);
                    let expected = receipts.map(|_| vec![0xc0]);
                    assert_eq!(body.receipts_rlp().unwrap(), expected);
                    let expected = preimages.map(|_| created.clone());
                    assert_eq!(body.preimages().unwrap(), expected);
                    let without = StoredBody::decode(&body.with_receipts(receipts)).unwrap();
                    assert_eq!(
                        without,
                        StoredBody {
                            preimages: None,
                            ..body.clone()
                        }
                    );
                    for end in 0..bytes.len() {
                        if let Ok(other) = StoredBody::decode(&bytes.slice(..end)) {
                            assert_eq!(other.rlp, body.rlp);
                            assert_ne!(other, body);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn wrong_counts_of_preimages_are_refused() {
        let unpacked = |bytes: &[u8]| BlockPreimages::unpack(&pack(bytes));
        let wrong = [
            &[1, 0, 0][..],
            &[1, 0, 0, 0, 5],
            &[0, 0, 0, 0, 5],
            &[0xff; 44],
        ];
        for bytes in wrong {
            assert!(unpacked(bytes).is_err(), "{bytes:?}");
        }
        let none = BlockPreimages::default();
        assert_eq!(BlockPreimages::unpack(&none.pack()), Ok(none));
        let one = [&[1, 0, 0, 0][..], &[3; 20]].concat();
        assert_eq!(unpacked(&one).unwrap().addresses, [Address::repeat_byte(3)]);
    }

    #[test]
    fn transactions_are_as_they_are_hashed() {
        let bytes = StoredBody::encode(U256::ZERO, &block(), &[], None, None);
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
            None,
        );
        let body = StoredBody::decode(&body).unwrap();
        assert!(body.receipts_rlp().is_err());
    }
}
