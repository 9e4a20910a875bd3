//! Failures of commands and their exit codes, which are classified by what the user can do.

use cambium::kv::{KvError, VerifyError};
use cambium::{
    B256, BlockId, ChainError, HistoryError, StateError,
    chain::{BlockFault, FileError, GenesisError, brief_json_error},
    db::StoreError,
    index::IndexError,
    node::NodeError,
    preimages::PreimagesError,
    proof::{ProofError, StatelessError, WitnessError},
};
use cambium_workload::WorkloadError;
use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Exit codes. The argument parser exits with 2 on wrong usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    CouldNotBeDone = 1,
    WrongUsage = 2,
    InvalidBlock = 3,
    Damaged = 4,
    DoesNotHold = 5,
    /// Ended by Ctrl-C: after a whole block, or with nothing made.
    Interrupted = 130,
    /// Ended by SIGTERM, likewise.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The expected kind of content with its article, for a sentence.
fn with_article(what: &str) -> String {
    let article = match what.starts_with(['a', 'e', 'i', 'o', 'u']) {
        true => "an",
        false => "a",
    };
    format!("{article} {what}")
}

/// Kinds of JSON that commands read.
pub(crate) const ACCOUNT_PROOF: &str = "account proof";
pub(crate) const RANGE_PROOF: &str = "proof of a range";
pub(crate) const ENTRY_PROOF: &str = "proof of entries";
pub(crate) const WITNESS: &str = "witness";

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Chain(Box<ChainError>),
    /// An import ended early. All valid blocks before the failure are committed.
    #[error(
        "{error}\nThe database is at block {head}: all blocks up to it are valid and committed."
    )]
    Import {
        error: Box<ChainError>,
        head: BlockId,
    },
    #[error("the proof does not hold for state root {root}: {error}")]
    Proof { root: B256, error: Box<ProofError> },
    #[error("the proof does not hold for state root {root}: {why}")]
    Layered { root: B256, why: String },
    #[error("the proof of the range does not hold for state root {root}: {why}")]
    Range { root: B256, why: String },
    #[error(transparent)]
    Kv(Box<KvError>),
    #[error("the proof does not hold for root {root}: {error}")]
    Entries { root: B256, error: Box<VerifyError> },
    #[error("the proof does not hold for root {root}: {why}")]
    BadEntries { root: B256, why: String },
    /// A proof that may hold: verifying it takes more than the program allows.
    #[error("the proof is not verified: {0}")]
    OverLimit(String),
    #[error("{} is not a key-value store: it has no database", .0.display())]
    NoStore(PathBuf),
    #[error("{} is a key-value store, not the state of a chain", .0.display())]
    AStore(PathBuf),
    #[error("there is no database in {0}")]
    NoDatabase(String),
    /// Arguments that don't fit together, or of which one means nothing.
    #[error("{why}")]
    BadEntry { why: String },
    #[error("{why}")]
    NoValue { why: String },
    #[error("{file}: line {line}: {why}")]
    BadLine {
        file: String,
        line: u64,
        why: String,
    },
    #[error("{file}: not a valid {what}: {source}")]
    NoSuchJson {
        file: String,
        what: &'static str,
        source: serde_json::Error,
    },
    #[error("{file}: it is empty, and {} was expected", with_article(.what))]
    Empty { file: String, what: &'static str },
    #[error("{file}: it has more than 1 GiB, and {} was expected", with_article(.what))]
    TooLong { file: String, what: &'static str },
    #[error("the witness does not hold: {0}")]
    Stateless(Box<StatelessError>),
    #[error(transparent)]
    History(Box<HistoryError>),
    /// A backup that failed at the history.
    #[error(transparent)]
    HistoryCopy(Box<HistoryError>),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error("{} is no database and has other things in it, such as {name}", datadir.display())]
    OtherThings { datadir: PathBuf, name: String },
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    #[error("nothing to export: block {from} comes after block {to}")]
    NothingToExport { from: u64, to: u64 },
    #[error("no path is in the range: --to {last} comes before --from {first}")]
    EmptyRange { first: B256, last: B256 },
    #[error("{file}: can't be {what}: {source}")]
    Io {
        file: String,
        what: &'static str,
        source: io::Error,
    },
    #[error("{} is a file, and a directory was expected", .0.display())]
    NoDirectory(PathBuf),
    #[error("{} is a directory, and none of its files is one of blocks: their names end in .rlp, .gz or .era1", .0.display())]
    NoFiles(PathBuf),
    #[error("{} is in the database's own directory", .0.display())]
    BackupInside(PathBuf),
    #[error("{} is a database already", .0.display())]
    HasDatabase(PathBuf),
    /// A file that was to be a dump of a state.
    #[error(transparent)]
    BadDump(FileError),
    /// What a process of a cluster meets.
    #[cfg(feature = "cluster")]
    #[error("{0}")]
    Cluster(String),
    /// What a server meets.
    #[cfg(any(feature = "cluster", feature = "serve"))]
    #[error("{0}")]
    Serve(String),
    /// Address of a collector, and what is wrong.
    #[cfg(feature = "otlp")]
    #[error("spans can't be sent to {url}: {what}")]
    Collector { url: String, what: String },
    #[error("{} exists already, and a new database is made in a directory that does not", .0.display())]
    NewExists(PathBuf),
    #[error("{} exists already: choose another directory for the demonstration", .0.display())]
    DemoExists(PathBuf),
    /// The name of a block that means none here.
    #[error(transparent)]
    NoBlock(NodeError),
    /// A configuration file has a wrong key, or a wrong value.
    #[error("{file}: line {line}: {why}")]
    BadConfig {
        file: String,
        line: usize,
        why: String,
    },
    /// A signal ended what made files, which are removed.
    #[error("ended by a signal: what was not whole is removed")]
    Ended(Exit),
    /// A step of the demonstration had a wrong result.
    #[error("the demonstration failed: {0}")]
    Demo(&'static str),
}

impl From<ChainError> for Failure {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::State(StateError::Store(StoreError::NotADatabase { dir })) => {
                Self::NoDatabase(dir)
            }
            error => Self::Chain(Box::new(error)),
        }
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Chain(error) => error.into(),
            error => Self::NoBlock(error),
        }
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        ChainError::from(error).into()
    }
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        match error {
            KvError::State(error) => error.into(),
            error => Self::Kv(Box::new(error)),
        }
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::State(error) => error.into(),
            error => Self::History(Box::new(error)),
        }
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        ChainError::from(error).into()
    }
}

