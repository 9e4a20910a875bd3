//! The preimages of a database: those in memory, and the runs in files.

use crate::{
    PreimagesError, PreimagesLookup,
    files::{open_runs, read_list, remove_leftovers},
    kind::{Entry, Kind},
    list::{DIR, ListedRun, Lost, RUN_LIST, RunList, file_of, run_name},
    merge::Merged,
    run::{RunFile, RunWriter},
    seen::{Recent, Seen},
};
use alloy_primitives::{Address, B256};
use cambium_disk::{Disk, DiskLock, WritePace};
use cambium_primitives::BlockId;
use cambium_runs::{Folder, RunSize, due_for_merge};
use parking_lot::{Mutex, RwLock};
use std::{collections::BTreeMap, sync::Arc};

/// Memory of a preimage with its hash in a sorted map, in bytes: about.
const ENTRY_BYTES: u64 = 112;
/// Preimages that are hashed before there is a look at the memory again.
const ADDED_AT_ONCE: usize = 4096;

/// Options with which preimages are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreimagesOptions {
    /// Memory for preimages that are not in files yet, in bytes; twice as much while files can't be written.
    /// The memory for files comes on top: 0.2 % of their size.
    pub memory_bytes: u64,
}

impl Default for PreimagesOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 32 << 20,
        }
    }
}

/// How many preimages there are, and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreimagesStats {
    /// Addresses. One that is in two runs counts twice, until these are merged.
    pub addresses: u64,
    /// Keys of slots, counted in the same way.
    pub slots: u64,
    /// Number of runs in files.
    pub runs: u64,
    /// Size of the files in bytes.
    pub file_bytes: u64,
    /// Memory in bytes: of preimages that are not in files yet, and of the first hashes of pages.
    pub memory_bytes: u64,
    /// Number of blocks whose preimages were not added: see [`Preimages::skip`].
    pub lost_blocks: u64,
}

struct State {
    seen: Seen,
    /// Receives new preimages. Look-ups don't see it.
    open: Recent,
    /// Hash of the database's first block, once it is known.
    genesis: Option<B256>,
    /// All preimages of the blocks up to this one were added, but for those of `lost_blocks`.
    upto: Option<BlockId>,
    lost: Lost,
}

impl State {
    /// Memory of preimages that are not in files yet, in bytes.
    fn added_bytes(&self) -> u64 {
        let closed: u64 = self.seen.recent.iter().map(|part| part.len()).sum();
        (closed + self.open.len()) * ENTRY_BYTES
    }

    /// Closes the part that receives new preimages, so that look-ups see it without a lock.
    fn close(&mut self) {
        if self.open.len() > 0 {
            let open = std::mem::take(&mut self.open);
            self.seen.recent.push(Arc::new(open));
        }
    }
}

/// The preimages of a database. Clones are handles of the same ones.
#[derive(Clone)]
pub struct Preimages {
    inner: Arc<Inner>,
}

/// Three locks, taken in this order: that of merging, that of the list, that of the state. Files are read and written
/// under the first two alone.
struct Inner {
    disk: Arc<dyn Disk>,
    options: PreimagesOptions,
    merging: Mutex<()>,
    list: Mutex<RunList>,
    state: RwLock<State>,
    pace: Arc<WritePace>,
    /// Dropped last, with the lock of a writer.
    folder: Folder,
}

impl Preimages {
    /// Makes the preimages of a new database, without any. Those of the state at its first block are to be added
    /// next, and then [`Preimages::advance`] to be called with it: until that is in files, [`Preimages::durable`]
    /// is `None`, and they can't be opened.
    ///
    /// # Errors
    ///
    /// [`PreimagesError::Exists`] if there are some already, [`PreimagesError::Store`] if another process
    /// holds the lock, and errors of the disk.
    pub fn create(disk: Arc<dyn Disk>, options: PreimagesOptions) -> Result<Self, PreimagesError> {
        disk.create_dir(DIR)?;
        disk.sync_dir("")?;
        let lock = RUN_LIST.lock(&*disk)?;
        if RunList::exists(&*disk)? {
            let dir = disk.display_path("");
            return Err(PreimagesError::Exists { dir });
        }
        let list = RunList {
            genesis: B256::ZERO,
            upto: None,
            lost: Lost::default(),
            next_file: 1,
            runs: Vec::new(),
        };
        list.write(&*disk)?;
        Ok(Self::assemble(disk, options, list, Vec::new(), Some(lock)))
    }

