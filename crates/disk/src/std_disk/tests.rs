//! Behavior of a disk whose system refuses io_uring, or fails at it later.

use super::*;
use crate::{QueuedRead, StdDiskOptions};
use io_uring::IoUring;
use std::sync::atomic::{AtomicU32, Ordering};

fn refused(_: u32) -> io::Result<IoUring> {
    Err(Errno::PERM.into())
}

fn options(method: IoMethod) -> StdDiskOptions {
    StdDiskOptions {
        method,
        direct: true,
        ..StdDiskOptions::default()
    }
}

/// Reads a file in batches, and checks what comes.
fn check_batches(disk: &StdDisk) {
    let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let _ = disk.remove("f");
    disk.create("f").unwrap().write_at(&content, 0).unwrap();
    let file = disk.open_with("f", Access::Direct).unwrap();
    for count in [2, 40, 3_000] {
        let mut bufs = vec![[0; 77]; count];
        let offset = |n| (n * 7_919 % 399_000) as u64;
        let requests = bufs.iter_mut().enumerate();
        let mut requests: Vec<_> = requests
            .map(|(n, buf)| ReadRequest::new(&*file, offset(n), buf))
            .collect();
        disk.read_batch(&mut requests);
        for request in requests {
            request.outcome.unwrap();
            assert_eq!(request.buf, &content[request.offset as usize..][..77]);
        }
    }
}

/// Content of the file that queues read.
fn queue_file(disk: &StdDisk) -> (Arc<dyn DiskFile>, Vec<u8>) {
    let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let _ = disk.remove("q");
    disk.create("q").unwrap().write_at(&content, 0).unwrap();
    (disk.open_with("q", Access::Direct).unwrap(), content)
}

/// Reads a file through a queue, and checks what comes.
fn check_queue(disk: &StdDisk, queue: &mut dyn ReadQueue) {
    let (file, content) = queue_file(disk);
    let len = |n: usize| if n.is_multiple_of(10) { 40_000 } else { 77 };
    let offset = |n: usize| n * 7_919 % 355_000;
    let (mut finished, mut found) = (Vec::new(), [0; 300]);
    for n in 0..found.len() {
        queue.submit(QueuedRead {
            file: file.clone(),
            offset: offset(n) as u64,
            bytes: vec![0; len(n)],
            tag: n as u64,
        });
        if n.is_multiple_of(7) {
            queue.poll(n.is_multiple_of(21), &mut finished);
        }
    }
    while queue.in_flight() > 0 {
        queue.poll(true, &mut finished);
    }
    for read in finished {
        let n = read.tag as usize;
        read.outcome.unwrap();
        assert!(read.bytes == content[offset(n)..][..len(n)], "read {n}");
        found[n] += 1;
    }
    assert_eq!(found, [1; 300]);
}

#[test]
fn refused_rings_leave_threads_and_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), refused);
    check_queue(&disk, &mut *disk.read_queue(16));
    check_batches(&disk);
    let description = disk.describe();
    assert_eq!(description.batch_reads, "threads");
    let why = description.no_uring_because.unwrap();
    assert!(why.contains("not permitted"), "{why}");
}

#[test]
fn refused_rings_are_an_error_if_they_were_demanded() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Uring), refused);
    let error = disk.checked().unwrap_err();
    assert!(error.is_unsupported());
    let message = error.to_string();
    assert!(
        message.starts_with("cannot read by io_uring from "),
        "{message}"
    );
    assert!(message.contains("not permitted"), "{message}");
}

#[test]
fn rings_that_can_be_made_but_not_used_are_refused_at_the_start() {
    /// A ring that was never switched on: a read with it fails.
    fn switched_off(entries: u32) -> io::Result<IoUring> {
        IoUring::builder().setup_r_disabled().build(entries)
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), switched_off);
    check_queue(&disk, &mut *disk.read_queue(16));
    check_batches(&disk);
    assert_eq!(disk.describe().batch_reads, "threads");
}

#[test]
fn a_ring_that_fails_at_work_is_given_up_and_nothing_is_lost() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    /// The first ring is good, the others fail when used.
    fn first_good(entries: u32) -> io::Result<IoUring> {
        match MADE.fetch_add(1, Ordering::Relaxed) {
            0 => uring::set_up(entries),
            _ => IoUring::builder().setup_r_disabled().build(entries),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), first_good);
    if disk.batches.rings().is_err() {
        return; // The system has none.
    }
    check_batches(&disk);
    assert_eq!(disk.describe().batch_reads, "io_uring");
    let good_ring = disk.batches.rings().unwrap().take_idle();
    check_batches(&disk);
    let description = disk.describe();
    assert_eq!(description.batch_reads, "threads");
    let why = description.no_uring_because.unwrap();
    assert!(why.starts_with("a ring failed: "), "{why}");
    drop(good_ring);
    check_batches(&disk);
}

#[test]
fn a_queue_whose_ring_fails_at_work_reads_by_threads() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    /// The first ring, which tests the system, is good, and that of the queue fails when used.
    fn first_good(entries: u32) -> io::Result<IoUring> {
        match MADE.fetch_add(1, Ordering::Relaxed) {
            0 => uring::set_up(entries),
            _ => IoUring::builder().setup_r_disabled().build(entries),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), first_good);
    if disk.batches.rings().is_err() {
        return; // The system has none.
    }
    let mut queue = disk.read_queue(16);
    check_queue(&disk, &mut *queue);
    let why = disk.describe().no_uring_because.unwrap();
    assert!(why.starts_with("a ring failed: "), "{why}");
    check_queue(&disk, &mut *queue);
    assert_eq!(MADE.load(Ordering::Relaxed), 2, "no ring is made again");
}

