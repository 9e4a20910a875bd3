//! Comparison of the reason for which a fixture expects a block to be rejected with the error.

use crate::Pack;

/// Reasons that lead to the same error messages.
struct Class {
    /// Names of the reasons in fixtures.
    names: &'static [&'static str],
    /// Parts of messages, one of which the error must contain.
    words: &'static [&'static str],
}

const fn class(names: &'static [&'static str], words: &'static [&'static str]) -> Class {
    Class { names, words }
}

/// Parts of messages for bytes that do not encode a block.
const RLP: &[&str] = &[
    "overflow",
    "unexpected length",
    "unexpected list",
    "Unexpected type flag",
];

/// In ethereum/tests, a block with an invalid transaction has the roots of the block without that
/// transaction, so its header is invalid, too.
const ROOT_WITHOUT_IT: &str = "transactionsRoot is ";

/// A block whose transactions use more gas in sum than its limit allows has both faults: its header says so, and
/// the transaction that exceeds the limit has too little gas left.
const GAS_OVER_LIMIT: [&str; 2] = ["over the gasLimit of ", "gas left in the block"];

const HEADERS: &[Class] = &[
    class(
        &[
            "1559BlockImportImpossible_BaseFeeWrong",
            "BlockException.INVALID_BASEFEE_PER_GAS",
        ],
        &["baseFeePerGas is "],
    ),
    class(
        &[
            "1559BlockImportImpossible_HeaderIsLegacy",
            "BlockException.IMPORT_IMPOSSIBLE_LONDON_WRONG_PARENT",
        ],
        &["baseFeePerGas is present, but the block's fork"],
    ),
    class(
        &[
            "BlockException.IMPORT_IMPOSSIBLE_LEGACY",
            "BlockException.IMPORT_IMPOSSIBLE_LEGACY_WRONG_PARENT",
            "LegacyBlockImportImpossible",
            "LegacyBlockImportImpossible2",
        ],
        &["baseFeePerGas is missing"],
    ),
    class(
        &[
            "3675PoSBlockRejected",
            "3675PoWBlockRejected",
            "BlockException.IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS",
            "BlockException.IMPORT_IMPOSSIBLE_PARIS_WRONG_POS",
            "BlockException.IMPORT_IMPOSSIBLE_PARIS_WRONG_POW",
            "BlockException.INVALID_DIFFICULTY",
            "InvalidDifficulty",
            "PostParisDifficultyIsNot0",
        ],
        &["difficulty is "],
    ),
    class(
        &["3675PreParis1559BlockRejected"],
        &["a proof-of-stake block has no ommers", "difficulty is "],
    ),
    class(
        &[
            "BlockException.IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS",
            "PostParisUncleHashIsNotEmpty",
        ],
        &["a proof-of-stake block has no ommers"],
    ),
    class(
        &[
            "BlockException.EXTRA_DATA_INVALID_DAO",
            "ExtraDataIncorrectDAO",
        ],
        &["the DAO fork requires"],
    ),
    class(
        &["BlockException.EXTRA_DATA_TOO_BIG", "ExtraDataTooBig"],
        &["extraData has "],
    ),
    // In fixtures of a limit that rises too fast, the fields that depend on it are wrong, too.
    class(
        &[
            "BlockException.INVALID_GASLIMIT",
            "InvalidGasLimit",
            "InvalidGasLimit2",
        ],
        &[
            "gasLimit is ",
            "over the gasLimit of ",
            "baseFeePerGas is present, but the block's fork",
        ],
    ),
    class(&["BlockException.GASLIMIT_TOO_BIG"], &["gasLimit is "]),
    class(
        &["BlockException.GAS_USED_OVERFLOW", "TooMuchGasUsed"],
        &GAS_OVER_LIMIT,
    ),
    class(
        &[
            "BlockException.IMPORT_IMPOSSIBLE_PARIS_OVER_SHANGHAI",
            "ParisBlockImportImpossible",
        ],
        &["withdrawalsRoot is missing"],
    ),
    class(
        &[
            "BlockException.IMPORT_IMPOSSIBLE_SHANGHAI",
            "ShanghaiBlockImportImpossible",
        ],
        &["withdrawalsRoot is present, but the block's fork"],
    ),
    class(
        &["BlockException.INCORRECT_EXCESS_BLOB_GAS"],
        &["excessBlobGas is "],
    ),
    class(
        &["BlockException.INVALID_BLOCK_NUMBER", "InvalidNumber"],
        &["number is "],
    ),
    class(
        &[
            "BlockException.INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT",
            "InvalidTimestampOlderParent",
        ],
        &["timestamp is "],
    ),
    class(
        &[
            "BlockException.UNKNOWN_PARENT",
            "BlockException.UNKNOWN_PARENT_ZERO",
            "UnknownParent",
            "UnknownParent2",
        ],
        &["unknown parent", "its parent "],
    ),
];

