//! The chains, each imported once by both servers and kept.

use super::{
    plan::MEMORY_BYTES,
    server::{Kind, Programs, SCHEME, geth_archive},
};
use crate::{
    geth::{command, failed, has_imported},
    import::Inputs,
    report::Notes,
    state::stores::Failure,
    system,
};
use cambium_chain::{Block, BlockSource, ChainWriter};
use cambium_workload::{Workload, WorkloadParams};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Longest time of one of geth's commands.
const GETH_MAX: Duration = Duration::from_secs(3 * 3600);
/// Initializing takes the genesis file into memory: it may take this percentage of what is free.
const INIT_PERCENT: u64 = 85;

/// A chain with the databases of its servers.
pub(super) struct Chained {
    pub(super) inputs: Inputs,
    pub(super) workload: Workload,
    /// Number of blocks that the databases have.
    pub(super) head: u64,
    /// What Cambium's history keeps.
    history: &'static str,
}

impl Chained {
    /// Returns the files of a chain, of which the databases have all blocks but the last `rest`.
    pub(super) fn of(
        data: &Path,
        name: &str,
        params: WorkloadParams,
        rest: u64,
        history: &'static str,
    ) -> Result<Self, Failure> {
        let head = params.blocks - rest;
        let workload = Workload::new(params.clone())?;
        let inputs = Inputs::of(data, name, params)?;
        Ok(Self {
            inputs,
            workload,
            head,
            history,
        })
    }

    /// The blocks that the databases do not have.
    pub(super) fn rest(&self) -> Result<Vec<Block>, Failure> {
        let blocks = BlockSource::open(self.inputs.blocks())?.skip(self.head as usize);
        let blocks = blocks.map(|block| Ok(block?.decode()?));
        blocks.collect()
    }

    /// The file of the blocks that the databases have.
    pub(super) fn base(&self) -> Result<PathBuf, Failure> {
        if self.head == self.inputs.params.blocks {
            return Ok(self.inputs.blocks());
        }
        let file = self.inputs.place(&format!("base-{}.rlp", self.head));
        if !file.exists() {
            let partial = file.with_extension("partial");
            let mut writer = ChainWriter::create(&partial)?;
            for block in BlockSource::open(self.inputs.blocks())?.take(self.head as usize) {
                writer.write_rlp(&block?.rlp)?;
            }
            writer.finish()?;
            fs::rename(partial, &file)?;
        }
        Ok(file)
    }

    /// Returns the database of a server, and makes it if it is missing.
    pub(super) fn database(
        &self,
        kind: Kind,
        programs: &Programs,
        notes: &mut Notes,
    ) -> Result<PathBuf, Failure> {
        let name = format!("served-{}-{}-{}", self.head, self.history, kind.name());
        let dir = self.inputs.place(&name);
        let done = dir.with_extension("done");
        if done.exists() {
            return Ok(dir);
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        eprintln!("{}: making {} (once)", kind.name(), dir.display());
        match kind {
            Kind::Cambium => self.import_by_cambium(&dir, programs)?,
            Kind::Geth => self.import_by_geth(&dir, programs, notes)?,
        }
        fs::write(done, "")?;
        Ok(dir)
    }

    fn import_by_cambium(&self, dir: &Path, programs: &Programs) -> Result<(), Failure> {
        system::copy_dir(&self.inputs.state(), dir)?;
        let memory = format!("{}M", MEMORY_BYTES >> 20);
        let mut command =
            programs.cambium(&["import", "--index", "--history", self.history, "--json"]);
        command.args(["--memory", &memory, "-d"]).arg(dir);
        let output = command.arg(self.base()?).output()?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let text = String::from_utf8_lossy(&output.stderr);
                Err(format!("cambium import: {}: {text}", output.status).into())
            }
        }
    }

    fn import_by_geth(
        &self,
        dir: &Path,
        programs: &Programs,
        notes: &mut Notes,
    ) -> Result<(), Failure> {
        let geth = programs.geth.as_ref().ok_or("geth is not asked for")?;
        let log = dir.with_extension("log");
        let limit = system::memory_available_bytes() / 100 * INIT_PERCENT;
        let mut run =
            |name: &str, options: &[OsString], file: PathBuf| -> Result<String, Failure> {
                let mut args = command(name, SCHEME, dir);
                args.extend_from_slice(options);
                args.push(file.into());
                let ended = geth.run(&args, limit, GETH_MAX, &log, notes)?;
                let text = fs::read_to_string(&log)?;
                match ended.status.success() {
                    true => Ok(text),
                    false => Err(failed(name, &ended, &text).into()),
                }
            };
        run("init", &[], self.inputs.genesis_file()?)?;
        let text = run("import", &geth_archive(), self.base()?)?;
        match has_imported(&text, self.head) {
            true => Ok(()),
            false => Err(format!("geth has not imported the chain: see {}", log.display()).into()),
        }
    }
}
