//! The contract of `Disk`: the same cases for every kind.

use cambium_disk::{
    Access, BLOCK_BYTES, Disk, DiskError, DiskFile, DiskStats, FaultyDisk, FinishedRead, IoMethod,
    LockError, QueuedRead, ReadQueue, ReadRequest, SalvageDisk, StdDisk, StdDiskOptions, TrialDisk,
};
use std::{
    io::ErrorKind,
    sync::{Arc, Mutex},
};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Runs `case` on a disk of every kind, and on those above another.
fn on_each(case: impl Fn(&dyn Disk)) {
    case(&SalvageDisk::new(Arc::new(FaultyDisk::new(1))));
    case(&TrialDisk::new(Arc::new(FaultyDisk::new(1)), u64::MAX));
    on_each_of_its_own(case);
}

/// Runs `case` on a disk of every kind, without io_uring where the system refuses it.
fn on_each_of_its_own(case: impl Fn(&dyn Disk)) {
    case(&FaultyDisk::new(1));
    for method in [IoMethod::Portable, IoMethod::Uring] {
        for direct in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let options = StdDiskOptions {
                method,
                direct,
                ..StdDiskOptions::default()
            };
            match StdDisk::with_options(dir.path(), &options) {
                Ok(disk) => case(&disk),
                Err(e) => {
                    assert_eq!(method, IoMethod::Uring, "{e}");
                    println!("not tested: {e}");
                }
            }
        }
    }
}

/// Bytes that differ from place to place.
fn content(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|n| (n ^ n >> 8 ^ n >> 16) as u8)
        .collect()
}

/// A file of `bytes`.
fn filled(disk: &dyn Disk, name: &str, access: Access, bytes: &[u8]) -> Arc<dyn DiskFile> {
    disk.create(name).unwrap().write_at(bytes, 0).unwrap();
    disk.open_with(name, access).unwrap()
}

/// A seeded number for the `n`th of something.
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
}

fn kind<T>(result: Result<T, DiskError>) -> ErrorKind {
    result.map(|_| ()).expect_err("an error").source.kind()
}

#[test]
fn a_file_is_read_and_written_at_any_place() {
    on_each(|disk| {
        let file = disk.create("a").unwrap();
        assert!(file.is_empty().unwrap());
        file.write_at(b"world", 6).unwrap();
        file.write_at(b"hello", 0).unwrap();
        file.sync().unwrap();
        let mut bytes = [1; 11];
        disk.open("a").unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"hello\0world");
        assert_eq!(kind(file.read_at(&mut bytes, 1)), ErrorKind::UnexpectedEof);
        assert_eq!(
            kind(file.read_at(&mut bytes, 1 << 40)),
            ErrorKind::UnexpectedEof
        );
        file.set_len(3).unwrap();
        file.set_len(5).unwrap();
        file.read_at(&mut bytes[..5], 0).unwrap();
        assert_eq!((&bytes[..5], file.len().unwrap()), (&b"hel\0\0"[..], 5));
    });
}

#[test]
fn names_are_created_listed_renamed_and_removed() {
    on_each(|disk| {
        assert_eq!(kind(disk.create("dir/a")), ErrorKind::NotFound);
        disk.create_dir("dir/inner").unwrap();
        disk.create_dir("dir/inner").unwrap();
        let file = disk.create("dir/b").unwrap();
        file.write_at(b"b", 0).unwrap();
        disk.create("dir/a").unwrap();
        assert_eq!(kind(disk.create("dir/a")), ErrorKind::AlreadyExists);
        assert_eq!(disk.list("dir").unwrap(), ["a", "b", "inner"]);
        assert_eq!(disk.list("").unwrap(), ["dir"]);
        disk.rename("dir/b", "dir/a").unwrap();
        disk.sync_dir("dir").unwrap();
        assert_eq!(disk.list("dir").unwrap(), ["a", "inner"]);
        assert_eq!(disk.open("dir/a").unwrap().len().unwrap(), 1);
        assert!(disk.exists("dir/a").unwrap() && disk.exists("dir").unwrap());
        disk.remove("dir/a").unwrap();
        assert!(!disk.exists("dir/a").unwrap());
        let mut bytes = [0];
        file.read_at(&mut bytes, 0)
            .expect("those who have it open keep reading it");
        for missing in [
            kind(disk.open("dir/a")),
            kind(disk.remove("dir/a")),
            kind(disk.list("x")),
        ] {
            assert_eq!(missing, ErrorKind::NotFound);
        }
    });
}

