//! Files that commands read and write, where `-` stands for standard input or output.

use super::{
    error::{Exit, Failure},
    output::Output,
    signals,
};
use alloy_primitives::hex;
use alloy_rlp::{Decodable, Header};
use cambium::{
    B256, BlockSource, Bytes,
    chain::{
        AccessListReader, AccessListWriter, ChainWriter, FileError, FilePosition, InputFile,
        RawBlock, UpdateReader, UpdateWriter, WithAccessLists, WithUpdates,
    },
};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, IsTerminal, Read},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process,
    sync::{Mutex, MutexGuard, Once, PoisonError},
};
use tempfile::TempDir;

const STANDARD_INPUT: &str = "standard input";
const STANDARD_OUTPUT: &str = "standard output";

/// Whether a file is standard input or output.
pub(crate) fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

/// The name of a file to read, for messages.
pub(crate) fn input_name(file: &Path) -> String {
    match is_standard(file) {
        true => STANDARD_INPUT.to_owned(),
        false => file.display().to_string(),
    }
}

/// The name of a file to write, for messages.
pub(crate) fn output_name(file: &Path) -> String {
    match is_standard(file) {
        true => STANDARD_OUTPUT.to_owned(),
        false => file.display().to_string(),
    }
}

/// Refuses arguments of which more than one is `-`.
pub(crate) fn refuse_two_standard<'a>(
    files: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let standard = files.into_iter().filter(|file| is_standard(file)).count();
    match standard {
        0 | 1 => Ok(()),
        _ => Err(Failure::BadEntry {
            why: "- stands for one file of a command alone: name the others".to_owned(),
        }),
    }
}

/// Refuses outputs of which two are one file: each would write over the other.
pub(crate) fn refuse_one_file_twice<'a>(
    files: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let mut seen = HashMap::new();
    for file in files.into_iter().filter(|file| !is_standard(file)) {
        // A device may be written by both.
        let is_device = file.metadata().is_ok_and(|there| !there.is_file());
        let found = seen.insert(place(file), file);
        if let Some(other) = found.filter(|_| !is_device) {
            let (file, other) = (file.display(), other.display());
            let why = match file.to_string() == other.to_string() {
                true => format!("{file} is named twice: name two files"),
                false => format!("{other} and {file} are one file: name two"),
            };
            return Err(Failure::BadEntry { why });
        }
    }
    Ok(())
}

/// Where a file is, or will be once it is created.
#[derive(PartialEq, Eq, Hash)]
enum Place {
    /// Device and number of an existing file, under any of its names.
    There(u64, u64),
    Created(PathBuf),
}

fn place(file: &Path) -> Place {
    if let Ok(there) = file.metadata() {
        return Place::There(there.dev(), there.ino());
    }
    // A link that leads to nothing creates what it leads to.
    let target = file.read_link().ok();
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let file = target.map_or_else(|| file.to_owned(), |target| folder.join(target));
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, file.file_name()) {
        (Ok(folder), Some(name)) => Place::Created(folder.join(name)),
        _ => Place::Created(file),
    }
}

/// Refuses to write a file to standard output beside something else, and to a terminal.
pub(crate) fn refuse_mixed_output(file: &Path, is_json: bool) -> Result<(), Failure> {
    let why = match is_standard(file) {
        true if is_json => "--json and - both write to standard output: name a file",
        true if io::stdout().is_terminal() => {
            "standard output is a terminal, and the file is not text: redirect it"
        }
        _ => return Ok(()),
    };
    Err(Failure::BadEntry {
        why: why.to_owned(),
    })
}

/// Opens a file to read.
pub(crate) fn input(file: &Path) -> Result<InputFile, FileError> {
    if !is_standard(file) {
        return InputFile::open(file);
    }
    let standard = io::stdin().as_fd().try_clone_to_owned();
    match standard {
        Ok(standard) => Ok(InputFile::named(STANDARD_INPUT, File::from(standard))),
        Err(source) => Err(FileError::Open {
            file: STANDARD_INPUT.into(),
            source,
        }),
    }
}

