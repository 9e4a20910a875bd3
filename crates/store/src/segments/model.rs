//! Model of the active segment's tail: two threads append, one syncs, and two read the newest
//! pages, while the buffer is written to the file and a new segment begins.

use super::{
    addr::PageAddr,
    queue::tests::read_queued,
    set::Segments,
    tests::{SALT, SMALL, same},
};
use crate::{
    PageBuilder,
    modelled::{YieldingDisk, run},
    sync::Mutex,
};
use alloy_primitives::keccak256;
use cambium_disk::FaultyDisk;
use cambium_primitives::Path;
use shuttle::thread;
use std::sync::Arc;

const APPENDERS: u64 = 2;
/// Number of pages that each thread appends: enough to fill two segments and begin a third.
const PAGES: u64 = 5;

fn page(n: u64) -> Vec<u8> {
    let account = keccak256(n.to_be_bytes());
    let mut builder = PageBuilder::new(&Path::EMPTY);
    let leaf = vec![n as u8; 1500 + (n * 637 % 2000) as usize];
    builder.leaf(&Path::account(&account), &leaf).finish()
}

/// Appended pages, each with its number.
type Appended = Mutex<Vec<(PageAddr, u64)>>;

fn read_newest(segments: &Segments, appended: &Appended, pages: &[Vec<u8>], how: u64) {
    let newest: Vec<_> = appended.lock().iter().rev().take(3).copied().collect();
    let Some((first, _)) = newest.first().copied() else {
        return;
    };
    let mut addrs: Vec<_> = newest.iter().map(|(addr, _)| *addr).collect();
    let read = match how {
        0 => vec![segments.read(first)],
        1 => segments.read_batch(&addrs),
        2 => read_queued(segments, &addrs),
        _ => {
            // The pages of a span are in one segment, in order.
            addrs.retain(|addr| addr.segment() == first.segment());
            addrs.sort_unstable();
            segments.read_spans(&[&addrs[..]])
        }
    };
    let addrs = if how == 0 { vec![first] } else { addrs };
    assert_eq!(read.len(), addrs.len());
    for (addr, page) in addrs.iter().zip(read) {
        let (_, n) = newest
            .iter()
            .find(|(one, _)| one == addr)
            .expect("its page");
        let page = page.unwrap_or_else(|error| panic!("page {n} at {addr:?}: {error}"));
        assert!(same(&page, pages[*n as usize].clone()), "page {n}");
    }
}

#[test]
fn pages_are_read_right_while_the_tail_is_written_synced_and_turned_to_a_new_segment() {
    let pages: Arc<Vec<_>> = Arc::new((0..APPENDERS * PAGES).map(page).collect());
    run(move || {
        let disk = FaultyDisk::new(1);
        let yielding = Arc::new(YieldingDisk(disk.clone()));
        let (segments, _) = Segments::open(yielding, SMALL, SALT, None, &[]).unwrap();
        segments.settle().unwrap();
        let segments = Arc::new(segments);
        let appended: Arc<Appended> = Arc::default();
        let mut threads = Vec::new();
        for appender in 0..APPENDERS {
            let (segments, appended, pages) = (segments.clone(), appended.clone(), pages.clone());
            threads.push(thread::spawn(move || {
                for n in appender * PAGES..(appender + 1) * PAGES {
                    let addr = segments.append(&pages[n as usize]).unwrap();
                    appended.lock().push((addr, n));
                }
            }));
        }
        for how in 0..2 {
            let (segments, appended, pages) = (segments.clone(), appended.clone(), pages.clone());
            threads.push(thread::spawn(move || {
                for step in 0..4 {
                    read_newest(&segments, &appended, &pages, (how + step) % 4);
                }
            }));
        }
        let mut durable = (Vec::new(), segments.encode_table(&[]));
        for _ in 0..3 {
            let before = appended.lock().clone();
            segments.sync().unwrap();
            durable = (before, segments.encode_table(&[]));
        }
        threads.into_iter().for_each(|one| one.join().unwrap());
        for (addr, n) in &*appended.lock() {
            let page = segments.read(*addr).unwrap();
            assert!(same(&page, pages[*n as usize].clone()), "page {n}");
        }
        // Pages appended before the last sync survive a power loss.
        let (appended, table) = durable;
        let disk = Arc::new(disk.crash());
        let (segments, damage) = Segments::open(disk, SMALL, SALT, Some(&table), &[]).unwrap();
        assert!(damage.is_empty(), "{damage:?}");
        for (addr, n) in appended {
            let page = segments.read(addr).unwrap();
            assert!(same(&page, pages[n as usize].clone()), "page {n} is lost");
        }
    });
}
