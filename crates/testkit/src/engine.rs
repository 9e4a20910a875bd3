//! The state engine under random blocks, branches, unwinds, merges and crashes, beside the model.
//!
//! The driver knows for every block what the model says of it, and which blocks and heads were
//! acknowledged. After a crash the engine must be at the head acknowledged last, or at the one
//! that was being made when the power went.

use crate::Model;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountChange, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, FaultyDisk, Loader, Options, StateError};
use std::{collections::HashMap, sync::Arc};

/// A small fast generator of random numbers (splitmix64): the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// All numbers follow from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True `percent` times in 100.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How large a run's state is.
#[derive(Clone, Copy, Debug)]
pub struct EngineParams {
    /// Seed of everything.
    pub seed: u64,
    /// Accounts at genesis.
    pub accounts: u64,
    /// Most accounts that a block changes.
    pub changes_max: u64,
    /// Whether power fails now and then.
    pub crashes: bool,
}

struct Known {
    id: BlockId,
    parent: B256,
    model: Arc<Model>,
    root: B256,
}

/// The engine and what must be true of it.
pub struct EngineDriver {
    params: EngineParams,
    random: Random,
    disk: FaultyDisk,
    db: Option<Db>,
    known: HashMap<B256, Known>,
    head: B256,
    /// What the head may be besides, if power failed while it was being made.
    pending: Option<B256>,
    next_hash: u64,
    /// The operation under way.
    doing: &'static str,
    /// Operations done, by name, for reports.
    pub done: HashMap<&'static str, u64>,
}

/// What an operation ends in if power fails in it.
struct PowerLost;

const OPTIONS: Options = Options {
    memory_bytes: 64 << 20,
    unfinalized_blocks: 8,
};
/// Storage of the large accounts is spread over pages of its own.
const LARGE_ACCOUNTS: u64 = 3;

impl EngineDriver {
    /// A database of a random genesis state.
    pub fn new(params: EngineParams) -> Self {
        let mut random = Random::new(params.seed);
        let disk = FaultyDisk::new(params.seed);
        let mut model = Model::default();
        let mut genesis = Vec::new();
        for index in 0..params.accounts {
            let slots = match index {
                0..LARGE_ACCOUNTS => 1500,
                _ if random.percent(10) => random.below(12),
                _ => 0,
            };
            genesis.push(AccountChange {
                path: account_path(index),
                account: AccountUpdate::Put(random_account(&mut random)),
                wipe: false,
                slots: (0..slots)
                    .map(|slot| (slot_path(slot), U256::from(slot + 1)))
                    .collect(),
            });
        }
        let genesis = Changes::new(genesis);
        model.apply(&genesis);
        let mut loader =
            Loader::new(Arc::new(disk.clone()), OPTIONS).expect("a loader on a new disk");
        for change in genesis.accounts() {
            if let AccountUpdate::Put(account) = change.account {
                let slots = change.slots.iter().copied();
                let taken = loader.account(change.path, &account, slots);
                taken.expect("an account is taken");
            }
        }
        let loaded = loader.finish(&mut |_| {}).expect("a state is loaded");
        let root = model.root();
        assert_eq!(loaded.root(), root, "genesis root");
        let id = BlockId::new(0, keccak256(params.seed.to_le_bytes()));
        let db = loaded
            .create(meta(id, B256::ZERO, root), vec![])
            .expect("a database is made");
        let known = Known {
            id,
            parent: B256::ZERO,
            model: Arc::new(model),
            root,
        };
        Self {
            params,
            random,
            disk,
            db: Some(db),
            head: id.hash,
            known: HashMap::from([(id.hash, known)]),
            pending: None,
            next_hash: 0,
            doing: "start",
            done: HashMap::new(),
        }
    }

    /// Does `steps` random operations, each followed by checks. Panics where engine and model
    /// differ, with seed and step.
    pub fn run(&mut self, steps: u64) {
        for step in 0..steps {
            if self.params.crashes && self.random.percent(4) {
                self.disk.lose_power_after(self.random.below(40));
            }
            let at = format!("seed {} step {step}", self.params.seed);
            if self.operation(&at).is_err() {
                self.recover(&at);
            }
        }
    }