#[test]
fn a_batch_leaves_the_outcome_of_each_read() {
    on_each(|disk| {
        let (a, b) = (disk.create("a").unwrap(), disk.create("b").unwrap());
        a.write_at(b"0123456789", 0).unwrap();
        b.write_at(b"abc", 0).unwrap();
        let mut bufs = [[0; 3]; 3];
        let [first, second, third] = &mut bufs;
        let mut batch = [
            ReadRequest::new(&*a, 4, first),
            ReadRequest::new(&*b, 1, second),
            ReadRequest::new(&*b, 0, third),
        ];
        disk.read_batch(&mut batch);
        let outcomes = batch.map(|request| request.outcome.is_ok());
        assert_eq!(outcomes, [true, false, true]);
        assert_eq!([bufs[0], bufs[2]], [*b"456", *b"abc"]);
    });
}

#[test]
fn reads_of_any_range_find_what_is_there_whatever_the_access() {
    on_each(|disk| {
        for access in [Access::Cached, Access::Direct] {
            // Ends within a block.
            let bytes = content(3_000_017);
            let name = format!("{access:?}");
            let file = filled(disk, &name, access, &bytes);
            let ranges = (0..300).map(|n| (mix(n) % 3_000_000, mix(n + 1_000) as usize % 20_000));
            let edges = [
                (0, 0),
                (0, 1),
                (511, 2),
                (512, 512),
                (4095, 8194),
                (0, bytes.len()),
                (5, 2_500_000),
                (3_000_016, 1),
                (3_000_017, 0),
            ];
            for (offset, len) in ranges.chain(edges) {
                let mut found = vec![0xee; len];
                let read = file.read_at(&mut found, offset);
                match bytes.get(offset as usize..offset as usize + len) {
                    Some(expected) => {
                        read.unwrap();
                        assert!(found == expected, "{access:?}: {len} bytes at {offset}");
                    }
                    None => assert_eq!(kind(read), ErrorKind::UnexpectedEof),
                }
            }
            for offset in [3_000_017, 1 << 40, i64::MAX as u64, u64::MAX] {
                assert_eq!(
                    kind(file.read_at(&mut [0], offset)),
                    ErrorKind::UnexpectedEof
                );
            }
        }
    });
}

#[test]
fn a_large_batch_finds_all_from_many_threads_at_once() {
    on_each(|disk| {
        let bytes = content(2_000_001);
        let files = [Access::Cached, Access::Direct]
            .map(|access| filled(disk, &format!("{access:?}"), access, &bytes));
        let batch = |seed: u64| {
            let of = |n: u64| mix(seed << 32 | n);
            let len = |n| match of(n) % 50 {
                0 => of(n + 7_000) as usize % 100_000,
                _ => of(n + 7_000) as usize % 6_000,
            };
            let mut bufs: Vec<_> = (0..700).map(|n| vec![0; len(n)]).collect();
            let mut requests: Vec<_> = (0..)
                .zip(&mut bufs)
                .map(|(n, buf)| {
                    let file = &*files[of(n + 20_000) as usize % 2];
                    ReadRequest::new(file, of(n + 40_000) % 2_040_000, buf)
                })
                .collect();
            disk.read_batch(&mut requests);
            let mut beyond = 0;
            for request in requests {
                let start = request.offset as usize;
                match bytes.get(start..start + request.buf.len()) {
                    Some(expected) => {
                        request.outcome.unwrap();
                        assert!(request.buf == expected, "{} at {start}", expected.len());
                    }
                    None => {
                        beyond += 1;
                        assert_eq!(kind(request.outcome), ErrorKind::UnexpectedEof);
                    }
                }
            }
            assert!((1..100).contains(&beyond), "{beyond} reads beyond the end");
        };
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || (0..4).for_each(|round| batch(thread * 100 + round)));
            }
        });
    });
}

#[test]
fn a_file_removed_meanwhile_can_still_be_read_in_a_batch() {
    on_each(|disk| {
        for access in [Access::Cached, Access::Direct] {
            let bytes = content(100_000);
            let file = filled(disk, "a", access, &bytes);
            disk.remove("a").unwrap();
            let mut bufs = vec![[0; 50]; 1_000];
            let mut requests: Vec<_> = (0..)
                .zip(&mut bufs)
                .map(|(n, buf)| ReadRequest::new(&*file, n * 99, buf))
                .collect();
            disk.read_batch(&mut requests);
            for request in requests {
                request.outcome.unwrap();
                assert_eq!(request.buf, &bytes[request.offset as usize..][..50]);
            }
        }
    });
}

