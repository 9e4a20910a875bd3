//! Keeping the runs of an index: blocks are added, taken back, and written to files.
//!
//! Three locks, taken in this order: that of growing, that of merging, that of the list. All are held while files are
//! read and written. Look-ups see one value that is replaced as a whole: one that finds the index at the head takes
//! none of the three; another waits for that of growing, to add the newest blocks itself.

use crate::{
    IndexError,
    counters::Counters,
    data::{DataFiles, put_record},
    entry::{BLOCK_MAX, Kind},
    extents::{Extent, Extents},
    list::{RUN_LIST, RunList, data_name, run_name},
    recent::{DigestedBlock, Recent},
    run::{reader::RunFile, writer::RunWriter},
};
use alloy_primitives::Bytes;
use cambium_disk::{BLOCK_BYTES, Disk, DiskLock, WritePace, whole_blocks};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_runs::{Folder, KeyFilter, ListedRun};
use cambium_state::{Db, Followers};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::{
    collections::BTreeSet,
    sync::Arc,
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// Share of the memory for the newest blocks; filters have the rest.
const RECENT_DIVISOR: u64 = 2;
/// Most blocks in memory, however small.
const RECENT_BLOCKS_MAX: usize = 1 << 16;
/// Blocks in memory from which on they go to files after [`FLUSH_AFTER`]: other processes read more than these from
/// the log, and an interruption takes no more.
const FLUSH_BLOCKS: usize = 64;
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Bytes of data that are written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Options with which an index is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOptions {
    /// Memory for the newest blocks and for filters, in bytes, half each. Filters take 1.5 bytes for each
    /// transaction; without the filter of a run a look-up takes a device read there. Fences and the places
    /// of blocks take a further 0.3 % of the files of runs, and 3 bytes for each block. A reader beside a
    /// process that writes takes up to 16 times as much for blocks that are not in files yet.
    pub memory_bytes: u64,
    /// Length at which a file of block data is full, in bytes.
    pub data_file_bytes: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 128 << 20,
            data_file_bytes: 1 << 30,
        }
    }
}

/// The canonical blocks of a run.
#[derive(Clone)]
pub(crate) struct LiveRun {
    pub(crate) run: Arc<RunFile>,
    /// Last block that counts.
    pub(crate) last: BlockNumber,
}

impl LiveRun {
    pub(crate) fn first(&self) -> BlockNumber {
        *self.run.blocks().start()
    }

    /// Where a block is, if it is one of the run's.
    pub(crate) fn extent(&self, number: BlockNumber) -> Option<Extent> {
        let index = number.checked_sub(self.first())?;
        let is_live = number <= self.last;
        is_live.then(|| self.run.extents().get(index)).flatten()
    }
}

/// The state that look-ups see.
pub(crate) struct Live {
    /// Oldest first.
    pub(crate) runs: Arc<Vec<LiveRun>>,
    pub(crate) recent: Recent,
    /// The newest block of all.
    pub(crate) upto: Option<BlockId>,
    /// Seed of the keys of logs.
    pub(crate) seed: u64,
}

/// Says that this thread adds blocks or takes some back.
pub(crate) struct Growing<'a> {
    grower: &'a Mutex<Option<ThreadId>>,
    /// Released after the thread is forgotten.
    _lock: MutexGuard<'a, ()>,
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        *self.grower.lock() = None;
    }
}

/// Keeps the runs of an index.
pub(crate) struct Keeper {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: IndexOptions,
    pub(crate) live: RwLock<Live>,
    /// Held while blocks are added or taken back: see `Keeper::grow`.
    growing: Mutex<()>,
    /// The thread that holds it.
    grower: Mutex<Option<ThreadId>>,
    /// Held while files are merged.
    pub(crate) merging: Mutex<()>,
    pub(crate) list: Mutex<RunList>,
    pub(crate) data: DataFiles,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pace: Arc<WritePace>,
    /// When blocks last went to files, or began to be kept in memory.
    flushed: Mutex<Instant>,
    pub(crate) followers: Mutex<Followers>,
    /// Dropped last, with the lock of a writer.
    pub(crate) folder: Folder,
}

/// Opens the runs of a list, without their filters.
pub(crate) fn open_runs(
    disk: &dyn Disk,
    list: &RunList,
    counters: &Arc<Counters>,
) -> Result<Vec<LiveRun>, IndexError> {
    let runs = list.runs.iter();
    runs.map(|listed| open_run(disk, listed, counters))
        .collect()
}