    /// Removes all preimages from a disk that has no database: those of one that was not made whole.
    ///
    /// # Errors
    ///
    /// [`PreimagesError::Exists`] if they are of more than the first state of a database,
    /// [`PreimagesError::Store`] if another process holds the lock, and errors of the disk.
    pub fn remove(disk: &dyn Disk) -> Result<(), PreimagesError> {
        if !RunList::exists(disk)? {
            return Ok(());
        }
        let _lock = RUN_LIST.lock(disk)?;
        if RunList::has_blocks(disk)? {
            let dir = disk.display_path("");
            return Err(PreimagesError::Exists { dir });
        }
        // The list last: files without one would be those of a database that has lost it.
        RUN_LIST.remove_leftovers(disk, |name| file_of(name).is_some())?;
        disk.sync_dir(DIR)?;
        Ok(disk.remove(RUN_LIST.name)?)
    }

    /// Whether a database has preimages.
    ///
    /// # Errors
    ///
    /// Errors of the disk, and [`PreimagesError::Missing`] if there are files, and the list of them is lost.
    pub fn exist(disk: &dyn Disk) -> Result<bool, PreimagesError> {
        RunList::exists(disk)
    }

    /// Opens the preimages of the database whose first block has the hash `genesis`, for writing, by one process at a
    /// time.
    ///
    /// # Errors
    ///
    /// [`PreimagesError::None`] if there are none, [`PreimagesError::OtherDatabase`] if they are those of
    /// another one, [`PreimagesError::Damaged`] and [`PreimagesError::Missing`] name a file that is not as
    /// it was written, and [`PreimagesError::Store`] says that another process has them.
    pub fn open(
        disk: Arc<dyn Disk>,
        genesis: B256,
        options: PreimagesOptions,
    ) -> Result<Self, PreimagesError> {
        if !RunList::exists(&*disk)? {
            let dir = disk.display_path("");
            return Err(PreimagesError::None { dir });
        }
        let lock = RUN_LIST.lock(&*disk)?;
        let list = RunList::read(&*disk, genesis)?;
        let runs = open_runs(&*disk, &list)?;
        remove_leftovers(&*disk, &list)?;
        Ok(Self::assemble(disk, options, list, runs, Some(lock)))
    }