/// Opens a file of blocks, which must not be empty.
pub(crate) fn blocks_of(file: &Path) -> Result<BlockSource, FileError> {
    let source = BlockSource::of_file(input(file)?)?;
    refuse_other_content(file, source.first_bytes(), "blocks")?;
    Ok(source)
}

/// Fails if a file has something else than blocks in it.
pub(crate) fn refuse_without_blocks(path: &Path) -> Result<(), FileError> {
    let first = first_block(blocks_of(path)?.next());
    let what = match first {
        Some(Ok(_)) => return Ok(()),
        Some(Err(error)) => return Err(error),
        None => "it has no block".to_owned(),
    };
    Err(FileError::OtherContent {
        file: input_name(path).into(),
        what,
        expected: "blocks",
    })
}

/// Verifies that a file of blocks begins with one, which the first bytes of a packed file don't show. Other content is
/// not an invalid block, but the wrong file.
pub(crate) fn first_block(
    first: Option<Result<RawBlock, FileError>>,
) -> Option<Result<RawBlock, FileError>> {
    let what = |is_packed| match is_packed {
        true => "unpacked, it begins with something else",
        false => "it begins with something else",
    };
    let other = |place: &FilePosition| FileError::OtherContent {
        file: place.file.clone(),
        what: what(place.unpacked).to_owned(),
        expected: "blocks",
    };
    Some(match first? {
        Ok(block) if !begins_with_header(&block.rlp) => Err(other(&block.place)),
        Err(FileError::Malformed { place, .. }) if place.unpacked => Err(other(&place)),
        first => first,
    })
}

/// Whether RLP is that of a list that begins with a list that begins with a hash, as a block with its header does, be
/// they valid or not.
fn begins_with_header(mut rlp: &[u8]) -> bool {
    let list = |rlp: &mut &[u8]| {
        let header = Header::decode(rlp).ok()?;
        header.list.then_some(())
    };
    let begins = list(&mut rlp).and_then(|()| list(&mut rlp));
    begins.is_some_and(|()| B256::decode(&mut rlp).is_ok())
}

/// Opens a file of access lists, which must not be empty.
pub(crate) fn lists_of(file: &Path) -> Result<AccessListReader, FileError> {
    let lists = AccessListReader::of_file(input(file)?)?;
    refuse_other_content(file, lists.first_bytes(), "access lists")?;
    Ok(lists)
}

/// Blocks with their access lists, if those are what the file of lists begins with.
pub(crate) fn with_lists<I: Iterator<Item = Result<RawBlock, FileError>>>(
    blocks: I,
    lists: AccessListReader,
) -> Result<WithAccessLists<I>, FileError> {
    WithAccessLists::new(blocks, lists).map_err(|error| match error {
        FileError::Malformed { place, .. } => FileError::OtherContent {
            file: place.file,
            what: "it begins with something else".to_owned(),
            expected: "access lists",
        },
        error => error,
    })
}

/// Opens a file of state updates, which must not be empty.
pub(crate) fn updates_of(file: &Path) -> Result<UpdateReader, FileError> {
    let updates = UpdateReader::of_file(input(file)?)?;
    refuse_other_content(file, updates.first_bytes(), "state updates")?;
    Ok(updates)
}

/// Blocks with their state updates, if those are what the file of updates begins with.
pub(crate) fn with_updates<I: Iterator<Item = Result<RawBlock, FileError>>>(
    blocks: I,
    updates: UpdateReader,
) -> Result<WithUpdates<I>, FileError> {
    WithUpdates::new(blocks, updates).map_err(|error| match error {
        FileError::Malformed { place, .. } => FileError::OtherContent {
            file: place.file,
            what: "it begins with something else".to_owned(),
            expected: "state updates",
        },
        error => error,
    })
}

