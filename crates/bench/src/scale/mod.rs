//! `./bench scale`: how the speed of each job grows with cores.
//!
//! ```text
//!   jobs       imports, executors, batches of accounts and of entries         job.rs
//!   settings   1, 2, 4, ... cores of this machine, and on two of them         setting.rs
//!              16 and 64 threads
//!   rounds     job after job, setting after setting, each in a process of      mod.rs
//!              its own that is bound to its cores                              child.rs, threads.rs
//!   report     speed, processor time, the fitted serial part, and what the     fit.rs, stages.rs,
//!              stages predict for more cores than there are                    summary.rs
//! ```
//!
//! A setting with more threads than cores does not make anything faster. It shows what threads cost each other: the
//! processor time of the same work.

mod setting;
mod fit;
mod threads;
mod job;
mod child;
mod stages;
mod summary;

use crate::{
    process::{Next, Process},
    report::{Notes, Report, data_dir},
    state::stores::Failure,
    system,
};
use child::{Measured, Task};
use clap::Args;
use job::{Job, Size};
use serde_json::json;
use setting::{Setting, settings};
use std::{error::Error, fs, path::PathBuf, time::Duration};
use summary::Runs;

pub(crate) use child::run as child;

/// Maximum duration of a job.
const SILENCE_MAX: Duration = Duration::from_secs(1800);

#[derive(Clone, Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Jobs to run, separated by commas; the start of a name means all jobs that begin with it
    /// [default: all].
    #[arg(long, value_delimiter = ',')]
    jobs: Vec<String>,
    /// Most cores to use [default: all that this process may use].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4096))]
    cores: Option<u64>,
    /// Number of rounds, in each of which every job runs once in every setting [default: 3, with
    /// --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Leave out the settings with more threads than cores.
    #[arg(long)]
    no_crowds: bool,
    /// Jobs of a few milliseconds, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
    /// Print the names of all jobs and end.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &ScaleArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("scale");
    let jobs = chosen(&args.jobs)?;
    if args.list {
        let all = Job::all();
        report
            .comparison
            .extend(all.map(|job| (job.name(), Vec::new())));
        return Ok(report);
    }
    let there = system::cores();
    let cores = args.cores.map_or(there, |cores| cores as usize);
    if cores > there {
        return Err(format!("--cores is {cores}: this process may use {there}").into());
    }
    let plan = Plan {
        data: data_dir()?.join("scale"),
        size: match (args.tiny, quick) {
            (true, _) => Size::Tiny,
            (false, true) => Size::Quick,
            (false, false) => Size::Full,
        },
        rounds: args.rounds.unwrap_or(if quick { 1 } else { 3 }),
        settings: settings(cores, !args.no_crowds),
    };
    fs::create_dir_all(&plan.data)?;
    report
        .parameters
        .insert("rounds".into(), json!(plan.rounds));
    let mut notes = Notes::default();
    for job in jobs {
        match plan.measure(job) {
            Ok(runs) => summary::add(job, &runs, &mut report),
            Err(error) if job.needs_data() && !job::has_data() => {
                notes.add(format!("SKIPPED: {}: {error}", job.name()));
            }
            Err(error) => {
                let error = format!("{}: {error}", job.name());
                eprintln!("FAILED: {error}");
                report.errors.push(error);
            }
        }
    }
    summary::add_table(&plan.settings, &mut report);
    report.is_table = true;
    report.notes = notes.into_lines();
    Ok(report)
}

/// The jobs whose names begin as one of `wanted` says, or all.
fn chosen(wanted: &[String]) -> Result<Vec<Job>, String> {
    let unknown = wanted
        .iter()
        .find(|start| !Job::all().any(|job| job.name().starts_with(*start)));
    if let Some(unknown) = unknown {
        return Err(format!(
            "no job begins with {unknown:?}: --list prints all names"
        ));
    }
    let is_wanted =
        |job: &Job| wanted.is_empty() || wanted.iter().any(|start| job.name().starts_with(start));
    Ok(Job::all().filter(is_wanted).collect())
}

struct Plan {
    data: PathBuf,
    size: Size,
    rounds: u64,
    settings: Vec<Setting>,
}

impl Plan {
    /// Runs a job in every setting, in every round.
    fn measure(&self, job: Job) -> Result<Runs, Failure> {
        let prepared = job.prepare(&self.data, self.size)?;
        let mut runs = Runs::new();
        let mut settings = self.settings.clone();
        for round in 1..=self.rounds {
            for setting in &settings {
                let name = setting.name();
                eprintln!(
                    "{}: round {round} of {}: {name} threads/cores",
                    job.name(),
                    self.rounds
                );
                let measured = self.one(job, &prepared, *setting)?;
                runs.entry(*setting).or_default().push(measured);
            }
            // So that no setting always comes first.
            settings.rotate_left(1);
        }
        Ok(runs)
    }

    fn one(
        &self,
        job: Job,
        prepared: &job::Prepared,
        setting: Setting,
    ) -> Result<Measured, Failure> {
        let copy = prepared.copy(&self.data)?;
        let task = Task {
            job,
            setting,
            size: self.size,
            files: prepared.files(copy.as_ref()),
        };
        let process = Process {
            command: "scale-child",
            log: &self.data.join("child.log"),
            silence_max: SILENCE_MAX,
            threads: Some(setting.threads),
        };
        let mut measured = None;
        process.run(&task, &mut |event: Measured| {
            measured = Some(event);
            Next::GoOn
        })?;
        Ok(measured.ok_or("the child told nothing")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_chosen_by_the_start_of_their_names() {
        assert_eq!(chosen(&[]).unwrap().len(), Job::all().count());
        let imports = chosen(&["import".to_owned()]).unwrap();
        assert!(imports.len() > 4 && imports.len() < Job::all().count());
        let error = chosen(&["no such".to_owned()]).unwrap_err();
        assert!(error.contains("\"no such\""), "{error}");
    }
}
