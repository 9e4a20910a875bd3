//! What every disk does, by the same cases for each.

use cambium_disk::{Disk, DiskError, FaultyDisk, LockError, ReadRequest, StdDisk};
use std::io::ErrorKind;

/// Runs `case` on a disk of every kind.
fn on_each(case: impl Fn(&dyn Disk)) {
    let dir = tempfile::tempdir().unwrap();
    case(&StdDisk::new(dir.path()));
    case(&FaultyDisk::new(1));
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
         should be)"
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