/// Gives filters of `bytes_max` bytes together to runs, to the smallest ones first: a run of any size without its
/// filter costs each look-up a read, and the largest one has most of the keys that are looked up.
pub(crate) fn place_filters(runs: &[LiveRun], bytes_max: u64) -> Result<(), IndexError> {
    let mut by_size: Vec<_> = runs.iter().map(|live| &live.run).collect();
    by_size.sort_by_key(|run| run.filter_bytes());
    let mut left = bytes_max;
    let mut wanted = Vec::new();
    for run in by_size {
        match left.checked_sub(run.filter_bytes()) {
            Some(rest) => {
                left = rest;
                wanted.push(run);
            }
            None => run.drop_filter(),
        }
    }
    wanted.into_iter().try_for_each(|run| run.load_filter())
}

fn open_run(
    disk: &dyn Disk,
    listed: &ListedRun,
    counters: &Arc<Counters>,
) -> Result<LiveRun, IndexError> {
    let name = run_name(listed.file);
    let run = RunFile::open(disk, &name, listed.identity, counters)?;
    let blocks = run.blocks();
    if *blocks.start() != listed.first || *blocks.end() < listed.last.number {
        return Err(IndexError::Damaged {
            file: disk.display_path(&name),
            offset: 0,
            what: "it has not the blocks that the list of runs says".to_owned(),
        });
    }
    Ok(LiveRun {
        run: Arc::new(run),
        last: listed.last.number,
    })
}

