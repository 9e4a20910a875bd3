//! Encoded blocks, and their decoding.

use super::{FileError, FilePosition};
use alloy_consensus::{Header, ReceiptEnvelope};
use alloy_primitives::{Bytes, U256};
use alloy_rlp::{Decodable, Encodable};
use cambium_evm::Block;

/// Maximum size of one encoded block, or of its receipts, that a reader accepts: 64 MiB.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Maximum size of an encoded header: ten times the size of real headers.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;

/// An encoded block, of which only the length has been checked.
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// RLP of the block: a list of header, transactions, ommers and, from Shanghai, withdrawals.
    pub rlp: Bytes,
    /// RLP of the list of receipts, if the file has them.
    pub receipts: Option<Bytes>,
    /// Total difficulty including this block, if the file has it.
    pub total_difficulty: Option<U256>,
    /// RLP of the access list, if it came with the block.
    pub access_list: Option<Bytes>,
    /// Its state update as [`StateUpdate::encode`](super::StateUpdate::encode) encodes it, if it came with the block.
    pub update: Option<Bytes>,
    /// Location in the file.
    pub place: FilePosition,
}

impl RawBlock {
    /// The block's number, read without decoding the rest. `None` if it can't be read.
    pub fn number(&self) -> Option<u64> {
        peek_number(&self.rlp)
    }

    /// Decodes the block.
    ///
    /// # Errors
    ///
    /// If the bytes are not the canonical encoding of a block.
    pub fn decode(&self) -> Result<Block, FileError> {
        decode_block(&self.rlp).map_err(|what| self.malformed(what))
    }

    /// Decodes only the block's header.
    ///
    /// # Errors
    ///
    /// If the header is malformed or too large.
    pub fn header(&self) -> Result<Header, FileError> {
        decode_header(&self.rlp).map_err(|what| self.malformed(what))
    }

    /// Decodes the receipts, if the file has them.
    ///
    /// # Errors
    ///
    /// If the receipts are malformed.
    pub fn decode_receipts(&self) -> Result<Option<Vec<ReceiptEnvelope>>, FileError> {
        let Some(receipts) = &self.receipts else {
            return Ok(None);
        };
        let decoded = decode_whole(receipts, "invalid receipts");
        decoded.map(Some).map_err(|what| self.malformed(what))
    }

    pub(super) fn malformed(&self, what: String) -> FileError {
        FileError::Malformed {
            place: Box::new(self.place.clone()),
            what,
        }
    }
}

/// Decodes a block from its canonical encoding. The error says what is wrong.
pub(crate) fn decode_block(rlp: &[u8]) -> Result<Block, String> {
    let block: Block = decode_whole(rlp, "invalid block")?;
    // The decoder also accepts forms that the peer-to-peer network tolerates, such as a typed
    // transaction without its string header.
    let mut again = Vec::with_capacity(rlp.len());
    block.encode(&mut again);
    if again != rlp {
        return Err("invalid block: not in its canonical encoding".to_owned());
    }
    Ok(block)
}

/// Decodes only the header in a block's RLP. The error says what is wrong.
pub(crate) fn decode_header(mut rlp: &[u8]) -> Result<Header, String> {
    let no_block = |error: alloy_rlp::Error| format!("invalid block: {error}");
    let mut block = alloy_rlp::Header::decode_bytes(&mut rlp, true).map_err(no_block)?;
    let whole = block;
    let no_header = |error: alloy_rlp::Error| format!("invalid header: {error}");
    alloy_rlp::Header::decode_bytes(&mut block, true).map_err(no_header)?;
    let got = whole.len() - block.len();
    if got > HEADER_BYTES_MAX {
        let max = HEADER_BYTES_MAX;
        return Err(format!(
            "invalid header: it has {got} bytes, over the limit of {max}"
        ));
    }
    decode_whole(&whole[..got], "invalid header")
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
