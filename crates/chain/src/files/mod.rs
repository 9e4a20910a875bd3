//! Files of blocks, of access lists and of state updates.
//!
//! A file is untrusted: it may be cut short, corrupt, or claim sizes meant to exhaust memory. Every
//! reader streams, checks each claimed length against a limit and against the bytes available
//! before it allocates that much, and names the file, the byte and the block in its errors.
//!
//! [`BlockSource::open`] recognizes the format by the first bytes:
//!
//! | first bytes | format |
//! |---|---|
//! | `65 32` | era1 ([`Era1Reader`]) |
//! | `1f 8b` | gzip of concatenated RLP ([`ChainReader`]) |
//! | anything else | concatenated RLP, as `geth export` writes it ([`ChainReader`]) |

mod error;
mod input;
mod raw;
mod rlp;
mod era1;
mod beside;
mod access_lists;
mod updates;
mod source;

pub use access_lists::{AccessListReader, AccessListWriter, WithAccessLists};
pub use era1::{ERA1_BLOCKS_MAX, Era1Reader};
pub use error::{FileError, FilePosition};
pub use input::{InputFile, Progress};
pub(crate) use input::{buffered, unpacked};
pub use raw::{BLOCK_BYTES_MAX, RawBlock};
pub(crate) use raw::{decode_block, decode_header};
pub use rlp::{ChainReader, ChainWriter};
pub use source::{BlockSource, FileKind};
pub use updates::{StateUpdate, UpdateReader, UpdateWriter, WithUpdates};
