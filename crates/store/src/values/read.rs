//! Reading values: single ones and batches.

use super::{
    format::{HEADER_BYTES, corrupt, decode_value, name_of, value_bytes},
    place::Place,
    set::Values,
};
use crate::StoreError;
use cambium_disk::{DiskError, DiskFile, ReadRequest};
use cambium_primitives::VALUE_BYTES_MAX;
use std::{
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering},
};

/// A record that can be read: it is within its segment.
struct Located {
    file: Arc<dyn DiskFile>,
    place: Place,
    len: u32,
}

impl Located {
    /// Memory for the record.
    fn buffer(&self) -> Vec<u8> {
        vec![0; value_bytes(self.len) as usize]
    }
}

impl Values {
    /// Reads the value of `len` bytes at `place`, with one device read, or none if it is new.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the value is damaged, or if there is none of this length at this
    /// place, [`StoreError::ReaderBehind`] if another process has removed it, and
    /// [`StoreError::Disk`] if the read fails.
    pub fn read(&self, place: NonZeroU64, len: u32) -> Result<Vec<u8>, StoreError> {
        let located = self.locate(place, len)?;
        let mut record = located.buffer();
        let read = located
            .file
            .read_at(&mut record, located.place.offset.into());
        self.finish(&located, read, record)
    }

    /// Reads many values, each given by its place and length, with all reads in flight at once if
    /// the disk supports that. The results are in the order of `values`, with errors as in
    /// [`Values::read`]. All values are in memory at the same time.
    pub fn read_batch(&self, values: &[(NonZeroU64, u32)]) -> Vec<Result<Vec<u8>, StoreError>> {
        let begin = |&(place, len): &(NonZeroU64, u32)| {
            let located = self.locate(place, len)?;
            let record = located.buffer();
            Ok((located, record))
        };
        let mut begun: Vec<Result<_, StoreError>> = values.iter().map(begin).collect();
        let request = |(located, record)| {
            let Located { file, place, .. }: &Located = located;
            let record: &mut Vec<u8> = record;
            ReadRequest::new(&**file, place.offset.into(), record)
        };
        let valid = begun.iter_mut().flatten();
        let mut requests: Vec<_> = valid.map(|(a, b)| request((a, b))).collect();
        self.disk.read_batch(&mut requests);
        let outcomes: Vec<_> = requests.into_iter().map(|read| read.outcome).collect();
        let mut outcomes = outcomes.into_iter();
        let finish = |begun: Result<(Located, Vec<u8>), StoreError>| {
            let (located, record) = begun?;
            let outcome = outcomes.next().expect("an outcome for each request");
            self.finish(&located, outcome, record)
        };
        begun.into_iter().map(finish).collect()
    }

    /// Returns whether a value of `len` bytes can be at `place`: it is within its segment. The value
    /// itself is not read.
    pub fn has_room(&self, place: NonZeroU64, len: u32) -> bool {
        self.locate(place, len).is_ok()
    }

    /// Finds the record of a value, and checks that it is within its segment.
    fn locate(&self, place: NonZeroU64, len: u32) -> Result<Located, StoreError> {
        let place = Place::from_word(place);
        let (number, offset) = (place.segment, u64::from(place.offset));
        let wrong = |what: &str| corrupt(&*self.disk, number, offset, what);
        let Some(segment) = self.segments().get(&number).cloned() else {
            return Err(wrong("a value should be here, but there is no such file"));
        };
        if len as usize > VALUE_BYTES_MAX {
            return Err(wrong(&format!("no value is as long as {len} bytes")));
        }
        let end = offset + value_bytes(len);
        let is_within = offset >= HEADER_BYTES && end <= segment.bytes.load(Ordering::Acquire);
        if !is_within {
            return Err(wrong(&format!(
                "a value of {len} bytes should be here, beyond the limits of the file"
            )));
        }
        let file = segment.file_up_to(end).map_err(wrong)?;
        Ok(Located { file, place, len })
    }

    /// Verifies what was read.
    fn finish(
        &self,
        located: &Located,
        read: Result<(), DiskError>,
        record: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let &Located { place, len, .. } = located;
        read.map_err(|error| self.read_error(place.segment, error))?;
        let value = decode_value(self.salt, place, len, record);
        value.map_err(|what| corrupt(&*self.disk, place.segment, place.offset.into(), &what))
    }

    /// Converts the error of a failed read.
    pub(super) fn read_error(&self, number: u32, error: DiskError) -> StoreError {
        match self.may_be_truncated.load(Ordering::Relaxed) && error.is_end_of_file() {
            true => self.reader_behind(number),
            false => error.into(),
        }
    }

    /// Creates the error of a file that another process has truncated.
    pub(super) fn reader_behind(&self, number: u32) -> StoreError {
        let file = self.disk.display_path(&name_of(number));
        StoreError::ReaderBehind {
            what: format!("a value of {file}"),
        }
    }
}
