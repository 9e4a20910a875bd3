//! The kernel's own recorder of writes: device-mapper's target `log-writes`, where the kernel has it. Its log is read
//! after the run (`Documentation/admin-guide/device-mapper/log-writes.rst`).

use super::{Event, Image, LoopDevice, Mark, Recording, run};
use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Room for the log: a sparse file.
const LOG_BYTES: u64 = 8 << 30;

/// Missing requirement for such a drive.
pub(crate) fn missing_for_log_writes() -> Option<String> {
    let targets = || {
        let output = Command::new("dmsetup").arg("targets").output().ok()?;
        let has = String::from_utf8_lossy(&output.stdout).contains("log-writes");
        Some((output.status.success(), has))
    };
    // A failure is ignored: the list of targets shows whether the module is loaded.
    let _ = Command::new("modprobe").arg("dm-log-writes").output();
    match targets() {
        None => Some("dmsetup".to_owned()),
        Some((false, _)) => Some("device-mapper in the kernel".to_owned()),
        Some((true, false)) => Some("device-mapper's target log-writes".to_owned()),
        Some((true, true)) => None,
    }
}

/// A drive whose writes the kernel records.
pub(crate) struct LogWrites {
    before: Image,
    name: String,
    log: PathBuf,
}

impl LogWrites {
    /// Sets it up with files in `scratch`.
    pub(crate) fn create(image: Image, scratch: &Path) -> Self {
        let (data, log) = (scratch.join("data.img"), scratch.join("log.img"));
        image.save(&data);
        let sized = File::create(&log).and_then(|file| file.set_len(LOG_BYTES));
        sized.expect("a file for the log");
        let devices = [LoopDevice::on(&data), LoopDevice::on(&log)];
        let name = format!("cambium-{}", std::process::id());
        let [data, to] = devices.each_ref().map(|device| device.path().display());
        let table = format!("0 {} log-writes {data} {to}", image.len() / 512);
        run(
            "dmsetup",
            &["create", &name, "--noudevsync", "--table", &table],
        );
        // From now on they go with the target.
        drop(devices);
        let drive = Self {
            before: image,
            name,
            log,
        };
        run("dmsetup", &["mknodes", &drive.name]);
        drive
    }

    pub(crate) fn device(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }

    /// Notes what is known of the head, behind what was flushed so far.
    pub(crate) fn mark(&self, mark: Mark) {
        let Mark { head, low, high } = mark;
        let head = head.map_or("-".to_owned(), |head| head.to_string());
        let message = format!("mark {head},{low},{high}");
        run("dmsetup", &["message", &self.name, "0", &message]);
    }

    /// Returns the events so far. The drive must not be in use any more.
    pub(crate) fn recording(&self) -> Recording {
        run("dmsetup", &["remove", "--retry", &self.name]);
        let log = File::open(&self.log).expect("the log");
        Recording {
            before: self.before.clone(),
            events: parse_log(&log),
        }
    }
}

impl Drop for LogWrites {
    fn drop(&mut self) {
        let remove = ["remove", "--retry", "--force", &self.name];
        let _ = Command::new("dmsetup").args(remove).output();
    }
}

// The log. Numbers are little-endian, and count sectors of the size in the first one.
//
// OFFSET  SIZE  MEANING
// 0       8     0x006a736677736872
// 8       8     version: 1
// 16      8     entries
// 24      4     bytes of a sector
//
// Then, for each entry, a sector that begins with these, and the sectors that were written:
//
// 0       8     first sector
// 8       8     sectors
// 16      8     flags
// 24      8     bytes of a mark's text, which follows here
const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1 << 0;
const FORCED: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

/// The events of such a log.
pub(crate) fn parse_log(log: &File) -> Vec<Event> {
    let read = |offset: u64, len: usize| {
        let mut bytes = vec![0; len];
        log.read_exact_at(&mut bytes, offset).expect("a whole log");
        bytes
    };
    let numbers = |bytes: &[u8]| -> Vec<u64> {
        let words = bytes.chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .collect()
    };
    let [magic, version, entries, sector_bytes] = numbers(&read(0, 32))[..] else {
        unreachable!("four numbers")
    };
    assert_eq!((magic, version), (MAGIC, 1), "the log of log-writes");
    let sector_bytes = sector_bytes & u64::from(u32::MAX);
    let (mut at, mut events) = (sector_bytes, Vec::new());
    for _ in 0..entries {
        let head = read(at, sector_bytes as usize);
        let [sector, sectors, flags, mark_bytes] = numbers(&head[..32])[..] else {
            unreachable!("four numbers")
        };
        at += sector_bytes;
        if flags & FLUSH != 0 {
            events.push(Event::Flush);
        }
        if flags & MARK != 0 {
            let text = String::from_utf8_lossy(&head[32..32 + mark_bytes as usize]);
            events.extend(parse_mark(&text).map(Event::Mark));
        } else if flags & DISCARD == 0 && sectors > 0 {
            let bytes = read(at, (sectors * sector_bytes) as usize);
            at += sectors * sector_bytes;
            events.push(Event::Write {
                offset: sector * sector_bytes,
                bytes,
                is_forced: flags & FORCED != 0,
            });
        }
    }
    events
}

/// `None` for a mark of the kernel's.
fn parse_mark(text: &str) -> Option<Mark> {
    let mut numbers = text.split(',').map(|number| number.parse::<u64>().ok());
    let (head, low, high) = (numbers.next()?, numbers.next()??, numbers.next()??);
    Some(Mark { head, low, high })
}
