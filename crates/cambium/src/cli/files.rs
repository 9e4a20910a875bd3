//! Files that commands read and write, where `-` stands for standard input or output.

use super::error::Failure;
use alloy_primitives::hex;
use cambium::{
    AccessListReader, AccessListWriter, BlockSource, Bytes, ChainWriter, FileError, InputFile,
};
use serde_json::value::RawValue;
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, IsTerminal, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

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

/// Reads the first block of a file.
///
/// # Errors
///
/// If there is none: the file has something else in it.
pub(crate) fn first_block(path: &Path) -> Result<(), FileError> {
    let first = blocks_of(path)?.next().transpose()?;
    let header = first.map(|block| block.header()).transpose();
    let what = match header {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => "it has no block".to_owned(),
        Err(_) => "it begins with something else".to_owned(),
    };
    Err(FileError::OtherContent {
        file: path.display().to_string().into(),
        what,
        expected: "blocks",
    })
}

/// Opens a file of access lists, which must not be empty.
pub(crate) fn lists_of(file: &Path) -> Result<AccessListReader, FileError> {
    let lists = AccessListReader::of_file(input(file)?)?;
    refuse_other_content(file, lists.first_bytes(), "access lists")?;
    Ok(lists)
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

/// Files that are being written. If that fails, they are removed: a part of a file is none.
#[derive(Default)]
pub(crate) struct Unfinished(Vec<PathBuf>);

impl Unfinished {
    /// Adds a file that was just created.
    pub(crate) fn add(&mut self, file: &Path) {
        if !is_standard(file) {
            self.0.push(file.to_owned());
        }
    }

    /// All of them are whole.
    pub(crate) fn finish(mut self) {
        self.0.clear();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        for file in &self.0 {
            // A device or a link is not the command's.
            if file.symlink_metadata().is_ok_and(|it| it.is_file()) {
                // If it can't be removed, the error that is reported matters more.
                let _ = fs::remove_file(file);
            }
        }
    }
}

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