impl From<PreimagesError> for Failure {
    fn from(error: PreimagesError) -> Self {
        ChainError::from(error).into()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        StateError::from(error).into()
    }
}

impl From<StatelessError> for Failure {
    fn from(error: StatelessError) -> Self {
        Self::Stateless(Box::new(error))
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        ChainError::from(error).into()
    }
}

impl From<GenesisError> for Failure {
    fn from(error: GenesisError) -> Self {
        ChainError::from(error).into()
    }
}

impl Failure {
    pub(crate) fn io(file: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = file.display().to_string();
        move |source| Self::Io { file, what, source }
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn cluster(error: impl fmt::Display) -> Self {
        Self::Cluster(error.to_string())
    }

    #[cfg(any(feature = "cluster", feature = "serve"))]
    pub(crate) fn serve(error: impl fmt::Display) -> Self {
        Self::Serve(error.to_string())
    }

    pub(crate) fn proof(root: B256, error: ProofError) -> Self {
        let error = Box::new(error);
        Self::Proof { root, error }
    }

    pub(crate) const fn no_json(
        file: String,
        what: &'static str,
    ) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::NoSuchJson {
            file,
            what,
            source: brief_json_error(source),
        }
    }

    /// Whether the reader of standard output has closed it, which is not reported as an error.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The head after an import that ended early.
    pub(crate) const fn head(&self) -> Option<BlockId> {
        match self {
            Self::Import { head, .. } => Some(*head),
            _ => None,
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Chain(error) | Self::Import { error, .. } => chain_exit(error),
            Self::Stateless(error) => match **error {
                StatelessError::Invalid { .. } => Exit::InvalidBlock,
                StatelessError::State(WitnessError::TooBig { .. }) => Exit::CouldNotBeDone,
                _ => Exit::DoesNotHold,
            },
            Self::Proof { .. }
            | Self::Layered { .. }
            | Self::Range { .. }
            | Self::Entries { .. }
            | Self::BadEntries { .. }
            | Self::NoSuchJson { .. } => Exit::DoesNotHold,
            Self::Ended(exit) => *exit,
            Self::History(error) | Self::HistoryCopy(error) => history_exit(error),
            Self::BadDump(error) => file_exit(error),
            Self::BadEntry { .. }
            | Self::EmptyRange { .. }
            | Self::BadConfig { .. }
            | Self::NothingToExport { .. }
            | Self::Workload(_)
            | Self::NoFiles(_) => Exit::WrongUsage,
            Self::Kv(_)
            | Self::NoStore(_)
            | Self::AStore(_)
            | Self::NoDatabase(_)
            | Self::OverLimit(_)
            | Self::NoValue { .. }
            | Self::BadLine { .. }
            | Self::Empty { .. }
            | Self::TooLong { .. }
            | Self::Exists(_)
            | Self::NoDirectory(_)
            | Self::BackupInside(_)
            | Self::OtherThings { .. }
            | Self::DemoExists(_)
            | Self::NewExists(_)
            | Self::HasDatabase(_)
            | Self::NoBlock(_)
            | Self::Io { .. }
            | Self::Demo(_) => Exit::CouldNotBeDone,
            #[cfg(any(feature = "cluster", feature = "serve"))]
            Self::Serve(_) => Exit::CouldNotBeDone,
            #[cfg(feature = "otlp")]
            Self::Collector { .. } => Exit::WrongUsage,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => Exit::CouldNotBeDone,
        }
    }

