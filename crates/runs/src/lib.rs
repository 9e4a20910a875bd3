//! Sorted runs beside the block log: the files of histories, indexes and preimages.
//!
//! ```text
//!  FOLDER/runs.list     which files count; replaced as a whole
//!  FOLDER/00000007.run  pages of sorted entries, sections, trailer; written once
//!
//!  new blocks -> memory -> run -> merged with its neighbours into a larger run
//! ```
//!
//! A run never changes, and a list names a run with its identity, a random number. So a reader in another process needs
//! no lock: it opens the listed runs, and reads the list again if one was removed.
//!
//! ```
//! use cambium_disk::FaultyDisk;
//! use cambium_runs::{FileReader, FileWriter, PAGE_BYTES, TrailerFormat};
//!
//! const TRAILER: TrailerFormat<2> = TrailerFormat {
//!     magic: b"Examples",
//!     format: 1,
//! };
//!
//! let disk = FaultyDisk::new(1);
//! let mut run = FileWriter::create(&disk, "1.run", PAGE_BYTES, Default::default())?;
//! run.page(|number, out| out.resize(out.len() + PAGE_BYTES, number as u8))?;
//! let pages = run.pages();
//! run.finish(&TRAILER.encode(0, [7, pages]))?;
//!
//! let run = FileReader::open(&disk, "1.run")?;
//! let (at, block) = run.last_block()?.expect("a file of whole blocks");
//! let trailer = TRAILER.decode(&block);
//! let (_, [identity, pages]) = trailer.map_err(|error| run.undecodable(at, &error))?;
//! assert_eq!((identity, pages), (7, 1));
//! # Ok::<(), cambium_runs::RunError>(())
//! ```
//!
//! The crates above define entries, their encoding in pages, and the data kept of blocks. Of a block this crate knows
//! number and hash. A crash loses no listed run: a run is durable before it is listed, and is removed after a durable
//! list without it.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod error;
mod filter;
mod compaction;
mod list;
mod folder;
mod file;
mod writer;
mod backup;
mod background;

pub use background::{Background, EndSignal};
pub use backup::{ATTEMPTS, HeldFile, hold_file, share_file, while_missing};
pub use compaction::{RunSize, due_for_merge};
pub use error::RunError;
pub use file::{FileReader, PAGE_BYTES, TrailerFormat, page_sum};
pub use filter::KeyFilter;
pub use folder::Folder;
pub use list::{ListFile, ListedRun};
pub use writer::FileWriter;