    fn operation(&mut self, at: &str) -> Result<(), PowerLost> {
        match self.random.below(100) {
            0..62 => self.block(at)?,
            62..68 => self.drop_block(at)?,
            68..74 => self.change_head(at)?,
            74..80 => self.unwind(at)?,
            80..86 => {
                let keep = self.random.below(6) as usize;
                self.count("flush");
                let flushed = self.db().flush(keep);
                self.outcome(flushed, at)?;
            }
            86..90 => self.read_back(at)?,
            90..93 => self.reopen(at)?,
            93..95 => self.check_all(at)?,
            _ => self.prove(at)?,
        }
        self.check_head(at)
    }

    fn count(&mut self, name: &'static str) {
        self.doing = name;
        *self.done.entry(name).or_default() += 1;
    }

    fn db(&self) -> Db {
        self.db.clone().expect("the database is open")
    }

    /// An error means that power was lost, or else the test fails.
    fn outcome<T>(&self, result: Result<T, StateError>, at: &str) -> Result<T, PowerLost> {
        match result {
            Ok(value) => Ok(value),
            Err(_) if self.params.crashes && self.disk.is_off() => Err(PowerLost),
            Err(error) => panic!("{at}, {}: {error}", self.doing),
        }
    }

    /// A block on the head mostly, else on some earlier one, aside or as the head.
    fn block(&mut self, at: &str) -> Result<(), PowerLost> {
        let parent = if self.random.percent(85) {
            self.head
        } else {
            self.recent()
        };
        let aside = parent != self.head && self.random.percent(50);
        self.count(if parent == self.head {
            "block"
        } else {
            "side block"
        });
        let (changes, model) = self.changes(parent);
        let root = model.root();
        let view = self.db().view_of(&parent);
        let view = self.outcome(view, at)?;
        let mut session = self.db().session(view);
        if self.random.percent(20) {
            // As a block before Byzantium does: roots on the way, of changes that don't last.
            let (detour, _) = self.changes(parent);
            let mut there = (*self.known[&parent].model).clone();
            there.apply(&detour);
            let middle = session.intermediate_root(&detour);
            assert_eq!(
                self.outcome(middle, at)?,
                there.root(),
                "{at}: root on the way"
            );
        }
        let staged = session.finish(changes, vec![]);
        let staged = self.outcome(staged, at)?;
        assert_eq!(
            staged.root(),
            root,
            "{at}: root of a block on {}",
            self.known[&parent].id
        );
        let id = BlockId::new(self.known[&parent].id.number + 1, self.new_hash());
        let sealed = staged.seal(meta(id, parent, root));
        let sealed = self.outcome(sealed, at)?;
        let known = Known {
            id,
            parent,
            model: Arc::new(model),
            root,
        };
        self.known.insert(id.hash, known);
        if aside {
            let committed = sealed.commit_aside();
            self.outcome(committed, at)?;
        } else {
            self.pending = Some(id.hash);
            let committed = sealed.commit();
            self.outcome(committed, at)?;
            self.head = id.hash;
            self.pending = None;
        }
        Ok(())
    }

    /// A block that is staged or sealed, and then given up.
    fn drop_block(&mut self, at: &str) -> Result<(), PowerLost> {
        self.count("dropped block");
        let parent = self.head;
        let (changes, model) = self.changes(parent);
        let view = self.db().view_of(&parent);
        let staged = self
            .db()
            .session(self.outcome(view, at)?)
            .finish(changes, vec![]);
        let staged = self.outcome(staged, at)?;
        assert_eq!(
            staged.root(),
            model.root(),
            "{at}: root of a block to be dropped"
        );
        if self.random.percent(50) {
            let id = BlockId::new(self.known[&parent].id.number + 1, self.new_hash());
            let sealed = staged.seal(meta(id, parent, model.root()));
            drop(self.outcome(sealed, at)?);
        }
        Ok(())
    }

    fn change_head(&mut self, at: &str) -> Result<(), PowerLost> {
        let target = self.recent();
        if !self.db().has(self.known[&target].id).expect("an answer") {
            return Ok(());
        }
        self.count("set head");
        self.pending = Some(target);
        let set = self.db().set_head(&target);
        self.outcome(set, at)?;
        self.head = target;
        self.pending = None;
        Ok(())
    }

