use super::{
    builder::PageBuilder,
    format::{CHECKED_FROM, FORMAT, PAGE_BYTES_MAX, PREFIX_AT, leaf_size_bytes},
    leaf_page::Page,
    rewrite::PageRewriter,
};
use alloy_primitives::{B256, b256, keccak256};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use proptest::{collection::vec, prelude::*, sample::Index};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

type Model = BTreeMap<Path, Vec<u8>>;

/// Returns an owner's value for about half of the pages that can have one.
fn owner_of(prefix: &Path) -> Option<Vec<u8>> {
    let first = prefix.packed().first().copied().unwrap_or_default();
    let has_one = prefix.len() >= ACCOUNT_NIBBLES && first % 2 == 1;
    has_one.then(|| vec![first; usize::from(first)])
}

fn build(prefix: &Path, leaves: &Model, digests: &Model) -> Vec<u8> {
    let mut builder = PageBuilder::new(prefix);
    if let Some(owner) = owner_of(prefix) {
        builder.owner(&owner);
    }
    for (path, digest) in digests.iter().rev() {
        builder.digest(path, digest);
    }
    for (path, value) in leaves {
        builder.leaf(path, value);
    }
    assert_eq!(
        (builder.len(), builder.is_empty()),
        (leaves.len(), leaves.is_empty())
    );
    builder.finish()
}

/// Reads all leaves and digests of a page.
fn read_all(page: &Page) -> (Model, Model) {
    let owned = |(path, bytes): (Path, &[u8])| (path, bytes.to_vec());
    let leaves: Vec<_> = page.leaves().map(owned).collect();
    assert!(leaves.is_sorted_by(|a, b| a.0 < b.0));
    (
        leaves.into_iter().collect(),
        page.digests().map(owned).collect(),
    )
}

