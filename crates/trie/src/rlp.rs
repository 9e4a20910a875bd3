//! RLP encoding and decoding of nodes.
//!
//! | node | RLP |
//! |---|---|
//! | leaf | list of hex-prefix(path, 1) and the value as a string |
//! | extension | list of hex-prefix(path, 0) and the child |
//! | branch | list of sixteen children and a value, a string that secure tries leave empty |
//! | child | the hash as a string; or the child's own RLP, where that is under 32 bytes; or "" |
//! | account's value | list of nonce, balance, storage root, code hash |
//! | entry's value | its length and the value, or a mark, its length and its hash, as a string |
//! | slot's value | the number as a string, big-endian without leading zeros |
//! | account's value in an upper trie | list of mark, nonce, balance, storage root, code hash if put; of mark and storage root if kept; of mark if deleted |
//! | tombstone of a slot in an upper trie | the empty string |
//! | tombstone of an entry in an upper trie | one byte, 34 |
//!
//! Hex-prefix: a first nibble of 2 (for a leaf) plus 1 (for an odd number of nibbles), a zero
//! nibble if even, then the nibbles (Yellow Paper, appendix C).
//!
//! Decoded bytes are untrusted: lengths are checked before use, and only the canonical form is
//! accepted.

use crate::{commitment::Commitment, node_ref::NodeRef, value_commitment::NODE_VALUE_BYTES_MAX};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes, U256};
use alloy_rlp::{Decodable, Header};
use cambium_primitives::{Account, EntryValue, Path, StoredValue, VALUE_BYTES_MAX};
use core::num::NonZeroU64;

/// RLP of the empty string: no child.
const EMPTY: u8 = 0x80;

fn header_len(payload: usize) -> usize {
    if payload < 56 {
        1
    } else {
        1 + payload.ilog2() as usize / 8 + 1
    }
}

fn string_len(bytes: &[u8]) -> usize {
    match bytes {
        [byte] if *byte < EMPTY => 1,
        _ => header_len(bytes.len()) + bytes.len(),
    }
}

/// A buffer on the stack for RLP. Tens of thousands of nodes are encoded per block, and a vector
/// checks its capacity on each push.
pub(crate) struct Buffer<const CAPACITY: usize> {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl<const CAPACITY: usize> Buffer<CAPACITY> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; CAPACITY],
            len: 0,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The header of a list or of a string that is not one low byte.
    fn header(&mut self, short: u8, payload: usize) {
        if payload < 56 {
            return self.push(short + payload as u8);
        }
        let bytes = payload.to_be_bytes();
        let len = header_len(payload) - 1;
        self.push(short + 55 + len as u8);
        self.extend(&bytes[bytes.len() - len..]);
    }

    fn string(&mut self, bytes: &[u8]) {
        if !matches!(bytes, [byte] if *byte < EMPTY) {
            self.header(EMPTY, bytes.len());
        }
        self.extend(bytes);
    }

    fn hash(&mut self, hash: &B256) {
        self.push(EMPTY + 32);
        self.extend(&hash.0);
    }

    /// Appends a reference to a child, or the empty string for [`NodeRef::UNKNOWN`].
    fn child(&mut self, child: &NodeRef) {
        if child.is_unknown() {
            self.push(EMPTY);
        } else if !child.is_inline() {
            self.push(EMPTY + 32);
        }
        self.extend(child.as_bytes());
    }
}

