//! Opening databases, and printing the notes of their recovery.

use super::{
    args::database::{DbArgs, WriteArgs},
    error::Failure,
    output::Output,
};
use cambium::{
    Chain, Db, Disk, Options, StateError, StdDisk,
    db::{FileSizes, LeafKind, Recovery, StoreError},
    disk::StdDiskOptions,
};
use std::{io, path::Path, sync::Arc};

pub(crate) fn disk(datadir: &Path) -> Arc<dyn Disk> {
    Arc::new(StdDisk::new(datadir))
}

pub(crate) fn options(args: &DbArgs) -> Options {
    let (given, own) = (&args.files, FileSizes::default());
    let log_file_bytes = given.log_file_size.map(|size| size.min(1 << 31) as u32);
    let log_file_bytes_max = log_file_bytes.unwrap_or(own.log_file_bytes_max);
    let buffer = given.segment_buffer.map(|size| size as usize);
    Options {
        memory_bytes: args.memory,
        files: FileSizes {
            segment_bytes_max: given.segment_size.unwrap_or(own.segment_bytes_max),
            segment_buffer_bytes: buffer.unwrap_or(own.segment_buffer_bytes),
            log_file_bytes_max,
            log_extend_bytes: own.log_extend_bytes.min(log_file_bytes_max.into()),
            ..own
        },
        ..Options::default()
    }
}

/// As [`options`], for a database that the command writes to.
pub(crate) fn options_to_write(args: &WriteArgs) -> Options {
    Options {
        keep_blocks: args.keep_blocks,
        reader_lag: args.reader_lag,
        ..options(&args.db)
    }
}

pub(crate) fn exists(args: &DbArgs) -> Result<bool, Failure> {
    Ok(Db::exists(&*disk(&args.datadir))?)
}

/// Whether a database was not made whole: it is made again then, as if nothing was there.
pub(crate) fn is_unfinished(args: &DbArgs) -> Result<bool, Failure> {
    let opened = Db::open_read_only(disk_to_read(args)?, options(args));
    Ok(matches!(opened, Err(StateError::Unfinished)))
}

/// Rejects a directory for a new database if it holds other files. The remains of an interrupted initialization are
/// allowed.
pub(crate) fn refuse_other_things(datadir: &Path) -> Result<(), Failure> {
    let own = |name: &str| {
        let files = [
            "cambium.db",
            "cambium.lock",
            "codes.dat",
            "blocks.idx",
            "lost+found",
        ];
        let folders = [
            "log",
            "segments",
            "values",
            "history",
            "index",
            "preimages",
            "readers",
        ];
        let ends = name.starts_with("checkpoint-") || name.ends_with(".tmp");
        files.contains(&name) || folders.contains(&name) || ends || name.contains(".damaged")
    };
    let entries = match datadir.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::io(datadir, "read")(error)),
    };
    for entry in entries {
        let name = entry.map_err(Failure::io(datadir, "read"))?.file_name();
        let name = name.to_string_lossy();
        if !own(&name) {
            let (datadir, name) = (datadir.to_owned(), name.into_owned());
            return Err(Failure::OtherThings { datadir, name });
        }
    }
    Ok(())
}

/// Places the log of a new database where the command says, or where an attempt before has placed it.
pub(crate) fn place_log(args: &WriteArgs) -> Result<(), Failure> {
    let Some(dir) = &args.log_dir else {
        return Ok(());
    };
    let disk = StdDisk::new(&args.db.datadir);
    Ok(disk.place_dir("log", dir).map_err(StoreError::from)?)
}

/// Opens the disk of a database. Fails if the directory is not a database, without creating
/// anything.
pub(crate) fn existing(args: &DbArgs) -> Result<Arc<dyn Disk>, Failure> {
    let disk = disk(&args.datadir);
    if Db::exists(&*disk)? {
        return Ok(disk);
    }
    let dir = disk.display_path("");
    Err(StoreError::NotADatabase { dir }.into())
}

/// As [`db_to_write`], for the database of a chain.
pub(crate) fn chain_to_write(args: &WriteArgs, out: &Output) -> Result<Chain, Failure> {
    Ok(Chain::of(state_to_write(args, out)?)?)
}

/// Opens a database for writing, whether or not it is a chain's.
pub(crate) fn db_to_write(args: &WriteArgs, out: &Output) -> Result<Db, Failure> {
    let disk = existing(&args.db)?;
    if let Some(dir) = &args.log_dir {
        let files = StdDisk::new(&args.db.datadir);
        files.check_dir_at("log", dir).map_err(StoreError::from)?;
    }
    opened(Db::open(disk, options_to_write(args)), out)
}

/// Opens a database for reading, while another process may write to it.
pub(crate) fn db_to_read(args: &DbArgs, out: &Output) -> Result<Db, Failure> {
    opened(Db::open_read_only(disk_to_read(args)?, options(args)), out)
}

/// As [`db_to_read`], for a database of accounts, whether or not it is a chain's.
pub(crate) fn state_to_read(args: &DbArgs, out: &Output) -> Result<Db, Failure> {
    of_accounts(db_to_read(args, out)?, args)
}

/// As [`db_to_write`], for a database of accounts, whether or not it is a chain's.
pub(crate) fn state_to_write(args: &WriteArgs, out: &Output) -> Result<Db, Failure> {
    of_accounts(db_to_write(args, out)?, &args.db)
}

fn of_accounts(db: Db, args: &DbArgs) -> Result<Db, Failure> {
    match db.options().leaves {
        LeafKind::Accounts => Ok(db),
        LeafKind::Entries => Err(Failure::AStore(args.datadir.clone())),
    }
}

/// The followers of the chain of a database that is open for writing, if it is a chain's. While they exist, the log
/// keeps the blocks that they have not read.
pub(crate) fn followed(db: &Db) -> Result<Option<Chain>, Failure> {
    match Chain::rules_of(db)? {
        Some(_) => Ok(Some(Chain::of(db.clone())?)),
        None => Ok(None),
    }
}

/// Opens the disk of a database for reading only.
pub(crate) fn disk_to_read(args: &DbArgs) -> Result<Arc<dyn Disk>, Failure> {
    existing(args)?;
    let read_only = StdDiskOptions {
        read_only: true,
        ..StdDiskOptions::from_env()
    };
    let disk = StdDisk::with_options(&args.datadir, &read_only).map_err(StoreError::from)?;
    Ok(Arc::new(disk))
}

/// As [`db_to_read`], for the database of a chain.
pub(crate) fn chain_to_read(args: &DbArgs, out: &Output) -> Result<Chain, Failure> {
    Ok(Chain::of(state_to_read(args, out)?)?)
}

fn opened(found: Result<(Db, Recovery), StateError>, out: &Output) -> Result<Db, Failure> {
    let (db, recovery) = found?;
    for note in &recovery.notes {
        out.note(note);
    }
    tracing::info!(
        replayed_blocks = recovery.replayed_blocks,
        head = %db.head(),
        "opened the database"
    );
    Ok(db)
}
