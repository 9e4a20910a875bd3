//! Tries as encoded in checkpoints: whole, in parts, and as differences.

use crate::input::Input;
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{Link, NoResolve, NodeView, PartialTrie, commit};

/// Input: a piece that is an older trie; the rest is another trie, or the difference to the older
/// one.
///
/// A trie has one encoding: a decoded trie is encoded to the same bytes. Every request to it is
/// answered, and changes apply to it if it has the nodes.
pub fn trie_part(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let before = PartialTrie::decode(input.piece());
    let rest = input.rest();
    if let Ok(trie) = PartialTrie::decode(rest) {
        assert_eq!(encoded(&trie), rest, "another encoding of the same trie");
        use_all(trie, rest);
    }
    let Ok(before) = before else { return };
    let Ok(after) = PartialTrie::decode_changes(&before, rest) else {
        return;
    };
    let whole = encoded(&after);
    let again = PartialTrie::decode(&whole).expect("what was just encoded");
    assert_eq!(encoded(&again), whole);
    let mut changes = Vec::new();
    after.encode_changes_to(&before, &mut changes);
    // An input may encode equal subtries in full instead of as unchanged.
    assert!(changes.len() <= rest.len());
    let after = PartialTrie::decode_changes(&before, &changes).expect("what was just encoded");
    assert_eq!(encoded(&after), whole, "changes that give something else");
}

fn encoded(trie: &PartialTrie) -> Vec<u8> {
    let mut bytes = Vec::new();
    trie.encode_to(&mut bytes);
    bytes
}

/// Makes every kind of request to a trie that was decoded from `bytes`.
fn use_all(mut trie: PartialTrie, bytes: &[u8]) {
    let base = *trie.base();
    let mut leaves = Vec::new();
    walk(&trie, trie.root(), &base, &mut leaves);
    for path in &leaves {
        let link = trie.find_or_stub(path);
        if path.len() < ACCOUNT_NIBBLES {
            assert!(link.is_some(), "no node at {path}");
        }
    }
    if base.len() >= ACCOUNT_NIBBLES {
        return;
    }
    let mut other = PartialTrie::new(Path::EMPTY);
    let grafted = other.graft_encoded(&base, bytes);
    let grafted = grafted.expect("it sits there");
    let mut again = Vec::new();
    assert!(other.encode_subtrie_to(grafted, &base, usize::MAX, &mut again));
    assert_eq!(again, bytes, "a subtrie that is another elsewhere");

    commit(&mut [&mut trie], &mut Default::default());
    assert!(trie.storage_root_at(trie.root()).is_some(), "it is hashed");
    let mut packed = [0; 32];
    packed[..base.packed().len()].copy_from_slice(base.packed());
    for tail in [0, 0x11, 0xff] {
        packed[31] = tail;
        let change = AccountDiff {
            path: B256::from(packed),
            account: AccountUpdate::Put(Account::default()),
            wipe: false,
            slots: vec![(B256::ZERO, U256::ONE)],
        };
        if trie.apply(&[change], &mut NoResolve).is_err() {
            return;
        }
        commit(&mut [&mut trie], &mut Default::default());
        let bytes = encoded(&trie);
        let read = PartialTrie::decode(&bytes).expect("what was just encoded");
        assert_eq!(encoded(&read), bytes);
    }
}

/// Lists the paths of all nodes.
fn walk(trie: &PartialTrie, link: Link, at: &Path, found: &mut Vec<Path>) {
    let _ = (trie.cached_ref(link), trie.kind(link), trie.as_stub(link));
    if !matches!(trie.visit(link), NodeView::Empty) {
        found.push(*at);
    }
    match trie.visit(link) {
        NodeView::Empty | NodeView::Stub(_) | NodeView::Slot { .. } => {}
        NodeView::Entry { key, .. } => {
            assert!(Path::account(&key).starts_with(at), "an entry elsewhere");
        }
        NodeView::Branch { children } => {
            for (nibble, child) in (0..).zip(children) {
                walk(trie, *child, &at.child(nibble), found);
            }
        }
        NodeView::Extension { path, child } => walk(trie, child, &at.join(&path), found),
        NodeView::Account { key, storage, .. } => {
            assert!(Path::account(&key).starts_with(at), "an account elsewhere");
            walk(trie, storage, &Path::account(&key), found);
        }
    }
}
