//! Leaf pages.

use alloy_primitives::B256;
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, AccountDiff, AccountUpdate, EntryValue, Path, SLOT_NIBBLES, SlotValue,
};
use cambium_store::{Page, PageBuilder, PageError, PageRewriter};
use cambium_trie::{LeafValue, NoResolve, NodeRef, PartialTrie, commit};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Offset of a page's flags, and the flag for wide offsets.
const FLAGS_AT: usize = 13;
const WIDE: u8 = 1;

/// Input: a page, whose length and checksum are corrected.
///
/// All ways of reading a leaf find the same leaves, in order. A page built from them has the same
/// leaves, in no more bytes. The hash of their subtrie equals that of a trie into which they are
/// inserted one by one.
pub fn page(bytes: &[u8]) {
    let bytes = sealed(bytes);
    match Page::parse(bytes.clone()) {
        Ok(page) => check(&page, &bytes),
        Err(PageError::Malformed(_)) => {}
        Err(PageError::Checksum) => assert!(bytes.len() <= FLAGS_AT + 1, "the checksum is right"),
    }
}

/// Returns the bytes with a correct length and checksum.
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= FLAGS_AT {
        let len = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        let sum = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

type Leaves = Vec<(Path, Vec<u8>)>;

fn leaves_of(page: &Page) -> Leaves {
    page.leaves()
        .map(|(path, value)| (path, value.to_vec()))
        .collect()
}

fn digests_of(page: &Page) -> Leaves {
    page.digests()
        .map(|(path, digest)| (path, digest.to_vec()))
        .collect()
}

fn check(page: &Page, bytes: &[u8]) {
    assert_eq!(page.as_bytes(), bytes);
    let leaves = leaves_of(page);
    assert_eq!(leaves.len(), page.len());
    assert_eq!(leaves.is_empty(), page.is_empty());
    assert!(leaves.is_sorted_by(|a, b| a.0 < b.0), "leaves out of order");
    let by_path: BTreeMap<_, _> = leaves.iter().cloned().collect();
    for (path, value) in &leaves {
        assert!(path.starts_with(&page.prefix()));
        assert_eq!(page.get(path), Some(&value[..]), "the leaf at {path}");
        let mut packed = path.packed().to_vec();
        *packed.last_mut().expect("a leaf's path") ^= 1;
        let beside = Path::from_packed(&packed, path.len()).expect("as long");
        assert_eq!(
            page.get(&beside),
            by_path.get(&beside).map(|value| &value[..])
        );
    }
    check_entries(page, &leaves);
    let digests = digests_of(page);
    assert!(
        digests.is_sorted_by(|a, b| a.0 < b.0),
        "digests out of order"
    );
    for depth in page.prefix().len() + 1..=SLOT_NIBBLES {
        let there = digests.iter().filter(|(path, _)| path.len() == depth);
        let there = there.map(|(path, digest)| (path.nibble(depth - 1), &digest[..]));
        let found = page.digests_at(depth);
        assert!(found.eq(there), "digests at depth {depth}");
    }
    check_built(page, &leaves, &digests);
    check_subtrie(page, &leaves, &digests);
}

fn check_entries(page: &Page, leaves: &Leaves) {
    let each = (0..page.entries()).flat_map(|entry| page.leaves_of(entry..entry + 1));
    assert!(
        each.map(|(path, value)| (path, value.to_vec()))
            .eq(leaves.iter().cloned())
    );
    let paths: Vec<_> = (0..page.entries()).map(|at| page.entry_path(at)).collect();
    assert!(paths.is_sorted_by(|a, b| a < b), "entries out of order");
    let depths = [0, 1, 5].map(|more| page.prefix().len() + more);
    for path in paths.iter().take(16) {
        for depth in depths.into_iter().filter(|depth| *depth <= path.len()) {
            let under = path.prefix(depth);
            let there = paths.iter().filter(|path| path.starts_with(&under)).count();
            let found = page.entries_under(&under);
            assert_eq!(found.len(), there, "entries under {under}");
            assert!(paths[found].iter().all(|path| path.starts_with(&under)));
        }
    }
}

/// Builds and rewrites the page from its content, and compares.
fn check_built(page: &Page, leaves: &Leaves, digests: &Leaves) {
    let mut builder = PageBuilder::new(&page.prefix());
    for (path, value) in leaves {
        builder.leaf(path, value);
    }
    for (path, digest) in digests {
        builder.digest(path, digest);
    }
    if let Some(owner) = page.owner() {
        builder.owner(owner);
    }
    let bytes = builder.finish();
    assert!(
        bytes.len() <= page.as_bytes().len(),
        "a shorter page than any"
    );
    let built = Page::parse(bytes).expect("what was just built");
    assert_eq!(
        (leaves_of(&built), digests_of(&built)),
        (leaves.clone(), digests.clone())
    );
    assert_eq!(built.owner(), page.owner());
    if page.prefix().len() >= ACCOUNT_NIBBLES {
        let owned = page.with_owner(b"somebody");
        assert_eq!(owned.owner(), Some(&b"somebody"[..]));
        let parsed = Page::parse(owned.as_bytes()).expect("a page");
        assert_eq!(leaves_of(&parsed), *leaves);
    }
    let mut rewriter = PageRewriter::default();
    rewriter.begin(page);
    let middle = page.entries() / 2;
    let copied = [0..middle, middle..page.entries()].map(|part| rewriter.copy(page, part));
    let is_wide = page.as_bytes()[FLAGS_AT] & WIDE != 0;
    if is_wide {
        return;
    }
    assert_eq!(
        copied.into_iter().sum::<Option<usize>>(),
        Some(leaves.len())
    );
    for (path, digest) in digests {
        rewriter.digest(path, digest);
    }
    assert_eq!(
        rewriter.finish().as_bytes(),
        built.as_bytes(),
        "a page written again"
    );
}

/// Compares the hash of the leaves' subtrie, if they are valid accounts and slots.
fn check_subtrie(page: &Page, leaves: &Leaves, digests: &Leaves) {
    let values: Option<Vec<_>> = leaves.iter().map(value_of).collect();
    let Some(values) = values else { return };
    let nodes = digests.iter().map(|(path, digest)| {
        let hash = || B256::try_from(&digest[..]).ok().map(NodeRef::hash);
        Some((*path, NodeRef::inline(digest).or_else(hash)?))
    });
    let nodes: Vec<_> = nodes.flatten().collect();
    let hashed = |nodes: Vec<(Path, NodeRef)>| {
        let mut trie = PartialTrie::new(Path::EMPTY);
        let root = trie.graft_leaves(&page.prefix(), values.iter().cloned(), nodes.into_iter());
        let root = root.ok()?;
        trie.hash_nodes([root], &mut Default::default());
        trie.cached_ref(root)
    };
    hashed(nodes);
    let Some(found) = hashed(Vec::new()) else {
        return;
    };
    if page.prefix().len() >= ACCOUNT_NIBBLES {
        return;
    }
    let mut trie = PartialTrie::new(page.prefix());
    trie.apply(&changes_of(&values), &mut NoResolve)
        .expect("leaves of one trie");
    commit(&mut [&mut trie], &mut Default::default());
    assert_eq!(
        Some(found),
        trie.cached_ref(trie.root()),
        "another trie of the same leaves"
    );
}

fn value_of((path, value): &(Path, Vec<u8>)) -> Option<(Path, LeafValue)> {
    let value = match path.len() {
        SLOT_NIBBLES => LeafValue::Slot(SlotValue::decode(value).ok()?),
        _ if EntryValue::is_encoding(value) => LeafValue::Entry(EntryValue::decode(value).ok()?),
        _ => LeafValue::Account(Account::decode(value).ok()?),
    };
    Some((*path, value))
}

fn changes_of(values: &[(Path, LeafValue)]) -> Vec<AccountDiff> {
    let mut changes: Vec<AccountDiff> = Vec::new();
    for (path, value) in values {
        match value {
            LeafValue::Account(fields) => changes.push(AccountDiff {
                path: path.account_part().expect("a leaf's path"),
                account: AccountUpdate::Put(*fields),
                wipe: false,
                slots: vec![],
            }),
            LeafValue::Slot(value) => {
                let slot = path.slot_part().expect("a slot's path");
                let account = changes.last_mut().expect("no slot without its account");
                account.slots.push((slot, *value));
            }
            LeafValue::Entry(value) => changes.push(AccountDiff {
                path: path.account_part().expect("a leaf's path"),
                account: AccountUpdate::Entry(value.clone()),
                wipe: false,
                slots: vec![],
            }),
            LeafValue::Storage(_) => unreachable!("a page has leaves alone"),
        }
    }
    changes
}
