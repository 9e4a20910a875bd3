//! MDBX with the tables in which op-reth keeps old states, so as to prove them ("proofs history", second
//! version of its tables), for accounts.
//!
//! ```text
//!   branches               path                      -> branch, as it is now
//!   branches-change-sets   block, path               -> branch before the block
//!   branches-history       path, last block of shard -> blocks that changed it, a roaring bitmap
//!   accounts, ...          the same, by the hash of the address
//! ```
//!
//! A key's value after block N: the first block above N in its history has it in its change set; if there
//! is none, it is the present one. A proof rebuilds the trie around its path from branches and accounts.
//!
//! Written from what is public about it: the description of the tables in pull request 19928 ("Proof
//! store v2") of github.com/ethereum-optimism/optimism and the documentation of its tables there, in
//! `rust/op-reth/crates/trie/src/db`. Keys, branches, shards of 2,000 blocks and the order of entries are as
//! described; an account is encoded as in `./bench state`, which takes as many bytes.
//!
//! Left out, since nothing here has any: storage and its tables, the window of blocks and pruning, and
//! branches and accounts that come or go: a look-up there also searches the histories for keys that are
//! not among the present ones any more. A block is a durable transaction of its own. op-reth is given a
//! block's new branches by the node, so making them is not measured, as nodes are not for LevelDB.

mod entries;
mod tables;
mod walk;
mod newest;