    /// Advice on what to do next, if the message does not include it.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Import { error, .. } => import_advice(error),
            Self::Chain(error) => {
                import_advice(error).filter(|_| matches!(**error, ChainError::File(_)))
            }
            Self::NoDatabase(_) => Some(
                "create one with `cambium init --genesis FILE` or `cambium import --genesis FILE`",
            ),
            Self::NoSuchJson { what, .. }
            | Self::Empty { what, .. }
            | Self::TooLong { what, .. } => made_by(what),
            Self::NoStore(_) => Some("create one with `cambium kv init --datadir DIR`"),
            Self::AStore(_) => Some("use the commands of `cambium kv`"),
            Self::BadDump(_) => {
                Some("name a dump, as `cambium db dump FILE` writes it, and not compressed")
            }
            Self::HasDatabase(_)
            | Self::NoDirectory(_)
            | Self::BackupInside(_)
            | Self::OtherThings { .. } => Some("name a directory that is empty or does not exist"),
            Self::NoBlock(NodeError::NotCanonical(_)) => {
                Some("`cambium set-head HASH` makes it so; `cambium db branches` lists branches")
            }
            Self::NoBlock(NodeError::NotMarked(_)) => {
                Some("`cambium set-head --safe BLOCK --finalized BLOCK` says which they are")
            }
            Self::Exists(_) => Some("choose another file, or overwrite it with --force"),
            Self::HistoryCopy(_) => Some("--no-history makes a copy without it"),
            _ => None,
        }
    }
}

const FILE_OF_BLOCKS: &str = "name a file of blocks: RLP as `cambium export` and `geth export` write it, plain or gzipped, or \
                              era1";

const FILE_OF_LISTS: &str =
    "name a file of access lists, as `cambium export --access-lists FILE` writes it";

const FILE_OF_UPDATES: &str =
    "name a file of state updates, as `cambium export --updates FILE` writes it";

fn import_advice(error: &ChainError) -> Option<&'static str> {
    match error {
        ChainError::Block { fault, .. } if matches!(**fault, BlockFault::UnknownParent(_)) => Some(
            "import the file that has its parent first: the blocks of a file, and the files, must be \
             in order, and of the chain of the database",
        ),
        ChainError::Block { .. } => Some(
            "get the block from another source; the import continues after the database's head",
        ),
        ChainError::File(FileError::Malformed { place, .. } | FileError::TooLong { place, .. })
            if place.index == 0 && place.item == "block" =>
        {
            Some(FILE_OF_BLOCKS)
        }
        ChainError::FalseUpdate { .. } => Some(
            "get the updates from another source; the import continues after the database's head",
        ),
        ChainError::File(FileError::Malformed { place, .. }) if place.item == "state update" => {
            Some(FILE_OF_UPDATES)
        }
        ChainError::File(FileError::OtherContent {
            expected: "state updates",
            ..
        }) => Some(FILE_OF_UPDATES),
        ChainError::File(FileError::OtherContent { expected, .. }) if *expected != "blocks" => {
            Some(FILE_OF_LISTS)
        }
        ChainError::File(FileError::BadFile { .. } | FileError::OtherContent { .. }) => {
            Some(FILE_OF_BLOCKS)
        }
        ChainError::File(FileError::Malformed { place, .. }) if place.item != "block" => {
            Some(FILE_OF_LISTS)
        }
        ChainError::File(
            FileError::CutShort { .. }
            | FileError::TooLong { .. }
            | FileError::Malformed { .. }
            | FileError::Read { .. },
        ) => Some("get the file again and run the same command: the import continues at the head"),
        ChainError::File(FileError::OtherBlocks { .. }) => {
            Some("name the file of access lists that belongs to the files of blocks")
        }
        _ => None,
    }
}