const BODIES: &[Class] = &[
    class(
        &[
            "BlockException.RLP_STRUCTURES_ENCODING",
            "BlockException.RLP_INVALID_ADDRESS",
            "BlockException.RLP_INVALID_FIELD_OVERFLOW_64",
            "INPUT_UNMARSHAL_ADDRESS_ERROR",
            "INPUT_UNMARSHAL_ERROR",
        ],
        RLP,
    ),
    class(
        &[
            "BlockException.RLP_WITHDRAWALS_NOT_READ",
            "RLP_ExpectedAsList",
        ],
        &["the block has no withdrawals"],
    ),
    class(
        &[
            "BlockException.INVALID_TRANSACTIONS_ROOT",
            "InvalidTransactionsRoot",
        ],
        &["transactionsRoot is "],
    ),
    class(
        &[
            "BlockException.INVALID_WITHDRAWALS_ROOT",
            "InvalidWithdrawals",
        ],
        &["withdrawalsRoot is "],
    ),
    class(&["InvalidUnclesHash"], &["sha3Uncles is "]),
    class(&["TooManyUncles"], &[" ommers, over the "]),
    class(
        &[
            "BlockException.UNCLE_PARENT_INCORRECT",
            "InvalidUncleParentHash",
            "UncleParentIsNotAncestor",
        ],
        &["which is not an ancestor"],
    ),
    class(&["UncleInChain"], &["is already an ommer of an ancestor"]),
    class(&["UncleIsAncestor"], &["is an ancestor"]),
    class(&["UncleIsBrother"], &["is listed twice"]),
    class(
        &["BlockException.INVALID_BAL_HASH"],
        &["blockAccessListHash is "],
    ),
    class(
        &["BlockException.BLOCK_ACCESS_LIST_GAS_LIMIT_EXCEEDED"],
        &["the gas limit allows"],
    ),
    class(
        &["BlockException.INVALID_BLOCK_ACCESS_LIST"],
        &["access list: account "],
    ),
    // An unsorted list, or a field of another fork.
    class(
        &["BlockException.INCORRECT_BLOCK_FORMAT"],
        &["access list: account ", "but the block's fork", "overflow"],
    ),
];

const OUTCOMES: &[Class] = &[
    class(
        &["BlockException.INVALID_DEPOSIT_EVENT_LAYOUT"],
        &["a log of the deposit contract is malformed"],
    ),
    class(
        &["BlockException.INVALID_GAS_USED", "InvalidGasUsed"],
        &["gasUsed is "],
    ),
    class(
        &["BlockException.INVALID_LOG_BLOOM", "InvalidLogBloom"],
        &["logsBloom hashes to "],
    ),
    class(
        &[
            "BlockException.INVALID_RECEIPTS_ROOT",
            "InvalidReceiptsStateRoot",
        ],
        &["receiptsRoot is "],
    ),
    class(&["BlockException.INVALID_REQUESTS"], &["requestsHash is "]),
    class(
        &["BlockException.INVALID_STATE_ROOT", "InvalidStateRoot"],
        &["stateRoot is "],
    ),
    class(
        &["BlockException.SYSTEM_CONTRACT_CALL_FAILED"],
        &["fails: it halts", "fails: it reverts"],
    ),
    class(
        &["BlockException.SYSTEM_CONTRACT_EMPTY"],
        &["fails: there is no code"],
    ),
];

