//! Power fails under a real kernel: the database is on ext4, on a drive whose writes and flushes
//! are recorded. The drive is cut off again and again, with all flushed writes and any part of the
//! others; the kernel mounts the result, and the database must open at the acknowledged head or
//! beyond, with no damage.
//!
//! Needs root, ext4, loop devices, and FUSE or device-mapper's `log-writes`. Says so where it is
//! skipped. All mounts are in a namespace of their own and go with the process, and loop devices go
//! with their mounts. (A target of device-mapper's stays if the process is killed.)

mod power;
mod support;

use cambium::{
    Chain, ChainError, Db, Options, StateError, StdDisk,
    chain::RawBlock,
    db::{FileSizes, StoreError},
    disk::StdDiskOptions,
};
use cambium_seeds::is_long;
use power::{
    Cut, Event, Ext4, FuseDrive, Image, LogWrites, LoopDevice, Mark, Random, Recording,
    missing_for_fuse, missing_for_log_writes, missing_for_mounts, parse_log,
};
use std::{
    fmt,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};
use support::{Fixture, say};
use tempfile::TempDir;

const BLOCKS: u64 = 90;
const DRIVE_BYTES: u64 = 96 << 20;

/// Little memory and small files, so that merges, checkpoints, new files of the log and the removal
/// of segments are cut short as well.
fn options() -> Options {
    Options {
        memory_bytes: 2 << 20,
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 16 << 10,
            log_file_bytes_max: 64 << 10,
            log_extend_bytes: 64 << 10,
            ..FileSizes::default()
        },
        ..Options::default()
    }
}

#[test]
fn what_was_acknowledged_survives_every_loss_of_power_under_ext4() {
    if let Some(lab) = Lab::in_a_namespace(
        "what_was_acknowledged_survives_every_loss_of_power_under_ext4",
        missing_for_fuse(),
    ) {
        let (rounds, cuts) = if is_long() { (12, 50) } else { (2, 8) };
        lab.lose_power("FUSE and a loop device", rounds, cuts, &Lab::on_fuse);
    }
}

#[test]
fn what_was_acknowledged_survives_every_loss_of_power_under_device_mapper() {
    if let Some(lab) = Lab::in_a_namespace(
        "what_was_acknowledged_survives_every_loss_of_power_under_device_mapper",
        missing_for_log_writes(),
    ) {
        let (rounds, cuts) = if is_long() { (6, 50) } else { (1, 8) };
        lab.lose_power("log-writes", rounds, cuts, &Lab::on_log_writes);
    }
}

/// The assertions of the tests above can fail: on a drive that reports its newest writes as
/// durable, and has not written them.
#[test]
fn a_drive_that_lies_about_flushes_is_found_out() {
    let Some(lab) = Lab::in_a_namespace(
        "a_drive_that_lies_about_flushes_is_found_out",
        missing_for_fuse(),
    ) else {
        return;
    };
    let recording = lab.on_fuse(&lab.empty(), "defaults", &|place, mark| {
        lab.make(place, mark);
        lab.import(place, 1..=40, mark);
    });
    let (mut random, mut lost, mut whole) = (Random(1), 0, 0);
    for _ in 0..12 {
        let at = lab.moment(&recording, &mut random);
        let cut = recording.cut_of_a_liar(at, 60);
        match lab.look(&cut, "defaults", false) {
            Ok(_) => whole += 1,
            Err(why) => {
                lost += 1;
                say(&format!("a lying drive: {why}"));
            }
        }
    }
    say(&format!(
        "a lying drive: {lost} losses found, {whole} cuts with no loss"
    ));
    assert!(lost >= 6, "{lost} losses");
}

#[test]
fn the_log_of_log_writes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let log = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(dir.path().join("log"))
        .unwrap();
    let sector = |numbers: &[u64], text: &str| {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        let mut bytes: Vec<_> = bytes.chain(text.bytes()).collect();
        bytes.resize(512, 0);
        bytes
    };
    let bytes = [
        sector(&[0x006a_7366_7773_6872, 1, 6, 512], ""),
        sector(&[0, 0, 8, 5], "-,0,0"),
        sector(&[3, 2, 16, 0], ""),
        vec![7; 1024],
        sector(&[0, 0, 1, 0], ""),
        sector(&[9, 4, 4, 0], ""),
        sector(&[5, 1, 3, 0], ""),
        vec![8; 512],
        sector(&[0, 0, 8, 17], "dm-log-writes-end"),
    ];
    log.write_all_at(&bytes.concat(), 0).unwrap();
    let events = parse_log(&log);
    let told: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Write {
                offset,
                bytes,
                is_forced,
            } => {
                format!(
                    "{} bytes of {} at {offset}, {is_forced}",
                    bytes.len(),
                    bytes[0]
                )
            }
            Event::Flush => "flush".to_owned(),
            Event::Mark(mark) => format!("{:?}, {} to {}", mark.head, mark.low, mark.high),
        })
        .collect();
    let expected = [
        "None, 0 to 0",
        "1024 bytes of 7 at 1536, false",
        "flush",
        "flush",
        "512 bytes of 8 at 2560, true",
    ];
    assert_eq!(told, expected);
}