#[test]
fn a_file_of_another_disk_can_be_in_a_batch() {
    let other = FaultyDisk::new(3);
    let theirs = filled(&other, "theirs", Access::Cached, b"theirs");
    on_each(|disk| {
        let ours = filled(disk, "ours", Access::Cached, b"ours and more");
        let mut bufs = [[0; 4]; 4];
        let [a, b, c, d] = &mut bufs;
        let mut batch = [
            ReadRequest::new(&*ours, 0, a),
            ReadRequest::new(&*theirs, 2, b),
            ReadRequest::new(&*theirs, 3, c),
            ReadRequest::new(&*ours, 5, d),
        ];
        disk.read_batch(&mut batch);
        let outcomes = batch.map(|request| request.outcome.is_ok());
        assert_eq!(outcomes, [true, true, false, true]);
        assert_eq!([bufs[0], bufs[1], bufs[3]], [*b"ours", *b"eirs", *b"and "]);
    });
}

/// A read of `len` bytes. Its buffer is filled with something else before.
fn queued(file: &Arc<dyn DiskFile>, offset: u64, len: usize, tag: u64) -> QueuedRead {
    QueuedRead {
        file: Arc::clone(file),
        offset,
        bytes: vec![0xee; len],
        tag,
    }
}

/// Takes all reads that the queue has left.
fn take_rest(queue: &mut dyn ReadQueue) -> Vec<FinishedRead> {
    let mut finished = Vec::new();
    while queue.in_flight() > 0 {
        let before = (finished.len(), queue.in_flight());
        queue.poll(true, &mut finished);
        assert!(finished.len() > before.0, "a wait without a result");
        assert_eq!(
            finished.len() + queue.in_flight(),
            before.0 + before.1,
            "reads were lost or counted twice"
        );
    }
    queue.poll(true, &mut finished);
    finished
}

#[test]
fn a_queue_finishes_each_read_once_and_finds_what_is_there() {
    on_each(|disk| {
        let bytes = content(1_000_001);
        let other = filled(&FaultyDisk::new(3), "theirs", Access::Cached, &bytes);
        let ours = [Access::Cached, Access::Direct]
            .map(|access| filled(disk, &format!("{access:?}"), access, &bytes));
        let files = [&ours[0], &ours[1], &other];
        for depth in [1, 16, 128] {
            let mut queue = disk.read_queue(depth);
            let len = |n| match mix(n + 7_000) as usize {
                len if n % 20 == 0 => len % 100_000,
                len => len % 6_000,
            };
            let edges = [
                (0, 0),
                (0, bytes.len()),
                (16 << 10, 16 << 10),
                (1, 64 << 10),
                (1_000_000, 1),
                (1_000_000, 2),
                (1_000_001, 0),
                (1 << 40, 1),
                (u64::MAX, 1),
            ];
            let ranges = (0..500).map(|n| (mix(n + depth as u64) % 1_020_000, len(n)));
            let reads: Vec<_> = ranges.chain(edges).collect();
            let mut finished = Vec::new();
            for (n, (offset, len)) in reads.iter().enumerate() {
                queue.submit(queued(files[n % 3], *offset, *len, n as u64));
                assert_eq!(queue.in_flight() + finished.len(), n + 1);
                if n % 5 == 0 {
                    queue.poll(n % 25 == 0, &mut finished);
                }
            }
            finished.extend(take_rest(&mut *queue));
            finished.sort_unstable_by_key(|read| read.tag);
            assert!(
                finished
                    .iter()
                    .map(|read| read.tag)
                    .eq(0..reads.len() as u64)
            );
            for (read, (offset, len)) in finished.into_iter().zip(reads) {
                let end = usize::try_from(offset).unwrap().checked_add(len);
                match end.and_then(|end| bytes.get(offset as usize..end)) {
                    Some(expected) => {
                        read.outcome.unwrap();
                        assert!(read.bytes == expected, "{len} bytes at {offset}");
                    }
                    None => {
                        assert_eq!(kind(read.outcome), ErrorKind::UnexpectedEof);
                        assert_eq!(read.bytes.len(), len);
                    }
                }
            }
        }
    });
}

#[test]
fn a_file_removed_and_closed_meanwhile_is_read_by_a_queue() {
    on_each(|disk| {
        let bytes = content(100_000);
        let file = filled(disk, "a", Access::Direct, &bytes);
        let mut queue = disk.read_queue(8);
        for n in 0..100 {
            queue.submit(queued(&file, n * 999, 50, n));
        }
        disk.remove("a").unwrap();
        drop(file);
        for read in take_rest(&mut *queue) {
            read.outcome.unwrap();
            assert_eq!(read.bytes, bytes[read.tag as usize * 999..][..50]);
        }
    });
}

