//! A file system of one file, in memory, that records each write and each sync of the file. A loop
//! device on it makes a drive of it, whose flushes are these syncs.
//!
//! Speaks as much of the kernel's protocol as a loop device needs (`linux/fuse.h`, minor version
//! 31). The mount point is the file itself. Nothing is cached on the kernel's side, so that a write
//! is recorded before the writer learns that it is done.

use super::{
    Event, Image, Mark, Recording,
    device::{mount_with_stdin, unmount},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

const DEVICE: &str = "/dev/fuse";

/// Missing requirement for such a drive.
pub(crate) fn missing_for_fuse() -> Option<String> {
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    opened.err().map(|error| format!("{DEVICE} ({error})"))
}

/// Bytes of a write at most.
const WRITE_BYTES_MAX: u32 = 1 << 20;

struct Shared {
    image: Image,
    recording: Recording,
    is_recording: bool,
}

impl Shared {
    fn record(&mut self, event: Event) {
        if self.is_recording {
            self.recording.events.push(event);
        }
    }
}

/// The file, for as long as this lives.
pub(crate) struct FuseDrive {
    shared: Arc<Mutex<Shared>>,
    file: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl FuseDrive {
    /// Mounts a file of that content over `file`, which is made.
    pub(crate) fn mount(image: Image, file: &Path) -> Self {
        fs::write(file, "").expect("a mount point");
        let open = OpenOptions::new().read(true).write(true).open(DEVICE);
        let channel = open.expect("the FUSE device");
        let options = "fd=0,rootmode=100600,user_id=0,group_id=0";
        let stdin = channel.try_clone().expect("a descriptor");
        let shared = Arc::new(Mutex::new(Shared {
            recording: Recording {
                before: image.clone(),
                events: Vec::new(),
            },
            image,
            is_recording: true,
        }));
        let server = Server {
            channel,
            shared: shared.clone(),
        };
        let server = std::thread::spawn(move || server.serve());
        mount_with_stdin(stdin, "fuse", options, "cambium-drive", file);
        Self {
            shared,
            file: file.to_owned(),
            server: Some(server),
        }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Notes what is known of the head, behind what was written so far.
    pub(crate) fn mark(&self, mark: Mark) {
        lock(&self.shared).record(Event::Mark(mark));
    }

    /// Returns the events so far, and stops recording.
    pub(crate) fn recording(&self) -> Recording {
        let shared = &mut *lock(&self.shared);
        let before = shared.recording.before.clone();
        let events = std::mem::take(&mut shared.recording.events);
        shared.is_recording = false;
        Recording { before, events }
    }
}

impl Drop for FuseDrive {
    fn drop(&mut self) {
        unmount(&self.file);
        // The kernel ends the connection with the mount.
        if let Some(server) = self.server.take()
            && !std::thread::panicking()
        {
            let _ = server.join();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

// Requests. All numbers are in the machine's order.
//
// OFFSET  SIZE  MEANING
// 0       4     length of the request
// 4       4     operation
// 8       8     number of the request
// 16      24    node, user, group, process
// 40            what the operation needs
const HEADER_BYTES: usize = 40;

const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const FORGET: u32 = 2;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;

/// In the answer to `INIT`: writes of more than a page, and of as many as it says.
const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;
/// In the answer to `OPEN`: nothing is cached.
const DIRECT_IO: u32 = 1;

const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

/// Puts an answer together.
#[derive(Default)]
struct Answer(Vec<u8>);

impl Answer {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
}

struct Server {
    channel: File,
    shared: Arc<Mutex<Shared>>,
}

impl Server {
    fn serve(mut self) {
        let mut buffer = vec![0; WRITE_BYTES_MAX as usize + 4096];
        loop {
            let request = match self.channel.read(&mut buffer) {
                Ok(len) => &buffer[..len],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => match error.raw_os_error() {
                    // Not mounted yet.
                    Some(1) => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                        continue;
                    }
                    // A request that was taken back.
                    Some(2) => continue,
                    // Unmounted, or ended.
                    _ => return,
                },
            };
            let operation = number(request, 4, 4) as u32;
            let id = number(request, 8, 8);
            let (error, answer) = match self.answer(operation, &request[HEADER_BYTES..]) {
                None => continue,
                Some(Ok(answer)) => (0, answer.0),
                Some(Err(error)) => (-error, Vec::new()),
            };
            let mut bytes = Answer::default()
                .u32((16 + answer.len()) as u32)
                .u32(error as u32)
                .u64(id)
                .0;
            bytes.extend(answer);
            // Fails for requests that were taken back.
            let _ = self.channel.write(&bytes);
        }
    }

    /// `None` where none is expected.
    fn answer(&self, operation: u32, body: &[u8]) -> Option<Result<Answer, i32>> {
        let answer = match operation {
            FORGET | BATCH_FORGET | INTERRUPT => return None,
            INIT => Answer::default()
                .u32(7)
                .u32(31)
                .u32(number(body, 8, 4) as u32)
                .u32((BIG_WRITES | MAX_PAGES) & number(body, 12, 4) as u32)
                .u16(64)
                .u16(48)
                .u32(WRITE_BYTES_MAX)
                .u32(1)
                .u16((WRITE_BYTES_MAX / 4096) as u16)
                .u16(0)
                .u64(0)
                .u64(0)
                .u64(0)
                .u64(0),
            GETATTR | SETATTR => self.attributes(),
            OPEN => Answer::default().u64(0).u32(DIRECT_IO).u32(0),
            READ => {
                let (offset, len) = (number(body, 8, 8), number(body, 16, 4));
                Answer(lock(&self.shared).image.read(offset as usize, len as usize))
            }
            WRITE => {
                let (offset, len) = (number(body, 8, 8), number(body, 16, 4));
                let bytes = body[40..40 + len as usize].to_vec();
                let shared = &mut *lock(&self.shared);
                shared.image.write(&bytes, offset as usize);
                shared.record(Event::Write {
                    offset,
                    bytes,
                    is_forced: false,
                });
                Answer::default().u32(len as u32).u32(0)
            }
            FSYNC => {
                lock(&self.shared).record(Event::Flush);
                Answer::default()
            }
            FLUSH | RELEASE | DESTROY => Answer::default(),
            FALLOCATE => return Some(Err(EOPNOTSUPP)),
            _ => return Some(Err(ENOSYS)),
        };
        Some(Ok(answer))
    }

    fn attributes(&self) -> Answer {
        let bytes = lock(&self.shared).image.len() as u64;
        // For how long they hold; then node, sizes, times, mode, links, owner, device, block.
        let attributes = Answer::default().u64(3600).u64(0);
        let attributes = attributes.u64(1).u64(bytes).u64(bytes / 512);
        let attributes = attributes.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        let attributes = attributes.u32(0o100_600).u32(1).u32(0).u32(0).u32(0);
        attributes.u32(4096).u32(0)
    }
}

fn number(bytes: &[u8], offset: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[offset..offset + len]);
    // Of the first bytes a little-endian machine makes the number; a big-endian one must shift.
    match cfg!(target_endian = "little") {
        true => u64::from_le_bytes(word),
        false => u64::from_be_bytes(word) >> (64 - 8 * len),
    }
}
