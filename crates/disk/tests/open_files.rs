//! More open files than the process may have unasked. Alone in its process: the limit is all of
//! its.

use cambium_disk::{Disk, StdDisk};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn the_limit_of_open_files_is_raised_when_it_is_reached() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 400) {
        return; // The limit is at its maximum already.
    }
    let of = |current, maximum| Rlimit { current, maximum };
    setrlimit(Resource::Nofile, of(Some(100), Some(400))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path());
    let mut files = Vec::new();
    for n in 0..300 {
        files.push(disk.create(&format!("{n}")).unwrap());
    }
    let error = (300..).find_map(|n| {
        let created = disk.create(&format!("{n}"));
        created.map(|file| files.push(file)).err()
    });
    let message = error.unwrap().to_string();
    assert!(
        message.contains("too many open files: raise the limit"),
        "{message}"
    );
    assert!(files.len() < 400);
}
