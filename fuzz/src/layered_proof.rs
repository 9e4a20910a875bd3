//! Proofs of the `layered` commitment.

use crate::{entry_proof::key, input::Input};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{
    Alone, LayeredProof, NoResolve, PartialTrie, ProofTargets, UpperTrie, commit, layered_root,
};
use std::collections::BTreeMap;

const ACCOUNTS: u8 = 24;
const SLOTS: u8 = 7;

/// The accounts of a state, each with its slots.
type State = BTreeMap<B256, (Account, BTreeMap<B256, U256>)>;

/// The three tries of a block, and its state.
#[derive(Clone)]
pub(crate) struct World {
    delta: UpperTrie,
    intermediate: UpperTrie,
    snapshot: PartialTrie,
    state: State,
    root: B256,
}

/// Input: accounts, slots, and a way to change the honest proof of them:
///
/// - kind 0: the rest is a proof by itself.
/// - kind 1: edits of the bytes: a place, then a byte that is flipped there.
/// - kind 2: edits of the nodes: one is dropped, blinded by a node of zeros, swapped with another, or
///   replaced by one of the proof of other targets or of another block.
/// - kind 3: the proof of a block that differs in one leaf of one trie: a deletion, wipe, tombstone
///   or value that was forged, or one that was left out.
///
/// There is one proof of a root and its targets: any other is refused, and what the one shows is so.
pub fn layered_proof(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.below(4);
    let targets = read_targets(&mut input);
    let world = World::new(0);
    let honest = world.prove(&targets);
    let offered = match kind {
        0 => input.rest().to_vec(),
        1 => flipped(&honest, &mut input),
        2 => replaced(&honest, &world, &mut input),
        _ => world.with_lie(&mut input).prove(&targets),
    };
    let proof = LayeredProof {
        bytes: Bytes::from(offered),
    };
    let shown = proof.verify(world.root, &targets);
    match proof.bytes[..] == honest[..] {
        true => {
            let shown = shown.expect("the honest proof");
            assert_eq!(shown.len(), targets.accounts().len());
            for proved in shown {
                let there = world.state.get(&proved.path);
                assert_eq!(proved.account, there.map(|(account, _)| *account));
                for (slot, value) in proved.slots {
                    let there = there.and_then(|(_, slots)| slots.get(&slot).copied());
                    assert_eq!(value, there.unwrap_or_default(), "what is shown is false");
                }
            }
        }
        false => assert!(shown.is_err(), "another proof is accepted"),
    }
    // It may be a proof of its own root, true or not, but not of other targets, too.
    if let Ok(roots) = proof.roots()
        && proof.verify(roots.root(), &targets).is_ok()
    {
        let more = vec![(B256::repeat_byte(0xee), vec![B256::repeat_byte(0xee)])];
        let more = targets.clone().and(&ProofTargets::new(more));
        if let Ok(shown) = proof.verify(roots.root(), &more) {
            assert_eq!(shown.len(), more.accounts().len());
        }
    }
}

fn read_targets(input: &mut Input<'_>) -> ProofTargets {
    let accounts = (0..input.below(6)).map(|_| {
        let account = key(input.u8() % 40);
        let slots = (0..input.below(4)).map(|_| key(input.u8() % 12)).collect();
        (account, slots)
    });
    ProofTargets::new(accounts.collect())
}

fn flipped(honest: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = honest.to_vec();
    for _ in 0..=input.below(3) {
        let at = usize::from(input.u16()) % bytes.len();
        bytes[at] ^= input.u8();
    }
    bytes
}

fn replaced(honest: &[u8], world: &World, input: &mut Input<'_>) -> Vec<u8> {
    let other = match input.below(2) {
        0 => world.prove(&read_targets(input)),
        _ => World::new(1 + input.u8() % u8::MAX).prove(&read_targets(input)),
    };
    let mut bytes = honest.to_vec();
    for _ in 0..=input.below(2) {
        let (own, others) = (nodes(&bytes), nodes(&other));
        if own.is_empty() || others.is_empty() {
            break;
        }
        let at = usize::from(input.u16());
        let from = usize::from(input.u16());
        let (start, end) = own[at % own.len()];
        let (other_start, other_end) = others[from % others.len()];
        bytes = match input.below(5) {
            0 => [&bytes[..start], &bytes[end..]].concat(),
            1 => [&bytes[..start], &[0], &bytes[end..]].concat(),
            2 => [&bytes[..start], &[4], &[0; 32], &bytes[end..]].concat(),
            3 => [
                &bytes[..start],
                &other[other_start..other_end],
                &bytes[end..],
            ]
            .concat(),
            _ => {
                let (second, second_end) = own[from % own.len()];
                let apart = end <= second || second_end <= start;
                let (one, two) = match start < second {
                    true => ((start, end), (second, second_end)),
                    false => ((second, second_end), (start, end)),
                };
                match apart {
                    true => [
                        &bytes[..one.0],
                        &bytes[two.0..two.1],
                        &bytes[one.1..two.0],
                        &bytes[one.0..one.1],
                        &bytes[two.1..],
                    ]
                    .concat(),
                    // One within the other takes its place.
                    false => [&bytes[..one.0], &bytes[two.0..two.1], &bytes[one.1..]].concat(),
                }
            }
        };
    }
    bytes
}