/// Returns the hex-prefix encoding of `nibbles` nibbles of the packed `key` from `from` on, and its
/// length in bytes.
fn hex_prefix(key: &[u8], from: usize, nibbles: usize, leaf: bool) -> ([u8; 33], usize) {
    let mut packed = [0; 33];
    let flag = if leaf { 0x20 } else { 0 };
    let odd = nibbles % 2;
    let at = |index: usize| {
        let byte = key[index / 2];
        if index.is_multiple_of(2) {
            byte >> 4
        } else {
            byte & 0x0f
        }
    };
    packed[0] = if odd == 1 {
        flag | 0x10 | at(from)
    } else {
        flag
    };
    let start = from + odd;
    if start.is_multiple_of(2) {
        packed[1..=nibbles / 2].copy_from_slice(&key[start / 2..start / 2 + nibbles / 2]);
    } else {
        for pair in 0..nibbles / 2 {
            packed[1 + pair] = at(start + 2 * pair) << 4 | at(start + 2 * pair + 1);
        }
    }
    (packed, 1 + nibbles / 2)
}

/// Appends the leaf whose remaining path is the nibbles `from..to` of the packed `key`. `to` minus
/// `from` is at most 64.
pub(crate) fn put_leaf(out: &mut Vec<u8>, key: &[u8], from: usize, to: usize, value: &[u8]) {
    let (path, len) = hex_prefix(key, from, to - from, true);
    let path = &path[..len];
    let mut head = Buffer::<{ 9 + 34 }>::new();
    head.header(0xc0, string_len(path) + string_len(value));
    head.string(path);
    out.extend_from_slice(head.as_bytes());
    put_string(out, value);
}

/// Appends the extension of the nibbles `from..to` of the packed `key`, at most 64.
pub(crate) fn put_extension(
    out: &mut Vec<u8>,
    key: &[u8],
    from: usize,
    to: usize,
    child: &NodeRef,
) {
    let (path, len) = hex_prefix(key, from, to - from, false);
    let path = &path[..len];
    let mut node = Buffer::<{ 9 + 34 + 33 }>::new();
    node.header(0xc0, string_len(path) + child.rlp_len());
    node.string(path);
    node.child(child);
    out.extend_from_slice(node.as_bytes());
}

/// Appends a branch. A child of [`NodeRef::UNKNOWN`] is absent.
pub(crate) fn put_branch(out: &mut Vec<u8>, children: &[&NodeRef; 16], value: &[u8]) {
    let mut refs = Buffer::<{ 16 * 33 }>::new();
    for child in children {
        refs.child(child);
    }
    let mut header = Buffer::<9>::new();
    header.header(0xc0, refs.len + string_len(value));
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(refs.as_bytes());
    put_string(out, value);
}

/// Encoder of a branch without a value whose children are all hashes, as in nearly all branches.
/// The offset of each child follows from which children are present, so they can be set in any
/// order.
pub(crate) struct HashBranch {
    /// Room for a header, the children, and the value.
    bytes: [u8; 3 + 16 * 33 + 1],
    /// Bit mask of the children that are present.
    present: u16,
    hashes: bool,
}

impl HashBranch {
    pub(crate) fn new(present: [bool; 16]) -> Self {
        let bits = present.iter().enumerate();
        Self {
            bytes: [EMPTY; 3 + 16 * 33 + 1],
            present: bits.fold(0, |set, (at, there)| set | u16::from(*there) << at),
            hashes: true,
        }
    }

    /// Sets child `at`, which must be present.
    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, child: &NodeRef) {
        let (len, hash) = child.parts();
        let before = (self.present & ((1 << at) - 1)).count_ones() as usize;
        let string = self.bytes[3 + at + 32 * before..].first_chunk_mut::<33>();
        let string = string.expect("room for sixteen hashes");
        string[0] = EMPTY + 32;
        string[1..].copy_from_slice(hash);
        self.hashes &= len == 32;
    }

    /// Appends the node and returns true. Appends nothing and returns false if a child is not a
    /// hash.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>) -> bool {
        let payload = 16 + 32 * self.present.count_ones() as usize + 1;
        let start = match payload {
            0..56 => {
                self.bytes[2] = 0xc0 + payload as u8;
                2
            }
            56..256 => {
                self.bytes[1..3].copy_from_slice(&[0xf8, payload as u8]);
                1
            }
            _ => {
                self.bytes[..3].copy_from_slice(&[0xf9, (payload >> 8) as u8, payload as u8]);
                0
            }
        };
        if self.hashes {
            out.extend_from_slice(&self.bytes[start..3 + payload]);
        }
        self.hashes
    }
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut header = Buffer::<9>::new();
    if !matches!(bytes, [byte] if *byte < EMPTY) {
        header.header(EMPTY, bytes.len());
    }
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(bytes);
}