#[test]
fn a_queue_whose_ring_is_refused_reads_by_threads_and_rings_stay() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    fn only_one(entries: u32) -> io::Result<IoUring> {
        match MADE.fetch_add(1, Ordering::Relaxed) {
            0 => uring::set_up(entries),
            _ => Err(Errno::NOMEM.into()),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), only_one);
    if disk.batches.rings().is_err() {
        return; // The system has none.
    }
    check_queue(&disk, &mut *disk.read_queue(16));
    let made = MADE.load(Ordering::Relaxed);
    assert!((2..10).contains(&made), "tried {made} times for 300 reads");
    assert_eq!(disk.describe().batch_reads, "io_uring");
    check_batches(&disk);
}

#[test]
fn a_queue_whose_reads_are_refused_for_a_while_leaves_them_to_threads_and_has_a_ring_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), uring::set_up);
    if disk.batches.rings().is_err() {
        return; // The system has none.
    }
    let pool_bytes = disk.memory_bytes();
    let mut queue = disk.read_queue(16);
    // A short refusal is waited for.
    for after in 0..4 {
        uring::tests::refuse(after, 3);
        check_queue(&disk, &mut *queue);
        uring::tests::refuse(0, 0);
        assert!(disk.memory_bytes() > pool_bytes, "the ring was given up");
    }
    for after in 0..4 {
        uring::tests::refuse(after, u32::MAX);
        check_queue(&disk, &mut *queue);
        uring::tests::refuse(0, 0);
        assert_eq!(disk.memory_bytes(), pool_bytes, "the ring was kept");
        assert_eq!(disk.describe().batch_reads, "io_uring", "not given up");
        std::thread::sleep(std::time::Duration::from_millis(600));
        check_queue(&disk, &mut *queue);
        assert!(disk.memory_bytes() > pool_bytes, "there is a ring again");
    }
}

#[test]
fn the_memory_of_a_queue_is_counted_and_freed_with_reads_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), uring::set_up);
    if disk.batches.rings().is_err() {
        return; // The system has none.
    }
    let pool_bytes = disk.memory_bytes();
    let (file, _) = queue_file(&disk);
    for polls in 0..3 {
        let mut queue = disk.read_queue(40);
        for n in 0..100 {
            queue.submit(QueuedRead {
                file: file.clone(),
                offset: n * 4_000,
                bytes: vec![0; 4_000],
                tag: n,
            });
        }
        assert_eq!(disk.memory_bytes() - pool_bytes, 40 * (16 << 10));
        (0..polls).for_each(|_| queue.poll(false, &mut Vec::new()));
        drop(queue);
        assert_eq!(disk.memory_bytes(), pool_bytes);
    }
}

#[test]
fn rings_that_run_out_leave_the_batch_to_threads() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    fn only_one(entries: u32) -> io::Result<IoUring> {
        match MADE.fetch_add(1, Ordering::Relaxed) {
            0 => uring::set_up(entries),
            _ => Err(Errno::NOMEM.into()),
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), only_one);
    if disk.batches.rings().is_err() {
        return; // The system has none.
    }
    let ring = disk.batches.rings().unwrap().take_idle();
    check_batches(&disk);
    assert_eq!(
        disk.describe().batch_reads,
        "io_uring",
        "others still have theirs"
    );
    drop(ring);
}

#[test]
fn reads_that_the_system_refuses_for_a_while_are_left_to_threads_and_rings_stay() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), uring::set_up);
    if disk.batches.rings().is_err() {
        return; // The system has none.
    }
    for after in 0..4 {
        uring::tests::refuse(after, u32::MAX);
        check_batches(&disk);
        uring::tests::refuse(0, 0);
        assert_eq!(disk.describe().batch_reads, "io_uring", "not given up");
    }
    std::thread::sleep(std::time::Duration::from_millis(600));
    check_batches(&disk);
}

#[test]
fn directories_are_made_with_those_above_them_and_may_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path().join("a/b"));
    for _ in 0..2 {
        disk.create_dir("").unwrap();
        disk.create_dir("c/d").unwrap();
    }
    assert!(dir.path().join("a/b/c/d").is_dir());
    disk.create("c/file").unwrap();
    assert!(disk.create_dir("c/file/e").is_err());
}

#[test]
fn a_file_system_in_memory_serves_direct_access_in_its_way() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return; // No such file system.
    };
    let disk = StdDisk::with_set_up(dir.path(), &options(IoMethod::Auto), uring::set_up);
    check_batches(&disk);
    check_queue(&disk, &mut *disk.read_queue(16));
}

#[test]
fn a_pipe_in_place_of_a_file_is_an_error_and_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path());
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("p"), fifo, mode, 0).unwrap();
    let read_only = StdDiskOptions {
        read_only: true,
        ..StdDiskOptions::default()
    };
    let reader = StdDisk::with_options(dir.path(), &read_only).unwrap();
    for disk in [&disk, &reader] {
        let error = disk.open("p").map(drop).unwrap_err();
        assert!(error.to_string().contains("it is a pipe"), "{error}");
        assert!(!error.is_not_found() && !error.is_unreadable());
    }
}