/// Where the nodes of a proof begin and end, each with its subtrie. Invalid proofs have fewer.
fn nodes(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut nodes = Vec::new();
    let mut at = 0;
    for is_upper in [true, true, false] {
        let Some(end) = node(bytes, at, 0, is_upper, false, &mut nodes) else {
            break;
        };
        at = end;
    }
    nodes
}

/// Walks over the node at `at`. A reader of its own, by the tables in `docs/COMMITMENTS.md`.
fn node(
    bytes: &[u8],
    at: usize,
    depth: usize,
    is_upper: bool,
    is_slot: bool,
    nodes: &mut Vec<(usize, usize)>,
) -> Option<usize> {
    if depth > 64 {
        return None;
    }
    let mut end = at + 1;
    match *bytes.get(at)? {
        0 => {}
        1 => {
            let mask = u16::from_le_bytes([*bytes.get(at + 1)?, *bytes.get(at + 2)?]);
            end += 2;
            for _ in 0..mask.count_ones() {
                end = node(bytes, end, depth + 1, is_upper, is_slot, nodes)?;
            }
        }
        2 => {
            let nibbles = usize::from(*bytes.get(at + 1)?);
            end += 1 + nibbles.div_ceil(2);
            end = node(bytes, end, depth + nibbles.max(1), is_upper, is_slot, nodes)?;
        }
        3 => {
            end += (64 - depth).div_ceil(2);
            if is_slot {
                end += 1 + usize::from(*bytes.get(end)?);
            } else {
                let mark = if is_upper { *bytes.get(end)? } else { 2 };
                end += usize::from(is_upper);
                if mark & 3 == 2 {
                    let rest = bytes.get(end..)?;
                    let mut reader = cambium_primitives::Reader::new(rest);
                    Account::decode_from(&mut reader).ok()?;
                    end += rest.len() - reader.remaining();
                }
                if mark & 3 != 3 {
                    end = node(bytes, end, 0, is_upper, true, nodes)?;
                }
            }
        }
        4 => end += 32,
        5 => end += 1 + usize::from(*bytes.get(at + 1)?),
        _ => return None,
    }
    (end <= bytes.len()).then(|| {
        nodes.push((at, end));
        end
    })
}

impl World {
    /// A state of two intervals, with every kind of change in both. Worlds of other numbers differ in
    /// a few accounts.
    pub(crate) fn new(number: u8) -> Self {
        let mut world = Self {
            delta: UpperTrie::new(),
            intermediate: UpperTrie::new(),
            snapshot: PartialTrie::new(Path::EMPTY),
            state: State::new(),
            root: B256::ZERO,
        };
        let mut first = Vec::new();
        for index in 0..ACCOUNTS {
            if index % 3 != 2 || index == number {
                let slots = (0..index % 4).map(|slot| (key(slot), U256::from(index + slot + 1)));
                first.push(AccountDiff {
                    path: key(index),
                    account: AccountUpdate::Put(account(index)),
                    wipe: false,
                    slots: slots.collect(),
                });
            }
        }
        let first = world.net(first);
        world
            .snapshot
            .apply(&first, &mut NoResolve)
            .expect("a first state");
        for (at, step) in [(0, 1), (1, 2)] {
            let changes = (0..ACCOUNTS)
                .map(|index| change(index, (index / step).wrapping_add(number) % 6, at));
            let net = world.net(changes.collect());
            let layer = match at {
                0 => &mut world.intermediate,
                _ => &mut world.delta,
            };
            layer.apply(&net).expect("net changes");
        }
        world.hash();
        world
    }

