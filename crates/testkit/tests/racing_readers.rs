//! A writer is faster than a reader that opens: it works between any two of the reader's calls to the disk.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_disk::{
    Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, LockError, ReadQueue,
    ReadRequest,
};
use cambium_history::{History, HistoryOptions, WholeNodes, backup_with_history};
use cambium_primitives::{BlockId, Changes};
use cambium_state::{BlockMeta, Db, FaultyDisk, FileSizes, Options, StateError, backup};
use cambium_store::StoreError;
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{self, path, random_puts},
    say,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const ACCOUNTS: u64 = 2000;
/// So few in a block that most checkpoints are on top of older ones.
const CHANGES: u64 = 14;

/// A disk beside which others work before its next calls that look for something.
struct BusyDisk {
    disk: Arc<dyn Disk>,
    /// The file of which only questions for its length are such calls, if there is one.
    asked_for: Option<&'static str>,
    beside: Arc<Beside>,
}

/// Hook on the calls of a disk.
struct Beside {
    calls: AtomicU64,
    others: Mutex<Others>,
}

/// Work of other processes between two calls.
struct Others {
    /// Before this call.
    at: u64,
    /// Number of times, each time twice as late.
    times: u64,
    work: Box<dyn FnMut() + Send>,
}

impl fmt::Debug for BusyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyDisk").finish_non_exhaustive()
    }
}

impl BusyDisk {
    fn call(&self) {
        if self.asked_for.is_none() {
            self.beside.call();
        }
    }
}

impl Beside {
    fn call(&self) {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        // Calls at once don't wait for it: they may have threads that it needs.
        if let Some(mut others) = self.others.try_lock()
            && call == others.at
            && others.times > 0
        {
            others.times -= 1;
            others.at = call + 1 + call;
            (others.work)();
        }
    }
}

/// A file of a [`BusyDisk`].
struct BusyFile {
    file: Arc<dyn DiskFile>,
    beside: Arc<Beside>,
}

impl fmt::Debug for BusyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl DiskFile for BusyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        self.file.write_at(bytes, offset)
    }

    fn names(&self) -> Result<u64, DiskError> {
        self.file.names()
    }

    fn len(&self) -> Result<u64, DiskError> {
        let len = self.file.len();
        // The length may be outdated when it is returned.
        self.beside.call();
        len
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.file.punch_hole(offset, len)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync()
    }
}

impl Disk for BusyDisk {
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.disk.create_with(path, access)
    }

    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.call();
        let file = self.disk.open_with(path, access)?;
        Ok(match self.asked_for == Some(path) {
            false => file,
            true => Arc::new(BusyFile {
                file,
                beside: self.beside.clone(),
            }),
        })
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.call();
        self.disk.exists(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn link(&self, from: &dyn Disk, path: &str, to: &str) -> Result<bool, DiskError> {
        self.disk.link(from, path, to)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.call();
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<DiskLock, LockError> {
        self.call();
        self.disk.lock(path)
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.disk.free_bytes()
    }

    fn display_path(&self, path: &str) -> String {
        self.disk.display_path(path)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.disk.read_batch(requests);
    }

    fn read_queue(&self, depth: usize) -> Box<dyn ReadQueue> {
        self.disk.read_queue(depth)
    }

    fn stats(&self) -> DiskStats {
        self.disk.stats()
    }

    fn describe(&self) -> DiskDescription {
        self.disk.describe()
    }
}

/// Enough blocks and merges that all earlier files may be removed.
fn write(db: &Db, random: &mut Random) {
    for _ in 0..2 + random.below(5) {
        for _ in 0..2 {
            let parent = db.head();
            let number = parent.number + 1;
            let changes = random_puts(random, CHANGES, ACCOUNTS, number);
            let session = db.view().unwrap().session();
            let staged = session.finish(Changes::new(changes), Vec::new()).unwrap();
            let meta = BlockMeta {
                id: BlockId::new(number, keccak256(parent.hash)),
                parent: parent.hash,
                state_root: staged.root(),
                body: Bytes::from(vec![1; 300]),
            };
            staged.seal(meta).unwrap().commit().unwrap();
        }
        db.flush(1).unwrap();
    }
}

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        keep_blocks: Some(10),
        unfinalized_blocks: 4,
        files: FileSizes {
            log_file_bytes_max: 16 << 10,
            segment_bytes_max: 32 << 10,
            ..TINY_FILES
        },
        ..Options::default()
    }
}

/// Gives `then` a disk beside which others are at work before its first call, then before its second,
/// until it makes no call that late: `times` times in all, each time twice as late. Returns how many
/// calls it made.
fn at_every_call(times: u64, then: impl Fn(&Arc<dyn Disk>)) -> u64 {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
    let writer = plain::make(disk.clone(), options(), ACCOUNTS, |index| index % 3);
    let mut random = Random::new(3);
    write(&writer, &mut random);
    let others = Arc::new(Mutex::new(move || write(&writer, &mut random)));
    beside_every_call(&disk, times, None, &others, then)
}