/// Refuses an empty file, and one that begins as neither RLP of a list does, nor gzip or era1.
fn refuse_other_content(
    file: &Path,
    first: &[u8],
    expected: &'static str,
) -> Result<(), FileError> {
    let file = || input_name(file).into();
    let what = match first {
        [] => {
            let what = format!("it is empty, and {expected} were expected");
            return Err(FileError::BadFile { file: file(), what });
        }
        [0xc0..=0xff, ..] | [0x1f, 0x8b] | [0x65, 0x32] => return Ok(()),
        [b'{' | b'[', ..] => "it is JSON".to_owned(),
        first
            if first
                .iter()
                .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) =>
        {
            "it is text".to_owned()
        }
        first => {
            format!("it begins with {}", hex::encode_prefixed(first))
        }
    };
    Err(FileError::OtherContent {
        file: file(),
        what,
        expected,
    })
}

fn standard_output() -> Result<File, FileError> {
    let standard = io::stdout().as_fd().try_clone_to_owned();
    standard.map(File::from).map_err(|source| FileError::Open {
        file: STANDARD_OUTPUT.into(),
        source,
    })
}

/// Makes a directory, unless there is one.
pub(crate) fn make_directory(dir: &Path) -> Result<(), Failure> {
    match dir.is_file() {
        true => Err(Failure::NoDirectory(dir.to_owned())),
        false => fs::create_dir_all(dir).map_err(Failure::io(dir, "made")),
    }
}

/// Files and directories that are being made. If that fails, or if Ctrl-C or SIGTERM ends it, they are removed: a part
/// of a file is none.
pub(crate) struct Unfinished(Vec<PathBuf>);

/// Those of the whole program, for signals. While it is locked, none is made.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Unfinished {
    /// None yet. From now on a signal ends the program after those that are there have been removed.
    pub(crate) fn on_signals(out: &Output) -> Self {
        static CAUGHT: Once = Once::new();
        let out = *out;
        CAUGHT.call_once(|| signals::ends_with(move |exit| end(exit, out)));
        Self(Vec::new())
    }

    /// Makes a file, or a directory of files.
    pub(crate) fn make<T, E>(
        &mut self,
        place: &Path,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut all = all_unfinished();
        let made = make()?;
        if !is_standard(place) {
            self.add(&mut all, place);
        }
        Ok(made)
    }

    /// Makes a directory in `dir` that is removed in the end in any case.
    pub(crate) fn make_scratch(&mut self, prefix: &str, dir: &Path) -> Result<TempDir, Failure> {
        let mut all = all_unfinished();
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(dir);
        let made = made.map_err(Failure::io(dir, "written to"))?;
        self.add(&mut all, made.path());
        Ok(made)
    }

    fn add(&mut self, all: &mut Vec<PathBuf>, made: &Path) {
        all.push(made.to_owned());
        self.0.push(made.to_owned());
    }

    /// Keeps all files, which are complete.
    pub(crate) fn finish(mut self) {
        self.forget();
    }

    fn forget(&mut self) {
        all_unfinished().retain(|made| !self.0.contains(made));
        self.0.clear();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.iter().for_each(|made| remove(made));
        self.forget();
    }
}

fn all_unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a database is safe at any moment, and what is not whole is removed"
)]
fn end(exit: Exit, out: Output) {
    // Held until the end: nothing else is made.
    let all = all_unfinished();
    all.iter().for_each(|made| remove(made));
    process::exit(out.print_failure(&Failure::Ended(exit)) as i32)
}

/// Removes a file or directory. A device or a link is not the command's.
fn remove(made: &Path) {
    // A running writer may add a file to the directory meanwhile.
    for _ in 0..REMOVALS {
        // If it can't be removed, the error that is reported matters more.
        let removed = match made.symlink_metadata() {
            Ok(found) if found.is_file() => fs::remove_file(made),
            Ok(found) if found.is_dir() => fs::remove_dir_all(made),
            _ => return,
        };
        if removed.is_ok() {
            return;
        }
    }
}

/// Attempts to remove a directory.
const REMOVALS: usize = 8;

/// Creates a file of blocks.
pub(crate) fn blocks_to(file: &Path) -> Result<ChainWriter, FileError> {
    match is_standard(file) {
        true => Ok(ChainWriter::to_file(STANDARD_OUTPUT, standard_output()?)),
        false => ChainWriter::create(file),
    }
}

