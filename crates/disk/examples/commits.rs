//! How long a commit takes: a write over zeros of a file that was written before, and its sync, alone and
//! beside a thread that writes segments as merges do.
//!
//! `cargo run --release -p cambium-disk --example commits -- DIRECTORY [COMMITS [KIB [LOADS]]]`
//!
//! `DIRECTORY` is on the disk in question. Files `commits.log` (256 MiB) and `commits-*.seg` are written there and
//! removed at the end. Each way is measured by `COMMITS` commits (default 3000) of each size in `KIB` (default
//! `4,32,512`), with a pause of 1 ms between commits, beside each of `LOADS` (default all). The ways take turns of 100
//! commits, so that whatever else uses the disk disturbs them alike. `--idle` gives the thread of the load the idle
//! I/O priority, by `ionice`.
//!
//! A load is `none`, `whole` (segments by direct writes of 2 MiB at a time), or words with `+` between them, for
//! direct writes of 256 KiB at a time: `plain` (one after the other), `pause` (each takes 2 ms at least), `yield` (none
//! begins while a commit is under way), `sync` (each is synced), `cached` (through the page cache) and `journal` (after each, a
//! small file is created, synced, renamed and removed).
//!
//! Every load syncs a segment that is full (64 MiB), and begins another.

use rustix::{
    fs::OFlags,
    io::{ReadWriteFlags, pwritev2},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, IoSlice},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const LOG_BYTES: usize = 256 << 20;
const SEGMENT_BYTES: usize = 64 << 20;
const WHOLE_BYTES: usize = 2 << 20;
const PIECE_BYTES: usize = 256 << 10;
const PIECE_TIME: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(1);
const TURN: usize = 100;
/// A piece waits for a commit at most this long, so that commits without a pause do not stop the load.
const YIELD_MAX: Duration = Duration::from_millis(4);

const LOADS: [&str; 10] = [
    "none",
    "whole",
    "plain",
    "pause",
    "yield",
    "pause+yield",
    "sync",
    "yield+sync",
    "pause+cached",
    "pause+journal",
];
const WAYS: [(&str, Way); 3] = [
    ("cached, fdatasync", Way::Cached),
    ("direct, fdatasync", Way::Direct),
    ("direct, RWF_DSYNC", Way::Dsync),
];

#[derive(Clone, Copy)]
enum Way {
    Cached,
    Direct,
    Dsync,
}

/// What the thread of the load shares with the one that commits.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    is_committing: AtomicBool,
    bytes: AtomicU64,
}

fn main() -> io::Result<()> {
    let (flags, words): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with("--"));
    let word = |at: usize, otherwise| words.get(at).map_or(otherwise, String::as_str);
    let dir = PathBuf::from(word(0, "."));
    let commits: usize = word(1, "3000").parse().expect("a number of commits");
    let is_idle = flags.iter().any(|flag| flag == "--idle");
    let log = dir.join("commits.log");
    make_log(&log)?;
    println!("load, KiB, way, p50, p99, p99.9, longest in ms, load in MiB/s");
    for load in word(3, &LOADS.join(",")).split(',') {
        for kib in word(2, "4,32,512").split(',') {
            let kib: usize = kib.parse().expect("sizes in KiB");
            measure(&dir, &log, load, kib << 10, commits, is_idle)?;
        }
    }
    fs::remove_file(log)
}

fn make_log(path: &Path) -> io::Result<()> {
    let file = open(path, true)?;
    let mut zeros = Vec::new();
    for at in (0..LOG_BYTES).step_by(WHOLE_BYTES) {
        file.write_all_at(aligned(&mut zeros, WHOLE_BYTES, 0), at as u64)?;
    }
    file.sync_all()
}

fn open(path: &Path, is_direct: bool) -> io::Result<File> {
    let flags = if is_direct {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags.bits() as i32)
        .open(path)
}

/// `len` bytes in `space` that begin at a multiple of 4096.
fn aligned(space: &mut Vec<u8>, len: usize, byte: u8) -> &mut [u8] {
    space.resize(len + 4096, byte);
    let start = space.as_ptr().align_offset(4096);
    let bytes = &mut space[start..start + len];
    bytes.fill(byte);
    bytes
}