fn reseal(bytes: &mut [u8], len: usize) {
    let sum = xxh3_64(&bytes[CHECKED_FROM..len]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Returns `count` accounts under `prefix`, with values of `value_len` bytes.
fn accounts(prefix: &Path, count: u64, value_len: usize) -> Model {
    let account = |n: u64| {
        let hash = Path::account(&keccak256(n.to_be_bytes()));
        (
            prefix.join(&hash.suffix(prefix.len())),
            vec![n as u8; value_len],
        )
    };
    (0..count).map(account).collect()
}

/// Returns an example of every kind of content.
fn example() -> (Path, Model, Model) {
    let prefix = Path::from_nibbles(&[0xa, 0xb, 0xc]);
    let mut leaves = accounts(&prefix, 12, 10);
    let paths: Vec<Path> = leaves.keys().copied().collect();
    let mut digests = Model::new();
    for (at, path) in paths.iter().enumerate().take(4) {
        let account = path.account_part().expect("an account");
        if at == 1 {
            leaves.remove(path);
        }
        for slot in 0..3 * at as u64 {
            leaves.insert(
                Path::slot(&account, &keccak256(slot.to_le_bytes())),
                vec![7; at],
            );
        }
        digests.insert(path.prefix(4), vec![at as u8; 32]);
        digests.insert(
            Path::slot(&account, &B256::ZERO).prefix(65),
            vec![at as u8; 20],
        );
    }
    (prefix, leaves, digests)
}

prop_compose! {
    /// Generates leaves and digests under a prefix of any length, with keys that often share long
    /// prefixes.
    fn pages()(
        base in any::<[u8; 64]>(),
        prefix_len in 0usize..=128,
        leaves in vec((any::<Index>(), any::<[u8; 4]>(), any::<bool>(), vec(any::<u8>(), 0..40)), 0..40),
        digests in vec((any::<Index>(), any::<[u8; 4]>(), vec(any::<u8>(), 0..=32)), 0..12),
    ) -> (Path, Model, Model) {
        let base = Path::from_packed(&base, 128).expect("a whole path");
        let prefix = base.prefix(prefix_len);
        let vary = |at: Index, tail: [u8; 4]| {
            let at = prefix_len + at.index(129 - prefix_len);
            let tail = Path::from_packed(&tail, 8).expect("8 nibbles");
            let mut path = base.prefix(at).join(&tail.prefix(8.min(128 - at)));
            while path.len() < 128 {
                path.push(base.nibble(path.len()));
            }
            path
        };
        let leaves = leaves.into_iter().map(|(at, tail, account, value)| {
            let path = vary(at, tail);
            (if account && prefix_len <= 64 { path.prefix(64) } else { path }, value)
        });
        let digests = digests.into_iter().map(|(at, tail, digest)| {
            let path = vary(at, tail);
            (path.prefix(prefix_len + at.index(129 - prefix_len)), digest)
        });
        (prefix, leaves.collect(), digests.collect())
    }
}

proptest! {
    #[test]
    fn a_page_gives_back_what_was_put_in((prefix, leaves, digests) in pages(), padding in 0usize..16) {
        let mut bytes = build(&prefix, &leaves, &digests);
        bytes.resize(bytes.len() + padding, 0);
        let page = Page::parse(bytes).unwrap();
        prop_assert_eq!(page.prefix(), prefix);
        prop_assert_eq!(page.owner().map(<[u8]>::to_vec), owner_of(&prefix));
        if prefix.len() >= ACCOUNT_NIBBLES {
            let other = page.with_owner(b"another owner");
            prop_assert_eq!(other.owner(), Some(&b"another owner"[..]));
            prop_assert!(other.leaves().eq(page.leaves()) && other.digests().eq(page.digests()));
            let owner = owner_of(&prefix).unwrap_or_default();
            let again = other.with_owner(&owner);
            let again = Page::parse(again.as_bytes()).unwrap();
            prop_assert_eq!(again.owner(), Some(&owner[..]));
            if owner_of(&prefix).is_some() {
                prop_assert_eq!(again.as_bytes(), page.as_bytes());
            }
        }
        prop_assert_eq!((page.len(), page.is_empty()), (leaves.len(), leaves.is_empty()));
        for (path, value) in &leaves {
            prop_assert_eq!(page.get(path), Some(&**value));
            for len in [0, 63, 64, 65, 127] {
                let cut = path.prefix(len.min(path.len()));
                prop_assert_eq!(page.get(&cut), leaves.get(&cut).map(|value| &**value));
            }
            let mut packed = [0; 64];
            packed[..path.packed().len()].copy_from_slice(path.packed());
            for byte in [0, 1, 20, 31, 33, 63] {
                packed[byte] ^= 1;
                let near = Path::from_packed(&packed[..path.packed().len()], path.len()).unwrap();
                prop_assert_eq!(page.get(&near), leaves.get(&near).map(|value| &**value));
                packed[byte] ^= 1;
            }
        }
        prop_assert_eq!(read_all(&page), (leaves, digests));
    }

    #[test]
    fn made_up_bytes_never_make_access_fail(
        (prefix, leaves, digests) in pages(),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = build(&prefix, &leaves, &digests);
        let len = bytes.len();
        for (at, byte) in changes {
            let at = PREFIX_AT - 3 + at.index(len - PREFIX_AT + 3);
            bytes[at] = byte;
        }
        reseal(&mut bytes, len);
        if let Ok(page) = Page::parse(bytes) {
            let (read, _) = read_all(&page);
            prop_assert_eq!(read.len(), page.len());
            for (path, value) in &read {
                prop_assert_eq!(page.get(path), Some(&**value));
            }
            for path in leaves.keys() {
                prop_assert_eq!(page.get(path), read.get(path).map(|value| &**value));
            }
        }
    }

    #[test]
    fn random_bytes_are_no_page(mut bytes in vec(any::<u8>(), 0..200), sealed in any::<bool>()) {
        if sealed && bytes.len() >= PREFIX_AT {
            let len = bytes.len();
            bytes[8..12].copy_from_slice(&(len as u32).to_le_bytes());
            bytes[12..14].copy_from_slice(&[FORMAT, 0]);
            reseal(&mut bytes, len);
            let _ = Page::parse(bytes).map(|page| read_all(&page));
        } else {
            prop_assert!(Page::parse(bytes).is_err());
        }
    }
}

#[test]
fn any_flipped_bit_is_detected() {
    let (prefix, leaves, digests) = example();
    let mut bytes = build(&prefix, &leaves, &digests);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    for at in 0..bytes.len() * 8 {
        bytes[at / 8] ^= 1 << (at % 8);
        assert!(Page::parse(bytes.clone()).is_err(), "bit {at}");
        bytes[at / 8] ^= 1 << (at % 8);
    }
    assert!(Page::parse(bytes).is_ok());
}

#[test]
fn a_page_cut_short_is_detected() {
    let (prefix, leaves, digests) = example();
    let bytes = build(&prefix, &leaves, &digests);
    for len in 0..bytes.len() {
        assert!(Page::parse(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn the_format_is_what_it_was() {
    let (prefix, leaves, digests) = example();
    let bytes = build(&prefix, &leaves, &digests);
    // Existing data directories contain this format. Changing it requires a new format number.
    assert_eq!(
        keccak256(&bytes),
        b256!("62e336e95fa0a729c94fe274cc127d915876b2cf8643207829db31b869433160")
    );
}

#[test]
fn a_page_above_accounts_has_no_owner() {
    let account = Path::account(&B256::repeat_byte(0x10));
    let page = |prefix: &Path| {
        let mut builder = PageBuilder::new(prefix);
        builder.owner(b"an account").finish()
    };
    let bytes = page(&account);
    let found = Page::parse(bytes.clone()).unwrap();
    assert_eq!(found.owner(), Some(&b"an account"[..]));
    let mut above = bytes;
    above[14] = 63;
    let len = above.len();
    reseal(&mut above, len);
    let error = Page::parse(above).unwrap_err().to_string();
    assert!(
        error.contains("an owner in a page above accounts"),
        "{error}"
    );
    let refused = std::panic::catch_unwind(|| page(&account.prefix(63)));
    assert!(refused.is_err());
}

#[test]
fn an_externally_owned_account_takes_at_most_44_bytes_all_in() {
    let prefix = Path::from_nibbles(&[1, 2, 3, 4, 5]);
    for (count, limit) in [(16, 44.0), (32, 43.5), (128, 42.5), (160, 42.5)] {
        let bytes = build(&prefix, &accounts(&prefix, count, 10), &Model::new());
        let each = bytes.len() as f64 / count as f64;
        assert!(each <= limit, "{each} bytes for each of {count} accounts");
    }
}

#[test]
fn the_size_of_leaves_is_foretold() {
    let account = B256::repeat_byte(0x11);
    let size = |prefix: usize, leaves: &[Path]| {
        let mut builder = PageBuilder::new(&Path::slot(&account, &account).prefix(prefix));
        leaves
            .iter()
            .for_each(|path| _ = builder.leaf(path, &[9; 12]));
        builder.finish().len()
    };
    let slot = |byte| Path::slot(&account, &B256::repeat_byte(byte));
    for prefix in [0, 1, 5, 60, 63, 64] {
        let page = size(prefix, &[]);
        assert!(page <= 25 + prefix / 2, "{page} bytes without a leaf");
        let alone = size(prefix, &[Path::account(&account)]);
        assert_eq!(
            alone - page,
            leaf_size_bytes(prefix, 64, 12),
            "account under {prefix} nibbles"
        );
        let first = size(prefix, &[Path::account(&account), slot(1)]);
        assert!(first - alone <= leaf_size_bytes(prefix, 128, 12) + 10);
        let second = size(prefix, &[Path::account(&account), slot(1), slot(2)]);
        let surplus = second - first - leaf_size_bytes(prefix, 128, 12);
        assert!(surplus <= 1, "only a run's length may take a byte more");
    }
    for prefix in [65, 66, 100, 126, 127, 128] {
        let slot = slot(0x11);
        let added = size(prefix, &[slot]) - size(prefix, &[]);
        assert_eq!(
            added,
            leaf_size_bytes(prefix, 128, 12),
            "slot under {prefix} nibbles"
        );
    }
}

#[test]
fn a_page_can_be_large() {
    let prefix = Path::from_nibbles(&[7]);
    let mut leaves = accounts(&prefix, 12_000, 10);
    let contract = leaves
        .keys()
        .nth(5_000)
        .and_then(Path::account_part)
        .expect("an account");
    for slot in 0..8_000u64 {
        leaves.insert(
            Path::slot(&contract, &keccak256(slot.to_be_bytes())),
            vec![1; 20],
        );
    }
    let bytes = build(&prefix, &leaves, &Model::new());
    assert!(bytes.len() < PAGE_BYTES_MAX);
    let page = Page::parse(bytes).unwrap();
    for (path, value) in &leaves {
        assert_eq!(page.get(path), Some(&**value));
    }
    assert_eq!(read_all(&page).0, leaves);
}

#[test]
fn narrow_offsets_give_way_to_wide_ones_at_their_limit() {
    let prefix = Path::account(&B256::ZERO).prefix(63);
    for len in [0x7ffe, 0x7fff, 0x8000] {
        let mut leaves = Model::new();
        leaves.insert(prefix.child(1), vec![1; len]);
        leaves.insert(prefix.child(2), vec![]);
        let page = Page::parse(build(&prefix, &leaves, &Model::new())).unwrap();
        assert_eq!(page.outermost.wide(), len > 0x7fff);
        assert_eq!(read_all(&page).0, leaves);
    }
}

proptest! {
    #[test]
    fn a_page_written_again_is_what_a_builder_writes(
        (prefix, mut leaves, digests) in pages(),
        cut in any::<Index>(),
        replaced in any::<Index>(),
        value in vec(any::<u8>(), 0..40),
    ) {
        let old = Page::parse(build(&prefix, &leaves, &digests)).unwrap();
        let count = old.entries();
        let mut rewriter = PageRewriter::default();
        // Twice, because the rewriter reuses its buffers.
        for _ in 0..2 {
            rewriter.begin(&old);
            let cut = cut.index(count + 1);
            let copied = rewriter.copy(&old, 0..cut).unwrap() + rewriter.copy(&old, cut..count).unwrap();
            prop_assert_eq!((copied, rewriter.entries()), (leaves.len(), count));
            for (path, digest) in &digests {
                rewriter.digest(path, digest);
            }
            let page = rewriter.finish();
            prop_assert_eq!(page.as_bytes(), old.as_bytes());
            prop_assert_eq!(read_all(&page), (leaves.clone(), digests.clone()));
        }
        // An entry with a single leaf is replaced, and all digests are dropped.
        let single = |at: &usize| {
            let mut leaves = old.leaves_of(*at..*at + 1);
            let first = leaves.next().map(|(path, _)| path);
            first.filter(|path| *path == old.entry_path(*at) && leaves.next().is_none())
        };
        let singles: Vec<_> = (0..count).filter_map(|at| Some((at, single(&at)?))).collect();
        if !singles.is_empty() {
            let (at, path) = singles[replaced.index(singles.len())];
            rewriter.begin(&old);
            rewriter.copy(&old, 0..at).unwrap();
            rewriter.leaf(path.packed(), &value).unwrap();
            rewriter.copy(&old, at + 1..count).unwrap();
            leaves.insert(path, value);
            let page = rewriter.finish();
            prop_assert_eq!(page.as_bytes(), &build(&prefix, &leaves, &Model::new())[..]);
        }
    }
}
