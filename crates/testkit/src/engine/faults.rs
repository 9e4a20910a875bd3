//! Injected faults, and the checks after them.
//!
//! After every fault the database opens at the acknowledged head, or an error names the damaged
//! file and how to repair it. If the device lost data that it had reported as durable, only a loss
//! of the end of the log may go unnoticed.

use super::driver::{EngineDriver, Failed, options};
use crate::random;
use alloy_primitives::B256;
use cambium_state::{
    Db, Disk, Fault, FaultyDisk, LeafKind, RepairReport, StateError, View, repair,
};
use std::{sync::Arc, thread, time::Duration};

/// Files into which faults are injected.
const FILES: [&str; 5] = [
    "log/",
    "segments/",
    "checkpoint-",
    "blocks.idx",
    "codes.dat",
];

impl EngineDriver {
    /// Injects a fault from time to time.
    pub(super) fn maybe_fault(&mut self) {
        let kinds = self.params.faults;
        if !kinds.are_any() || !self.random.percent(5) {
            return;
        }
        let mut asked: Vec<fn(&mut Self)> = Vec::new();
        if kinds.failures {
            asked.push(Self::ask_for_failure);
        }
        if kinds.reads {
            asked.push(Self::ask_for_failed_reads);
        }
        if kinds.lies {
            asked.push(Self::ask_for_lie);
        }
        if !asked.is_empty() {
            let which = self.random.below(asked.len() as u64) as usize;
            self.is_faulty = true;
            asked[which](self);
        }
    }