const TRANSACTIONS: &[Class] = &[
    class(
        &[
            "IntrinsicGas",
            "TR_IntrinsicGas",
            "TransactionException.INTRINSIC_GAS_TOO_LOW",
        ],
        &["call gas cost (", "gas floor ("],
    ),
    class(
        &["TransactionException.INTRINSIC_GAS_BELOW_FLOOR_GAS_COST"],
        &["gas floor ("],
    ),
    class(
        &[
            "TR_GasLimitReached",
            "TransactionException.GAS_ALLOWANCE_EXCEEDED",
        ],
        // A block with such a gas limit has no room for its access list.
        &[GAS_OVER_LIMIT[0], GAS_OVER_LIMIT[1], "the gas limit allows"],
    ),
    class(
        &["TransactionException.GAS_LIMIT_EXCEEDS_MAXIMUM"],
        &["is greater than the cap ("],
    ),
    class(
        &["TransactionException.INITCODE_SIZE_EXCEEDED"],
        &["create initcode size limit"],
    ),
    class(
        &[
            "SenderNotEOAorNoCASH",
            "TR_NoFunds",
            "TR_NoFundsOrGas",
            "TransactionException.INSUFFICIENT_ACCOUNT_FUNDS",
        ],
        &["lack of funds ("],
    ),
    class(
        &["TransactionException.GASLIMIT_PRICE_PRODUCT_OVERFLOW"],
        RLP,
    ),
    class(
        &[
            "TR_FeeCapLessThanBlocks",
            "TR_FeeCapLessThanBlocksORGasLimitReached",
            "TR_FeeCapLessThanBlocksORNoFunds",
            "TransactionException.INSUFFICIENT_MAX_FEE_PER_GAS",
        ],
        &["gas price is less than basefee"],
    ),
    class(
        &["TransactionException.INSUFFICIENT_MAX_FEE_PER_BLOB_GAS"],
        &["is greater than max fee per blob gas"],
    ),
    class(
        &[
            "TR_NonceTooHigh",
            "TransactionException.NONCE_MISMATCH_TOO_HIGH",
        ],
        &["too high, expected "],
    ),
    class(
        &[
            "TR_NonceTooLow",
            "TransactionException.NONCE_MISMATCH_TOO_LOW",
        ],
        &["too low, expected "],
    ),
    class(
        &["TR_NonceHasMaxValue", "TransactionException.NONCE_IS_MAX"],
        &["nonce overflow in transaction"],
    ),
    class(
        &[
            "TR_TipGtFeeCap",
            "TransactionException.PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS",
        ],
        &["priority fee is greater than max fee"],
    ),
    class(
        &["TransactionException.SENDER_NOT_EOA"],
        &["senders with deployed code"],
    ),
    class(
        &[
            "TR_TypeNotSupported",
            "TransactionException.TYPE_NOT_SUPPORTED",
            "TransactionException.TYPE_1_TX_PRE_FORK",
            "TransactionException.TYPE_2_TX_PRE_FORK",
            "TransactionException.TYPE_3_TX_PRE_FORK",
            "TransactionException.TYPE_4_TX_PRE_FORK",
        ],
        &["is not supported"],
    ),
    class(
        &["TransactionException.TYPE_3_TX_BLOB_COUNT_EXCEEDED"],
        &["too many blobs, have "],
    ),
    class(
        &["TransactionException.TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED"],
        &["blobGasUsed is "],
    ),
    class(
        &[
            "TransactionException.TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH",
            "BlockException.INVALID_VERSIONED_HASHES",
        ],
        &["blob version not supported"],
    ),
    class(
        &["TransactionException.TYPE_3_TX_ZERO_BLOBS"],
        &["empty blobs"],
    ),
    class(
        &["TransactionException.TYPE_4_EMPTY_AUTHORIZATION_LIST"],
        &["empty authorization list"],
    ),
    // Such transactions can't be encoded.
    class(
        &[
            "TransactionException.TYPE_3_TX_CONTRACT_CREATION",
            "TransactionException.TYPE_3_TX_WITH_FULL_BLOBS",
            "TransactionException.TYPE_4_TX_CONTRACT_CREATION",
        ],
        RLP,
    ),
];

/// Names without a specific reason: the block's hash differs from the expected one.
const ANY: &str = "BlockException.INVALID_BLOCK_HASH";

/// Compares the error with which a block was rejected with the reason in its fixture, which is one
/// or several names separated by `|`, of which one must match. `list_given`: whether the block came
/// with its access list; without it, only the list's hash can be wrong.
pub(crate) fn compare(
    pack: Pack,
    list_given: bool,
    reason: &str,
    error: &str,
) -> Result<(), String> {
    let classes = || {
        [HEADERS, BODIES, OUTCOMES, TRANSACTIONS]
            .into_iter()
            .flatten()
    };
    // For a missing or unexpected field, the message has no value.
    let is_field = error.contains(", but the block's fork");
    for name in reason.split('|').filter(|name| *name != ANY) {
        let Some(class) = classes().find(|class| class.names.contains(&name)) else {
            return Err(format!(
                "is refused for {name}, which no class of refusals has, with: {error}"
            ));
        };
        let of_transaction = TRANSACTIONS.iter().any(|c| c.names.contains(&name));
        let mut allowed = class.words.to_vec();
        if pack == Pack::EthereumTests && of_transaction {
            allowed.push(ROOT_WITHOUT_IT);
        }
        if !list_given && is_of_list(name) {
            allowed.push("blockAccessListHash is ");
        }
        let is_meant = |words: &&str| {
            let of_field = words.contains("but the block's fork") || words.contains(" is missing");
            error.contains(*words) && of_field == is_field
        };
        if allowed.iter().any(is_meant) {
            return Ok(());
        }
    }
    Err(format!("is refused for {reason} with: {error}"))
}