#[test]
fn a_queue_can_be_dropped_with_reads_in_flight() {
    on_each(|disk| {
        let bytes = content(1_000_000);
        let file = filled(disk, "a", Access::Direct, &bytes);
        for polls in 0..3 {
            let mut queue = disk.read_queue(32);
            for n in 0..200 {
                queue.submit(queued(&file, n * 4_096, 4_096, n));
            }
            (0..polls).for_each(|_| queue.poll(false, &mut Vec::new()));
        }
        let mut queue = disk.read_queue(32);
        queue.submit(queued(&file, 5, 10, 0));
        assert_eq!(take_rest(&mut *queue)[0].bytes, bytes[5..15]);
    });
}

#[test]
fn a_queue_of_a_trial_disk_finds_what_was_changed_there_and_what_was_not() {
    let below = FaultyDisk::new(1);
    let mut bytes = content(100_000);
    filled(&below, "a", Access::Cached, &bytes);
    let trial = TrialDisk::new(Arc::new(below.clone()), u64::MAX);
    let file = trial.open("a").unwrap();
    file.write_at(&[0xaa; 5_000], 30_000).unwrap();
    bytes[30_000..35_000].fill(0xaa);
    let reads_before = below.stats().reads;
    let mut queue = trial.read_queue(8);
    for n in 0..99 {
        queue.submit(queued(&file, n * 1_000, 1_000, n));
    }
    let finished = take_rest(&mut *queue);
    assert_eq!(finished.len(), 99);
    for read in finished {
        read.outcome.unwrap();
        assert_eq!(read.bytes, bytes[read.tag as usize * 1_000..][..1_000]);
    }
    let reads = below.stats().reads - reads_before;
    assert!((90..99).contains(&reads), "{reads} reads below");
}

#[test]
fn direct_access_writes_whole_blocks_only() {
    on_each(|disk| {
        let file = disk.create_with("a", Access::Direct).unwrap();
        let bytes = content(3 << 20);
        // Neither in the middle of memory's blocks nor at their start is a case of its own.
        for shift in [0, 1] {
            let bytes = &bytes[shift..][..2 << 20];
            file.write_at(bytes, 2 * BLOCK).unwrap();
            let mut found = vec![0; bytes.len()];
            file.read_at(&mut found, 2 * BLOCK).unwrap();
            assert!(found == bytes);
        }
        file.sync().unwrap();
        let mut gap = vec![1; 2 * BLOCK_BYTES];
        file.read_at(&mut gap, 0).unwrap();
        assert!(gap.iter().all(|byte| *byte == 0));
        for (len, offset) in [
            (BLOCK_BYTES, 1),
            (BLOCK_BYTES, 512),
            (100, 0),
            (BLOCK_BYTES + 512, 0),
        ] {
            let written = file.write_at(&bytes[..len], offset);
            assert_eq!(kind(written), ErrorKind::InvalidInput);
        }
        let cached = disk.open("a").unwrap();
        cached.write_at(&bytes[..100], 1).unwrap();
        file.read_at(&mut gap, 0).unwrap();
        assert_eq!(gap[1..101], bytes[..100]);
    });
}

#[test]
fn a_hole_reads_as_zeros_and_leaves_the_rest_and_the_length() {
    on_each(|disk| {
        let mut bytes = content(10 * BLOCK_BYTES + 100);
        let file = filled(disk, "a", Access::Direct, &bytes);
        file.sync().unwrap();
        let punched = file.punch_hole(BLOCK + 10, 5 * BLOCK);
        if punched.as_ref().is_err_and(DiskError::is_unsupported) {
            return;
        }
        punched.unwrap();
        file.punch_hole(3, 0).unwrap();
        file.punch_hole(10 * BLOCK, 1 << 30).unwrap();
        file.punch_hole(1 << 30, BLOCK).unwrap();
        bytes[BLOCK_BYTES + 10..6 * BLOCK_BYTES + 10].fill(0);
        bytes[10 * BLOCK_BYTES..].fill(0);
        let mut found = vec![0; bytes.len()];
        file.read_at(&mut found, 0).unwrap();
        assert!(found == bytes);
        assert_eq!(file.len().unwrap(), bytes.len() as u64);
        file.write_at(&content(BLOCK_BYTES), 2 * BLOCK).unwrap();
        file.read_at(&mut found, 0).unwrap();
        assert!(found[2 * BLOCK_BYTES..3 * BLOCK_BYTES] == content(BLOCK_BYTES));
    });
}

