//! Repeated crashes and recoveries of all components together, used as the engine uses them. After
//! each recovery everything that a sync acknowledged must be there.

use alloy_primitives::{B256, keccak256};
use cambium_disk::{Disk, Fault, FaultyDisk};
use cambium_primitives::{Path, Reader};
use cambium_seeds::Random;
use cambium_store::{
    BlockEntry, BlockIndex, BlockLog, Checkpoint, CheckpointWriter, Codes, IndexState, LogOptions,
    LogPosition, Page, PageAddr, PageBuilder, SegmentOptions, Segments, StoreError,
    load_latest_checkpoint, quarantine,
};
use std::{collections::BTreeMap, sync::Arc};

const SALT: u64 = 0xca3b;
const LOG: LogOptions = LogOptions {
    file_bytes_max: 3_000,
    extend_bytes: 1_024,
    salt: SALT,
};
const SEGMENTS: SegmentOptions = SegmentOptions {
    segment_bytes_max: 8_192,
    buffer_bytes: 4_500,
    // Few enough that segment numbers are reused.
    segments_max: 40,
};

/// Returns the payload of block `n` in life `life`. It differs in every life.
fn payload(n: u64, life: u64) -> Vec<u8> {
    let mut payload = life.to_le_bytes().to_vec();
    payload.extend((0..n * 61 % 700).map(|at| (n + at) as u8));
    payload
}

fn code(n: u64) -> Vec<u8> {
    vec![n as u8; (n * 29 % 300) as usize]
}

fn hash(n: u64) -> B256 {
    keccak256(n.to_be_bytes())
}

fn page(n: u64) -> Vec<u8> {
    let mut builder = PageBuilder::new(&Path::EMPTY);
    builder
        .leaf(&Path::account(&hash(n)), &code(n + 7))
        .finish()
}

/// A small engine. It appends blocks to the log, each with a code, and replaces pages in merges. As
/// in the real engine, a page is retired once the newest checkpoint does not refer to it, and dead
/// once the next checkpoint is durable.
struct Engine {
    disk: Arc<dyn Disk>,
    log: BlockLog,
    codes: Codes,
    segments: Segments,
    index: BlockIndex,
    pages: BTreeMap<u64, PageAddr>,
    /// Payloads of all blocks in the log.
    blocks: Vec<Vec<u8>>,
    /// Pages that only the previous checkpoint refers to.
    retired: Vec<PageAddr>,
    /// Pages that were replaced since the newest checkpoint.
    replaced: Vec<PageAddr>,
    /// Number of segments that were removed.
    removed: usize,
}