fn measure(
    dir: &Path,
    log: &Path,
    load: &str,
    bytes: usize,
    commits: usize,
    is_idle: bool,
) -> io::Result<()> {
    let shared = Shared::default();
    let start = Instant::now();
    let mut times = WAYS.map(|_| Vec::with_capacity(commits));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_segments(dir, load, is_idle, &shared));
        let measured = commit(log, bytes, commits, &shared, &mut times);
        shared.is_over.store(true, Relaxed);
        writer.join().expect("the load").and(measured)
    })?;
    let rate =
        shared.bytes.load(Relaxed) as f64 / start.elapsed().as_secs_f64() / f64::from(1 << 20);
    for ((name, _), times) in WAYS.iter().zip(&mut times) {
        times.sort_unstable();
        let at =
            |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!(
            "{load}, {}, {name}, {:.2}, {:.2}, {:.2}, {:.2}, {rate:.0}",
            bytes >> 10,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
        );
    }
    Ok(())
}

fn commit(
    log: &Path,
    bytes: usize,
    commits: usize,
    shared: &Shared,
    times: &mut [Vec<Duration>; 3],
) -> io::Result<()> {
    let (cached, direct) = (open(log, false)?, open(log, true)?);
    let (mut space, mut offset) = (Vec::new(), 0);
    for turn in 0..commits.div_ceil(TURN) {
        for ((_, way), times) in WAYS.iter().zip(&mut *times) {
            for n in 0..TURN {
                let record = aligned(&mut space, bytes, (turn + n) as u8 | 1);
                thread::sleep(PAUSE);
                let start = Instant::now();
                shared.is_committing.store(true, Relaxed);
                match way {
                    Way::Cached => {
                        cached.write_all_at(record, offset)?;
                        cached.sync_data()?;
                    }
                    Way::Direct => {
                        direct.write_all_at(record, offset)?;
                        direct.sync_data()?;
                    }
                    Way::Dsync => write_durably(&direct, record, offset)?,
                }
                shared.is_committing.store(false, Relaxed);
                times.push(start.elapsed());
                offset = (offset + bytes as u64) % LOG_BYTES as u64;
            }
        }
    }
    Ok(())
}

fn write_durably(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let written = pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC)?;
    assert_eq!(written, bytes.len(), "a short write");
    Ok(())
}

/// What makes the file system commit its journal.
fn write_small(dir: &Path) -> io::Result<()> {
    let (from, to) = (dir.join("commits-small.tmp"), dir.join("commits-small"));
    let file = open(&from, false)?;
    file.write_all_at(&[1; 100], 0)?;
    file.sync_all()?;
    fs::rename(from, &to)?;
    File::open(dir)?.sync_all()?;
    fs::remove_file(to)
}

fn write_segments(dir: &Path, load: &str, is_idle: bool, shared: &Shared) -> io::Result<()> {
    if load == "none" {
        return Ok(());
    }
    if is_idle {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        let set = Command::new("ionice")
            .args(["-c", "3", "-p", &thread])
            .status()?;
        assert!(set.success(), "ionice");
    }
    let has = |word| load.split('+').any(|found| found == word);
    let (pauses, yields, syncs) = (has("pause"), has("yield"), has("sync"));
    let len = if has("whole") {
        WHOLE_BYTES
    } else {
        PIECE_BYTES
    };
    let mut space = Vec::new();
    let piece = aligned(&mut space, len, 7);
    for n in 0.. {
        let path = dir.join(format!("commits-{n}.seg"));
        let file = open(&path, !has("cached"))?;
        for at in (0..SEGMENT_BYTES as u64).step_by(len) {
            let start = Instant::now();
            while yields && shared.is_committing.load(Relaxed) && start.elapsed() < YIELD_MAX {
                thread::sleep(Duration::from_micros(50));
            }
            match syncs {
                true => write_durably(&file, piece, at)?,
                false => file.write_all_at(piece, at)?,
            }
            shared.bytes.fetch_add(len as u64, Relaxed);
            if has("journal") {
                write_small(dir)?;
            }
            if pauses {
                thread::sleep(PIECE_TIME.saturating_sub(start.elapsed()));
            }
            if shared.is_over.load(Relaxed) {
                return fs::remove_file(path);
            }
        }
        file.sync_data()?;
        fs::remove_file(path)?;
    }
    Ok(())
}
