//! Blobs of the pool, with proofs.

use super::fields::{Container, FieldLength, Fields, SszError, append_hashes, append_list};
use alloy_eips::{
    eip4844::{BYTES_PER_BLOB, Blob, Bytes48},
    eip7594::CELLS_PER_EXT_BLOB,
};
use alloy_primitives::{B256, Bytes, FixedBytes};

/// Bytes of a cell: 64 field elements.
const CELL_BYTES: usize = 64 * 32;
const PROOF_BYTES: usize = 48;
/// Most hashes of a request.
const HASHES_MAX: usize = 128;

/// Fields of an entry: whether it is available; the contents.
const ENTRY: [FieldLength; 2] = [Some(1), None];
/// Fields of `BlobAndProofV2`: blob; proofs of its cells.
const PROVEN: [FieldLength; 2] = [Some(BYTES_PER_BLOB), None];
/// Fields of `BlobCellsAndProofs`: cells; their proofs.
const CELLS: [FieldLength; 2] = [None; 2];

/// `BlobsV1Request` to `BlobsV3Request`: the body of `POST /engine/v1/blobs/v1` to `v3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobsRequest {
    /// Versioned hashes of blobs.
    pub versioned_hashes: Vec<B256>,
}

impl BlobsRequest {
    /// Decodes a request.
    ///
    /// # Errors
    ///
    /// [`SszError`] if an offset or a length does not fit, or there are more than 128 hashes.
    pub fn decode(bytes: &Bytes) -> Result<Self, SszError> {
        let mut fields = Fields::of("request", bytes, bytes, &[None])?;
        Ok(Self {
            versioned_hashes: fields.hashes("versioned_hashes", HASHES_MAX)?,
        })
    }

    /// Encodes it, as a consensus client does.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut fields = Container::new(&mut out, &[None]);
        fields.variable(|out| append_hashes(out, &self.versioned_hashes));
        out
    }
}

/// `BlobsV4Request`: the body of `POST /engine/v1/blobs/v4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellsRequest {
    /// Versioned hashes of blobs.
    pub versioned_hashes: Vec<B256>,
    /// The cells that are wanted, a bit each, the lowest of the first byte first.
    pub indices: FixedBytes<16>,
}

impl CellsRequest {
    const FIELDS: [FieldLength; 2] = [None, Some(16)];

    /// Decodes a request.
    ///
    /// # Errors
    ///
    /// As [`BlobsRequest::decode`].
    pub fn decode(bytes: &Bytes) -> Result<Self, SszError> {
        let mut fields = Fields::of("request", bytes, bytes, &Self::FIELDS)?;
        Ok(Self {
            versioned_hashes: fields.hashes("versioned_hashes", HASHES_MAX)?,
            indices: fields.fixed()?,
        })
    }

    /// Encodes it, as a consensus client does.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut fields = Container::new(&mut out, &Self::FIELDS);
        fields.variable(|out| append_hashes(out, &self.versioned_hashes));
        fields.fixed(self.indices.as_slice());
        out
    }

    /// Whether a cell is wanted that is not of the blob itself, but of its extension.
    pub(in crate::engine) fn wants_extension(&self) -> bool {
        (CELLS_PER_EXT_BLOB / 2..CELLS_PER_EXT_BLOB).any(|cell| self.wants(cell))
    }

    /// Whether a cell is wanted.
    pub fn wants(&self, cell: usize) -> bool {
        let byte = self.indices.get(cell / 8);
        byte.is_some_and(|byte| byte >> (cell % 8) & 1 == 1)
    }
}

/// Appends `BlobV1Entry`.
pub(in crate::engine) fn append_whole_blob(out: &mut Vec<u8>, found: Option<(&Blob, &Bytes48)>) {
    match found {
        Some((blob, proof)) => {
            out.push(1);
            out.extend_from_slice(blob.as_slice());
            out.extend_from_slice(proof.as_slice());
        }
        None => out.resize(out.len() + 1 + BYTES_PER_BLOB + PROOF_BYTES, 0),
    }
}

/// Appends `BlobV2Entry`.
pub(in crate::engine) fn append_proven_blob(out: &mut Vec<u8>, found: Option<(&Blob, &[Bytes48])>) {
    let mut entry = Container::new(out, &ENTRY);
    entry.fixed(&[u8::from(found.is_some())]);
    entry.variable(|out| {
        let mut contents = Container::new(out, &PROVEN);
        match found {
            Some((blob, proofs)) => {
                contents.fixed(blob.as_slice());
                contents.variable(|out| {
                    let all = proofs.iter();
                    all.for_each(|proof| out.extend_from_slice(proof.as_slice()));
                });
            }
            None => {
                contents.fixed(&[0; BYTES_PER_BLOB]);
                contents.bytes(&[]);
            }
        }
    });
}

/// A blob of which cells are answered.
#[derive(Clone, Copy)]
pub(in crate::engine) struct AvailableCells<'p> {
    pub(in crate::engine) request: &'p CellsRequest,
    pub(in crate::engine) blob: &'p Blob,
    /// Cells from the 65th on, where they are wanted.
    pub(in crate::engine) extension: Option<&'p [u8]>,
    pub(in crate::engine) proofs: &'p [Bytes48],
}

impl<'p> AvailableCells<'p> {
    /// A cell that is wanted, with its proof.
    fn get(self, index: usize) -> Option<(&'p [u8], &'p Bytes48)> {
        let extension = self.extension.unwrap_or_default();
        let cells = self.blob.chunks_exact(CELL_BYTES);
        let cell = cells.chain(extension.chunks_exact(CELL_BYTES)).nth(index)?;
        let proof = self.proofs.get(index)?;
        self.request.wants(index).then_some((cell, proof))
    }
}

/// Appends `BlobV4Entry`: an optional value for each of the 128 cells.
pub(in crate::engine) fn append_cells(out: &mut Vec<u8>, found: Option<AvailableCells<'_>>) {
    let mut entry = Container::new(out, &ENTRY);
    entry.fixed(&[u8::from(found.is_some())]);
    entry.variable(|out| {
        let count = found.map_or(0, |_| CELLS_PER_EXT_BLOB);
        let one = |index| found.and_then(|found| found.get(index));
        let mut contents = Container::new(out, &CELLS);
        contents.variable(|out| {
            append_list(out, 0..count, |out, index| {
                out.extend_from_slice(one(index).map_or(&[], |(cell, _)| cell));
            });
        });
        contents.variable(|out| {
            append_list(out, 0..count, |out, index| {
                out.extend_from_slice(one(index).map_or(&[], |(_, proof)| proof.as_slice()));
            });
        });
    });
}
