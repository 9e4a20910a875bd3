//! Index entries of pages, and the tries that are assembled from them.

use super::faults::{conflicting_pages, damaged_index};
use crate::{
    base::{
        counters::Counters,
        error::StateError,
        hashing::hash_tries,
        layout::{decode_digest, place, subtrie_of},
    },
    load::{Piece, SpillFile},
};
use cambium_disk::Disk;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, DecodeError, Path, Reader, put_varint};
use cambium_store::{Page, PageAddr};
use cambium_trie::{Commitment, Link, NodeKind, NodeRef, PartialTrie, SHARDS, Stub};
use std::sync::Arc;

/// Contents of the index for one page.
#[derive(Clone)]
pub(crate) struct IndexEntry {
    pub(crate) prefix: Path,
    pub(crate) addr: PageAddr,
    /// Reference of the subtrie's root.
    node: NodeRef,
    /// Kind of the subtrie's root.
    kind: NodeKind,
    /// Copy of the leaf of the account that the slots belong to, if the page has one.
    owner: Option<Account>,
    /// Whether the page contains slots of one account, without the account's leaf.
    is_storage: bool,
}

/// Kinds by their number in an encoded entry.
const KINDS: [NodeKind; 3] = [NodeKind::Branch, NodeKind::Extension, NodeKind::Leaf];

impl IndexEntry {
    /// Hashes a page, and returns its index entry.
    pub(crate) fn of(
        addr: PageAddr,
        page: &Page,
        commitment: Commitment,
        counters: &Counters,
    ) -> Result<Self, StateError> {
        let prefix = page.prefix();
        let (trie, root) = subtrie_of(page, true, commitment, counters)?;
        let root = trie.as_stub(root);
        let (node, kind) = root
            .and_then(|root| Some((root.node, root.kind?)))
            .ok_or_else(|| conflicting_pages(&prefix))?;
        let owner = page.owner().map(Account::decode).transpose();
        let account = Path::len(&prefix) == ACCOUNT_NIBBLES && page.get(&prefix).is_some();
        Ok(Self {
            prefix,
            addr,
            node,
            kind,
            owner: owner.map_err(|source| StateError::Damaged {
                what: format!("the copy of an account in the page of {prefix}"),
                source,
            })?,
            is_storage: prefix.len() >= ACCOUNT_NIBBLES && !account,
        })
    }

    /// Appends the entry, as it is spilled.
    ///
    /// | size | meaning |
    /// |---|---|
    /// | 1 | length of the prefix in nibbles |
    /// | | the prefix, packed |
    /// | 8 | address, little-endian |
    /// | 1 | kind of the root; 4 more for slots of one account |
    /// | 1-10 | length of the root's reference, LEB128 |
    /// | | the reference |
    /// | 1-10 | length of the account's leaf, or 0, LEB128 |
    /// | | the leaf |
    fn encode_to(&self, out: &mut Vec<u8>) {
        out.push(self.prefix.len() as u8);
        out.extend_from_slice(self.prefix.packed());
        out.extend_from_slice(&self.addr.to_u64().to_le_bytes());
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        out.push(kind.expect("one of them") as u8 | u8::from(self.is_storage) << 2);
        put_varint(out, self.node.as_bytes().len() as u64);
        out.extend_from_slice(self.node.as_bytes());
        let mut owner = Vec::new();
        if let Some(account) = &self.owner {
            account.encode_to(&mut owner);
        }
        put_varint(out, owner.len() as u64);
        out.extend_from_slice(&owner);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, StateError> {
        let wrong = |source: DecodeError| StateError::Damaged {
            what: "a spilled index entry".to_owned(),
            source,
        };
        let mut read = || {
            let len = usize::from(reader.u8()?);
            let packed = reader.take(len.div_ceil(2))?;
            let prefix = Path::from_packed(packed, len);
            let addr = PageAddr::from_u64(reader.u64()?);
            let kind = reader.u8()?;
            let len = reader.count(1)?;
            let node = reader.take(len)?;
            let len = reader.count(1)?;
            let owner = reader.take(len)?;
            let owner = (!owner.is_empty()).then(|| Account::decode(owner));
            let impossible = || reader.error("an impossible page");
            Ok((
                prefix.ok_or_else(impossible)?,
                addr.ok_or_else(impossible)?,
                kind,
                node,
                owner.transpose()?,
            ))
        };
        let (prefix, addr, kind, node, owner) = read().map_err(wrong)?;
        Ok(Self {
            prefix,
            addr,
            node: decode_digest(&prefix, node)?,
            kind: KINDS[usize::from(kind & 3).min(2)],
            owner,
            is_storage: kind & 4 != 0,
        })
    }
}

/// Index entries by shard, in the order in which they were added. The newest are in memory, the
/// others in a spill file.
pub(crate) struct IndexEntries {
    shards: Vec<(Vec<u8>, Vec<Piece>)>,
    spill: SpillFile,
    bytes_max: usize,
}

impl IndexEntries {
    /// Creates an empty collection that keeps about `memory_bytes` bytes in memory, and spills the
    /// rest to `disk`.
    pub(crate) fn new(disk: Arc<dyn Disk>, memory_bytes: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Default::default()).collect(),
            spill: SpillFile::new(disk),
            bytes_max: (memory_bytes as usize / SHARDS).max(4 << 10),
        }
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: &IndexEntry) -> Result<(), StateError> {
        if entry.prefix.len() < 2 {
            return Err(conflicting_pages(&entry.prefix));
        }
        let (bytes, pieces) = &mut self.shards[usize::from(entry.prefix.packed()[0])];
        entry.encode_to(bytes);
        if bytes.len() >= self.bytes_max {
            pieces.push(self.spill.append(bytes)?);
            bytes.clear();
        }
        Ok(())
    }

    /// Returns the entries of a shard, sorted by prefix.
    pub(crate) fn of(&self, shard: usize) -> Result<Vec<IndexEntry>, StateError> {
        let (newest, pieces) = &self.shards[shard];
        let mut bytes = newest.clone();
        for piece in pieces {
            self.spill.read(piece, &mut bytes)?;
        }
        let mut entries = Vec::new();
        let mut reader = Reader::new(&bytes);
        while reader.remaining() > 0 {
            entries.push(IndexEntry::decode(&mut reader)?);
        }
        entries.sort_unstable_by_key(|entry| entry.prefix);
        Ok(entries)
    }
}

