//! Genesis in memory, as alloy has it.

use super::{Genesis, GenesisAccount, GenesisError, GenesisPart, config::ConfigFields};
use crate::json::{Object, named};
use alloy_genesis::ChainConfig;
use alloy_primitives::{Address, B256, U256};
use serde::de::{DeserializeSeed, Error};

/// Stands for the file's name in errors.
const NAME: &str = "the genesis in memory";
/// Maximum number of slots in a piece of an account.
const PART_SLOTS: usize = 1 << 16;

impl Genesis {
    /// Takes the header fields and the fork rules of a genesis that alloy has read or a program has
    /// made; [`Chain::init_genesis`](crate::Chain::init_genesis) takes the accounts, too.
    ///
    /// Rules that are alloy's default (chain 1 without any fork) stand for a file without rules, of which
    /// [`Genesis::spec`] knows the public chains. alloy has no field for the parent beacon block root and
    /// the gas used of the header, which are zero in any genesis block in use.
    ///
    /// # Errors
    ///
    /// [`GenesisError::Parse`], which names the field, for rules that don't fit together and for numbers
    /// that are out of range.
    pub fn of_alloy(genesis: &alloy_genesis::Genesis) -> Result<Self, GenesisError> {
        let fail = |source| GenesisError::Parse {
            file: NAME.into(),
            source,
        };
        let base_fee_per_gas = genesis.base_fee_per_gas.map(u64::try_from).transpose();
        let base_fee_per_gas = base_fee_per_gas
            .map_err(|_| fail(named("baseFeePerGas", Error::custom("over 64 bits"))))?;
        let mut found = Self {
            file: NAME.into(),
            nonce: genesis.nonce,
            timestamp: genesis.timestamp,
            extra_data: genesis.extra_data.clone(),
            gas_limit: genesis.gas_limit,
            difficulty: genesis.difficulty,
            mix_hash: genesis.mix_hash,
            coinbase: genesis.coinbase,
            number: genesis.number.unwrap_or(0),
            parent_hash: genesis.parent_hash.unwrap_or_default(),
            base_fee_per_gas,
            excess_blob_gas: genesis.excess_blob_gas,
            blob_gas_used: genesis.blob_gas_used,
            slot_number: genesis.slot_number,
            accounts: genesis.alloc.len() as u64,
            ..Self::default()
        };
        if genesis.config != ChainConfig::default() {
            found.take_config(&genesis.config).map_err(fail)?;
        }
        Ok(found)
    }

    /// Reads rules by way of JSON: they mean the same as in a file, including fields that alloy lacks.
    fn take_config(&mut self, config: &ChainConfig) -> Result<(), serde_json::Error> {
        let text = serde_json::to_string(config)?;
        let mut fields = ConfigFields::default();
        Object(&mut fields).deserialize(&mut serde_json::Deserializer::from_str(&text))?;
        let config = fields.finish().map_err(Error::custom)?;
        self.config = Some(config.spec);
        self.refused = config.refused;
        self.ignored = config.ignored;
        Ok(())
    }
}

/// Passes the accounts to `on_part`, accounts with many slots in pieces.
pub(crate) fn each_part<E>(
    genesis: &alloy_genesis::Genesis,
    mut on_part: impl FnMut(GenesisPart) -> Result<(), E>,
) -> Result<(), E> {
    for (address, account) in &genesis.alloc {
        let mut slots = account.storage_slots().peekable();
        let mut piece: Vec<(B256, U256)> = slots.by_ref().take(PART_SLOTS).collect();
        while slots.peek().is_some() {
            on_part(GenesisPart::Slots(*address, piece))?;
            piece = slots.by_ref().take(PART_SLOTS).collect();
        }
        on_part(part(*address, account, piece))?;
    }
    Ok(())
}

fn part(
    address: Address,
    account: &alloy_genesis::GenesisAccount,
    storage: Vec<(B256, U256)>,
) -> GenesisPart {
    let account = GenesisAccount {
        balance: account.balance,
        nonce: account.nonce.unwrap_or(0),
        code: account.code.clone().unwrap_or_default(),
        storage,
    };
    GenesisPart::Account(address, account)
}