/// Appends the RLP of a leaf node of a trie of raw values, such as transactions. `path` is the rest
/// of the key, at most 64 nibbles.
pub fn encode_leaf(path: &Path, value: &[u8], out: &mut Vec<u8>) {
    put_leaf(out, path.packed(), 0, path.len(), value);
}

/// Appends the RLP of an extension node of a trie of raw values.
pub fn encode_extension(path: &Path, child: &NodeRef, out: &mut Vec<u8>) {
    put_extension(out, path.packed(), 0, path.len(), child);
}

/// Appends the RLP of a branch node of a trie of raw values. `value` is empty if no key ends at the
/// branch.
pub fn encode_branch(children: &[Option<NodeRef>; 16], value: &[u8], out: &mut Vec<u8>) {
    let children = children
        .each_ref()
        .map(|child| child.as_ref().unwrap_or(&NodeRef::UNKNOWN));
    put_branch(out, &children, value);
}

/// Returns the value of an account's leaf.
pub(crate) fn account_value(account: &Account, storage_root: &B256) -> Buffer<113> {
    account_items(&[], account, storage_root)
}

/// Returns the list of `first`, as single bytes, and an account's fields and storage root.
fn account_items(first: &[u8], account: &Account, storage_root: &B256) -> Buffer<113> {
    let nonce = account.nonce.to_be_bytes();
    let nonce = &nonce[account.nonce.leading_zeros() as usize / 8..];
    let balance = account.balance.to_be_bytes::<32>();
    let balance = &balance[32 - account.balance.byte_len()..];
    let mut value = Buffer::new();
    value.header(
        0xc0,
        first.len() + string_len(nonce) + string_len(balance) + 66,
    );
    value.extend(first);
    value.string(nonce);
    value.string(balance);
    value.hash(storage_root);
    value.hash(&account.code_hash);
    value
}

/// Bits of the mark of a leaf in an upper trie: the layer's change of the account's fields.
pub(crate) const MARK_KEPT: u8 = 1;
/// The account has these fields.
pub(crate) const MARK_PUT: u8 = 2;
/// The account does not exist.
pub(crate) const MARK_DELETED: u8 = 3;
/// Added to the above: the slots of lower layers are void.
pub(crate) const MARK_WIPED: u8 = 4;

/// Returns the value of an account's leaf in an upper trie. Its list has another length than that
/// of [`account_value`].
pub(crate) fn marked_value(mark: u8, account: &Account, storage_root: &B256) -> Buffer<113> {
    let mut value = Buffer::new();
    match mark & !MARK_WIPED {
        MARK_PUT => return account_items(&[mark], account, storage_root),
        MARK_KEPT => {
            value.header(0xc0, 1 + 33);
            value.push(mark);
            value.hash(storage_root);
        }
        _ => {
            value.header(0xc0, 1);
            value.push(mark);
        }
    }
    value
}

/// Returns the value of a slot's leaf.
pub(crate) fn slot_value(value: &[u8; 32]) -> Buffer<33> {
    let zeros = U256::from_be_bytes(*value).leading_zeros() / 8;
    let mut string = Buffer::new();
    string.string(&value[zeros..]);
    string
}

/// First byte of the value of an entry's leaf that commits to a hash. Lower ones are lengths.
const HASHED: u8 = NODE_VALUE_BYTES_MAX as u8 + 1;

/// Value of the leaf of a deleted entry in an upper trie. No value of an entry begins with this byte.
pub(crate) const ENTRY_TOMBSTONE: [u8; 1] = [HASHED + 1];

