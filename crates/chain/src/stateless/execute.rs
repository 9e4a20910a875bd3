//! Executing a block from its witness.

use super::{
    ancestors::Ancestors,
    state::{RootFault, WitnessState},
    witness::{BlockWitness, StatelessError, StatelessReport, StatelessRules},
};
use crate::{
    BlockFault, HeaderError,
    files::{decode_block, decode_header},
    validate_body, validate_header, validate_size, verify_outcome, verify_state_root,
};
use cambium_evm::{ExecutionError, Executor, Hooks, Sequential, recover_senders};
use cambium_primitives::BlockId;

impl BlockWitness {
    /// Executes the block from the witness alone, and verifies it against its header. Ommers are
    /// verified by their hash only, since a witness does not contain their ancestors.
    ///
    /// # Errors
    ///
    /// [`StatelessError::Invalid`] if the block is invalid, and the other variants if the witness is malformed,
    /// incomplete, or of another block than `rules` ask for.
    pub fn execute(&self, rules: &StatelessRules<'_>) -> Result<StatelessReport, StatelessError> {
        let spec = rules.spec;
        let header = decode_header(&self.block).map_err(StatelessError::Block)?;
        let id = BlockId::new(header.number, header.hash_slow());
        let invalid = |fault: BlockFault| StatelessError::Invalid {
            id,
            fault: Box::new(fault),
        };
        let got = header.parent_hash;
        if let Some(expected) = rules.parent.filter(|parent| *parent != got) {
            return Err(StatelessError::OtherParent { got, expected });
        }
        let (got, max) = (header.gas_limit, rules.gas_limit_max);
        if got > max {
            return Err(StatelessError::GasLimit { got, max });
        }
        let is_eip8025 = rules.strictness.is_eip8025(self.form);
        let Ancestors { parent, hashes } = match is_eip8025 {
            true => Ancestors::in_order(&self.witness, &header)?,
            false => Ancestors::linked(&self.witness.headers, &header)?,
        };
        let post_merge = rules.is_post_merge(&header, &parent);
        validate_header(spec, &header, &parent, header.parent_hash, post_merge)
            .map_err(|error: HeaderError| invalid(error.into()))?;
        validate_size(spec, &header, &self.block, post_merge)
            .map_err(|error| invalid(error.into()))?;
        let block = decode_block(&self.block).map_err(StatelessError::Block)?;
        validate_body(spec, &block, post_merge).map_err(|error| invalid(error.into()))?;
        let senders = recover_senders(&block.body.transactions, spec.has_low_signatures(&header))
            .map_err(|error| invalid(error.into()))?;

        let (tries, unused_nodes) = self.tries(rules, parent.state_root)?;
        let codes = &self.witness.codes;
        let mut state = WitnessState::new(tries, codes, hashes);
        let input = spec.input(&block, &senders, post_merge);
        let outcome = Sequential
            .execute(&input, &state, Hooks::default())
            .map_err(|error| match error {
                ExecutionError::Database(gap) => StatelessError::Lacks(gap),
                fault => invalid(BlockFault::Execution(fault.to_string())),
            })?;
        let verified =
            verify_outcome(&header, &outcome, None).map_err(|error| invalid(error.into()))?;
        let root = self.root_after(rules, &mut state.tries, &header, &outcome.changes);
        let (state_root, snapshot_root) = root.map_err(|fault| match fault {
            RootFault::Gap(gap) => StatelessError::Lacks(gap),
            RootFault::Witness(error) => StatelessError::State(error),
            RootFault::Trie(error) => invalid(BlockFault::Execution(error.to_string())),
        })?;
        verify_state_root(&header, state_root).map_err(|error| invalid(error.into()))?;
        Ok(StatelessReport {
            id,
            parent: BlockId::new(parent.number, header.parent_hash),
            chain_id: spec.chain_id,
            fork: spec.fork_at(header.number, header.timestamp, post_merge),
            pre_root: parent.state_root,
            state_root,
            transactions: block.body.transactions.len(),
            gas_used: outcome.gas_used,
            receipts_checked: verified.receipts_root,
            unused_nodes,
            unused_codes: codes.len() - state.codes_read(),
            unused_headers: self.witness.headers.len() - state.headers_read(parent.number),
            snapshot_root,
        })
    }
}