/// Assembles and hashes the trie of a shard from its index entries, sorted by prefix.
pub(crate) fn trie_of_entries(
    entries: &[IndexEntry],
    base: &Path,
    commitment: Commitment,
    counters: &Counters,
) -> Result<PartialTrie, StateError> {
    let mut trie = PartialTrie::new(*base).committed_by(commitment);
    let root = put_together(entries, base, &mut trie)?;
    trie.set_root(root);
    hash_tries(&mut [&mut trie], counters);
    trie.shrink_to_fit();
    Ok(trie)
}

/// Assembles the subtrie at `at` from the index entries in it. Recursion is bounded by the path's
/// 128 nibbles.
fn put_together(
    entries: &[IndexEntry],
    at: &Path,
    into: &mut PartialTrie,
) -> Result<Link, StateError> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return Ok(Link::EMPTY);
    };
    // Above storage, all pages of an account stand for one leaf.
    let is_above_storage = at.len() < ACCOUNT_NIBBLES;
    let path_of = |entry: &IndexEntry| match is_above_storage && entry.is_storage {
        true => entry.prefix.prefix(ACCOUNT_NIBBLES),
        false => entry.prefix,
    };
    let (from, to) = (path_of(first), path_of(last));
    if from == to && is_above_storage && first.is_storage {
        let account = first.owner;
        let account =
            account.ok_or_else(|| damaged_index("no copy of an account in its first page"))?;
        let key = from
            .account_part()
            .ok_or_else(|| conflicting_pages(&from))?;
        let storage = put_together(entries, &from, into)?;
        return Ok(into.push_account(at.len(), &key, &account, storage));
    }
    if let [entry] = entries {
        let stub = into.push_stub(Stub {
            node: entry.node,
            kind: Some(entry.kind),
            place: Some(place(entry.addr)),
        });
        return Ok(match from == *at {
            true => stub,
            false => into.push_extension(at.len(), &from, stub),
        });
    }
    let fork = from.common_prefix_len(&to);
    if fork >= from.len().min(to.len()) || fork < at.len() {
        return Err(conflicting_pages(&from));
    }
    let mut children = [Link::EMPTY; 16];
    let mut rest = entries;
    while let Some(entry) = rest.first() {
        let nibble = path_of(entry).nibble(fork);
        let count = rest.partition_point(|entry| path_of(entry).nibble(fork) <= nibble);
        let (own, others) = rest.split_at(count);
        let child = from.prefix(fork).child(nibble);
        children[usize::from(nibble)] = put_together(own, &child, into)?;
        rest = others;
    }
    let branch = into.push_branch(children);
    Ok(match fork == at.len() {
        true => branch,
        false => into.push_extension(at.len(), &from.prefix(fork), branch),
    })
}