/// Returns the value of an entry's leaf: its length in one byte and the value, up to 32 bytes; or 33,
/// the length in four bytes, big-endian, and the Keccak-256 hash of the value.
pub(crate) fn entry_value(value: &EntryValue) -> Vec<u8> {
    let len = value.value_len();
    let mut out = Vec::with_capacity(37);
    match value {
        EntryValue::Inline(bytes) if len <= NODE_VALUE_BYTES_MAX => {
            out.push(len as u8);
            out.extend_from_slice(bytes);
        }
        _ => {
            out.push(HASHED);
            out.extend_from_slice(&(len as u32).to_be_bytes());
            out.extend_from_slice(Commitment::Mpt.entry_hash(value).as_slice());
        }
    }
    out
}

/// A child in its parent's RLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child<'a> {
    Empty,
    Hash(B256),
    /// The child's own RLP, under 32 bytes.
    Inline(&'a [u8]),
}

/// A node decoded from RLP. Paths are relative, at most 64 nibbles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "read, looked at and dropped, never kept"
)]
pub(crate) enum RawNode<'a> {
    Branch([Child<'a>; 16]),
    Extension(Path, Child<'a>),
    Leaf(Path, &'a [u8]),
}

/// Reason why the RLP of a node is malformed.
pub(crate) type Malformed = &'static str;

impl<'a> RawNode<'a> {
    /// Decodes a node of a secure trie from exactly `rlp`.
    pub(crate) fn decode(mut rlp: &'a [u8]) -> Result<Self, Malformed> {
        let mut items = take_list(&mut rlp)?;
        if !rlp.is_empty() {
            return Err("bytes after the node");
        }
        let whole = items;
        let (first, second) = (take_item(&mut items)?, take_item(&mut items)?);
        if !items.is_empty() {
            return Self::decode_branch(whole);
        }
        let (path, leaf) = decode_path(first.string()?)?;
        if leaf {
            return Ok(Self::Leaf(path, second.string()?));
        }
        match second.child()? {
            Child::Empty => Err("an extension without a child"),
            _ if path.is_empty() => Err("an extension without nibbles"),
            child => Ok(Self::Extension(path, child)),
        }
    }

    fn decode_branch(mut items: &'a [u8]) -> Result<Self, Malformed> {
        let mut children = [Child::Empty; 16];
        for child in &mut children {
            *child = take_item(&mut items)?.child()?;
        }
        if !take_item(&mut items)?.string()?.is_empty() {
            return Err("a branch with a value");
        }
        if !items.is_empty() {
            return Err("a branch of over 17 items");
        }
        if children
            .iter()
            .filter(|child| **child != Child::Empty)
            .count()
            < 2
        {
            return Err("a branch with less than two children");
        }
        Ok(Self::Branch(children))
    }
}

/// An RLP item: its whole encoding, and its payload.
struct Item<'a> {
    list: bool,
    whole: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Item<'a> {
    fn string(self) -> Result<&'a [u8], Malformed> {
        if self.list {
            Err("a list instead of a string")
        } else {
            Ok(self.payload)
        }
    }

    fn child(self) -> Result<Child<'a>, Malformed> {
        match (self.list, self.payload.len()) {
            (true, _) if self.whole.len() < 32 => Ok(Child::Inline(self.whole)),
            (true, _) => Err("an inlined node of 32 bytes or more"),
            (false, 0) => Ok(Child::Empty),
            (false, 32) => Ok(Child::Hash(B256::from_slice(self.payload))),
            (false, _) => Err("a child's hash that is not of 32 bytes"),
        }
    }
}

fn take_item<'a>(rlp: &mut &'a [u8]) -> Result<Item<'a>, Malformed> {
    let start = *rlp;
    let header = Header::decode(rlp).map_err(|_| "malformed RLP")?;
    let (payload, rest) = rlp
        .split_at_checked(header.payload_length)
        .ok_or("RLP that is cut short")?;
    *rlp = rest;
    Ok(Item {
        list: header.list,
        whole: &start[..start.len() - rest.len()],
        payload,
    })
}