    fn file(&mut self) -> &'static str {
        FILES[self.random.below(FILES.len() as u64) as usize]
    }

    fn ask_for_failure(&mut self) {
        let file = self.file();
        match self.random.below(12) {
            0..6 => self.disk.lose_power_after(self.random.below(40)),
            6 | 7 => self.disk.inject(Fault::FailedSync, file, 1),
            8 => self.disk.inject(Fault::FailedWrite, file, 1),
            9 => self.disk.fill_after(self.random.below(60)),
            10 => self.disk.fail_call_after(self.random.below(200)),
            _ => {
                let names = self.disk.files();
                let sizes = names.iter().filter_map(|name| self.disk.contents(name));
                let used: u64 = sizes.map(|bytes| bytes.len() as u64).sum();
                let room = self.random.below(1 << 18);
                self.disk.limit_space(Some(used + room));
            }
        }
    }

    fn ask_for_failed_reads(&mut self) {
        let (file, count) = (self.file(), self.random.below(4) as u32 + 1);
        match self.random.below(3) {
            0 => self.disk.inject(Fault::FailedOpen, file, count),
            1 => self.disk.inject(Fault::FailedRead, file, count),
            _ => self.disk.inject(Fault::FailedRead, "", count),
        }
    }

    fn ask_for_lie(&mut self) {
        let file = self.file();
        let fault = match self.random.percent(70) {
            true => Fault::LostWrite,
            false => Fault::MisdirectedWrite,
        };
        self.disk
            .inject(fault, file, self.random.below(3) as u32 + 1);
    }

    /// Returns whether the engine still works after a failed read.
    pub(super) fn goes_on(&mut self, at: &str) -> bool {
        let hits = self.disk.take_hits();
        let only_reads = |hits: &[(Fault, String)]| {
            let is_read = |(fault, _): &(Fault, String)| {
                matches!(fault, Fault::FailedRead | Fault::FailedOpen)
            };
            !hits.is_empty() && hits.iter().all(is_read)
        };
        let Some(db) = self.db.clone() else {
            return false;
        };
        if !only_reads(&hits) || self.disk.is_off() || db.flush(usize::MAX).is_err() {
            return false;
        }
        // The engine does not report that it has stopped, so nothing may have changed.
        self.count("went on after a failed read");
        self.disk.clear_faults();
        self.is_faulty = false;
        assert!(
            db.head().hash == self.head || self.pending.contains(&db.head().hash),
            "{at}: after a failed read the head is {}",
            db.head()
        );
        self.head = db.head().hash;
        self.pending.clear();
        self.accept_finality(at);
        true
    }

    /// Waits until no thread has the database open, and no merge runs.
    fn wait_until_closed(&self) {
        while cambium_store::lock_data_dir(&self.disk).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Damages, truncates or removes a file of the closed database. It is then repaired or restored
    /// from a copy.
    pub(super) fn rot(&mut self, at: &str) -> Result<(), Failed> {
        self.close();
        self.wait_until_closed();
        let copy = self.disk.duplicate();
        let files = self.disk.files().into_iter();
        let files: Vec<_> = files.filter(|name| name != "cambium.lock").collect();
        let name = &files[self.random.below(files.len() as u64) as usize];
        let len = self
            .disk
            .contents(name)
            .map_or(0, |bytes| bytes.len() as u64);
        let damaged = self.disk.duplicate();
        // The end of the log may be gone unnoticed: where it is cut short, and where more than one
        // bit is flipped, which may be of the last record and of the mark behind it.
        let hides_the_end = match self.random.below(8) {
            _ if len == 0 => true,
            0 => {
                damaged.remove(name).expect("a file");
                true
            }
            1 => {
                let file = damaged.open(name).expect("a file");
                file.set_len(self.random.below(len)).expect("a cut");
                true
            }
            2 | 3 => {
                damaged.spoil(name, self.random.below(len), 1);
                false
            }
            _ => {
                let flips = self.random.below(3) + 1;
                for _ in 0..flips {
                    let at = self.random.below(len);
                    damaged.flip_bit(name, at, self.random.below(8) as u8);
                }
                flips > 1
            }
        };
        let at = format!("{at}, {name} damaged");
        let may_be_below = hides_the_end && name.starts_with("log/");
        let seen = damaged.duplicate();
        match self.open_on(&seen) {
            Ok(db) => {
                self.count("rot: opens");
                self.assert_known(&db, may_be_below, &at);
            }
            Err(error) => {
                self.count("rot: named");
                assert_names_the_way_back(&error, &at);
            }
        }
        match self.repair_and_look(&damaged, may_be_below, &at) {
            // Where the log was cut, a side block may be gone unnoticed as well.
            Some(report) if report.is_whole() && report.head.hash == self.head && !may_be_below => {
                self.count("rot: whole after repair");
                self.disk = damaged;
            }
            _ => {
                self.count("rot: partly lost after repair");
                self.disk = copy;
            }
        }
        self.db = Some(self.open().unwrap_or_else(|error| panic!("{at}: {error}")));
        self.check_durable(&at)
    }

    /// Checks a database whose disk has lost or misdirected writes: all that is left is correct or
    /// reported as damaged. The run ends here.
    pub(super) fn reckon(&mut self, at: &str) {
        self.close();
        let hits = self.disk.take_hits();
        let log_was_hit = hits.iter().any(|(_, name)| name.starts_with("log/"));
        let at = format!("{at}, {hits:?}");
        self.disk = self.disk.crash();
        self.is_faulty = false;
        let seen = self.disk.duplicate();
        match self.open_on(&seen) {
            Ok(db) => {
                self.count("lies: opens");
                self.assert_known(&db, log_was_hit, &at);
            }
            Err(error) => {
                self.count("lies: named");
                assert_names_the_way_back(&error, &at);
            }
        }
        let disk = self.disk.clone();
        match self.repair_and_look(&disk, log_was_hit, &at) {
            Some(report) if report.is_whole() => self.count("lies: whole after repair"),
            Some(_) => self.count("lies: partly lost after repair"),
            None => self.count("lies: lost"),
        }
    }

    fn open_on(&self, disk: &FaultyDisk) -> Result<Db, StateError> {
        let opened = Db::open(Arc::new(disk.clone()), options(&self.params));
        opened.map(|(db, _)| db)
    }

    /// Repairs a disk, after a dry run. Returns `None` if the repair reports that nothing can be
    /// restored.
    fn repair_and_look(
        &mut self,
        disk: &FaultyDisk,
        may_be_below: bool,
        at: &str,
    ) -> Option<RepairReport> {
        let (arc, options): (Arc<dyn Disk>, _) = (Arc::new(disk.clone()), options(&self.params));
        let planned = repair(&arc, options, true, &mut |_| {});
        let report = match repair(&arc, options, false, &mut |_| {}) {
            Ok(report) => report,
            Err(error) => {
                assert!(
                    planned.is_err(),
                    "{at}: a repair fails that was planned: {error}"
                );
                assert_names_the_way_back(&error, at);
                return None;
            }
        };
        let planned = planned.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(planned.findings, report.findings, "{at}");
        assert_eq!(planned.head, report.head, "{at}");
        let db = self
            .open_on(disk)
            .unwrap_or_else(|error| panic!("{at}: after a repair: {error}"));
        assert_eq!(db.head(), report.head, "{at}");
        let at = &format!("{at}, after {report:?}");
        self.assert_known(&db, may_be_below || report.lost_blocks, at);
        if report.is_whole() && report.lost_history.is_empty() {
            let damage = db.check(&mut |_| {}).expect("a check").damage;
            assert!(damage.is_empty(), "{at}: after a repair: {damage:?}");
        }
        Some(report)
    }

    /// Checks that the head is a possible one, and that everything readable is correct.
    fn assert_known(&mut self, db: &Db, may_be_below: bool, at: &str) {
        let head = db.head();
        let known = self.known.get(&head.hash);
        let known = known.unwrap_or_else(|| panic!("{at}: the head is {head}, which nobody made"));
        let is_acknowledged = head.hash == self.head || self.pending.contains(&head.hash);
        assert!(
            is_acknowledged || (may_be_below && known.durable),
            "{at}: the head is {head}, acknowledged was {}",
            self.known[&self.head].id
        );
        let root = known.root;
        let finality = db.finality();
        let retained = self.retained(finality, head.hash);
        assert_eq!(retained, finality, "{at}: not on the chain of {head}");
        let view = db.view().unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(view.state_root(), root, "{at}: root of the head");
        self.compare_where_readable(&view, head.hash, at);
    }

    /// Checks that values are correct, or are reported as damaged.
    fn compare_where_readable(&mut self, view: &View, block: B256, at: &str) {
        let model = self.known[&block].model.clone();
        if self.params.commitment.leaves() == LeafKind::Entries {
            return self.compare_readable_entries(view, &model, at);
        }
        for _ in 0..60 {
            let path = random::account_path(self.random.below(self.params.accounts * 5 / 4));
            let slot = random::slot_path(self.random.below(40));
            let expected = model.account(&path);
            match view.account(&path) {
                Ok(got) => {
                    let account = expected.map(|entry| entry.account);
                    assert_eq!(got, account, "{at}: account {path}");
                    if let Some(code_hash) = random::code_of(account) {
                        match view.code(&code_hash) {
                            Ok(code) => assert_eq!(Some(&code), model.code(&code_hash), "{at}"),
                            Err(error) => assert_names_the_way_back(&error, at),
                        }
                    }
                }
                Err(error) => assert_names_the_way_back(&error, at),
            }
            match view.slot(&path, &slot) {
                Err(StateError::StorageNotKept { .. }) if !self.params.commitment.keeps(&path) => {}
                Ok(got) => {
                    assert!(self.params.commitment.keeps(&path), "{at}: {path}");
                    let value = expected.and_then(|entry| entry.slots.get(&slot).copied());
                    let value = value.unwrap_or_default();
                    assert_eq!(got, value, "{at}: slot {slot} of {path}");
                }
                Err(error) => assert_names_the_way_back(&error, at),
            }
        }
    }
}

/// Checks that an error of damage names the remedy.
pub(super) fn assert_names_the_way_back(error: &StateError, at: &str) {
    let told = error.to_string();
    let ways = [
        "cambium db repair",
        "cambium db check",
        "import the chain",
        "import the",
        "open the database again",
    ];
    assert!(ways.iter().any(|way| told.contains(way)), "{at}: {told}");
}
