//! Arguments that name a database, and how it is opened.

use super::super::numbers::{parse_count, parse_file_size, parse_memory};
use clap::{
    Args as ClapArgs,
    builder::{PathBufValueParser, TypedValueParser},
};
use std::path::PathBuf;

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DbArgs {
    /// Directory of the database
    #[arg(long, short = 'd', value_name = "DIR", env = "CAMBIUM_DATADIR",
          value_parser = PathBufValueParser::new().try_map(directory))]
    pub(crate) datadir: PathBuf,
    /// Memory for caches and recent blocks together: 512M, 4G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_memory)]
    pub(crate) memory: u64,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Refuses a file as a directory.
fn directory(path: PathBuf) -> Result<PathBuf, String> {
    match path.is_file() {
        true => Err("it is a file, and the directory of a database was expected".to_owned()),
        false => Ok(path),
    }
}

/// A database that the command writes to.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Keep this many blocks below the head: older blocks are removed with their changesets once a
    /// history, an index or preimages have them, and states before them are no longer available
    /// [default: all]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    pub(crate) keep_blocks: Option<u64>,
    /// Keep removed data readable for processes that read the database, until they are this many
    /// checkpoints behind
    #[arg(long, value_name = "N", default_value_t = READER_LAG, value_parser = parse_count::<u64>)]
    pub(crate) reader_lag: u64,
    /// Put the block log of a new database into this empty directory, on another device: commits do
    /// not wait for other writes then. `log` in the database becomes a link to it
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
}

/// Default of `--reader-lag`, in checkpoints.
const READER_LAG: u64 = 16;

impl From<DbArgs> for WriteArgs {
    fn from(db: DbArgs) -> Self {
        Self {
            db,
            keep_blocks: None,
            reader_lag: READER_LAG,
            log_dir: None,
        }
    }
}

/// File sizes, for tests that exercise file rotation.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct FileArgs {
    /// Maximum size of a segment
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, hide = true)]
    pub(crate) segment_size: Option<u64>,
    /// Size of the buffer in which pages are collected before they are written
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, hide = true)]
    pub(crate) segment_buffer: Option<u64>,
    /// Size after which the block log continues in a new file
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, hide = true)]
    pub(crate) log_file_size: Option<u64>,
}