/// Creates a file of access lists.
pub(crate) fn lists_to(file: &Path) -> Result<AccessListWriter, FileError> {
    match is_standard(file) {
        true => Ok(AccessListWriter::to_file(
            STANDARD_OUTPUT,
            standard_output()?,
        )),
        false => AccessListWriter::create(file),
    }
}

/// Creates a file of state updates.
pub(crate) fn updates_to(file: &Path) -> Result<UpdateWriter, FileError> {
    match is_standard(file) {
        true => Ok(UpdateWriter::to_file(STANDARD_OUTPUT, standard_output()?)),
        false => UpdateWriter::create(file),
    }
}

/// Largest file that is read whole, in bytes: larger than any witness, proof or block.
const WHOLE_BYTES_MAX: u64 = 1 << 30;

/// Reads a file whole. `what` says what must be in it. Returns its name, too.
pub(crate) fn read(file: &Path, what: &'static str) -> Result<(String, Vec<u8>), Failure> {
    let name = input_name(file);
    let mut bytes = Vec::new();
    let read = match is_standard(file) {
        true => read_whole(io::stdin().lock(), &mut bytes),
        false => File::open(file).and_then(|file| read_whole(file, &mut bytes)),
    };
    read.map_err(Failure::io(Path::new(&name), "read"))?;
    if bytes.len() as u64 > WHOLE_BYTES_MAX {
        return Err(Failure::TooLong { file: name, what });
    }
    match bytes.iter().all(u8::is_ascii_whitespace) {
        true => Err(Failure::Empty { file: name, what }),
        false => Ok((name, bytes)),
    }
}

fn read_whole(source: impl Read, bytes: &mut Vec<u8>) -> io::Result<usize> {
    source.take(WHOLE_BYTES_MAX + 1).read_to_end(bytes)
}

/// Opens a file of lines, with its name for messages. `what` says what must be in it.
pub(crate) fn lines(
    file: &Path,
    what: &'static str,
) -> Result<(String, Box<dyn BufRead>), Failure> {
    let name = input_name(file);
    let failed = |error| Failure::io(Path::new(&name), "read")(error);
    let mut lines: Box<dyn BufRead> = match is_standard(file) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(file).map_err(failed)?)),
    };
    match lines.fill_buf().map_err(failed)?.is_empty() {
        true => Err(Failure::Empty { file: name, what }),
        false => Ok((name, lines)),
    }
}

/// Reads JSON from a file. Of a JSON-RPC response the `result` is read; lines and columns in errors
/// then refer to it.
pub(crate) fn read_json<T>(
    file: &Path,
    what: &'static str,
    parse: impl Fn(&str) -> Result<T, serde_json::Error>,
) -> Result<T, Failure> {
    let (file, bytes) = read(file, what)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // Bytes that are not UTF-8 are not JSON.
        Err(error) => {
            let error = serde::de::Error::custom(error.utf8_error());
            return Err(Failure::no_json(file, what)(error));
        }
    };
    let error = match parse(&text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    match serde_json::from_str::<Response<Box<RawValue>>>(&text) {
        Ok(response) => {
            let file = format!("{file}, in its `result`");
            parse(response.result.get()).map_err(Failure::no_json(file, what))
        }
        Err(_) => Err(Failure::no_json(file, what)(error)),
    }
}

/// Reads the RLP of a block: binary, hex, or in a response to `debug_getRawBlock`.
pub(crate) fn read_block(file: &Path) -> Result<Bytes, Failure> {
    let (_, bytes) = read(file, "RLP of a block")?;
    let text = std::str::from_utf8(&bytes).map(str::trim).unwrap_or("");
    if let Ok(response) = serde_json::from_str::<Response<Bytes>>(text) {
        return Ok(response.result);
    }
    // The RLP of a list does not start with a letter or digit.
    match text.parse::<Bytes>() {
        Ok(rlp) if !rlp.is_empty() => Ok(rlp),
        _ => Ok(bytes.into()),
    }
}

/// A JSON-RPC response.
#[derive(serde::Deserialize)]
struct Response<T> {
    result: T,
}
