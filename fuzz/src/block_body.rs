//! Data that a chain stores with a block, in the block log and in the index.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_index::StoredBody;

/// Decodes the input as a body, and takes its block and its receipts apart.
///
/// A decoded body is encoded to the same bytes. Transactions are parts of the block, in their order, and receipts and
/// preimages are decompressed to no more than they can be.
pub fn block_body(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let Ok(body) = StoredBody::decode(&bytes) else {
        return;
    };
    let StoredBody {
        total_difficulty,
        rlp,
        access_list,
        receipts,
        preimages,
    } = &body;
    let again = StoredBody::encode(
        *total_difficulty,
        rlp,
        access_list,
        receipts.as_ref().map(AsRef::as_ref),
        preimages.as_ref().map(AsRef::as_ref),
    );
    assert_eq!(again, bytes, "another encoding of the same body");
    if let Ok(transactions) = body.transactions() {
        let sum: usize = transactions
            .iter()
            .map(|transaction| transaction.len())
            .sum();
        assert!(sum <= rlp.len());
        let hashes: Vec<B256> = transactions.iter().map(keccak256).collect();
        assert_eq!(hashes.len(), transactions.len());
        assert!(body.hash().is_ok());
    }
    if let Ok(Some(unpacked)) = body.receipts_rlp() {
        let packed = receipts.as_ref().map_or(0, |receipts| receipts.len());
        assert!(unpacked.len() <= 64 * packed);
    }
    if let Ok(Some(unpacked)) = body.preimages() {
        let packed = preimages.as_ref().map_or(0, |preimages| preimages.len());
        assert!(20 * unpacked.addresses.len() + 32 * unpacked.slots.len() <= 64 * packed);
    }
}
