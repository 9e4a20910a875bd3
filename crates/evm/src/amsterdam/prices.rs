//! Gas parameters and limits of the fixture release.

use revm::{
    context::CfgEnv,
    context_interface::cfg::gas_params::{GasId, GasParams},
    primitives::hardfork::SpecId,
};

/// Maximum size of a contract's code in bytes (EIP-7954).
const CODE_BYTES_MAX: usize = 0x8000;
/// Maximum size of init code in bytes (EIP-7954).
const INITCODE_BYTES_MAX: usize = 2 * CODE_BYTES_MAX;

/// Bytes of state charged for an account (EIP-8037).
const ACCOUNT_BYTES: u64 = 112;
/// Bytes of state charged for a storage slot (EIP-8037).
const SLOT_BYTES: u64 = 32;
/// Bytes of state charged for a delegation (EIP-8037).
const DELEGATION_BYTES: u64 = 23;

/// Regular gas of creating a contract (EIP-8037).
const CREATE_GAS: u64 = 9_000;
/// Regular gas of an authorization (EIP-8037).
const AUTHORIZATION_GAS: u64 = 7_500;
/// Gas of writing a warm slot for the first time, in addition to that of reading it.
const SLOT_WRITE_GAS: u64 = 2_800;

/// Floor gas of a calldata token (EIP-7976). Every byte counts as [`FLOOR_TOKENS`].
const FLOOR_TOKEN_GAS: u64 = 16;
/// Floor tokens of a byte of calldata (EIP-7976) or of an access list (EIP-7981).
const FLOOR_TOKENS: u64 = 4;
/// Gas of an address in an access list (EIP-2930), and of its bytes (EIP-7981).
const LISTED_ADDRESS_GAS: u64 = 2_400 + 20 * FLOOR_TOKENS * FLOOR_TOKEN_GAS;
/// Gas of a slot in an access list, and of its bytes.
const LISTED_SLOT_GAS: u64 = 1_900 + 32 * FLOOR_TOKENS * FLOOR_TOKEN_GAS;

/// Target of state growth in bytes per year (EIP-8037).
const GROWTH_BYTES: u128 = 100 << 30;
/// Blocks per year.
const YEAR_BLOCKS: u128 = 2_628_000;
/// Offset that is added before the cost of a byte is rounded, and subtracted afterwards.
const ROUNDING_OFFSET: u128 = 9_578;
/// Significant bits that remain after rounding.
const ROUNDING_BITS: u32 = 5;

/// State gas per byte of new state, in a block with this gas limit (EIP-8037).
fn byte_gas(gas_limit: u64) -> u64 {
    let yearly = u128::from(gas_limit) * YEAR_BLOCKS;
    let shifted = yearly.div_ceil(2 * GROWTH_BYTES) + ROUNDING_OFFSET;
    let shift = (u128::BITS - shifted.leading_zeros()).saturating_sub(ROUNDING_BITS);
    let rounded = (shifted >> shift) << shift;
    let gas = rounded.saturating_sub(ROUNDING_OFFSET).max(1);
    u64::try_from(gas).unwrap_or(u64::MAX)
}

/// State gas of a new storage slot from Amsterdam on, in a block with this gas limit (EIP-8037).
pub fn new_slot_gas(gas_limit: u64) -> u64 {
    byte_gas(gas_limit).saturating_mul(SLOT_BYTES)
}

/// Sets the limits, gas parameters and EIPs for a block with this gas limit.
pub(crate) fn configure(cfg: &mut CfgEnv, gas_limit: u64) {
    cfg.enable_amsterdam_eip2780 = false;
    cfg.amsterdam_eip8246_delayed_clear_disabled = true;
    cfg.limit_contract_code_size = Some(CODE_BYTES_MAX);
    cfg.limit_contract_initcode_size = Some(INITCODE_BYTES_MAX);
    cfg.set_gas_params(gas_params(gas_limit));
}

/// The gas parameters for a block with this gas limit.
pub(super) fn gas_params(gas_limit: u64) -> GasParams {
    let mut params = GasParams::new_spec(SpecId::OSAKA);
    let state = |bytes: u64| byte_gas(gas_limit).saturating_mul(bytes);
    params.override_gas([
        (GasId::create(), CREATE_GAS),
        (GasId::tx_create_cost(), CREATE_GAS),
        (GasId::tx_eip7702_regular_gas(), AUTHORIZATION_GAS),
        (GasId::tx_eip7702_regular_refund(), 0),
        (GasId::new_account_cost(), 0),
        (GasId::new_account_cost_for_selfdestruct(), 0),
        (GasId::code_deposit_cost(), 0),
        (GasId::sstore_set_without_load_cost(), SLOT_WRITE_GAS),
        (GasId::sstore_set_refund(), SLOT_WRITE_GAS),
        (GasId::new_account_state_gas(), state(ACCOUNT_BYTES)),
        // Charged in `instructions`, whether the account exists or not.
        (GasId::create_state_gas(), 0),
        (GasId::sstore_set_state_gas(), state(SLOT_BYTES)),
        (GasId::code_deposit_state_gas(), state(1)),
        (
            GasId::tx_eip7702_state_gas_bytecode(),
            state(DELEGATION_BYTES),
        ),
        (GasId::tx_floor_cost_per_token(), FLOOR_TOKEN_GAS),
        (GasId::tx_floor_token_zero_byte_multiplier(), FLOOR_TOKENS),
        (GasId::tx_access_list_address_cost(), LISTED_ADDRESS_GAS),
        (GasId::tx_access_list_storage_key_cost(), LISTED_SLOT_GAS),
        (GasId::tx_access_list_floor_byte_multiplier(), FLOOR_TOKENS),
    ]);
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_a_byte_grows_with_the_gas_limit_in_steps() {
        assert_eq!(byte_gas(120_000_000), 1_174);
        assert_eq!(byte_gas(100_000_000), 1_174);
        assert_eq!(byte_gas(0), 1);
        assert_eq!(byte_gas(60_000_000), 662);
        assert!(byte_gas(u64::MAX) > byte_gas(u64::MAX / 2));
    }
}