fn take_list<'a>(rlp: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let item = take_item(rlp)?;
    if item.list {
        Ok(item.payload)
    } else {
        Err("a string instead of a list")
    }
}

fn decode_path(bytes: &[u8]) -> Result<(Path, bool), Malformed> {
    let (&first, rest) = bytes.split_first().ok_or("an empty path")?;
    let odd = first & 0x10 != 0;
    if first & 0xc0 != 0 || (!odd && first & 0x0f != 0) {
        return Err("unknown bits in a path's prefix");
    }
    if rest.len() * 2 + usize::from(odd) > 64 {
        return Err("a path of over 64 nibbles");
    }
    let mut path = Path::EMPTY;
    if odd {
        path.push(first & 0x0f);
    }
    for byte in rest {
        path.push(byte >> 4);
        path.push(byte & 0x0f);
    }
    Ok((path, first & 0x20 != 0))
}

/// Decodes the value of an account's leaf: its fields and storage root.
pub(crate) fn decode_account(mut value: &[u8]) -> Result<(Account, B256), Malformed> {
    let mut items = take_list(&mut value)?;
    if !value.is_empty() {
        return Err("bytes after the account");
    }
    let nonce = u64::decode(&mut items).map_err(|_| "an account's nonce is malformed")?;
    let balance = U256::decode(&mut items).map_err(|_| "an account's balance is malformed")?;
    let mut hash = || {
        let bytes = take_item(&mut items)?.string()?;
        B256::try_from(bytes).map_err(|_| "an account's hash is not of 32 bytes")
    };
    let (storage_root, code_hash) = (hash()?, hash()?);
    if !items.is_empty() {
        return Err("an account of over four items");
    }
    Ok((
        Account {
            nonce,
            balance,
            code_hash,
        },
        storage_root,
    ))
}

/// Decodes the value of a slot's leaf, which is never zero.
pub(crate) fn decode_slot(mut value: &[u8]) -> Result<U256, Malformed> {
    let number = U256::decode(&mut value).map_err(|_| "a slot's value is malformed")?;
    if !value.is_empty() {
        return Err("bytes after a slot's value");
    }
    if number.is_zero() {
        Err("a slot of value zero")
    } else {
        Ok(number)
    }
}

/// Decodes the value of an entry's leaf. A value over 32 bytes is known by length and hash: it is a
/// stored value without a place.
pub(crate) fn decode_entry(value: &[u8]) -> Result<EntryValue, Malformed> {
    let (&first, rest) = value.split_first().ok_or("an empty value")?;
    if usize::from(first) == rest.len() && rest.len() <= NODE_VALUE_BYTES_MAX {
        return Ok(EntryValue::Inline(Bytes::copy_from_slice(rest)));
    }
    let (len, hash) = rest
        .split_first_chunk()
        .ok_or("a value of another length")?;
    let len = u32::from_be_bytes(*len);
    if first != HASHED || hash.len() != 32 {
        return Err("an entry's value is malformed");
    }
    if !(NODE_VALUE_BYTES_MAX + 1..=VALUE_BYTES_MAX).contains(&(len as usize)) {
        return Err("a hashed value of impossible length");
    }
    Ok(stored_nowhere(len, B256::from_slice(hash)))
}

/// Decodes the value of an entry's leaf in an upper trie: `None` for a tombstone.
pub(crate) fn decode_upper_entry(value: &[u8]) -> Result<Option<EntryValue>, Malformed> {
    match value == ENTRY_TOMBSTONE {
        true => Ok(None),
        false => decode_entry(value).map(Some),
    }
}

/// Returns a value that is known by length and hash alone.
pub(crate) const fn stored_nowhere(len: u32, hash: B256) -> EntryValue {
    EntryValue::Stored(StoredValue {
        hash,
        len,
        place: NonZeroU64::MAX,
    })
}