#[test]
fn a_disk_counts_what_it_does() {
    on_each_of_its_own(|disk| {
        let file = filled(disk, "a", Access::Cached, &content(10_000));
        file.sync().unwrap();
        disk.sync_dir("").unwrap();
        file.read_at(&mut [0; 100], 5).unwrap();
        let mut bufs = [[0; 30]; 4];
        let [first, rest @ ..] = &mut bufs;
        disk.read_batch(&mut [ReadRequest::new(&*file, 0, first)]);
        let mut batch: Vec<_> = rest
            .iter_mut()
            .map(|buf| ReadRequest::new(&*file, 0, buf))
            .collect();
        disk.read_batch(&mut batch);
        let mut queue = disk.read_queue(2);
        (0..3).for_each(|n| queue.submit(queued(&file, n, 20, n)));
        // The second read of a failed one is not counted.
        queue.submit(queued(&file, 9_990, 20, 3));
        take_rest(&mut *queue);
        let expected = DiskStats {
            reads: 9,
            bytes_read: 300,
            batches: 2,
            writes: 1,
            bytes_written: 10_000,
            syncs: 2,
        };
        assert_eq!(disk.stats(), expected);
        let direct = disk.open_with("a", Access::Direct).unwrap();
        direct.read_at(&mut [0; 100], 5).unwrap();
        let read = disk.stats().bytes_read - expected.bytes_read;
        let is_direct = disk.describe().is_direct;
        assert!(
            read == 100 && !is_direct || read >= 512 && is_direct,
            "{read}"
        );
    });
}

#[test]
fn a_disk_tells_how_it_works() {
    let seen = Mutex::new(Vec::new());
    on_each_of_its_own(|disk| {
        let plain = disk.describe();
        let _ = disk.create_with("a", Access::Direct).unwrap();
        let direct = disk.describe();
        assert_eq!(
            (plain.is_direct, plain.batch_reads),
            (false, direct.batch_reads)
        );
        seen.lock().unwrap().push(direct.to_string());
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen[0], "batches by memory, access cached");
    assert_eq!(
        seen[1],
        "batches by threads (no io_uring: not wanted), access cached (not direct: not wanted)"
    );
    assert!(seen[2].starts_with("batches by threads (no io_uring: not wanted), access "));
    for uring in &seen[3..] {
        assert!(uring.starts_with("batches by io_uring, access "), "{uring}");
    }
}

#[test]
fn a_lock_has_one_holder_who_is_named() {
    on_each(|disk| {
        let lock = disk.lock("lock").unwrap();
        let Err(LockError::Held { path, pid }) = disk.lock("lock") else {
            panic!("locked twice");
        };
        assert_eq!(
            (path, pid),
            (disk.display_path("lock"), Some(std::process::id()))
        );
        drop(lock);
        disk.lock("lock").unwrap();
    });
}

#[test]
fn there_is_a_figure_for_free_space() {
    on_each(|disk| assert!(disk.free_bytes().unwrap() > 0));
}

#[test]
fn an_error_names_what_was_tried_where_and_what_may_help() {
    let disk = FaultyDisk::new(2);
    let file = disk.create("blocks.log").unwrap();
    let mut bytes = [0; 4];
    assert_eq!(
        file.read_at(&mut bytes, 8).unwrap_err().to_string(),
        "cannot read blocks.log at byte 8: unexpected end of file (the file is shorter than it \
         should be: `cambium db repair` brings back what other files tell)"
    );
    disk.limit_space(Some(2));
    let error = file.write_at(&bytes, 0).unwrap_err();
    assert!(error.is_full());
    assert_eq!(
        error.to_string(),
        "cannot write blocks.log at byte 0: no storage space (disk full: free some space and run \
         again)"
    );
    assert!(disk.open("none").unwrap_err().is_not_found());
    let os_error = |code: rustix::io::Errno| DiskError::new("open", "f", code.into()).to_string();
    assert!(os_error(rustix::io::Errno::MFILE).contains("raise the limit"));
    assert!(os_error(rustix::io::Errno::NOSPC).contains("free some space and run again"));
    assert!(os_error(rustix::io::Errno::ACCESS).contains("check the owner and the mode"));
    let dir = tempfile::tempdir().unwrap();
    let message = StdDisk::new(dir.path())
        .open("dir/none")
        .unwrap_err()
        .to_string();
    let path = dir.path().join("dir/none");
    assert!(
        message.starts_with(&format!("cannot open {}: ", path.display())),
        "{message}"
    );
}