impl Keeper {
    /// Keeps the runs of a list, which are open.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: IndexOptions,
        list: RunList,
        runs: Vec<LiveRun>,
        counters: Arc<Counters>,
        lock: Option<DiskLock>,
    ) -> Self {
        Self {
            live: RwLock::new(Live {
                upto: list.upto(),
                runs: Arc::new(runs),
                recent: Recent::default(),
                seed: list.seed,
            }),
            growing: Mutex::default(),
            grower: Mutex::default(),
            merging: Mutex::default(),
            list: Mutex::new(list),
            data: DataFiles::new(disk.clone(), counters.clone()),
            folder: Folder::new(disk.clone(), &RUN_LIST, lock),
            disk,
            options,
            counters,
            pace: Arc::default(),
            flushed: Mutex::new(Instant::now()),
            followers: Mutex::default(),
        }
    }

    /// Whether files may be written.
    pub(crate) fn check_writable(&self) -> Result<(), IndexError> {
        Ok(self.folder.check_writable()?)
    }

    /// Waits until no other thread adds blocks or takes some back. `None` if this thread does so already, in a
    /// callback.
    pub(crate) fn grow(&self) -> Option<Growing<'_>> {
        let this = thread::current().id();
        if *self.grower.lock() == Some(this) {
            return None;
        }
        let lock = self.growing.lock();
        *self.grower.lock() = Some(this);
        Some(Growing {
            grower: &self.grower,
            _lock: lock,
        })
    }

    /// Replaces the list of runs. After a failure to replace it, it is unknown which list a crash would leave, so later
    /// writes fail, and no file is removed.
    pub(crate) fn replace_list(&self, kept: &mut RunList, list: RunList) -> Result<(), IndexError> {
        self.folder.replace_list(&list.encode())?;
        *kept = list;
        Ok(())
    }

    /// Replaces the list by one with a run that was written for it. If the list stays what it was, nothing needs
    /// the run's file, and the next attempt has another one: it is removed.
    pub(crate) fn list_run(
        &self,
        kept: &mut RunList,
        list: RunList,
        run: &ListedRun,
    ) -> Result<(), IndexError> {
        let listed = self.replace_list(kept, list);
        if listed.is_err() {
            self.folder.discard(&run_name(run.file));
        }
        listed
    }

    /// The block that comes next.
    pub(crate) fn next(&self) -> BlockNumber {
        let first = self.list.lock().first;
        let upto = self.live.read().upto;
        upto.map_or(first, |upto| first.max(upto.number + 1))
    }

    /// Whether the blocks in memory are to be written to files.
    pub(crate) fn is_full(&self) -> bool {
        let live = self.live.read();
        let blocks = live.recent.blocks().len();
        blocks >= RECENT_BLOCKS_MAX
            || live.recent.bytes() as u64 >= self.options.memory_bytes / RECENT_DIVISOR
    }

    /// Whether the blocks in memory are to be written to files, although there is room for more.
    pub(crate) fn is_due(&self) -> bool {
        self.folder.is_writer()
            && self.live.read().recent.blocks().len() >= FLUSH_BLOCKS
            && self.flushed.lock().elapsed() >= FLUSH_AFTER
    }

    /// Adds the block above the newest one. The caller has locked `growing`.
    pub(crate) fn append(&self, id: BlockId, body: Bytes) -> Result<(), IndexError> {
        let number = id.number;
        if number > BLOCK_MAX {
            return Err(IndexError::TooHigh { number });
        }
        let seed = self.live.read().seed;
        let digested = DigestedBlock::new(id, body, seed);
        let digested = digested.map_err(|error| IndexError::Unreadable {
            block: id,
            why: error.to_string(),
        })?;
        let mut live = self.live.write();
        live.recent.push(digested);
        live.upto = Some(id);
        Ok(())
    }

    /// Writes the blocks in memory to files. If that fails, they stay in memory. The caller has locked
    /// `growing`.
    pub(crate) fn flush(&self) -> Result<(), IndexError> {
        let (blocks, hashes, logs) = {
            let live = self.live.read();
            let recent = &live.recent;
            let logs: Vec<_> = recent.log_entries().collect();
            (recent.blocks().to_vec(), recent.hash_entries(), logs)
        };
        let (Some(oldest), Some(newest)) = (blocks.first(), blocks.last()) else {
            return Ok(());
        };
        self.check_writable()?;
        let mut kept = self.list.lock();
        let mut extents = Extents::default();
        let bodies = blocks.iter().map(|block| (block.id, &block.body));
        let (data_file, data_end) = self.write_data(&mut kept, bodies, &mut extents)?;
        let listed = self
            .folder
            .new_run(&mut kept.next_file, oldest.id.number, newest.id);
        let run = self.write_run(&listed, hashes.len() as u64, &extents, |writer| {
            for (kind, entries) in [(Kind::Hashes, &hashes), (Kind::Logs, &logs)] {
                for entry in entries {
                    writer.push(kind, *entry)?;
                }
                writer.end_section()?;
            }
            Ok(())
        })?;
        let mut list = RunList {
            data_file,
            data_end,
            ..kept.clone()
        };
        list.runs.push(listed);
        self.list_run(&mut kept, list, &listed)?;
        {
            let mut live = self.live.write();
            let mut runs = live.runs.to_vec();
            runs.push(run);
            live.runs = Arc::new(runs);
            live.recent = Recent::default();
        }
        *self.flushed.lock() = Instant::now();
        self.place_filters();
        Ok(())
    }

    /// Writes bodies of consecutive blocks to the data file, and adds where each is. Returns the data file
    /// and the place that the next ones get.
    fn write_data<'a>(
        &self,
        list: &mut RunList,
        blocks: impl Iterator<Item = (BlockId, &'a Bytes)>,
        extents: &mut Extents,
    ) -> Result<(u64, u64), IndexError> {
        if list.data_end >= self.options.data_file_bytes.max(1) {
            (list.data_file, list.data_end) = (list.next_file, 0);
            list.next_file += 1;
        }
        let (number, mut written) = (list.data_file, list.data_end);
        let file = self.data.file(number, true)?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut offset = written;
        let mut blocks = blocks.peekable();
        while let Some((id, body)) = blocks.next() {
            let too_large = || IndexError::Unreadable {
                block: id,
                why: "it has 4 GiB or more".to_owned(),
            };
            let mut len = put_record(&mut buffer, id, body).ok_or_else(too_large)?;
            if blocks.peek().is_none() {
                let whole = whole_blocks(buffer.len() as u64) as usize;
                len =
                    u32::try_from(len as usize + whole - buffer.len()).map_err(|_| too_large())?;
                buffer.resize(whole, 0);
            }
            extents.push(Extent {
                file: number,
                offset,
                len,
            });
            offset += u64::from(len);
            // Whole blocks; the rest begins the next write.
            if buffer.len() >= BUFFER_BYTES || blocks.peek().is_none() {
                let whole = buffer.len() / BLOCK_BYTES * BLOCK_BYTES;
                self.pace
                    .write(|| file.write_at(&buffer[..whole], written))?;
                buffer.drain(..whole);
                written += whole as u64;
            }
        }
        debug_assert_eq!(written, offset);
        file.sync()?;
        self.counters.count_written(written - list.data_end);
        Ok((number, written))
    }

    /// Writes the file of a run: `write` adds its entries. A file that could not be written is removed:
    /// nothing needs it, and the next attempt has another one.
    pub(crate) fn write_run(
        &self,
        listed: &ListedRun,
        hashes: u64,
        extents: &Extents,
        write: impl FnOnce(&mut RunWriter) -> Result<(), IndexError>,
    ) -> Result<LiveRun, IndexError> {
        let name = run_name(listed.file);
        let written = self.try_to_write_run(&name, listed, hashes, extents, write);
        if written.is_err() {
            // Opening removes it otherwise.
            _ = self.disk.remove(&name);
        }
        written
    }

    fn try_to_write_run(
        &self,
        name: &str,
        listed: &ListedRun,
        hashes: u64,
        extents: &Extents,
        write: impl FnOnce(&mut RunWriter) -> Result<(), IndexError>,
    ) -> Result<LiveRun, IndexError> {
        self.check_writable()?;
        let keys = (KeyFilter::bytes_for(hashes) <= self.filters_max()).then_some(hashes);
        let blocks = listed.first..=listed.last.number;
        let pace = self.pace.clone();
        let mut writer = RunWriter::create(&*self.disk, name, listed.identity, blocks, keys, pace)?;
        write(&mut writer)?;
        self.counters.count_written(writer.finish(extents)?);
        open_run(&*self.disk, listed, &self.counters)
    }

    /// Memory for filters, in bytes.
    pub(crate) const fn filters_max(&self) -> u64 {
        self.options.memory_bytes / RECENT_DIVISOR
    }

    /// Gives filters to the runs that are there now. An error is logged: look-ups do without.
    pub(crate) fn place_filters(&self) {
        let runs = self.live.read().runs.clone();
        if let Err(error) = place_filters(&runs, self.filters_max()) {
            tracing::warn!(%error, "a filter of the index can't be read");
        }
    }

    /// Takes back the blocks above the newest one that is still canonical. The caller has locked `growing`.
    pub(crate) fn take_back(&self, db: &Db) -> Result<(), IndexError> {
        let _merging = self.merging.lock();
        let mut kept = self.list.lock();
        let fork = self.newest_canonical(db, &kept)?;
        let mut list = kept.clone();
        let removed = list.cut(fork);
        let is_changed = list != *kept;
        match is_changed && self.folder.is_writer() {
            true => self.replace_list(&mut kept, list)?,
            false => *kept = list,
        }
        let mut live = self.live.write();
        live.recent.cut(fork.map(|fork| fork.number));
        let mut runs = live.runs[..kept.runs.len()].to_vec();
        if let (Some(run), Some(listed)) = (runs.last_mut(), kept.runs.last()) {
            run.last = listed.last.number;
        }
        live.runs = Arc::new(runs);
        let recent = live.recent.blocks().last().map(|block| block.id);
        live.upto = recent.or_else(|| kept.upto());
        drop(live);
        drop(kept);
        self.remove_runs(&removed)?;
        self.remove_dead_data()
    }

    /// The newest block of the index that is canonical.
    fn newest_canonical(&self, db: &Db, list: &RunList) -> Result<Option<BlockId>, IndexError> {
        let live = self.live.read();
        for block in live.recent.blocks().iter().rev() {
            if db.is_canonical(block.id)? {
                return Ok(Some(block.id));
            }
        }
        for (run, listed) in live.runs.iter().zip(&list.runs).rev() {
            if db.is_canonical(listed.last)? {
                return Ok(Some(listed.last));
            }
            let first = run.first();
            if !db.is_canonical(self.id_in(run, first)?)? {
                continue;
            }
            // The first is canonical; the last is not.
            let (mut low, mut high) = (first, run.last);
            while high - low > 1 {
                let middle = low.midpoint(high);
                match db.is_canonical(self.id_in(run, middle)?)? {
                    true => low = middle,
                    false => high = middle,
                }
            }
            return Ok(Some(self.id_in(run, low)?));
        }
        Ok(None)
    }

    /// The hash of a block of a run.
    fn id_in(&self, run: &LiveRun, number: BlockNumber) -> Result<BlockId, IndexError> {
        let extent = run.extent(number).ok_or(IndexError::NotIndexed {
            number,
            oldest: run.first(),
        })?;
        Ok(self.data.read(extent, number)?.0)
    }

    pub(crate) fn remove_runs(&self, runs: &[ListedRun]) -> Result<(), IndexError> {
        let names = runs.iter().map(|run| run_name(run.file));
        Ok(self.folder.remove(names)?)
    }

    /// Removes data files that no run refers to.
    pub(crate) fn remove_dead_data(&self) -> Result<(), IndexError> {
        if !self.folder.is_writer() {
            return Ok(());
        }
        let list = self.list.lock();
        let runs = self.live.read().runs.clone();
        let files = runs.iter().flat_map(|run| run.run.extents().files());
        let files: BTreeSet<u64> = files.chain([list.data_file]).collect();
        for name in self.disk.list(crate::list::DIR)? {
            if let Some((file, false)) = crate::list::file_of(&name)
                && !files.contains(&file)
            {
                self.data.close(file);
                self.disk.remove(&data_name(file))?;
            }
        }
        Ok(())
    }
}
