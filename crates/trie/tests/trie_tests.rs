//! Ethereum's public `TrieTests`.
//!
//! The partial trie holds accounts and slots, whose values are RLP, under keys of 32 bytes. Cases
//! of the secure trie whose values are account bodies are run on it. The others have plain text as
//! values, keys of any length, and values in branches, for which it has no place: they are run on
//! [`RawTrie`], built here from the crate's own node encoders.
//!
//! `CAMBIUM_DATA` names the directory in which `TrieTests` is; where it is not, all are skipped.

use alloy_primitives::{B256, U256, hex, keccak256};
use alloy_rlp::Decodable;
use cambium_keccak::Batch;
use cambium_primitives::{Account, Path};
use cambium_trie::{
    EMPTY_ROOT, LeafValue, NodeRef, PartialTrie, Stub, commit, encode_branch, encode_extension,
    encode_leaf,
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, io::Write, path::PathBuf};

/// A trie of raw keys and values: from keys, as nibbles, to values.
#[derive(Default)]
struct RawTrie(BTreeMap<Vec<u8>, Vec<u8>>);

impl RawTrie {
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let key = key.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
        match value {
            Some(value) => self.0.insert(key, value.to_vec()),
            None => self.0.remove(&key),
        };
    }

    fn root(&self) -> B256 {
        let leaves: Vec<_> = self
            .0
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        if leaves.is_empty() {
            EMPTY_ROOT
        } else {
            keccak256(Self::node(&leaves))
        }
    }

    /// The RLP of the node of sorted leaves, of which there is at least one.
    fn node(leaves: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut rlp = vec![];
        let (first, last) = (leaves[0].0, leaves[leaves.len() - 1].0);
        if leaves.len() == 1 {
            encode_leaf(&Path::from_nibbles(first), leaves[0].1, &mut rlp);
            return rlp;
        }
        let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        if shared > 0 {
            let below: Vec<_> = leaves
                .iter()
                .map(|(key, value)| (&key[shared..], *value))
                .collect();
            let child = NodeRef::of_rlp(&Self::node(&below));
            encode_extension(&Path::from_nibbles(&first[..shared]), &child, &mut rlp);
            return rlp;
        }
        let mut children = [None; 16];
        let ended = leaves.iter().find(|(key, _)| key.is_empty());
        for nibble in 0..16 {
            let group: Vec<_> = leaves
                .iter()
                .filter(|(key, _)| key.first() == Some(&nibble))
                .map(|(key, value)| (&key[1..], *value))
                .collect();
            if !group.is_empty() {
                children[usize::from(nibble)] = Some(NodeRef::of_rlp(&Self::node(&group)));
            }
        }
        encode_branch(&children, ended.map_or(&[], |(_, value)| value), &mut rlp);
        rlp
    }
}

type Step = (Vec<u8>, Option<Vec<u8>>);

fn bytes(text: &str) -> Vec<u8> {
    match text.strip_prefix("0x") {
        Some(digits) => hex::decode(digits).expect("hex digits"),
        None => text.as_bytes().to_vec(),
    }
}

fn steps_of(case: &Value) -> Vec<Step> {
    let value = |value: &Value| value.as_str().map(bytes);
    match &case["in"] {
        Value::Array(list) => list
            .iter()
            .map(|pair| (bytes(pair[0].as_str().expect("a key")), value(&pair[1])))
            .collect(),
        Value::Object(map) => map.iter().map(|(key, v)| (bytes(key), value(v))).collect(),
        other => panic!("input is {other}"),
    }
}

/// An account's body: fields and storage root.
fn as_account(mut value: &[u8]) -> Option<(Account, B256)> {
    let header = alloy_rlp::Header::decode(&mut value)
        .ok()
        .filter(|header| header.list)?;
    (value.len() == header.payload_length).then_some(())?;
    let nonce = u64::decode(&mut value).ok()?;
    let balance = U256::decode(&mut value).ok()?;
    let storage_root = B256::decode(&mut value).ok()?;
    let code_hash = B256::decode(&mut value).ok()?;
    Some((
        Account {
            nonce,
            balance,
            code_hash,
        },
        storage_root,
    ))
}

/// The secure trie's root with the values as accounts, each with its storage elsewhere.
fn root_as_accounts(steps: &[Step]) -> Option<B256> {
    let mut leaves = BTreeMap::new();
    for (key, value) in steps {
        leaves.insert(keccak256(key), as_account(value.as_ref()?)?);
    }
    let leaves = leaves.into_iter().flat_map(|(path, (account, root))| {
        let path = Path::account(&path);
        let storage = LeafValue::Storage(Stub::bare(NodeRef::hash(root)));
        let storage = (root != EMPTY_ROOT).then_some((path, storage));
        [(path, LeafValue::Account(account))]
            .into_iter()
            .chain(storage)
    });
    let mut trie = PartialTrie::new(Path::EMPTY);
    let root = trie
        .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
        .expect("sorted");
    trie.set_root(root);
    commit(&mut [&mut trie], &mut Batch::new());
    trie.state_root()
}

fn root_raw(steps: &[Step], secure: bool) -> B256 {
    let mut trie = RawTrie::default();
    for (key, value) in steps {
        let hashed = keccak256(key);
        let key = if secure { hashed.as_slice() } else { key };
        trie.put(key, value.as_deref());
    }
    trie.root()
}

#[test]
fn public_trie_tests_give_their_roots() {
    let folder = std::env::var_os("CAMBIUM_DATA").map(|data| PathBuf::from(data).join("TrieTests"));
    let Some(folder) = folder.filter(|folder| folder.exists()) else {
        let is_required = std::env::var_os("CAMBIUM_DATA_REQUIRED").is_some();
        assert!(!is_required, "TrieTests are not under CAMBIUM_DATA");
        // Past the test harness, which keeps what passing tests print to itself.
        let line = b"SKIPPED: TrieTests, all of them: they are not under CAMBIUM_DATA\n";
        let _ = std::io::stdout().write_all(line);
        return;
    };
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .collect();
    files.sort();
    let (mut accounts, mut raw, mut skipped) = (0, 0, 0);
    for file in files {
        let name = file
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let cases: Value =
            serde_json::from_slice(&fs::read(&file).expect("readable")).expect("JSON");
        let secure = name.to_lowercase().contains("secure");
        for (case_name, case) in cases.as_object().expect("cases by name") {
            let Some(root) = case["root"].as_str() else {
                println!("skipped {name}/{case_name}: neighbours of keys; the trie has no cursor");
                skipped += 1;
                continue;
            };
            let root: B256 = root.parse().expect("a root");
            let steps = steps_of(case);
            assert_eq!(root_raw(&steps, secure), root, "{name}/{case_name}");
            match secure.then(|| root_as_accounts(&steps)).flatten() {
                Some(got) => {
                    assert_eq!(got, root, "{name}/{case_name} as accounts");
                    accounts += 1;
                }
                None => raw += 1,
            }
        }
    }
    println!(
        "TrieTests: {} run ({accounts} on the partial trie, {raw} on its encoders alone), {skipped} \
         skipped",
        accounts + raw
    );
    assert!(accounts > 0 && raw > 0);
}