/// As [`at_every_call`], with a disk, and others who work there.
fn beside_every_call(
    disk: &Arc<dyn Disk>,
    times: u64,
    asked_for: Option<&'static str>,
    work: &Arc<Mutex<impl FnMut() + Send + 'static>>,
    then: impl Fn(&Arc<dyn Disk>),
) -> u64 {
    let mut at = 0;
    loop {
        let work = work.clone();
        let beside = Arc::new(Beside {
            calls: AtomicU64::new(0),
            others: Mutex::new(Others {
                at,
                times,
                work: Box::new(move || (work.lock())()),
            }),
        });
        let busy: Arc<dyn Disk> = Arc::new(BusyDisk {
            disk: disk.clone(),
            asked_for,
            beside: beside.clone(),
        });
        then(&busy);
        if beside.others.lock().times == times {
            return at;
        }
        at += 1;
    }
}

/// The state root of a database that is read, if it is sound and was opened without a word.
fn root_of_sound(disk: &Arc<dyn Disk>, at: &str) -> B256 {
    let (reader, recovery) = Db::open_read_only(disk.clone(), options()).unwrap();
    assert!(recovery.notes.is_empty(), "{at}: {:?}", recovery.notes);
    match reader.check(&mut |_| {}) {
        Ok(report) => assert!(report.damage.is_empty(), "{at}: {report:?}"),
        // The log's old files may leave at any time.
        Err(StateError::Store(StoreError::ReaderBehind { .. })) => {}
        Err(error) => panic!("{at}: {error}"),
    }
    let view = reader.view().unwrap();
    for index in 0..ACCOUNTS {
        view.account(&path(index)).unwrap();
    }
    view.state_root()
}

#[test]
fn a_reader_opens_whatever_goes_while_it_does() {
    for times in [1, 4] {
        let calls = at_every_call(times, |busy| {
            root_of_sound(busy, &format!("{times} times, {busy:?}"));
        });
        say(&format!("{times} times beside each of {calls} calls"));
        assert!(calls > 30);
    }
}

#[test]
fn a_backup_is_whole_whatever_goes_while_it_is_made() {
    let calls = at_every_call(1, |busy| {
        let copy: Arc<dyn Disk> = Arc::new(FaultyDisk::new(2));
        backup(busy, &copy, options(), &mut |_| {}).unwrap();
        root_of_sound(&copy, "a backup");
    });
    say(&format!("beside each of {calls} calls"));
    assert!(calls > 60);
}

#[test]
fn a_backup_is_whole_while_the_chain_changes_its_branch() {
    let all = Options {
        keep_blocks: None,
        unfinalized_blocks: 12,
        ..options()
    };
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(8));
    let writer = plain::make(disk.clone(), all, ACCOUNTS, |index| index % 3);
    let mut random = Random::new(8);
    let parents: Arc<Mutex<HashMap<B256, B256>>> = Arc::default();
    let (known, mut longer) = (parents.clone(), false);
    let mut work = move || {
        // Below the snapshot, and up on another branch: now a shorter one, now a longer one.
        longer = !longer;
        let down = 3 + random.below(6);
        writer
            .unwind(writer.head().number.saturating_sub(down))
            .unwrap();
        if random.percent(50) {
            writer.flush(0).unwrap();
        }
        for _ in 0..if longer { down + 2 } else { down - 2 } {
            let parent = writer.head();
            let changes = random_puts(&mut random, CHANGES, ACCOUNTS, parent.number);
            let name = random.next().to_le_bytes();
            let view = writer.view().unwrap();
            let sealed = plain::seal(view, name, Changes::new(changes), vec![]).unwrap();
            known.lock().insert(sealed.id().hash, parent.hash);
            sealed.commit().unwrap();
        }
        writer.flush(0).unwrap();
    };
    (0..30).for_each(|_| work());
    let work = Arc::new(Mutex::new(work));
    let in_the_middle = |busy: &Arc<dyn Disk>| {
        let copy: Arc<dyn Disk> = Arc::new(FaultyDisk::new(2));
        backup(busy, &copy, all, &mut |_| {}).unwrap();
        let (db, recovery) = Db::open_read_only(copy, all).unwrap();
        // The block index may have been copied in the middle of a change: it is the log that counts.
        let is_of_index = |note: &String| note.starts_with("blocks.idx");
        assert!(recovery.notes.iter().all(is_of_index), "{recovery:?}");
        // Each block is the parent of the next one, by every way of reading it.
        let mut expected = db.head();
        loop {
            let block = db.block(expected.number).unwrap().expect("a block");
            assert_eq!(block.id, expected, "the head is {}", db.head());
            if expected == db.genesis() {
                break;
            }
            assert_eq!(parents.lock()[&expected.hash], block.parent);
            expected = BlockId::new(expected.number - 1, block.parent);
        }
    };
    let mut calls = 0;
    for _ in 0..30 {
        calls += beside_every_call(&disk, 1, Some("blocks.idx"), &work, in_the_middle);
    }
    say(&format!("beside each of {calls} calls"));
    assert!(calls >= 30, "{calls}");
}