/// Whether the reason may show as a wrong hash of the access list.
fn is_of_list(name: &str) -> bool {
    matches!(
        name,
        "BlockException.INVALID_BLOCK_ACCESS_LIST" | "BlockException.INCORRECT_BLOCK_FORMAT"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_another_reason_fails_its_case() {
        let refusal = "block 1: header: timestamp is 3, not after the parent's 3";
        let of = |name: &str| compare(Pack::Eest, false, name, refusal);
        assert_eq!(of("InvalidTimestampOlderParent"), Ok(()));
        assert_eq!(of("UnknownParent|InvalidTimestampOlderParent"), Ok(()));
        assert!(of("InvalidNumber").is_err());
        assert!(of("BlockException.INVALID_BLOCK_HASH").is_err());
        assert!(of("BlockException.NEW").unwrap_err().contains("no class"));
    }

    #[test]
    fn a_field_that_is_missing_has_no_wrong_value() {
        let of = |name: &str, refusal: &str| compare(Pack::Eest, true, name, refusal);
        let missing = "header: baseFeePerGas is missing, but the block's fork requires it";
        let there = "header: baseFeePerGas is present, but the block's fork does not have it";
        let wrong = "header: baseFeePerGas is 7, expected 8 from the parent";
        let name = "BlockException.INVALID_BASEFEE_PER_GAS";
        assert!(of(name, missing).is_err() && of(name, there).is_err());
        assert_eq!(of(name, wrong), Ok(()));
        assert_eq!(of("LegacyBlockImportImpossible", missing), Ok(()));
        assert!(of("LegacyBlockImportImpossible", there).is_err());
        let others = "body: the block has withdrawals, but its header has no withdrawalsRoot";
        assert!(of("TooManyUncles", others).is_err());
        assert!(of("TooManyUncles|BlockException.NEW", others).is_err());
    }

    #[test]
    fn a_block_over_its_gas_limit_is_refused_for_its_header_or_its_last_transaction() {
        let refusals = [
            "block 1: header: gasUsed is 42000, over the gasLimit of 30000",
            "block 1: transaction 1: gas limit 21000 is over the 9000 gas left in the block",
        ];
        for refusal in refusals {
            for name in [
                "BlockException.GAS_USED_OVERFLOW",
                "TransactionException.GAS_ALLOWANCE_EXCEEDED",
            ] {
                assert_eq!(compare(Pack::Eest, true, name, refusal), Ok(()));
            }
            let other = "TransactionException.GAS_LIMIT_EXCEEDS_MAXIMUM";
            assert!(compare(Pack::Eest, true, other, refusal).is_err());
        }
    }

    #[test]
    fn the_largest_nonce_is_no_nonce_out_of_order() {
        let refusal = "block 1: transaction 0: nonce overflow in transaction";
        let of = |name: &str| compare(Pack::Eest, true, name, refusal);
        assert_eq!(of("TransactionException.NONCE_IS_MAX"), Ok(()));
        assert!(of("TransactionException.NONCE_MISMATCH_TOO_HIGH").is_err());
    }

    #[test]
    fn roots_without_a_transaction_are_of_one_pack() {
        let refusal = "block 1: body: transactionsRoot is 0x01, but the transactions have 0x02";
        let of = |pack| compare(pack, false, "TR_NoFunds", refusal);
        assert_eq!(of(Pack::EthereumTests), Ok(()));
        assert!(of(Pack::Eest).is_err());
    }

    #[test]
    fn no_name_is_in_two_classes() {
        let mut seen = std::collections::BTreeSet::new();
        for class in [HEADERS, BODIES, OUTCOMES, TRANSACTIONS]
            .into_iter()
            .flatten()
        {
            assert!(!class.words.is_empty());
            for name in class.names {
                assert!(seen.insert(name), "{name} is in two classes");
            }
        }
    }
}