    fn unwind(&mut self, at: &str) -> Result<(), PowerLost> {
        self.count("unwind");
        let far = self.random.percent(20);
        let depth = self.random.below(if far { 40 } else { 5 });
        let target = self.ancestor(depth);
        self.pending = Some(target);
        let number = self.known[&target].id.number;
        let unwound = self.db().unwind(number);
        assert_eq!(
            self.outcome(unwound, at)?.hash,
            target,
            "{at}: unwind to {number}"
        );
        self.head = target;
        self.pending = None;
        Ok(())
    }

    /// All of an older canonical block's state.
    fn read_back(&mut self, at: &str) -> Result<(), PowerLost> {
        self.count("read back");
        let depth = self.random.below(30);
        let target = self.ancestor(depth);
        let number = self.known[&target].id.number;
        let view = self.db().view_at(number);
        let view = self.outcome(view, at)?;
        assert_eq!(view.block().hash, target, "{at}: block {number}");
        self.compare(&view, target, 40, at)
    }

    fn check_all(&mut self, at: &str) -> Result<(), PowerLost> {
        self.count("check");
        let report = self.db().check(&mut |_| {});
        let report = self.outcome(report, at)?;
        assert!(report.damage.is_empty(), "{at}: {:?}", report.damage);
        Ok(())
    }

    fn prove(&mut self, at: &str) -> Result<(), PowerLost> {
        self.count("prove");
        let depth = self.random.below(12);
        let target = self.ancestor(depth);
        let view = self.db().view_of(&target);
        let view = self.outcome(view, at)?;
        let account = account_path(self.random.below(self.params.accounts * 5 / 4));
        let slots = vec![slot_path(self.random.below(2000))];
        let keys = cambium_trie::Keys::new(vec![(account, slots)]);
        let trie = view.extract(&keys);
        let trie = self.outcome(trie, at)?;
        assert_eq!(
            trie.state_root(),
            Some(self.known[&target].root),
            "{at}: root of an extract"
        );
        let path = cambium_primitives::Path::account(&account);
        let found = match trie.lookup(&path) {
            cambium_trie::Lookup::Account(account) => Some(account),
            cambium_trie::Lookup::Absent => None,
            other => panic!("{at}: {other:?}"),
        };
        let expected = self.known[&target]
            .model
            .account(&account)
            .map(|entry| entry.account);
        assert_eq!(found, expected, "{at}: account in an extract");
        Ok(())
    }

    fn reopen(&mut self, at: &str) -> Result<(), PowerLost> {
        self.count("reopen");
        self.db = None;
        let opened = Db::open(Arc::new(self.disk.clone()), OPTIONS);
        let (db, _) = self.outcome(opened, at)?;
        self.db = Some(db);
        Ok(())
    }

    /// Power is back.
    fn recover(&mut self, at: &str) {
        self.count("crash");
        self.db = None;
        self.disk = self.disk.crash();
        let opened = Db::open(Arc::new(self.disk.clone()), OPTIONS);
        let (db, _) = opened.unwrap_or_else(|error| panic!("{at}: after a crash: {error}"));
        let head = db.head().hash;
        let pending = self.pending.take();
        assert!(
            head == self.head || Some(head) == pending,
            "{at}: after a crash the head is {}, acknowledged was {}",
            db.head(),
            self.known[&self.head].id
        );
        self.head = head;
        self.db = Some(db);
        assert!(
            self.check_all(at).is_ok() && self.check_head(at).is_ok(),
            "{at}: power is on"
        );
    }

    fn check_head(&mut self, at: &str) -> Result<(), PowerLost> {
        let view = self.db().view();
        let view = self.outcome(view, at)?;
        assert_eq!(view.block(), self.known[&self.head].id, "{at}: head");
        assert_eq!(
            view.state_root(),
            self.known[&self.head].root,
            "{at}: root of the head"
        );
        self.compare(&view, self.head, 8, at)
    }

