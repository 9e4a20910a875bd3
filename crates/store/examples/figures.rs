//! Measures the figures on which the design of pages and segments is based.
//!
//! Run it with `cargo run --release -p cambium-store --example figures [DIRECTORY]`. The directory,
//! by default the current one, should be on the disk to be measured. The example creates a
//! subdirectory and removes it at the end.

use alloy_primitives::{B256, keccak256};
use cambium_disk::{Disk, StdDisk};
use cambium_primitives::Path;
use cambium_store::{
    BlockLog, LogOptions, LogPosition, Page, PageBuilder, SegmentOptions, Segments, StoreError,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;

fn main() -> Result<(), StoreError> {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let dir = tempfile::tempdir_in(parent).expect("a directory to write to");
    pages();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
    segments(&disk)?;
    for round in 0..3 {
        for extend_bytes in [0, MIB, 4 * MIB, 16 * MIB] {
            let disk = StdDisk::new(dir.path().join(format!("{round}-{extend_bytes}")));
            disk.create_dir("")?;
            log(Arc::new(disk), extend_bytes)?;
        }
    }
    Ok(())
}

/// Builds a page with `count` accounts, whose values have 10 bytes, under a prefix of five nibbles.
fn page_of(page: u64, count: u64) -> (Vec<Path>, Vec<u8>) {
    let prefix = Path::account(&keccak256(page.to_be_bytes())).prefix(5);
    let tail = |n: u64| Path::account(&keccak256([page, n].map(u64::to_be_bytes).concat()));
    let mut paths: Vec<Path> = (0..count)
        .map(|n| prefix.join(&tail(n).suffix(prefix.len())))
        .collect();
    paths.sort();
    let mut builder = PageBuilder::new(&prefix);
    paths
        .iter()
        .for_each(|path| _ = builder.leaf(path, &[7; 10]));
    (paths, builder.finish())
}

fn pages() {
    for count in [16, 64, 160] {
        let (mut paths, mut parsed) = (Vec::new(), Vec::new());
        let (mut bytes, mut parsing) = (0, Duration::ZERO);
        // Far larger than the processor's caches.
        let pages = 300_000 / count * 4;
        for n in 0..pages {
            let (page_paths, page) = page_of(n, count);
            bytes += page.len();
            let start = Instant::now();
            parsed.push(Page::parse(page).expect("a page"));
            parsing += start.elapsed();
            paths.push(page_paths);
        }
        let gets = 1_000_000;
        let get = |pages_used: usize| {
            let picks: Vec<(usize, Path)> = (0..gets as u64)
                .map(|n| {
                    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                    let page = n as usize % pages_used;
                    (page, paths[page][(n >> 22) as usize % count as usize])
                })
                .collect();
            let start = Instant::now();
            let found: usize = picks
                .iter()
                .map(|(n, path)| parsed[*n].get(path).map_or(0, <[u8]>::len))
                .sum();
            assert_eq!(found, gets * 10);
            start.elapsed().as_nanos() / gets as u128
        };
        println!(
            "page/leaves={count}: {:.1} bytes an account, parse {} ns, get {} ns in cache, {} ns \
             out of cache",
            bytes as f64 / (pages * count) as f64,
            parsing.as_nanos() / u128::from(pages),
            get(8),
            get(parsed.len()),
        );
    }
}

fn segments(disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
    let options = SegmentOptions::default();
    let (segments, _) = Segments::open(Arc::clone(disk), options, 0, None, &[])?;
    segments.settle()?;
    let (paths, page) = page_of(1, 96);
    let count = 100_000;
    let start = Instant::now();
    let mut addrs = Vec::new();
    for _ in 0..count {
        addrs.push(segments.append(&page)?);
    }
    segments.sync()?;
    let mib = (page.len() * count) as f64 / MIB as f64;
    let rate = mib / start.elapsed().as_secs_f64();
    println!(
        "segments/append: {count} pages of {} bytes, synced, {rate:.0} MiB/s",
        page.len()
    );
    let start = Instant::now();
    for n in 0..count {
        let page = segments.read(addrs[n * 7919 % count])?;
        assert!(page.get(&paths[n % 96]).is_some());
    }
    let each = start.elapsed().as_nanos() / count as u128;
    println!("segments/read: {each} ns for a page that the system has in memory");
    Ok(())
}

fn log(disk: Arc<dyn Disk>, extend_bytes: u64) -> Result<(), StoreError> {
    let options = LogOptions {
        extend_bytes,
        ..LogOptions::default()
    };
    let (log, _) = BlockLog::open(disk, options, LogPosition::START)?;
    log.settle()?;
    let payload: Vec<u8> = (0..512u64)
        .flat_map(|n| B256::from(keccak256(n.to_be_bytes())).0)
        .collect();
    assert_eq!(payload.len(), 16 * KIB);
    let mut times = Vec::new();
    let start = Instant::now();
    for _ in 0..600 {
        let one = Instant::now();
        log.append(1, &[&payload])?;
        log.sync()?;
        times.push(one.elapsed());
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort();
    println!(
        "log/append_sync=16KiB extend={} MiB: {rate:.0} a second, median {:?}, p99 {:?}, most {:?}",
        extend_bytes / MIB,
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1],
    );
    Ok(())
}
