//! A run: random operations with checks after each, and recovery after failures.

use super::driver::{EngineDriver, Failed};

impl EngineDriver {
    /// Runs `steps` random operations, each followed by checks.
    ///
    /// # Panics
    ///
    /// Panics if engine and model differ. The message has the seed and the step.
    pub fn run(&mut self, steps: u64) {
        for step in 0..steps {
            self.maybe_fault();
            let at = format!("seed {} step {step}", self.params.seed);
            let done = self.operation(&at);
            if self.params.faults.lies && self.is_faulty {
                // The loss shows when the system is started again.
                if done.is_err() || self.random.percent(10) {
                    return self.reckon(&at);
                }
            }
            match done {
                Ok(()) => {}
                Err(Failed::Disk) if self.goes_on(&at) => {}
                Err(Failed::Disk) => self.recover(&at),
                Err(Failed::Memory) => {
                    self.count("refused for want of memory");
                    self.views.clear();
                    self.pending.clear();
                    self.pending_finality.clear();
                }
                Err(Failed::NotKept) => {
                    self.count("refused for blocks that are not kept");
                    self.pending.clear();
                    self.pending_finality.clear();
                }
            }
        }
    }

    fn operation(&mut self, at: &str) -> Result<(), Failed> {
        match self.random.below(100) {
            0..46 => self.block(at)?,
            46..48 => self.twin(at)?,
            48..50 => self.mistake(at)?,
            50..56 => self.blocks_ahead(at)?,
            56..60 => self.side_blocks_ahead(at)?,
            60..64 => self.drop_block(at)?,
            64..68 if self.params.finalizes => self.canonical(at)?,
            64..70 => self.change_head(at)?,
            70..75 => self.unwind(at)?,
            75..82 => self.flush(at)?,
            82..86 => self.read_back(at)?,
            86..89 => self.read_kept_views(at)?,
            89..92 if self.params.faults.rot => self.rot(at)?,
            89..92 => self.reopen(at)?,
            92..94 => self.check_all(at)?,
            94..97 => self.check_numbers(at)?,
            _ => self.prove(at)?,
        }
        self.check_head(at)?;
        self.follow(at)
    }

    fn reopen(&mut self, at: &str) -> Result<(), Failed> {
        self.count("reopen");
        self.close();
        let db = self.outcome(self.open(), at)?;
        self.db = Some(db);
        self.check_durable(at)
    }

    /// The disk works again: after a power failure, or as it was left.
    fn recover(&mut self, at: &str) {
        self.close();
        if self.disk.is_off() || self.random.percent(50) {
            self.count("crash");
            self.disk = self.disk.crash();
            self.is_faulty = false;
        } else {
            self.count("failure");
            self.disk.clear_faults();
            self.is_faulty = false;
        }
        let (db, recovery) = match self.open_told() {
            Ok(db) => db,
            Err(_) if self.is_faulty => return self.recover(at),
            Err(error) => panic!("{at}: after a failure: {error}"),
        };
        let head = db.head().hash;
        let pending = std::mem::take(&mut self.pending);
        assert!(
            head == self.head || pending.contains(&head),
            "{at}: after a failure the head is {}, acknowledged was {}",
            db.head(),
            self.known[&self.head].id
        );
        self.head = head;
        for known in self.known.values_mut() {
            // Not acknowledged, but there: it must not go away any more.
            known.durable |= db
                .has(known.id)
                .unwrap_or_else(|error| panic!("{at}: {} {error} {:?}", known.id, recovery));
        }
        self.db = Some(db);
        self.accept_finality(at);
        let checked = self.check_durable(at).and_then(|()| self.check_all(at));
        if let Err(Failed::Disk) = checked.and_then(|()| self.check_head(at)) {
            self.recover(at);
        }
    }
}
