//! A block as a file has it, and its decoding.

use super::{FileError, Place};
use alloy_consensus::{Header, ReceiptEnvelope};
use alloy_primitives::{Bytes, U256};
use alloy_rlp::{Decodable, Encodable};
use cambium_evm::Block;

/// The longest encoding of one block (or of its receipts) that a reader takes: 64 MiB.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// The longest encoding of a header: ten times what one in use has.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;

/// A block's bytes, not looked into beyond their length.
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// RLP of the block: a list of header, transactions, uncles and, from Shanghai, withdrawals.
    pub rlp: Bytes,
    /// RLP of the list of its receipts, where the file has them.
    pub receipts: Option<Bytes>,
    /// Total difficulty up to and with it, where the file has it.
    pub total_difficulty: Option<U256>,
    /// RLP of its access list, where that came with it.
    pub access_list: Option<Bytes>,
    /// Where it was found.
    pub place: Place,
}

impl RawBlock {
    /// The block's number, read from its header without decoding the rest.
    pub fn number(&self) -> Option<u64> {
        peek_number(&self.rlp)
    }

    /// Decodes the block, accepting only its one canonical encoding.
    pub fn decode(&self) -> Result<Block, FileError> {
        decode_block(&self.rlp).map_err(|what| self.malformed(what))
    }

    /// Decodes the block's header, and nothing else of it.
    pub fn header(&self) -> Result<Header, FileError> {
        decode_header(&self.rlp).map_err(|what| self.malformed(what))
    }

    /// Decodes the receipts, if the file has any.
    pub fn decode_receipts(&self) -> Result<Option<Vec<ReceiptEnvelope>>, FileError> {
        let Some(receipts) = &self.receipts else {
            return Ok(None);
        };
        let decoded = decode_whole(receipts, "no valid receipts");
        decoded.map(Some).map_err(|what| self.malformed(what))
    }

    pub(super) fn malformed(&self, what: String) -> FileError {
        FileError::Malformed {
            place: Box::new(self.place.clone()),
            what,
        }
    }
}

/// Decodes a block, accepting only its one canonical encoding. An error says what is wrong.
pub(crate) fn decode_block(rlp: &[u8]) -> Result<Block, String> {
    let block: Block = decode_whole(rlp, "no valid block")?;
    // Decoding alone would let pass what the peer-to-peer network tolerates, such as a typed
    // transaction without its string header.
    let mut again = Vec::with_capacity(rlp.len());
    block.encode(&mut again);
    if again != rlp {
        return Err("no valid block: not in its canonical encoding".to_owned());
    }
    Ok(block)
}

/// Decodes the header of a block's RLP, and nothing else of it.
pub(crate) fn decode_header(mut rlp: &[u8]) -> Result<Header, String> {
    let no_block = |error: alloy_rlp::Error| format!("no valid block: {error}");
    let mut block = alloy_rlp::Header::decode_bytes(&mut rlp, true).map_err(no_block)?;
    let whole = block;
    let no_header = |error: alloy_rlp::Error| format!("no valid header: {error}");
    alloy_rlp::Header::decode_bytes(&mut block, true).map_err(no_header)?;
    let got = whole.len() - block.len();
    if got > HEADER_BYTES_MAX {
        let max = HEADER_BYTES_MAX;
        return Err(format!(
            "no valid header: it has {got} bytes, over the {max} allowed"
        ));
    }
    decode_whole(&whole[..got], "no valid header")
}

fn decode_whole<T: Decodable>(mut rlp: &[u8], what: &str) -> Result<T, String> {
    let value = T::decode(&mut rlp).map_err(|error| format!("{what}: {error}"))?;
    match rlp.len() {
        0 => Ok(value),
        surplus => Err(format!("{what}: {surplus} surplus bytes")),
    }
}

/// The number in the header of a block's RLP.
pub(super) fn peek_number(mut rlp: &[u8]) -> Option<u64> {
    const FIELDS_BEFORE_NUMBER: usize = 8;
    let mut block = alloy_rlp::Header::decode_bytes(&mut rlp, true).ok()?;
    let mut header = alloy_rlp::Header::decode_bytes(&mut block, true).ok()?;
    for _ in 0..FIELDS_BEFORE_NUMBER {
        let field = alloy_rlp::Header::decode(&mut header).ok()?;
        header = header.get(field.payload_length..)?;
    }
    u64::decode(&mut header).ok()
}