use self::{
    entries::{Key, decode_account, decode_node, encode_account, node_entry, split_node_entry},
    newest::{Newest, changed_accounts},
    tables::{Domain, Pair, Tables},
    walk::{State, first_path, walk},
};
use super::{
    lists::{next_list, put_list},
    plan::{Failure, Plan, make_empty, path},
    states::{Found, OldStates},
};
use crate::system;
use alloy_primitives::B256;
use alloy_rlp::Decodable as _;
use alloy_trie::{
    BranchNodeCompact, HashBuilder, Nibbles, TrieAccount,
    nodes::TrieNode,
    proof::{ProofNodes, ProofRetainer},
};
use cambium_primitives::Account;
use serde_json::{Map, Value, json};
use signet_libmdbx::tx::aliases::RoTxUnsync;
use std::{
    borrow::Cow,
    cell::Cell,
    fs::File,
    io::{BufReader, BufWriter, Write as _},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

fn dir_of(plan: &Plan) -> PathBuf {
    plan.dir.join("mdbx")
}

/// The new branches of the blocks that are imported while accounts are read.
fn imported_file(plan: &Plan) -> PathBuf {
    plan.dir.join("mdbx-imported")
}

/// Makes the database of a plan whose blocks Cambium has. Returns figures of it.
pub(super) fn make(plan: &Plan) -> Result<Map<String, Value>, Failure> {
    let roots = plan.roots()?;
    let mut newest = Newest::first(plan);
    check_root(&newest, 0, &roots)?;
    let dir = dir_of(plan);
    make_empty(&dir)?;
    let tables = Tables::open(&dir)?;
    tables.load(tables.nodes, newest.nodes())?;
    tables.load(tables.accounts, newest.accounts())?;
    let (first_bytes, _) = tables.bytes()?;
    let io = system::Io::now(&plan.dir);
    let (mut writing, mut slowest) = (Duration::ZERO, Duration::ZERO);
    let mut blocks = (1..).zip(plan.all_changed_accounts());
    for (number, indices) in blocks.by_ref().take(plan.blocks as usize) {
        let accounts = changed_accounts(number, &indices);
        let nodes = newest.add(number, &accounts)?;
        check_root(&newest, number, &roots)?;
        let start = Instant::now();
        tables.write(number, &nodes, &encoded(&accounts))?;
        let elapsed = start.elapsed();
        writing += elapsed;
        slowest = slowest.max(elapsed);
    }
    let written = system::Io::now(&plan.dir).since(&io).device_write_bytes;
    let mut imported = BufWriter::new(File::create(imported_file(plan))?);
    for (number, indices) in blocks {
        let nodes = newest.add(number, &changed_accounts(number, &indices))?;
        let entries: Vec<_> = nodes
            .iter()
            .map(|(path, node)| node_entry(path, node))
            .collect();
        put_list(&mut imported, &entries)?;
    }
    imported.flush()?;
    let changes: usize = plan.changed_accounts().map(|indices| indices.len()).sum();
    let changes = changes.max(1) as f64;
    let (bytes, free_bytes) = tables.bytes()?;
    let bytes = bytes.saturating_sub(first_bytes) as f64;
    let figures = json!({
        "bytes_per_change": bytes / changes,
        "free_bytes_per_change": free_bytes as f64 / changes,
        "write_amplification": written as f64 / bytes.max(1.0),
        "build_seconds": writing.as_secs_f64(),
        "build_us_per_change": 1e6 * writing.as_secs_f64() / changes,
        "slowest_write_ms": 1e3 * slowest.as_secs_f64(),
    });
    Ok(figures.as_object().cloned().unwrap_or_default())
}

fn check_root(newest: &Newest, number: u64, roots: &[B256]) -> Result<(), Failure> {
    match roots.get(number as usize) {
        Some(root) if *root == newest.root() => Ok(()),
        root => Err(format!(
            "block {number}: the root is {}, and Cambium's {root:?}",
            newest.root()
        )
        .into()),
    }
}

/// Accounts as the tables have them.
fn encoded(accounts: &[(B256, Account)]) -> Vec<(B256, Vec<u8>)> {
    let encoded = accounts
        .iter()
        .map(|(path, account)| (*path, encode_account(account)));
    encoded.collect()
}

/// An open database.
pub(super) struct Mdbx {
    tables: Tables,
    imported: Mutex<Imported>,
    look_ups: AtomicU64,
}

/// The blocks that are imported while accounts are read.
struct Imported {
    /// Number of the newest block.
    newest: u64,
    nodes: BufReader<File>,
}

impl Mdbx {
    pub(super) fn open(plan: &Plan) -> Result<Self, Failure> {
        Ok(Self {
            tables: Tables::open(&dir_of(plan))?,
            imported: Mutex::new(Imported {
                newest: plan.blocks,
                nodes: BufReader::new(File::open(imported_file(plan))?),
            }),
            look_ups: AtomicU64::new(0),
        })
    }

    /// The proof of an account after a block, and the root that it leads to.
    fn prove(&self, path: &B256, block: u64) -> Result<(B256, ProofNodes), Failure> {
        let path = Nibbles::unpack(path);
        let at = At {
            tables: &self.tables,
            transaction: self.tables.begin_read()?,
            block,
            look_ups: Cell::new(0),
        };
        let retainer = ProofRetainer::from_iter([path]);
        let mut builder = HashBuilder::default().with_proof_retainer(retainer);
        walk(&at, &[path], &mut builder)?;
        self.look_ups
            .fetch_add(at.look_ups.get(), Ordering::Relaxed);
        Ok((builder.root(), builder.take_proof_nodes()))
    }
}

impl OldStates for Mdbx {
    fn import(&self, indices: &[u64]) -> Result<(), Failure> {
        let mut imported = self.imported.lock().map_err(|error| error.to_string())?;
        let entries = next_list(&mut imported.nodes)?;
        let nodes: Result<Vec<_>, _> = entries.iter().map(split_node_entry).collect();
        imported.newest += 1;
        let number = imported.newest;
        let accounts = encoded(&changed_accounts(number, indices));
        self.tables.write(number, &nodes?, &accounts)
    }

    fn look_ups(&self) -> u64 {
        self.look_ups.load(Ordering::Relaxed)
    }

    fn read(&self, index: u64, number: u64, _: B256) -> Result<Found, Failure> {
        let path = path(index);
        let (root, proof) = self.prove(&path, number)?;
        let nodes = proof.len() as u64;
        Ok(Found {
            nonce: nonce_in(&path, proof)?,
            root: Some(root),
            nodes,
        })
    }
}

/// The nonce of an account in its proof, if the proof has it.
fn nonce_in(path: &B256, proof: ProofNodes) -> Result<Option<u64>, Failure> {
    let Some((above, node)) = proof.into_nodes_sorted().pop() else {
        return Ok(None);
    };
    match TrieNode::decode(&mut node.as_ref())? {
        TrieNode::Leaf(leaf) if above.join(&leaf.key) == Nibbles::unpack(path) => {
            let account = TrieAccount::decode(&mut leaf.value.as_slice())?;
            Ok(Some(account.nonce))
        }
        _ => Ok(None),
    }
}

/// The state after a block, in one transaction.
struct At<'a> {
    tables: &'a Tables,
    transaction: RoTxUnsync,
    block: u64,
    /// Branches and accounts that were looked up.
    look_ups: Cell<u64>,
}

impl At<'_> {
    /// The value of a key after the block.
    fn value<'a>(
        &'a self,
        domain: &Domain,
        key: &impl Key,
        present: Cow<'a, [u8]>,
    ) -> Result<Option<Cow<'a, [u8]>>, Failure> {
        self.look_ups.update(|count| count + 1);
        domain.value_at(&self.transaction, key, self.block, present)
    }
}

