//! States and proofs of a chain's database, read-only: beside a process that imports blocks into it,
//! or without one.

use crate::{
    memory::{
        CambiumBytes, check_result, free, handle, handle_mut, read_address, read_key, read_keys,
        read_path, read_values, results, write, write_unless_null,
    },
    status::{CambiumError, CambiumStatus, Failure, run},
};
use cambium::{
    Account, AccountProof, B256, BlockId, HistoryError, Node, StateAt, StorageKey, U256, keccak256,
    verify_account_proof,
};
use std::ffi::c_char;

/// A chain's database, open for reading. Any number of threads may use one handle at the same time,
/// except in `cambium_chain_catch_up` and `cambium_chain_close`.
pub struct CambiumChain(Node);

/// The state of a chain after one block. It never changes: any number of threads may use one handle at
/// the same time, until it is freed.
pub struct CambiumState(StateAt);

/// A block, by number and hash.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CambiumBlock {
    /// Height of the block.
    pub number: u64,
    /// Hash of its header.
    pub hash: [u8; 32],
}

impl From<BlockId> for CambiumBlock {
    fn from(id: BlockId) -> Self {
        Self {
            number: id.number,
            hash: id.hash.0,
        }
    }
}

/// The fields of an account.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CambiumAccount {
    /// Number of transactions sent, or of contracts created by a contract.
    pub nonce: u64,
    /// Balance in wei, big-endian.
    pub balance: [u8; 32],
    /// Keccak-256 hash of the code: that of no bytes if there is none.
    pub code_hash: [u8; 32],
}

impl From<Account> for CambiumAccount {
    fn from(account: Account) -> Self {
        Self {
            nonce: account.nonce,
            balance: account.balance.to_be_bytes(),
            code_hash: account.code_hash.0,
        }
    }
}

/// Opens the database of a chain in a directory at its newest block, whether or not another process
/// writes to it. `directory` is UTF-8 with a NUL at its end; `memory_bytes` is the memory budget, 0 for
/// 1 GiB. Close it with `cambium_chain_close`.
///
/// Fails with `CAMBIUM_STATUS_UNAVAILABLE` if there is no database, `CAMBIUM_STATUS_INVALID_ARGUMENT` if it is a
/// key-value store, `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_chain_open(
    directory: *const c_char,
    memory_bytes: u64,
    chain: *mut *mut CambiumChain,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(chain)?;
        let memory_bytes = match memory_bytes {
            0 => 1 << 30,
            given => given,
        };
        // SAFETY: the pointer is as the header asks of the caller.
        let opened = Node::open(unsafe { read_path(directory)? }, memory_bytes)?;
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(chain, Box::into_raw(Box::new(CambiumChain(opened)))) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Closes the database. States of it stay valid; its files are released with the last of them. Null is
/// ignored. No thread may use the handle during the call or after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_chain_close(chain: *mut CambiumChain) {
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { free(chain) }
}

/// Writes the newest block that this handle has seen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_chain_head(
    chain: *const CambiumChain,
    block: *mut CambiumBlock,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        unsafe { write(block, handle(chain)?.0.head().into()) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Moves to the newest block that was written, and writes it, unless `block` is null. States that were
/// made before stay as they are. No other thread may use the handle meanwhile.
///
/// Fails with `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`; the handle is at its old block then, or at a later one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_chain_catch_up(
    chain: *mut CambiumChain,
    block: *mut CambiumBlock,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointer is as the header asks of the caller.
        let head = unsafe { handle_mut(chain)? }.0.catch_up()?;
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write_unless_null(block, head.into()) }
    })
}

/// Writes the state at the head. Free it with `cambium_state_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_chain_state(
    chain: *const CambiumChain,
    state: *mut *mut CambiumState,
    error: *mut CambiumError,
) -> CambiumStatus {
    // SAFETY: the pointers are as the header asks of the caller.
    unsafe { state_of(chain, state, error, |node| Ok(node.db().view()?.into())) }
}

/// Writes the state after the canonical block of this number: from an archive, or else from the block
/// log, or else from a history of values, which has no proofs. Free it with `cambium_state_free`.
///
/// Fails with `CAMBIUM_STATUS_NOT_KEPT` if there is no such block, or if its state is not kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_chain_state_at(
    chain: *const CambiumChain,
    number: u64,
    state: *mut *mut CambiumState,
    error: *mut CambiumError,
) -> CambiumStatus {
    // SAFETY: the pointers are as the header asks of the caller.
    unsafe { state_of(chain, state, error, |node| node.kept_state_at(number)) }
}