    fn compare(
        &mut self,
        view: &cambium_state::View,
        block: B256,
        keys: u64,
        at: &str,
    ) -> Result<(), PowerLost> {
        for _ in 0..keys {
            let model = self.known[&block].model.clone();
            let path = account_path(self.random.below(self.params.accounts * 5 / 4));
            let expected = model.account(&path);
            let got = self.outcome(view.account(&path), at)?;
            assert_eq!(
                got,
                expected.map(|entry| entry.account),
                "{at}: account {path}"
            );
            let slot = slot_path(self.random.below(40));
            let expected = expected.and_then(|entry| entry.slots.get(&slot).copied());
            let got = self.outcome(view.slot(&path, &slot), at)?;
            assert_eq!(
                got,
                expected.unwrap_or_default(),
                "{at}: slot {slot} of {path}"
            );
        }
        Ok(())
    }

    /// Random changes to the state after `parent`, and the model after them.
    fn changes(&mut self, parent: B256) -> (Changes, Model) {
        let mut model = (*self.known[&parent].model).clone();
        let mut accounts: HashMap<B256, AccountChange> = HashMap::new();
        for _ in 0..self.random.below(self.params.changes_max) + 1 {
            let index = if self.random.percent(10) {
                self.random.below(LARGE_ACCOUNTS)
            } else {
                self.random.below(self.params.accounts * 5 / 4)
            };
            let path = account_path(index);
            let change = self.change(path, model.account(&path).map(|entry| entry.account));
            accounts.insert(path, change);
        }
        let changes = Changes::new(accounts.into_values().collect());
        model.apply(&changes);
        (changes, model)
    }

    fn change(&mut self, path: B256, now: Option<Account>) -> AccountChange {
        let random = &mut self.random;
        if now.is_some() && random.percent(12) {
            return AccountChange {
                path,
                account: AccountUpdate::Delete,
                wipe: true,
                slots: vec![],
            };
        }
        let account = match now {
            Some(_) if random.percent(25) => AccountUpdate::Keep,
            _ => AccountUpdate::Put(random_account(random)),
        };
        let many = if random.percent(5) { 400 } else { 5 };
        let mut slots = HashMap::new();
        if random.percent(40) {
            for _ in 0..random.below(many) {
                let value = if random.percent(35) {
                    0
                } else {
                    random.below(1 << 40)
                };
                slots.insert(slot_path(random.below(40 * many)), U256::from(value));
            }
        }
        let wipe = random.percent(5);
        AccountChange {
            path,
            account,
            wipe,
            slots: slots.into_iter().collect(),
        }
    }

    fn new_hash(&mut self) -> B256 {
        self.next_hash += 1;
        keccak256([self.params.seed.to_le_bytes(), self.next_hash.to_le_bytes()].concat())
    }

    /// The ancestor of the head `depth` blocks below it, or genesis.
    fn ancestor(&self, depth: u64) -> B256 {
        let mut hash = self.head;
        for _ in 0..depth {
            let known = &self.known[&hash];
            if known.id.number > 0 {
                hash = known.parent;
            }
        }
        hash
    }

    /// A block that can be built upon: an ancestor of the head, or on a branch that is kept.
    fn recent(&mut self) -> B256 {
        let depth = self.random.below(12);
        let low = self.ancestor(depth);
        let db = self.db();
        let known = self.known.values();
        let branches: Vec<_> = known
            .filter(|known| db.has(known.id).expect("an answer"))
            .map(|known| known.id.hash)
            .collect();
        if branches.is_empty() || self.random.percent(50) {
            return low;
        }
        let mut branches = branches;
        branches.sort_unstable();
        branches[self.random.below(branches.len() as u64) as usize]
    }
}

fn meta(id: BlockId, parent: B256, state_root: B256) -> BlockMeta {
    BlockMeta {
        id,
        parent,
        state_root,
        body: Bytes::from_static(b"body"),
    }
}

/// Spread like hashes, but for one account in eight: those share long prefixes.
fn account_path(index: u64) -> B256 {
    if index % 8 == 7 {
        let mut path = B256::repeat_byte(0x5a);
        path.0[10..18].copy_from_slice(&(index / 16).to_be_bytes());
        path.0[20] = (index % 16) as u8;
        return path;
    }
    keccak256(index.to_le_bytes())
}

fn slot_path(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

fn random_account(random: &mut Random) -> Account {
    let code_hash = Account::default().code_hash;
    Account {
        nonce: random.below(300),
        balance: U256::from(random.next()),
        code_hash,
    }
}