impl Engine {
    fn open(disk: &FaultyDisk) -> Result<Self, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut table = None;
        let mut pages = BTreeMap::new();
        let mut retired = Vec::new();
        let (mut position, mut codes_bytes, mut numbers) = (LogPosition::START, 0, 0);
        let read = |checkpoint: &Checkpoint| {
            let section = |name| checkpoint.read_section(name);
            Ok::<_, StoreError>((section("segments")?, section("head")?, section("retired")?))
        };
        let found = load_latest_checkpoint(&disk, StoreError::is_corruption, read)?;
        let damaged: Vec<_> = found
            .damaged
            .iter()
            .map(|(sequence, _)| *sequence)
            .collect();
        if let Some((segments, head, retired_bytes)) = found.loaded {
            table = Some(segments);
            let mut reader = Reader::new(&head);
            position = LogPosition::from_u64(reader.u64().unwrap());
            codes_bytes = reader.u64().unwrap();
            numbers = reader.u64().unwrap();
            while reader.remaining() > 0 {
                let (n, addr) = (reader.u64().unwrap(), reader.u64().unwrap());
                pages.insert(n, PageAddr::from_u64(addr).unwrap());
            }
            let (words, _) = retired_bytes.as_chunks();
            let addr = |word: &[u8; 8]| PageAddr::from_u64(u64::from_le_bytes(*word)).unwrap();
            retired.extend(words.iter().map(addr));
        } else if let Some((_, error)) = found.damaged.into_iter().next() {
            return Err(error);
        }
        let (segments, damage) = Segments::open(
            Arc::clone(&disk),
            SEGMENTS,
            SALT,
            table.as_deref(),
            &retired,
        )?;
        assert!(damage.is_empty(), "{damage:?}");
        let (log, _) = BlockLog::open(Arc::clone(&disk), LOG, position)?;
        let (codes, recovery) = Codes::open(Arc::clone(&disk), SALT, codes_bytes)?;
        assert!(recovery.damage.is_empty(), "{:?}", recovery.damage);
        let (index, state) = BlockIndex::open(Arc::clone(&disk), numbers)?;
        assert_eq!(state, IndexState::Ready);
        segments.settle()?;
        log.settle()?;
        codes.settle()?;
        quarantine(&*disk, &damaged)?;
        let mut blocks = Vec::new();
        for (n, item) in log.scan(LogPosition::START).enumerate() {
            let (n, (at, record)) = (n as u64, item?);
            if at >= position {
                codes.put(hash(n), &code(n))?;
                index.set(
                    n,
                    BlockEntry {
                        hash: hash(n),
                        position: at,
                    },
                )?;
            }
            blocks.push(record.payload);
        }
        Ok(Self {
            disk,
            log,
            codes,
            segments,
            index,
            pages,
            blocks,
            retired,
            replaced: Vec::new(),
            removed: 0,
        })
    }

    /// Checks that everything acknowledged is there, and returns the blocks found, which are
    /// durable now.
    fn check(&self, acknowledged: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let kept = self.blocks.get(..acknowledged.len());
        assert!(
            kept == Some(acknowledged),
            "an acknowledged block is missing"
        );
        assert_eq!(self.index.numbers(), self.blocks.len() as u64);
        for (n, payload) in self.blocks.iter().enumerate() {
            let n = n as u64;
            let entry = self.index.get(n).unwrap().expect("an entry for each block");
            assert_eq!(entry.hash, hash(n));
            assert_eq!(&self.log.read(entry.position).unwrap().payload, payload);
            assert_eq!(self.codes.get(&hash(n)).unwrap(), Some(code(n)));
        }
        for (n, read) in self.pages.keys().zip(self.read_pages()) {
            let path = Path::account(&hash(*n));
            assert_eq!(read.unwrap().get(&path), Some(&*code(n + 7)), "page {n}");
        }
        self.blocks.clone()
    }

    fn read_pages(&self) -> Vec<Result<Page, StoreError>> {
        self.segments
            .read_batch(&self.pages.values().copied().collect::<Vec<_>>())
    }

    fn append_block(&mut self, life: u64) -> Result<(), StoreError> {
        let n = self.blocks.len() as u64;
        let payload = payload(n, life);
        self.codes.put(hash(n), &code(n))?;
        let position = self.log.append(1, &[&payload[..8], &payload[8..]])?;
        self.index.set(
            n,
            BlockEntry {
                hash: hash(n),
                position,
            },
        )?;
        self.blocks.push(payload);
        Ok(())
    }

    fn replace_page(&mut self, n: u64) -> Result<(), StoreError> {
        let addr = self.segments.append(&page(n))?;
        self.replaced.extend(self.pages.insert(n, addr));
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), StoreError> {
        let position = self.log.sync()?;
        self.segments.sync()?;
        let codes_bytes = self.codes.sync()?;
        self.index.sync()?;
        let mut head = position.to_u64().to_le_bytes().to_vec();
        head.extend(codes_bytes.to_le_bytes());
        head.extend(self.index.numbers().to_le_bytes());
        for (n, addr) in &self.pages {
            head.extend(n.to_le_bytes());
            head.extend(addr.to_u64().to_le_bytes());
        }
        let mut writer = CheckpointWriter::create(Arc::clone(&self.disk), None)?;
        writer.section("segments")?;
        writer.write(&self.segments.encode_table(&self.retired))?;
        writer.section("head")?;
        writer.write(&head)?;
        writer.section("retired")?;
        for addr in &self.replaced {
            writer.write(&addr.to_u64().to_le_bytes())?;
        }
        writer.finish()?;
        for addr in self.retired.drain(..) {
            self.segments.mark_dead(addr);
        }
        self.retired.append(&mut self.replaced);
        self.removed += self.segments.remove_dead(|_| true)?.len();
        Ok(())
    }

    /// Works at random until an error, or for a limited number of steps, and records what was
    /// acknowledged.
    fn work(
        &mut self,
        random: &mut Random,
        life: u64,
        acknowledged: &mut Vec<Vec<u8>>,
    ) -> Result<(), StoreError> {
        for _ in 0..random.below(60) {
            match random.below(13) {
                0 => self.checkpoint()?,
                12 => {
                    self.log.preallocate_next(self.segments.pace())?;
                    if random.below(2) == 0 {
                        self.log.begin_prepared()?;
                    }
                }
                1..=4 => {
                    self.log.sync()?;
                    *acknowledged = self.blocks.clone();
                }
                5..=8 => self.append_block(life)?,
                _ => self.replace_page(random.below(24))?,
            }
        }
        Ok(())
    }
}

