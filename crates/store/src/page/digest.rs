//! Encoding of digests, the cached node references in a page.

use super::format::DIGEST_BYTES_MAX;
use cambium_primitives::{DecodeError, Path, Reader, SLOT_NIBBLES};

/// Validates all digests of a page.
pub(super) fn check_digests(mut reader: Reader<'_>, prefix: &Path) -> Result<(), DecodeError> {
    let count = reader.count(3)?;
    let mut before = None;
    for _ in 0..count {
        let (path, _) = read_digest(&mut reader, before.as_ref().unwrap_or(prefix))?;
        if !path.starts_with(prefix) {
            return Err(reader.error("digest outside the prefix"));
        }
        if before.is_some_and(|before| path <= before) {
            return Err(reader.error("digests out of order"));
        }
        before = Some(path);
    }
    reader.finish()
}

/// An encoded digest, whose path is relative to that of the one before.
pub(super) struct RawDigest<'a> {
    pub(super) shared: u8,
    pub(super) added: u8,
    pub(super) tail: &'a [u8],
    pub(super) digest: &'a [u8],
}

impl<'a> RawDigest<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (shared, added) = (reader.u8()?, reader.u8()?);
        let tail = reader.take(usize::from(added).div_ceil(2))?;
        let len = usize::from(reader.u8()?);
        if len > DIGEST_BYTES_MAX {
            return Err(reader.error("digest over 32 bytes"));
        }
        let digest = reader.take(len)?;
        Ok(Self {
            shared,
            added,
            tail,
            digest,
        })
    }
}

/// Reads a digest and its path. `before` is the path of the previous one, or the page's prefix.
pub(super) fn read_digest<'a>(
    reader: &mut Reader<'a>,
    before: &Path,
) -> Result<(Path, &'a [u8]), DecodeError> {
    let raw = RawDigest::read(reader)?;
    let (shared, added) = (usize::from(raw.shared), usize::from(raw.added));
    let tail = Path::from_packed(raw.tail, added).ok_or_else(|| reader.error("bad path"))?;
    if shared > before.len() || shared + added > SLOT_NIBBLES {
        return Err(reader.error("bad path length of a digest"));
    }
    Ok((before.prefix(shared).join(&tail), raw.digest))
}

/// Appends a digest. `before` is the path of the previous one, or the page's prefix.
pub(super) fn put_digest(out: &mut Vec<u8>, before: &Path, path: &Path, digest: &[u8]) {
    let shared = path.common_prefix_len(before);
    out.extend([shared as u8, (path.len() - shared) as u8]);
    out.extend_from_slice(path.suffix(shared).packed());
    out.push(digest.len() as u8);
    out.extend_from_slice(digest);
}