impl State for At<'_> {
    fn first_node(
        &self,
        prefix: &Nibbles,
    ) -> Result<Option<(Nibbles, BranchNodeCompact)>, Failure> {
        let nodes = &self.tables.nodes;
        let mut cursor = nodes.present(&self.transaction)?;
        let first: Option<Pair<'_>> = cursor.set_range(&prefix.to_vec())?;
        let Some((path, present)) = first.filter(|(path, _)| path.starts_with(&prefix.to_vec()))
        else {
            return Ok(None);
        };
        let path = Nibbles::from_nibbles(path);
        let value = self.value(nodes, &path, present)?;
        value
            .map(|value| Ok((path, decode_node(&value)?)))
            .transpose()
    }

    fn each_account(
        &self,
        prefix: &Nibbles,
        visit: &mut dyn FnMut(&B256, &Account),
    ) -> Result<(), Failure> {
        let accounts = &self.tables.accounts;
        let mut cursor = accounts.present(&self.transaction)?;
        let first = first_path(prefix);
        let mut next: Option<([u8; 32], Cow<'_, [u8]>)> = cursor.set_range(first.as_slice())?;
        while let Some((path, present)) = next {
            let path = B256::from(path);
            if !Nibbles::unpack(path).starts_with(prefix) {
                break;
            }
            let value = self.value(accounts, &path, present)?;
            if let Some(value) = value {
                visit(&path, &decode_account(&value)?);
            }
            next = cursor.next()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::plan::{Truth, account};
    use std::collections::BTreeMap;

    fn plan(dir: &std::path::Path, accounts: u64) -> Plan {
        Plan {
            accounts,
            blocks: 30,
            imported: 5,
            import_rate: 1,
            changes: 40,
            reads: 400,
            memory: 1 << 20,
            history_memory: 1 << 20,
            history_cache: 0,
            trie_memory: 1 << 20,
            process_memory: 1 << 20,
            seed: accounts,
            dir: dir.to_owned(),
        }
    }

    /// The roots of all blocks of a plan, each from all accounts.
    fn all_roots(plan: &Plan) -> Vec<B256> {
        let first = (0..plan.accounts).map(|index| (path(index), account(0)));
        let mut accounts: BTreeMap<_, _> = first.collect();
        let root = |accounts: &BTreeMap<_, _>| {
            let mut builder = HashBuilder::default();
            for (path, account) in accounts {
                walk::add_account(&mut builder, path, account);
            }
            builder.root()
        };
        let mut roots = vec![root(&accounts)];
        for (number, indices) in (1..).zip(plan.changed_accounts()) {
            accounts.extend(indices.iter().map(|index| (path(*index), account(number))));
            roots.push(root(&accounts));
        }
        roots
    }

    #[test]
    fn accounts_are_proved_as_they_were_before_and_after_an_import() -> Result<(), Failure> {
        for accounts in [1, 5, 40, 300, 5_000] {
            let dir = tempfile::tempdir()?;
            let plan = plan(dir.path(), accounts);
            let roots = all_roots(&plan);
            std::fs::write(plan.roots_file(), roots.concat())?;
            make(&plan)?;
            let (states, truth) = (Mdbx::open(&plan)?, Truth::new(&plan));
            let check = |seed| -> Result<(), Failure> {
                for (index, number) in plan.reads(seed) {
                    let root = roots[number as usize];
                    let found = states.read(index, number, root)?;
                    assert_eq!(
                        found.root,
                        Some(root),
                        "{accounts} accounts, block {number}"
                    );
                    assert_eq!(found.nonce, Some(truth.nonce(index, number)));
                }
                Ok(())
            };
            check(1)?;
            for indices in plan.all_changed_accounts().skip(plan.blocks as usize) {
                states.import(&indices)?;
            }
            check(2)?;
        }
        Ok(())
    }

    #[test]
    fn a_root_that_is_not_that_of_the_plan_is_an_error() -> Result<(), Failure> {
        let dir = tempfile::tempdir()?;
        let plan = plan(dir.path(), 40);
        let mut roots = all_roots(&plan);
        roots[7] = B256::ZERO;
        std::fs::write(plan.roots_file(), roots.concat())?;
        let error = make(&plan)
            .expect_err("block 7 has another root")
            .to_string();
        assert!(error.starts_with("block 7: the root is"), "{error}");
        Ok(())
    }
}