/// Receives the known bounds of the head.
type Tell<'a> = &'a dyn Fn(Mark);
type Work<'a> = &'a dyn Fn(&Path, Tell<'_>);
type Recorder<'a> = &'a dyn Fn(&Lab, &Image, &str, Work<'_>) -> Recording;

/// A chain, and room for drives.
struct Lab {
    fixture: Fixture,
    blocks: Vec<RawBlock>,
    headers: Vec<(cambium::B256, cambium::B256)>,
    scratch: TempDir,
}

/// How a database was found after a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// None yet: it was being made.
    None,
    /// Opened with that block as its head.
    Head(u64),
}

/// How often what was found.
#[derive(Default)]
struct Tally {
    none: usize,
    at_head: usize,
    beyond: usize,
    below: usize,
    unflushed: usize,
    kept: usize,
    torn: usize,
    flushes: usize,
    events: usize,
}

impl Tally {
    fn add(&mut self, cut: &Cut, found: Found) {
        self.unflushed += cut.unflushed;
        self.kept += cut.kept;
        self.torn += cut.torn;
        let count = match (found, cut.mark.head) {
            (Found::None, _) => &mut self.none,
            (Found::Head(head), Some(known)) if head == known => &mut self.at_head,
            (Found::Head(head), Some(known)) if head < known => &mut self.below,
            (Found::Head(_), _) => &mut self.beyond,
        };
        *count += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            none,
            at_head,
            beyond,
            below,
            ..
        } = self;
        write!(
            f,
            "power lost {} times: opened {at_head} times at the acknowledged head, {beyond} beyond \
             it, {below} on the way down in an unwinding, {none} times before there was a \
             database; of {} writes not flushed {} were there and {} torn; {} flushes in {} events",
            none + at_head + beyond + below,
            self.unflushed,
            self.kept,
            self.torn,
            self.flushes,
            self.events,
        )
    }
}

