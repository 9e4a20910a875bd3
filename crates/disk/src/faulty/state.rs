//! State of the faulty disk: live and durable content, and pending faults.

use super::{
    chance::Random,
    faults::{Fault, Faults},
    image::FileImage,
    names::Names,
};
use crate::Access;
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The state, shared by a disk and its open files.
#[derive(Clone, Debug)]
pub(super) struct SharedState(Arc<Mutex<State>>);

impl SharedState {
    pub(super) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) random: Random,
    pub(super) names: Names,
    pub(super) files: BTreeMap<u64, FileImage>,
    pub(super) locks: BTreeSet<String>,
    pub(super) faults: Faults,
    /// The salt before the next one, if they are counted.
    pub(super) counted_salts: Option<u64>,
    /// Number of operations that changed or synced something.
    pub(super) operations: u64,
    /// Number of operations of any kind.
    pub(super) calls: u64,
    /// Whether power was lost.
    pub(super) is_dead: bool,
}

impl State {
    pub(super) fn power(&self) -> io::Result<()> {
        if self.is_dead {
            Err(io::Error::other("power lost"))
        } else {
            Ok(())
        }
    }

    /// Counts an operation of any kind. Returns whether it fails.
    pub(super) fn call(&mut self) -> io::Result<bool> {
        self.power()?;
        let call = self.calls;
        self.calls += 1;
        let panics = self.faults.panicking_call.take_if(|at| *at == call);
        assert!(panics.is_none(), "a panic that was asked for");
        if self.faults.full_at_call.is_some_and(|at| call >= at) {
            self.faults.full_at_call = None;
            self.faults.space_bytes = Some(self.used_bytes());
        }
        Ok(self.faults.failing_call.take_if(|at| *at == call).is_some())
    }

    /// Like [`Self::call`], for an operation that fails without any effect.
    pub(super) fn plain_call(&mut self) -> io::Result<()> {
        match self.call()? {
            true => Err(Errno::IO.into()),
            false => Ok(()),
        }
    }

    /// Counts an operation that changes or syncs something. Returns an error if power is lost
    /// during it or before.
    pub(super) fn step(&mut self) -> io::Result<()> {
        self.power()?;
        let operation = self.operations;
        let panics = self
            .faults
            .panicking_operation
            .take_if(|at| *at == operation);
        assert!(panics.is_none(), "a panic that was asked for");
        self.is_dead = self
            .faults
            .power_lost_at
            .is_some_and(|at| self.operations >= at);
        self.operations += 1;
        self.power()
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.names
            .files()
            .map(|inode| self.files[&inode].used_bytes())
            .sum()
    }

    /// Returns the space that is left, if the disk has a limit, or more than any file takes.
    fn free_bytes(&self) -> u64 {
        let space = self.faults.space_bytes;
        space.map_or(u64::MAX, |space| space.saturating_sub(self.used_bytes()))
    }

    pub(super) fn open(&mut self, path: &str) -> io::Result<u64> {
        self.plain_call()?;
        let inode = self.names.file(path).ok_or(io::ErrorKind::NotFound)?;
        match self.faults.hit(Fault::FailedOpen, path) {
            true => Err(Errno::MFILE.into()),
            false => Ok(inode),
        }
    }

    pub(super) fn create(&mut self, path: &str) -> io::Result<u64> {
        self.plain_call()?;
        self.step()?;
        let inode = self.names.create(path)?;
        self.files.insert(inode, FileImage::default());
        Ok(inode)
    }

    pub(super) fn read(
        &mut self,
        path: &str,
        inode: u64,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        self.plain_call()?;
        if self.faults.hit(Fault::FailedRead, path) {
            return Err(Errno::IO.into());
        }
        if !self.files[&inode].is_readable(offset, buf.len()) {
            return Err(Errno::IO.into());
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match self.files[&inode].live().read(buf, start) {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) fn len(&mut self, inode: u64) -> io::Result<u64> {
        self.plain_call()?;
        Ok(self.files[&inode].live().len() as u64)
    }

    pub(super) fn write(
        &mut self,
        path: &str,
        inode: u64,
        access: Access,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let fails = self.call()? || self.faults.hit(Fault::FailedWrite, path);
        let power = self.step();
        let room = self.free_bytes();
        let (is_lost, is_misdirected) = (
            self.faults.hit(Fault::LostWrite, path),
            self.faults.hit(Fault::MisdirectedWrite, path),
        );
        let image = image_of(&mut self.files, inode);
        if !image.is_writable(offset, bytes.len()) {
            return Err(Errno::IO.into());
        }
        let extension = (offset + bytes.len() as u64).saturating_sub(image.live().len() as u64);
        let filled = image.filled_bytes(bytes.len(), offset);
        let growth = extension + filled;
        if growth > room {
            let fits = match filled {
                0 => (bytes.len() as u64).saturating_sub(growth - room),
                _ => 0,
            };
            image.write(&bytes[..fits as usize], offset);
            return Err(io::ErrorKind::StorageFull.into());
        }
        if fails {
            let written = self.random.below(bytes.len() as u64 + 1);
            image.write(&bytes[..written as usize], offset);
            return Err(Errno::IO.into());
        }
        if is_lost || is_misdirected {
            if is_misdirected {
                image.misdirect(bytes, offset, &mut self.random);
            }
            // A write through the page cache is read from there until the next crash.
            image.lose(bytes, offset, access == Access::Cached);
            return power;
        }
        image.write(bytes, offset);
        power
    }

    pub(super) fn punch_hole(
        &mut self,
        path: &str,
        inode: u64,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        let fails = self.call()? || self.faults.hit(Fault::FailedWrite, path);
        let power = self.step();
        if fails {
            return Err(Errno::IO.into());
        }
        image_of(&mut self.files, inode).punch_hole(offset, len);
        power
    }

    pub(super) fn set_len(&mut self, inode: u64, len: u64) -> io::Result<()> {
        self.plain_call()?;
        let power = self.step();
        let room = self.free_bytes();
        let image = image_of(&mut self.files, inode);
        let growth = len.saturating_sub(image.live().len() as u64);
        if growth > 0 && growth > room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        image.set_len(len as usize);
        power
    }

    pub(super) fn sync(&mut self, path: &str, inode: u64) -> io::Result<()> {
        let fails = self.call()?;
        self.step()?;
        let image = image_of(&mut self.files, inode);
        if fails || self.faults.hit(Fault::FailedSync, path) {
            image.fail_sync(&mut self.random);
            return Err(Errno::IO.into());
        }
        image.sync();
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        let fails = self.call()?;
        self.step()?;
        if fails || self.faults.hit(Fault::FailedSync, dir) {
            return Err(Errno::IO.into());
        }
        self.names.sync(dir)
    }
}

fn image_of(files: &mut BTreeMap<u64, FileImage>, inode: u64) -> &mut FileImage {
    files.get_mut(&inode).expect("images outlive their handles")
}