/// Roots by the hashes of blocks.
type Roots = Arc<Mutex<HashMap<B256, B256>>>;

/// A database, and its history in files that are merged and removed all the time.
struct Followed {
    db: Db,
    history: History,
    random: Random,
    roots: Roots,
}

const FEW_BLOCKS: HistoryOptions = HistoryOptions {
    memory_bytes: 4 << 10,
    trie_bytes: 64 << 10,
    cache_bytes: 0,
    buffer_bytes: 4 << 10,
    keep_blocks: NonZeroU64::new(40),
};

impl Followed {
    fn write(&mut self) {
        let (db, random) = (&self.db, &mut self.random);
        for _ in 0..2 + random.below(5) {
            if random.percent(30) {
                db.unwind(db.head().number.saturating_sub(random.below(5)))
                    .unwrap();
            }
            for _ in 0..2 {
                let nonce = random.next();
                let changes = random_puts(random, CHANGES, ACCOUNTS, nonce);
                let name = random.next().to_le_bytes();
                let changes = Changes::new(changes);
                let sealed = plain::seal(db.view().unwrap(), name, changes, vec![]).unwrap();
                let view = sealed.view().unwrap();
                let (hash, root) = (view.block().hash, view.state_root());
                self.roots.lock().insert(hash, root);
                sealed.commit().unwrap();
                if random.percent(70) {
                    self.history.catch_up(db, &mut |_| true).unwrap();
                }
            }
            if random.percent(75) {
                self.history.flush().unwrap();
                self.history.merge().unwrap();
            }
            // As a follower does.
            db.keep_log_above("history", self.history.durable().number);
            db.flush(1).unwrap();
        }
    }
}

#[test]
fn a_history_is_copied_with_its_database_whatever_goes_meanwhile() {
    for (seed, nodes) in [(5, None), (6, Some(WholeNodes::default()))] {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(seed));
        let db = plain::make(disk.clone(), options(), ACCOUNTS, |index| index % 3);
        let roots = Roots::default();
        let root = db.view().unwrap().state_root();
        roots.lock().insert(db.head().hash, root);
        let mut followed = Followed {
            history: History::create(disk.clone(), &db, 0, nodes, FEW_BLOCKS).unwrap(),
            db,
            random: Random::new(seed),
            roots: roots.clone(),
        };
        (0..10).for_each(|_| followed.write());
        let followed = Arc::new(Mutex::new(followed));
        let (work, cut) = (followed.clone(), AtomicU64::new(0));
        let work = Arc::new(Mutex::new(move || work.lock().write()));
        let calls = beside_every_call(&disk, 1, None, &work, |busy| {
            let copy: Arc<dyn Disk> = Arc::new(FaultyDisk::new(2));
            let (report, history) =
                backup_with_history(busy, &copy, options(), &mut |_| {}).unwrap();
            let upto = history.expect("a history").upto;
            let now = followed.lock().history.durable();
            cut.fetch_add(u64::from(upto.number < now.number), Ordering::Relaxed);
            assert!(upto.number <= report.head.number);
            go_on_with(&copy, Random::new(seed + 1_000), &roots);
        });
        let cut = cut.into_inner();
        say(&format!("beside each of {calls} calls, {cut} times behind"));
        assert!(calls > 60 && cut > 10, "{calls} calls, {cut} times behind");
    }
}

/// Opens a copy, checks all that it has, adds some blocks, and checks it again.
fn go_on_with(copy: &Arc<dyn Disk>, random: Random, roots: &Roots) {
    plain::wait_until_closed(&**copy);
    let (db, _) = Db::open(copy.clone(), options()).unwrap();
    let history = History::open(copy.clone(), &db, FEW_BLOCKS).unwrap();
    let mut of_copy = Followed {
        db,
        history,
        random,
        roots: roots.clone(),
    };
    for _ in 0..2 {
        let Followed { db, history, .. } = &of_copy;
        history.check().unwrap();
        let (first, upto) = history.blocks();
        for number in first.number..=upto.number {
            history.check_block(db, number).unwrap();
            let view = history.state_at(db, number).unwrap();
            if history.check_nodes(db, number).unwrap() {
                let expected = roots.lock()[&view.block().hash];
                assert_eq!(view.state_root().unwrap(), expected, "{number}");
            }
        }
        of_copy.write();
        of_copy
            .history
            .catch_up(&of_copy.db, &mut |_| true)
            .unwrap();
        of_copy.history.flush().unwrap();
        assert_eq!(of_copy.history.durable(), of_copy.db.head());
    }
}