fn chain_exit(error: &ChainError) -> Exit {
    match error {
        // The block may be valid: its chain is not that of the database, or a part of it is missing.
        ChainError::Block { fault, .. } if matches!(**fault, BlockFault::UnknownParent(_)) => {
            Exit::CouldNotBeDone
        }
        ChainError::Block { .. } | ChainError::NotABlock(_) => Exit::InvalidBlock,
        ChainError::Unreadable { .. }
        | ChainError::HeadLost(_)
        | ChainError::TotalDifficultyLost(_) => Exit::Damaged,
        ChainError::State(error) => state_exit(error),
        ChainError::History(error) => history_exit(error),
        ChainError::Index(error) => match **error {
            IndexError::Damaged { .. }
            | IndexError::Missing { .. }
            | IndexError::Unreadable { .. } => Exit::Damaged,
            _ => Exit::CouldNotBeDone,
        },
        ChainError::Preimages(error) => preimages_exit(error),
        ChainError::File(error) => file_exit(error),
        ChainError::Genesis(_)
        | ChainError::OtherGenesis { .. }
        | ChainError::NoRules
        | ChainError::NotExecuted(_)
        | ChainError::FalseUpdate { .. }
        | ChainError::NoUpdate(_)
        | ChainError::NoPreimage { .. }
        | ChainError::Extend(_)
        | ChainError::NoPreimagesInUpdate(_)
        | ChainError::NoSuchBlock { .. } => Exit::CouldNotBeDone,
    }
}

fn preimages_exit(error: &PreimagesError) -> Exit {
    match error {
        PreimagesError::Damaged { .. } | PreimagesError::Missing { .. } => Exit::Damaged,
        _ => Exit::CouldNotBeDone,
    }
}

fn history_exit(error: &HistoryError) -> Exit {
    match error {
        HistoryError::State(error) => state_exit(error),
        HistoryError::Damaged { .. }
        | HistoryError::Missing { .. }
        | HistoryError::BrokenNode { .. }
        | HistoryError::Differs { .. } => Exit::Damaged,
        _ => Exit::CouldNotBeDone,
    }
}

fn state_exit(error: &StateError) -> Exit {
    match error {
        StateError::Damaged { .. }
        | StateError::WrongPage { .. }
        | StateError::WrongRoot { .. }
        | StateError::MissingCode(_)
        | StateError::CheckpointsLost { .. }
        | StateError::Broken { .. }
        | StateError::Trie(_) => Exit::Damaged,
        StateError::Store(error) if error.is_corruption() => Exit::Damaged,
        // A file of the database is missing or too short.
        StateError::Store(StoreError::Disk(error))
            if error.is_not_found() || error.source.kind() == io::ErrorKind::UnexpectedEof =>
        {
            Exit::Damaged
        }
        _ => Exit::CouldNotBeDone,
    }
}

fn file_exit(error: &FileError) -> Exit {
    match error {
        FileError::CutShort { .. }
        | FileError::TooLong { .. }
        | FileError::Malformed { .. }
        | FileError::BadFile { .. } => Exit::InvalidBlock,
        // Corrupt compressed data, not a failure of the disk.
        FileError::Read { source, .. } if source.raw_os_error().is_none() => Exit::InvalidBlock,
        FileError::OtherContent { .. } => Exit::WrongUsage,
        FileError::Read { .. }
        | FileError::Open { .. }
        | FileError::OtherBlocks { .. }
        | FileError::Write { .. } => Exit::CouldNotBeDone,
    }
}

/// Commands that print the expected kind of JSON.
fn made_by(what: &str) -> Option<&'static str> {
    Some(match what {
        ACCOUNT_PROOF => {
            "`cambium prove` prints one; `cambium verify-range` and `cambium kv verify` read proofs of \
             ranges, and of entries"
        }
        RANGE_PROOF => {
            "`cambium prove-range` prints one; `cambium verify` reads proofs of accounts"
        }
        ENTRY_PROOF => "`cambium kv prove` prints one; `cambium verify` reads proofs of accounts",
        WITNESS => "`cambium witness` prints one, and so do clients by debug_executionWitness",
        _ => return None,
    })
}

/// Prints a failure: the message, and advice.
pub(crate) struct Told<'a>(pub(crate) &'a Failure);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.0)?;
        self.0
            .advice()
            .map_or(Ok(()), |advice| write!(f, "\nhelp: {advice}"))
    }
}