/// # Safety
///
/// The pointers are as the header asks of the caller.
unsafe fn state_of(
    chain: *const CambiumChain,
    state: *mut *mut CambiumState,
    error: *mut CambiumError,
    read: impl FnOnce(&Node) -> Result<StateAt, HistoryError>,
) -> CambiumStatus {
    run(error, || {
        check_result(state)?;
        // SAFETY: the pointer is as the header asks of the caller.
        let found = CambiumState(read(&unsafe { handle(chain)? }.0)?);
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(state, Box::into_raw(Box::new(found))) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Writes the block whose state this is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_state_block(
    state: *const CambiumState,
    block: *mut CambiumBlock,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        unsafe { write(block, handle(state)?.0.block().into()) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Writes the state root (32 bytes).
///
/// Fails with `CAMBIUM_STATUS_NOT_KEPT` for a state of a history without proofs, `CAMBIUM_STATUS_DAMAGED` or
/// `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_state_root(
    state: *const CambiumState,
    root: *mut u8,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (state, to) = unsafe { (handle(state)?, results(root, 32)?) };
        to.copy_from_slice(state.0.state_root()?.as_slice());
        Ok(CambiumStatus::Ok)
    })
}

/// Reads the account at an address (20 bytes). `CAMBIUM_STATUS_NOT_FOUND` if it does not exist.
///
/// Fails with `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_state_account(
    state: *const CambiumState,
    address: *const u8,
    account: *mut CambiumAccount,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(account)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (state, address) = unsafe { (handle(state)?, read_address(address)?) };
        let Some(found) = state.0.account(&keccak256(address))? else {
            return Ok(CambiumStatus::NotFound);
        };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(account, found.into()) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Reads a slot (its number as 32 bytes, big-endian) of the account at an address (20 bytes), and writes
/// its value (32 bytes, big-endian): zero if it is not set.
///
/// Fails with `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_state_slot(
    state: *const CambiumState,
    address: *const u8,
    slot: *const u8,
    value: *mut u8,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (state, address, slot, to) = unsafe {
            (
                handle(state)?,
                read_address(address)?,
                read_key(slot)?,
                results(value, 32)?,
            )
        };
        let found: U256 = state.0.slot(&keccak256(address), &keccak256(slot))?;
        to.copy_from_slice(&found.to_be_bytes::<32>());
        Ok(CambiumStatus::Ok)
    })
}

/// Reads the code with a Keccak-256 hash (32 bytes), as `CambiumAccount` has it. Free it with
/// `cambium_bytes_free`.
///
/// Fails with `CAMBIUM_STATUS_DAMAGED` if no account of the database has or had this code, or `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_state_code(
    state: *const CambiumState,
    code_hash: *const u8,
    code: *mut CambiumBytes,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(code)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let found = unsafe { handle(state)?.0.code(read_key(code_hash)?)? };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(code, CambiumBytes::of(found)) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Proves the account at an address (20 bytes), or that there is none, and `slot_count` of its slots (32
/// bytes each, one after the other). Writes the proof as `eth_getProof` responds (EIP-1186): JSON in
/// UTF-8, without a NUL. Free it with `cambium_bytes_free`.
///
/// Fails with `CAMBIUM_STATUS_NOT_KEPT` for a state of a history without proofs, `CAMBIUM_STATUS_UNAVAILABLE` under
/// the commitment `layered`, `CAMBIUM_STATUS_DAMAGED` or `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_state_prove(
    state: *const CambiumState,
    address: *const u8,
    slots: *const u8,
    slot_count: usize,
    proof: *mut CambiumBytes,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(proof)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (state, address, slots) = unsafe {
            (
                handle(state)?,
                read_address(address)?,
                read_keys(slots, slot_count)?,
            )
        };
        let slots: Vec<_> = slots.iter().map(storage_key).collect();
        let proved = state.0.prove_account(*address, &slots)?;
        let json = serde_json::to_vec(&proved).map_err(Failure::argument)?;
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(proof, CambiumBytes::of(json.into())) }?;
        Ok(CambiumStatus::Ok)
    })
}

fn storage_key(slot: &B256) -> StorageKey {
    StorageKey {
        slot: *slot,
        quantity: false,
    }
}

/// Frees the state. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_state_free(state: *mut CambiumState) {
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { free(state) }
}

/// Verifies a response of `eth_getProof` (JSON of `proof_len` bytes) against a state root (32 bytes).
/// The response must be about `address` (20 bytes) and about exactly `slot_count` slots (32 bytes each),
/// in their order. Writes the account, and the values of the slots (32 bytes each, big-endian);
/// `CAMBIUM_STATUS_NOT_FOUND` if the account is proved not to exist, with all values zero. Needs no database;
/// any thread may call it.
///
/// Fails with `CAMBIUM_STATUS_BAD_PROOF` if the proof does not show that; the message says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_verify_account(
    root: *const u8,
    address: *const u8,
    slots: *const u8,
    slot_count: usize,
    proof: *const u8,
    proof_len: usize,
    account: *mut CambiumAccount,
    slot_values: *mut u8,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(account)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (root, address, slots, proof, to) = unsafe {
            (
                read_key(root)?,
                read_address(address)?,
                read_keys(slots, slot_count)?,
                read_values(proof, proof_len)?,
                results(slot_values.cast::<B256>(), slot_count)?,
            )
        };
        let bad = |message: String| Failure::new(CambiumStatus::BadProof, message);
        let proof: AccountProof = serde_json::from_slice(proof)
            .map_err(|error| bad(format!("the response of eth_getProof: {error}")))?;
        if proof.address != *address {
            return Err(bad(format!(
                "the proof is of the account {}",
                proof.address
            )));
        }
        let proved = proof.storage_proof.iter().map(|slot| slot.key.slot);
        if !proved.eq(slots.iter().copied()) {
            return Err(bad("the proof is of other slots".to_owned()));
        }
        let verified =
            verify_account_proof(*root, &proof).map_err(|error| bad(error.to_string()))?;
        for (to, (_, value)) in to.iter_mut().zip(&verified.slots) {
            *to = B256::new(value.to_be_bytes());
        }
        let Some(found) = verified.account else {
            return Ok(CambiumStatus::NotFound);
        };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(account, found.into()) }?;
        Ok(CambiumStatus::Ok)
    })
}