    /// Opens preimages for reading alone, beside a process that may write to them. It sees what was in files
    /// then: see [`Preimages::reload`].
    ///
    /// # Errors
    ///
    /// As [`Preimages::open`].
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        genesis: B256,
        options: PreimagesOptions,
    ) -> Result<Self, PreimagesError> {
        let (list, runs) = read_list(&*disk, genesis)?;
        Ok(Self::assemble(disk, options, list, runs, None))
    }

    fn assemble(
        disk: Arc<dyn Disk>,
        options: PreimagesOptions,
        list: RunList,
        runs: Vec<Arc<RunFile>>,
        lock: Option<DiskLock>,
    ) -> Self {
        let state = State {
            seen: Seen {
                runs: Arc::new(runs),
                recent: Vec::new(),
            },
            open: Recent::default(),
            genesis: list.upto.map(|_| list.genesis),
            upto: list.upto,
            lost: list.lost,
        };
        Self {
            inner: Arc::new(Inner {
                folder: Folder::new(disk.clone(), &RUN_LIST, lock),
                disk,
                options,
                merging: Mutex::default(),
                list: Mutex::new(list),
                state: RwLock::new(state),
                pace: Arc::default(),
            }),
        }
    }

    /// Reads the list again, which another process writes. If it has changed, preimages added here are dropped: the
    /// follower continues from [`Preimages::upto`], which is then that of the list.
    ///
    /// # Errors
    ///
    /// As [`Preimages::open`].
    pub fn reload(&self) -> Result<(), PreimagesError> {
        if self.inner.folder.is_writer() {
            return Ok(());
        }
        let mut kept = self.inner.list.lock();
        let (list, runs) = read_list(&*self.inner.disk, kept.genesis)?;
        if list == *kept {
            return Ok(());
        }
        let mut state = self.inner.state.write();
        state.seen = Seen {
            runs: Arc::new(runs),
            recent: Vec::new(),
        };
        state.open = Recent::default();
        state.upto = list.upto;
        state.lost = list.lost;
        *kept = list;
        Ok(())
    }

    /// All preimages of the blocks up to this one were added, since the database began, but for those of
    /// [`PreimagesStats::lost_blocks`]. `None` if those of the state at its first block were not all added.
    #[must_use]
    pub fn upto(&self) -> Option<BlockId> {
        self.inner.state.read().upto
    }

    /// The same for preimages in files: after a crash, blocks above have to be added again. If the block is not
    /// canonical any more, those above the newest one below it that is.
    #[must_use]
    pub fn durable(&self) -> Option<BlockId> {
        self.inner.list.lock().upto
    }

    /// Adds preimages to those in memory. When they take more than [`PreimagesOptions::memory_bytes`], they go
    /// to a file.
    ///
    /// # Errors
    ///
    /// Those of [`Preimages::flush`], once there is no memory for more, and [`PreimagesError::ReaderFull`] in a reader.
    /// Some or all of the preimages were not added then.
    pub fn add(
        &self,
        addresses: impl IntoIterator<Item = Address>,
        slots: impl IntoIterator<Item = B256>,
    ) -> Result<(), PreimagesError> {
        self.add_kind(Kind::Address, addresses)?;
        self.add_kind(Kind::Slot, slots)
    }

    fn add_kind(
        &self,
        kind: Kind,
        preimages: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<(), PreimagesError> {
        let mut preimages = preimages.into_iter();
        loop {
            // The caller's iterator and the hashes take no lock.
            let entries = preimages.by_ref().take(ADDED_AT_ONCE);
            let entries: Vec<_> = entries.map(|bytes| Entry::of(bytes.as_ref())).collect();
            if entries.is_empty() {
                return Ok(());
            }
            if self.inner.state.read().added_bytes() >= self.inner.options.memory_bytes {
                match self.inner.folder.is_writer() {
                    true => self.flush()?,
                    false => return Err(PreimagesError::ReaderFull),
                }
            }
            let mut state = self.inner.state.write();
            entries.iter().for_each(|entry| state.open.add(kind, entry));
        }
    }

    /// Notes that all preimages of the blocks up to `block` were added. The first time, that is the first block of
    /// the database.
    pub fn advance(&self, block: BlockId) {
        self.skip(0, block);
    }

    /// Does the same as [`Preimages::advance`], but records that `lost_blocks` blocks, of which `block` is the last,
    /// will never be added: they had left the log. A height is counted once for all branches.
    pub fn skip(&self, lost_blocks: u64, block: BlockId) {
        let mut state = self.inner.state.write();
        state.genesis.get_or_insert(block.hash);
        state.upto = Some(block);
        state.lost.add(lost_blocks, block.number);
    }

    /// Writes the preimages in memory to a file, and the newest block that is complete. Durable on return.
    ///
    /// # Errors
    ///
    /// [`PreimagesError::ReadOnly`] if they are open for reading alone, errors of the disk, and
    /// [`PreimagesError::Poisoned`] after the list of runs could not be replaced. The preimages then stay in memory.
    pub fn flush(&self) -> Result<(), PreimagesError> {
        self.check_writable()?;
        let mut kept = self.inner.list.lock();
        let (recent, genesis, upto, lost) = {
            let mut state = self.inner.state.write();
            state.close();
            let genesis = state.genesis.unwrap_or_default();
            (state.seen.recent.clone(), genesis, state.upto, state.lost)
        };
        if recent.is_empty() {
            return match (kept.upto, kept.lost) == (upto, lost) {
                true => Ok(()),
                false => {
                    let list = RunList {
                        genesis,
                        upto,
                        lost,
                        ..kept.clone()
                    };
                    self.replace_list(&mut kept, list)
                }
            };
        }
        let mut entries = [BTreeMap::new(), BTreeMap::new()];
        if recent.len() > 1 {
            for part in &recent {
                for (all, of) in entries.iter_mut().zip(part.entries()) {
                    all.extend(of);
                }
            }
        }
        let sorted = match &recent[..] {
            [one] => one.entries(),
            _ => &entries,
        };
        let listed = new_run(&self.inner.folder, &mut kept);
        let written = self.write_run(listed, |kind, writer| {
            for (hash, preimage) in &sorted[kind as usize] {
                let entry = Entry {
                    hash: *hash,
                    preimage: *preimage,
                };
                writer.push(kind, &entry)?;
            }
            Ok(())
        });
        let run = self.or_removed(written, listed)?;
        let mut list = RunList {
            genesis,
            upto,
            lost,
            ..kept.clone()
        };
        list.runs.push(listed);
        let replaced = self.replace_list(&mut kept, list);
        self.or_removed(replaced, listed)?;
        let mut state = self.inner.state.write();
        let mut runs = state.seen.runs.to_vec();
        runs.push(Arc::new(run));
        state.seen.runs = Arc::new(runs);
        state.seen.recent.drain(..recent.len());
        Ok(())
    }

    /// Merges runs as long as any are due. Preimages can be added and looked up meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Preimages::flush`], and [`PreimagesError::Damaged`].
    pub fn merge(&self) -> Result<(), PreimagesError> {
        while self.merge_once()? {}
        Ok(())
    }

    fn merge_once(&self) -> Result<bool, PreimagesError> {
        let _merging = self.inner.merging.lock();
        self.check_writable()?;
        let (merged, range, replaced, runs) = {
            let mut kept = self.inner.list.lock();
            let runs = self.inner.state.read().seen.runs.clone();
            let size = |run: &Arc<RunFile>| RunSize {
                entries: Kind::ALL.iter().map(|kind| run.entries(*kind)).sum(),
                bytes: run.file_bytes(),
                blocks: 1,
            };
            let sizes: Vec<_> = runs.iter().map(size).collect();
            let Some(range) = due_for_merge(&sizes, u64::MAX) else {
                return Ok(false);
            };
            let replaced = kept.runs[range.clone()].to_vec();
            let runs = runs[range.clone()].to_vec();
            (
                new_run(&self.inner.folder, &mut kept),
                range,
                replaced,
                runs,
            )
        };
        let written = self.write_run(merged, |kind, writer| {
            let mut entries = Merged::new(&runs, kind)?;
            while let Some(entry) = entries.next()? {
                writer.push(kind, &entry)?;
            }
            Ok(())
        });
        let run = self.or_removed(written, merged)?;
        let mut kept = self.inner.list.lock();
        // New runs are behind these, and only a merge removes any.
        let mut list = kept.clone();
        list.runs.splice(range.clone(), [merged]);
        let listed = self.replace_list(&mut kept, list);
        self.or_removed(listed, merged)?;
        {
            let mut state = self.inner.state.write();
            let mut runs = state.seen.runs.to_vec();
            runs.splice(range, [Arc::new(run)]);
            state.seen.runs = Arc::new(runs);
        }
        drop(kept);
        let names = replaced.iter().map(|run| run_name(run.file));
        self.inner.folder.remove(names)?;
        Ok(true)
    }

    /// Writes the file of a run, whose preimages `fill` adds for each kind.
    fn write_run(
        &self,
        listed: ListedRun,
        fill: impl Fn(Kind, &mut RunWriter) -> Result<(), PreimagesError>,
    ) -> Result<RunFile, PreimagesError> {
        let (disk, name) = (&*self.inner.disk, run_name(listed.file));
        let pace = self.inner.pace.clone();
        let mut writer = RunWriter::create(disk, &name, listed.identity, pace)?;
        for kind in Kind::ALL {
            fill(kind, &mut writer)?;
            writer.end_kind()?;
        }
        writer.finish()?;
        RunFile::open(disk, &name, listed.identity)
    }

    /// Removes the file of a run that is not listed after all. The next attempt has another one.
    fn or_removed<T>(
        &self,
        done: Result<T, PreimagesError>,
        run: ListedRun,
    ) -> Result<T, PreimagesError> {
        if done.is_err() {
            self.inner.folder.discard(&run_name(run.file));
        }
        done
    }

    /// Replaces the list of runs. After a failure to replace it, it is unknown which list a crash would leave, so later
    /// writes fail, and no file is removed.
    fn replace_list(&self, kept: &mut RunList, list: RunList) -> Result<(), PreimagesError> {
        self.inner.folder.replace_list(&list.encode())?;
        *kept = list;
        Ok(())
    }

    fn check_writable(&self) -> Result<(), PreimagesError> {
        Ok(self.inner.folder.check_writable()?)
    }

    /// Makes ready to look up many preimages, in the order of their hashes if that is possible.
    #[must_use]
    pub fn lookup(&self) -> PreimagesLookup {
        let mut state = self.inner.state.write();
        state.close();
        PreimagesLookup::new(state.seen.clone())
    }

    /// The address with that hash, if it is known.
    ///
    /// # Errors
    ///
    /// [`PreimagesError::Damaged`] names the file whose bytes are not those that were written.
    pub fn address_of(&self, hash: &B256) -> Result<Option<Address>, PreimagesError> {
        match self.find_open(Kind::Address, hash) {
            Ok(preimage) => Ok(Some(Address::from_slice(&preimage[..20]))),
            Err(mut lookup) => lookup.address_of(hash),
        }
    }

    /// The key of a slot with that hash, if it is known.
    ///
    /// # Errors
    ///
    /// As [`Preimages::address_of`].
    pub fn slot_of(&self, hash: &B256) -> Result<Option<B256>, PreimagesError> {
        match self.find_open(Kind::Slot, hash) {
            Ok(preimage) => Ok(Some(B256::new(preimage))),
            Err(mut lookup) => lookup.slot_of(hash),
        }
    }

    /// The preimage in what is added to, or where to look for it otherwise.
    fn find_open(&self, kind: Kind, hash: &B256) -> Result<[u8; 32], PreimagesLookup> {
        let state = self.inner.state.read();
        let found = state.open.get(kind, hash);
        found.ok_or_else(|| PreimagesLookup::new(state.seen.clone()))
    }

    /// Counts preimages and what they take.
    #[must_use]
    pub fn stats(&self) -> PreimagesStats {
        let state = self.inner.state.read();
        let closed = state.seen.recent.iter().map(|part| &**part);
        let recent: Vec<_> = closed.chain([&state.open]).collect();
        let of = |kind: Kind| {
            let in_memory = recent
                .iter()
                .map(|part| part.entries()[kind as usize].len() as u64);
            let in_files = state.seen.runs.iter().map(|run| run.entries(kind));
            in_memory.chain(in_files).sum()
        };
        let fences: u64 = state.seen.runs.iter().map(|run| run.memory_bytes()).sum();
        PreimagesStats {
            addresses: of(Kind::Address),
            slots: of(Kind::Slot),
            runs: state.seen.runs.len() as u64,
            file_bytes: state.seen.runs.iter().map(|run| run.file_bytes()).sum(),
            memory_bytes: fences + state.added_bytes(),
            lost_blocks: state.lost.blocks,
        }
    }

    /// Opens and reads all files again, computes all hashes, and returns how many different preimages there are in
    /// them: addresses and keys of slots. `progress` gets how many were read so far.
    ///
    /// # Errors
    ///
    /// [`PreimagesError::Damaged`] names the first file whose bytes are not those that were written.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<(u64, u64), PreimagesError> {
        let runs = {
            let kept = self.inner.list.lock();
            open_runs(&*self.inner.disk, &kept)?
        };
        let mut counts = [0; 2];
        for kind in Kind::ALL {
            let mut entries = Merged::new(&runs, kind)?;
            while entries.next()?.is_some() {
                counts[kind as usize] += 1;
                progress(counts.iter().sum());
            }
        }
        Ok((counts[0], counts[1]))
    }
}

/// A run that is about to be written, in a file of its own.
fn new_run(folder: &Folder, list: &mut RunList) -> ListedRun {
    let (file, identity) = folder.new_file(&mut list.next_file);
    ListedRun { file, identity }
}
