//! An open file of the faulty disk.

use super::state::SharedState;
use crate::{Access, DiskError, DiskFile, disk::check_write, stats::Counters};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct FaultyFile {
    pub(super) state: SharedState,
    pub(super) counters: Arc<Counters>,
    pub(super) inode: u64,
    pub(super) access: Access,
    pub(super) path: String,
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.counters.add_reads(1, buf.len() as u64);
        let read = self.state.lock().read(&self.path, self.inode, buf, offset);
        read.map_err(|e| DiskError::at("read", &*self.path, offset, e))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        self.counters.add_write(bytes.len());
        let write = || {
            check_write(self.access, bytes.len(), offset)?;
            let mut state = self.state.lock();
            state.write(&self.path, self.inode, self.access, bytes, offset)
        };
        write().map_err(|e| DiskError::at("write", &*self.path, offset, e))
    }

    fn names(&self) -> Result<u64, DiskError> {
        Ok(self.state.lock().names.of_inode(self.inode))
    }

    fn len(&self) -> Result<u64, DiskError> {
        let len = self.state.lock().len(self.inode);
        len.map_err(|e| DiskError::new("ask the length of", &*self.path, e))
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        let set = self.state.lock().set_len(self.inode, len);
        set.map_err(|e| DiskError::at("set the length of", &*self.path, len, e))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let punched = state.punch_hole(&self.path, self.inode, offset, len);
        punched.map_err(|e| DiskError::at("punch a hole into", &*self.path, offset, e))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.counters.add_sync();
        let synced = self.state.lock().sync(&self.path, self.inode);
        synced.map_err(|e| DiskError::new("sync", &*self.path, e))
    }
}