    /// Those changes that change something, as net changes, and makes them.
    fn net(&mut self, changes: Vec<AccountDiff>) -> Vec<AccountDiff> {
        let mut net = BTreeMap::new();
        for change in changes {
            let old = self.state.get(&change.path).cloned();
            let old_slots = old.as_ref().map(|(_, slots)| slots.clone());
            let old_slots = old_slots.unwrap_or_default();
            let fields = match change.account {
                AccountUpdate::Put(account) => Some(account),
                AccountUpdate::Delete => None,
                _ => old.as_ref().map(|(account, _)| *account),
            };
            let Some(fields) = fields else {
                if self.state.remove(&change.path).is_some() {
                    net.insert(
                        change.path,
                        AccountDiff {
                            account: AccountUpdate::Delete,
                            wipe: !old_slots.is_empty(),
                            slots: vec![],
                            ..change
                        },
                    );
                }
                continue;
            };
            let wipe = change.wipe && !old_slots.is_empty();
            let mut slots = if wipe { BTreeMap::new() } else { old_slots };
            let is_new = |(slot, value): &(B256, U256)| {
                slots.get(slot).copied().unwrap_or_default() != *value
            };
            let changed: Vec<_> = change.slots.into_iter().filter(is_new).collect();
            for (slot, value) in &changed {
                match value.is_zero() {
                    true => slots.remove(slot),
                    false => slots.insert(*slot, *value),
                };
            }
            let account = match old.is_some_and(|(account, _)| account == fields) {
                true => AccountUpdate::Keep,
                false => AccountUpdate::Put(fields),
            };
            self.state.insert(change.path, (fields, slots));
            if account != AccountUpdate::Keep || wipe || !changed.is_empty() {
                let mut slots = changed;
                slots.sort_unstable();
                let diff = AccountDiff {
                    path: change.path,
                    account,
                    wipe,
                    slots,
                };
                net.insert(change.path, diff);
            }
        }
        net.into_values().collect()
    }

    fn hash(&mut self) {
        commit(&mut [&mut self.snapshot], &mut Default::default());
        let snapshot = self.snapshot.state_root().expect("a whole trie");
        let uppers = [&mut self.delta, &mut self.intermediate];
        let [delta, intermediate] = uppers.map(|layer| layer.hash(&Alone));
        self.root = layered_root(delta, intermediate, snapshot);
    }

    pub(crate) fn prove(&self, targets: &ProofTargets) -> Vec<u8> {
        let (mut delta, mut intermediate) = (self.delta.clone(), self.intermediate.clone());
        let mut snapshot = self.snapshot.clone();
        let extract = |targets: &ProofTargets| snapshot.extract(targets, &mut NoResolve);
        let proof = LayeredProof::new(&mut delta, &mut intermediate, extract, targets);
        proof.expect("nothing is missing").bytes.to_vec()
    }

    /// The same, but for one leaf or slot of one trie; or with tries in the place of others.
    fn with_lie(&self, input: &mut Input<'_>) -> Self {
        let mut world = self.clone();
        let layer = input.below(6);
        let (index, slot) = (input.u8() % 40, key(input.u8() % 12));
        let lie = AccountDiff {
            slots: match input.below(3) {
                0 => vec![],
                1 => vec![(slot, U256::ZERO)],
                _ => vec![(slot, U256::from(input.u8()))],
            },
            ..change(index, input.u8() % 6, 0)
        };
        let lie = match lie.account {
            AccountUpdate::Delete => AccountDiff {
                slots: vec![],
                ..lie
            },
            _ => lie,
        };
        match layer {
            0 => drop(world.delta.apply(&[lie])),
            1 => drop(world.intermediate.apply(&[lie])),
            2 => drop(world.snapshot.apply(&[lie], &mut NoResolve)),
            3 => world.delta = UpperTrie::new(),
            4 => world.intermediate = UpperTrie::new(),
            _ => std::mem::swap(&mut world.delta, &mut world.intermediate),
        }
        world.hash();
        world
    }
}

fn account(number: u8) -> Account {
    Account {
        nonce: number.into(),
        balance: U256::from(number) << (number % 100),
        code_hash: match number % 4 {
            0 => keccak256([number]),
            _ => Account::default().code_hash,
        },
    }
}

/// A change of account `index`; `round` makes those of two intervals differ.
fn change(index: u8, kind: u8, round: u8) -> AccountDiff {
    let slots = |values: &[(u8, u8)]| {
        let slots = values
            .iter()
            .map(|(slot, value)| (key(slot % SLOTS), U256::from(*value)));
        slots.collect::<BTreeMap<_, _>>().into_iter().collect()
    };
    let put = AccountUpdate::Put(account(index.wrapping_add(100 + round)));
    let (account, wipe, slots) = match kind {
        0 => (AccountUpdate::Keep, false, slots(&[])),
        1 => (put, false, slots(&[])),
        2 => (AccountUpdate::Delete, true, slots(&[])),
        3 => (AccountUpdate::Keep, false, slots(&[(0, 0), (5, 9 + round)])),
        4 => (put, true, slots(&[(1, 7 + round)])),
        _ => (put, false, slots(&[(1, 0), (2, 3 + round), (index, 1)])),
    };
    AccountDiff {
        path: key(index),
        account,
        wipe,
        slots,
    }
}
