//! Records that are in a file of their own, beside a file of blocks: an RLP list of a block's number, its hash, and items.

use super::{ChainReader, FileError};
use alloy_primitives::{B256, Bytes, keccak256};
use alloy_rlp::{Decodable, Encodable, Header};
use cambium_primitives::BlockId;

/// A record of a block. `items` are encoded.
pub(super) fn record(block: BlockId, items: &[u8]) -> Vec<u8> {
    let payload_length = block.number.length() + block.hash.length() + items.len();
    let mut record = Vec::with_capacity(payload_length + 9);
    let header = Header {
        list: true,
        payload_length,
    };
    header.encode(&mut record);
    block.number.encode(&mut record);
    block.hash.encode(&mut record);
    record.extend_from_slice(items);
    record
}

/// The block of a record, and its items: as many as `are_lists` has, each a list or a string.
pub(super) fn split<'a>(mut record: &'a [u8], are_lists: &[bool]) -> Option<(BlockId, &'a [u8])> {
    let mut fields = Header::decode_bytes(&mut record, true).ok()?;
    let number = u64::decode(&mut fields).ok()?;
    let hash = B256::decode(&mut fields).ok()?;
    let items = fields;
    for is_list in are_lists {
        Header::decode_bytes(&mut fields, *is_list).ok()?;
    }
    (record.is_empty() && fields.is_empty()).then_some((BlockId::new(number, hash), items))
}

/// The next record of a file, divided as [`split`] does. `what` is what a record is. After an error the file ends.
pub(super) fn next(
    records: &mut ChainReader,
    are_lists: &[bool],
    what: &str,
) -> Option<Result<(BlockId, Bytes), FileError>> {
    let record = records.next()?;
    let divided = record.and_then(|record| {
        let malformed = || record.malformed(format!("not {what}"));
        let (id, items) = split(&record.rlp, are_lists).ok_or_else(malformed)?;
        Ok((id, record.rlp.slice_ref(items)))
    });
    if divided.is_err() {
        records.end();
    }
    Some(divided)
}

/// Hash of the header in a block's RLP.
pub(super) fn header_hash(mut rlp: &[u8]) -> Option<B256> {
    let block = Header::decode_bytes(&mut rlp, true).ok()?;
    let mut rest = block;
    Header::decode_bytes(&mut rest, true).ok()?;
    Some(keccak256(&block[..block.len() - rest.len()]))
}