impl Lab {
    /// `None` if something is missing, which is said, or if this is the outer process: then the
    /// test was run in another one, which has mounts of its own.
    fn in_a_namespace(test: &str, missing: Option<String>) -> Option<Self> {
        const INSIDE: &str = "CAMBIUM_TEST_HAS_OWN_MOUNTS";
        if std::env::var_os(INSIDE).is_some() {
            Self::end_with_the_outer_process();
            return Some(Self::new());
        }
        let missing: Vec<_> = missing.into_iter().chain(missing_for_mounts()).collect();
        if !missing.is_empty() {
            say(&format!(
                "SKIPPED: {test}: this system lacks {}",
                missing.join(", ")
            ));
            return None;
        }
        let mut inner = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .stdin(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        // Closed when this process ends, however it does.
        let _watched = inner.stdin.take();
        assert!(inner.wait().expect("its end").success(), "see above");
        None
    }

    /// Ends this process, and its mounts with it, when the outer one has ended.
    fn end_with_the_outer_process() {
        thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::abort();
        });
    }

    fn new() -> Self {
        let fixture = Fixture::generate(1_500, BLOCKS, 60);
        let blocks = fixture.blocks();
        let headers = blocks.iter().map(|raw| {
            let header = raw.decode().expect("a block").header;
            (header.hash_slow(), header.state_root)
        });
        Self {
            headers: headers.collect(),
            blocks,
            fixture,
            scratch: scratch().expect("a folder"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A drive with an empty file system.
    fn empty(&self) -> Image {
        Ext4::make(DRIVE_BYTES, self.scratch.path())
    }

    /// Records the events of a drive behind FUSE during `work`.
    fn on_fuse(&self, image: &Image, options: &str, work: Work<'_>) -> Recording {
        let drive = FuseDrive::mount(image.clone(), &self.path("drive.img"));
        let device = LoopDevice::on(drive.file());
        let mounted = Ext4::mount(device.path(), options, &self.path("mounted")).expect("ext4");
        drop(device);
        work(&mounted.path().join("db"), &|mark| drive.mark(mark));
        let recording = drive.recording();
        drop(mounted);
        recording
    }

    /// Records the events of a drive of device-mapper's during `work`.
    fn on_log_writes(&self, image: &Image, options: &str, work: Work<'_>) -> Recording {
        let drive = LogWrites::create(image.clone(), self.scratch.path());
        let mounted = Ext4::mount(&drive.device(), options, &self.path("mounted")).expect("ext4");
        work(&mounted.path().join("db"), &|mark| drive.mark(mark));
        drop(mounted);
        drive.recording()
    }

    /// Rounds of work, each on what a loss of power in the one before has left, or on nothing.
    fn lose_power(&self, by: &str, rounds: u64, cuts: u64, record: Recorder<'_>) {
        let (mut random, mut tally) = (Random(0x9e37_79b9_7f4a_7c15), Tally::default());
        let mut next: Option<(Image, u64)> = None;
        for round in 0..rounds {
            let options = ["defaults", "data=writeback", "commit=1"][round as usize % 3];
            let (image, head) = match next.take() {
                Some((image, head)) => (image, Some(head)),
                None => (self.empty(), None),
            };
            let seed = random.below(u64::MAX);
            let recording = record(self, &image, options, &|place, tell| {
                self.round(place, head, &mut Random(seed | 1), tell);
            });
            tally.flushes += recording.flushes();
            tally.events += recording.events.len();
            for number in 0..cuts {
                let at = self.moment(&recording, &mut random);
                let cut = recording.cut(at, &mut random);
                let place = format!("round {round}, {options}, cut after event {at}");
                let found = self.look(&cut, options, number % 10 == 0);
                let found = found.unwrap_or_else(|why| panic!("{place}: {why}"));
                tally.add(&cut, found);
                // Every third round begins with nothing.
                if let Found::Head(head) = found
                    && round % 3 != 2
                    && head < BLOCKS
                    && (next.is_none() || random.below(8) == 0)
                {
                    next = Some((cut.image, head));
                }
            }
            if is_long() || round + 1 == rounds {
                say(&format!(
                    "under ext4, by {by}, {} rounds: {tally}",
                    round + 1
                ));
            }
        }
        assert!(tally.at_head > 0);
    }

    /// The recorded work: a database is created, grows and is unwound.
    fn round(&self, place: &Path, head: Option<u64>, random: &mut Random, tell: Tell<'_>) {
        let mut head = match head {
            Some(head) => {
                let known = Some(head);
                tell(Mark {
                    head: known,
                    low: head,
                    high: head,
                });
                head
            }
            None => {
                self.make(place, tell);
                0
            }
        };
        for _ in 0..3 {
            let to = (head + 10 + random.below(20)).min(BLOCKS);
            self.import(place, head + 1..=to, tell);
            head = to;
            if random.below(2) == 0 {
                let to = head - random.below(head.min(30));
                let (known, low) = (Some(head), to);
                tell(Mark {
                    head: known,
                    low,
                    high: head,
                });
                let chain = open(place).expect("a sound database");
                chain.db().unwind(to).expect("an unwinding");
                tell(Mark {
                    head: Some(to),
                    low,
                    high: to,
                });
                close(chain, place);
                head = to;
            }
        }
    }

    fn make(&self, place: &Path, tell: Tell<'_>) {
        tell(Mark {
            head: None,
            low: 0,
            high: 0,
        });
        let disk = Arc::new(StdDisk::new(place));
        let made = Chain::init(disk, self.fixture.genesis(), options(), &mut |_| {});
        tell(Mark {
            head: Some(0),
            low: 0,
            high: 0,
        });
        close(made.expect("a new database"), place);
    }

    fn import(&self, place: &Path, blocks: std::ops::RangeInclusive<u64>, tell: Tell<'_>) {
        let (first, high) = blocks.into_inner();
        let low = first - 1;
        tell(Mark {
            head: Some(low),
            low,
            high,
        });
        let chain = open(place).expect("a sound database");
        let source = self.blocks[low as usize..high as usize]
            .iter()
            .cloned()
            .map(Ok);
        let import = chain.import(source, &mut |done| {
            let low = done.head.number;
            tell(Mark {
                head: Some(low),
                low,
                high,
            });
        });
        assert_eq!(import.expect("an import").done.head.number, high);
        if high.is_multiple_of(3) {
            chain.db().flush(0).expect("a merge");
        }
        close(chain, place);
    }

    /// A moment to lose power at: any, right after an acknowledgement or before it, or one at which
    /// many writes wait for a flush.
    fn moment(&self, recording: &Recording, random: &mut Random) -> usize {
        let events = &recording.events;
        let is_mark = |event: &Event| matches!(event, Event::Mark(_));
        let first = events.iter().position(is_mark).expect("a mark") + 1;
        let mut any = || first + random.below((events.len() - first) as u64 + 1) as usize;
        let at = any();
        let many = (0..30)
            .map(|_| any())
            .max_by_key(|at| recording.unflushed(*at));
        let back = random.below(4) as usize;
        match random.below(4) {
            0 => {
                let mark = events[first..at].iter().rposition(is_mark);
                mark.map_or(at, |mark| (first + mark + 1 - back).max(first))
            }
            1 | 2 => many.unwrap_or(at),
            _ => at,
        }
    }

    /// Mounts what a loss of power has left, and looks at the database. An error is what is wrong.
    fn look(&self, cut: &Cut, options: &str, goes_on: bool) -> Result<Found, String> {
        let file = self.path("cut.img");
        cut.image.save(&file);
        let device = LoopDevice::on(&file);
        let mounted = Ext4::mount(device.path(), options, &self.path("cut"))?;
        drop(device);
        let place = mounted.path().join("db");
        let Mark { head, low, high } = cut.mark;
        let exists = Db::exists(&StdDisk::new(&place)).map_err(|error| error.to_string())?;
        let chain = match exists.then(|| open_cached(&place)) {
            None | Some(Err(ChainError::State(StateError::Unfinished))) => {
                if head.is_some() {
                    return Err(format!("no database, after {head:?} was acknowledged"));
                }
                if goes_on {
                    self.make(&place, &|_| {});
                    self.import(&place, 1..=5, &|_| {});
                }
                return Ok(Found::None);
            }
            Some(chain) => chain.map_err(|error| format!("{error}, acknowledged was {head:?}"))?,
        };
        let looked = self.look_into(&chain, low..=high);
        close(chain, &place);
        let number = looked.map_err(|why| format!("{why}, acknowledged was {head:?}"))?;
        if goes_on && number < BLOCKS {
            self.import(&place, number + 1..=BLOCKS, &|_| {});
            let chain = open(&place).map_err(|error| error.to_string())?;
            let looked = self.look_into(&chain, BLOCKS..=BLOCKS);
            close(chain, &place);
            looked?;
        }
        Ok(Found::Head(number))
    }

    fn look_into(
        &self,
        chain: &Chain,
        heads: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, String> {
        let view = chain.db().view().map_err(|error| error.to_string())?;
        let number = view.block().number;
        if !heads.contains(&number) {
            return Err(format!("the head is {number}, and not of {heads:?}"));
        }
        if number > 0 {
            let got = (view.block().hash, view.state_root());
            assert_eq!(got, self.headers[number as usize - 1], "block {number}");
        }
        let check = chain
            .db()
            .check(&mut |_| {})
            .map_err(|error| error.to_string())?;
        match check.damage.is_empty() {
            true => Ok(number),
            false => Err(format!("damage: {:?}", check.damage)),
        }
    }
}

/// A folder in memory where the system has one, so that remaining flushes wait for no disk.
fn scratch() -> std::io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

fn open(place: &Path) -> Result<Chain, ChainError> {
    Chain::open(Arc::new(StdDisk::new(place)), options()).map(|(chain, _)| chain)
}

/// As [`open`], with reads through the page cache: a check of all pages is much faster.
fn open_cached(place: &Path) -> Result<Chain, ChainError> {
    let how = StdDiskOptions {
        direct: false,
        ..StdDiskOptions::default()
    };
    let disk = StdDisk::with_options(place, &how).map_err(StoreError::from);
    let disk = disk.map_err(StateError::from)?;
    Chain::open(Arc::new(disk), options()).map(|(chain, _)| chain)
}

/// Waits for a merge that may be under way, which uses files.
fn close(chain: Chain, place: &Path) {
    drop(chain);
    let disk = StdDisk::new(place);
    while cambium_store::lock_data_dir(&disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
}
