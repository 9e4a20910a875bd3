//! Corrected headers for fuzzed or generated blocks.

use alloy_consensus::Header;
use cambium_chain::{BlockFault, DAO_EXTRA_DATA, HeaderError, VerifyError};

/// Sets a header field to the value that validation requires, if the fault is a wrong field whose
/// right value is known. Returns whether it did.
pub fn mend_header(header: &mut Header, fault: &BlockFault) -> bool {
    match *fault {
        BlockFault::Header(HeaderError::Number { expected, .. }) => header.number = expected,
        BlockFault::Header(HeaderError::Timestamp { parent, .. }) => {
            let Some(timestamp) = parent.checked_add(1) else {
                return false;
            };
            header.timestamp = timestamp;
        }
        BlockFault::Header(HeaderError::GasLimit { min, max, .. }) if min <= max => {
            header.gas_limit = min;
        }
        BlockFault::Header(HeaderError::Difficulty { expected, .. }) => {
            header.difficulty = expected;
        }
        BlockFault::Header(HeaderError::DaoExtraData { .. }) => {
            header.extra_data = DAO_EXTRA_DATA.into();
        }
        BlockFault::Header(HeaderError::BaseFee { expected, .. }) => {
            header.base_fee_per_gas = Some(expected);
        }
        BlockFault::Header(HeaderError::ExcessBlobGas { expected, .. }) => {
            header.excess_blob_gas = Some(expected);
        }
        BlockFault::Verify(VerifyError::ReceiptsRoot { expected, .. }) => {
            header.receipts_root = expected;
        }
        BlockFault::Verify(VerifyError::RequestsHash { expected, .. }) => {
            header.requests_hash = Some(expected);
        }
        BlockFault::Verify(VerifyError::BlockAccessListHash { expected, .. }) => {
            header.block_access_list_hash = Some(expected);
        }
        BlockFault::Verify(VerifyError::StateRoot { expected, .. }) => {
            header.state_root = expected;
        }
        _ => return false,
    }
    true
}