#[test]
fn power_lost_at_any_moment_again_and_again_costs_nothing_acknowledged() {
    for seed in cambium_seeds::seeds!(0..24) {
        let mut random = Random::new(seed);
        let mut disk = FaultyDisk::new(seed);
        let mut acknowledged = Vec::new();
        for life in 0..25 {
            let opened = Engine::open(&disk);
            let mut engine = opened.unwrap_or_else(|e| panic!("seed {seed}, life {life}: {e}"));
            acknowledged = engine.check(&acknowledged);
            disk.lose_power_after(random.below(120));
            let _ = engine.work(&mut random, life, &mut acknowledged);
            disk = disk.crash();
            if random.below(3) == 0 {
                // Recovery itself is interrupted by a power loss.
                disk.lose_power_after(random.below(12));
                let _ = Engine::open(&disk);
                disk = disk.crash();
            }
        }
        assert!(
            acknowledged.len() > 50,
            "{} blocks in all",
            acknowledged.len()
        );
    }
}

#[test]
fn a_failed_write_or_sync_then_a_restart_then_a_power_loss_cost_nothing_acknowledged() {
    for seed in cambium_seeds::seeds!(0..24) {
        let mut random = Random::new(seed ^ 0xfa17);
        let mut disk = FaultyDisk::new(seed);
        let mut acknowledged = Vec::new();
        for life in 0..25 {
            let opened = Engine::open(&disk);
            let mut engine = opened.unwrap_or_else(|e| panic!("seed {seed}, life {life}: {e}"));
            acknowledged = engine.check(&acknowledged);
            let part =
                ["log", "segments", "codes", "blocks", "check", ""][random.below(6) as usize];
            match random.below(2) {
                0 => disk.inject(Fault::FailedSync, part, 1),
                _ => disk.inject(Fault::FailedWrite, part, 1),
            }
            let _ = engine.work(&mut random, life, &mut acknowledged);
            drop(engine);
            // The process restarts with the content of the page cache, and only then the power
            // fails.
            disk.inject(Fault::FailedSync, part, 0);
            disk.inject(Fault::FailedWrite, part, 0);
            let opened = Engine::open(&disk);
            let mut engine = opened.unwrap_or_else(|e| panic!("seed {seed}, life {life}: {e}"));
            acknowledged = engine.check(&acknowledged);
            let _ = engine.work(&mut random, life, &mut acknowledged);
            disk = disk.crash();
        }
        assert!(
            acknowledged.len() > 50,
            "{} blocks in all",
            acknowledged.len()
        );
    }
}

/// Returns the names of all checkpoints that were not set aside.
fn checkpoints(disk: &FaultyDisk) -> Vec<String> {
    let mut names = disk.files();
    names.retain(|name| name.starts_with("checkpoint-") && !name.contains('.'));
    names
}

#[test]
fn with_the_newest_checkpoint_damaged_the_one_before_and_the_log_give_everything_back() {
    let (mut fallbacks, mut removed) = (0, 0);
    for seed in cambium_seeds::seeds!(0..24) {
        let mut random = Random::new(seed ^ 0xbad);
        let mut disk = FaultyDisk::new(seed);
        let mut acknowledged = Vec::new();
        for life in 0..25 {
            let opened = Engine::open(&disk);
            let mut engine = opened.unwrap_or_else(|e| panic!("seed {seed}, life {life}: {e}"));
            acknowledged = engine.check(&acknowledged);
            let before = checkpoints(&disk);
            let _ = engine.work(&mut random, life, &mut acknowledged);
            removed += engine.removed;
            drop(engine);
            disk = disk.crash();
            // Checkpoints of an earlier life don't qualify: the previous one may have been damaged
            // then, so the data that the next older one needs may be gone.
            if let [.., _, newest] = &checkpoints(&disk)[..]
                && !before.contains(newest)
            {
                let len = disk.contents(newest).unwrap().len() as u64;
                disk.flip_bit(newest, random.below(len), random.below(8) as u8);
                fallbacks += 1;
            }
        }
    }
    assert!(fallbacks > 100, "{fallbacks} checkpoints damaged");
    assert!(removed > 100, "{removed} segments removed");
}
