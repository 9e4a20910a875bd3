//! Random reads of a large file, in every way that the disk has: reads a second, processor time of
//! each, and how long a batch takes.
//!
//! `cargo run --release -p cambium-disk --example random_reads -- DIRECTORY [SECONDS [DEPTHS
//! [THREADS]]]`
//!
//! `DIRECTORY` is on the disk in question. The file is `f` there, of 4 GiB or its present size; it is written if it
//! does not exist, and stays. Each way is measured for `SECONDS` (default 3), in batches of `DEPTHS` reads (default
//! `1,16,64,128,1024`), of 4 KiB at multiples of it, and of 1,200 bytes anywhere, by `THREADS` at once (default 1),
//! each with its own batches. `--queue` reads through queues instead, which are kept full, and prints the time of a
//! read from its submission until it is handed out. `--cached` adds reads through the page cache, which measure the
//! cache as soon as it holds the file.
//!
//! To compare with the device's own rate at the same depth, run beside it:
//! `fio --name=r --filename=DIRECTORY/f --size=4G --rw=randread --bs=4k --direct=1
//! --ioengine=io_uring --iodepth=64 --runtime=3 --time_based`.

use cambium_disk::{
    Access, Disk, DiskError, DiskFile, IoMethod, QueuedRead, ReadRequest, StdDisk, StdDiskOptions,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const FILE_BYTES: u64 = 4 << 30;

fn main() -> Result<(), DiskError> {
    let (flags, words): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|word| word.starts_with("--"));
    let dir = words.first().map_or(".", String::as_str);
    let seconds = words
        .get(1)
        .map_or(3.0, |word| word.parse().expect("seconds"));
    let depths = words.get(2).map_or("1,16,64,128,1024", String::as_str);
    let depths = depths
        .split(',')
        .map(|depth| depth.parse().expect("a depth"));
    let threads = words
        .get(3)
        .map_or(1, |word| word.parse().expect("threads"));
    for depth in depths {
        for (len, step) in [(4096, 4096), (1200, 16)] {
            for (method, access) in ways(flags.iter().any(|flag| flag == "--cached")) {
                let way = Way {
                    method,
                    access,
                    threads,
                    depth,
                    len,
                    step,
                    by_queue: flags.iter().any(|flag| flag == "--queue"),
                };
                measure(dir, &way, Duration::from_secs_f64(seconds))?;
            }
        }
    }
    Ok(())
}

struct Way {
    method: IoMethod,
    access: Access,
    threads: u64,
    depth: usize,
    len: usize,
    step: u64,
    by_queue: bool,
}

fn ways(with_cached: bool) -> Vec<(IoMethod, Access)> {
    let mut ways = vec![
        (IoMethod::Uring, Access::Direct),
        (IoMethod::Portable, Access::Direct),
    ];
    if with_cached {
        ways.extend([
            (IoMethod::Uring, Access::Cached),
            (IoMethod::Portable, Access::Cached),
        ]);
    }
    ways
}

fn measure(dir: &str, way: &Way, time: Duration) -> Result<(), DiskError> {
    let options = StdDiskOptions {
        method: way.method,
        direct: true,
        ..StdDiskOptions::default()
    };
    let disk = match StdDisk::with_options(dir, &options) {
        Err(e) if e.is_unsupported() => {
            println!("{e}");
            return Ok(());
        }
        disk => disk?,
    };
    if !disk.exists("f")? {
        write(&disk)?;
    }
    let file = disk.open_with("f", way.access)?;
    let places = (file.len()?.min(FILE_BYTES) - way.len as u64) / way.step;
    let end = Instant::now() + time;
    let read = |seed: u64| {
        let mut random = Random(seed);
        let offset = || random.next() % places * way.step;
        match way.by_queue {
            true => read_queued(&disk, &file, way, offset, end),
            false => read_batches(&disk, &file, way, offset, end),
        }
    };
    let (start, cpu) = (Instant::now(), cpu_time());
    let micros: Result<Vec<_>, _> = std::thread::scope(|scope| {
        let seed = |thread| u64::from(std::process::id()) << 32 | thread;
        let threads: Vec<_> = (0..way.threads)
            .map(|thread| scope.spawn(move || read(seed(thread))))
            .collect();
        let each = threads.into_iter();
        each.map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let mut micros = micros?.concat();
    let (took, cpu) = (start.elapsed(), cpu_time() - cpu);
    let reads = disk.stats().reads;
    micros.sort_unstable();
    println!(
        "read/{:?}/{:?}/bytes={}/depth={}/threads={}: {:.0} reads/s, {:.2} us of processor each, {} p50 {} \
         us, p99 {} us",
        way.method,
        way.access,
        way.len,
        way.depth,
        way.threads,
        reads as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / reads as f64,
        if way.by_queue { "queued read" } else { "batch" },
        micros[micros.len() / 2],
        micros[micros.len() * 99 / 100],
    );
    Ok(())
}

/// Reads batches until `end`. Returns how long each took in microseconds.
fn read_batches(
    disk: &StdDisk,
    file: &Arc<dyn DiskFile>,
    way: &Way,
    mut offset: impl FnMut() -> u64,
    end: Instant,
) -> Result<Vec<u128>, DiskError> {
    let mut bufs = vec![vec![0; way.len]; way.depth];
    let mut micros = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        let mut requests: Vec<_> = bufs
            .iter_mut()
            .map(|buf| ReadRequest::new(&**file, offset(), buf))
            .collect();
        disk.read_batch(&mut requests);
        for request in requests {
            request.outcome?;
        }
        micros.push(start.elapsed().as_micros());
    }
    Ok(micros)
}

/// Reads through a queue until `end`, and submits a read for each that is handed out. Returns how
/// long each took in microseconds.
fn read_queued(
    disk: &StdDisk,
    file: &Arc<dyn DiskFile>,
    way: &Way,
    mut offset: impl FnMut() -> u64,
    end: Instant,
) -> Result<Vec<u128>, DiskError> {
    let mut queue = disk.read_queue(way.depth);
    let mut submitted = vec![Instant::now(); way.depth];
    let (mut finished, mut micros) = (Vec::new(), Vec::new());
    let queued = |offset, bytes, tag| QueuedRead {
        file: Arc::clone(file),
        offset,
        bytes,
        tag,
    };
    (0..way.depth).for_each(|n| queue.submit(queued(offset(), vec![0; way.len], n as u64)));
    while queue.in_flight() > 0 {
        queue.poll(true, &mut finished);
        let now = Instant::now();
        for read in finished.drain(..) {
            read.outcome?;
            let start = &mut submitted[read.tag as usize];
            micros.push((now - *start).as_micros());
            if now < end {
                *start = now;
                queue.submit(queued(offset(), read.bytes, read.tag));
            }
        }
    }
    Ok(micros)
}

fn write(disk: &StdDisk) -> Result<(), DiskError> {
    let file = disk.create_with("f", Access::Direct)?;
    let mut random = Random(1);
    let mut piece = vec![0; 4 << 20];
    for offset in (0..FILE_BYTES).step_by(piece.len()) {
        for word in piece.as_chunks_mut::<8>().0 {
            *word = random.next().to_le_bytes();
        }
        file.write_at(&piece, offset)?;
    }
    file.sync()
}

/// Processor time of this process, the system's for it included.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
