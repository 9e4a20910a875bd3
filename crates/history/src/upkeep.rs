//! Merging the files of a history, and removing those whose blocks are not kept any more.

use crate::{
    HistoryError,
    keeper::{Keeper, Writer, run_blocks_max},
    runs::{LiveRun, Run, Runs},
};
use cambium_runs::{ListedRun, RunSize, due_for_merge};
use std::{num::NonZeroU64, ops::Range, sync::Arc};

impl Keeper {
    /// Merges files as long as any are due.
    pub(crate) fn merge_all(&self) -> Result<(), HistoryError> {
        while self.merge_once()? {}
        Ok(())
    }

    /// Merges the files that are due. False if none are.
    fn merge_once(&self) -> Result<bool, HistoryError> {
        let _merging = self.merging.lock();
        let Some((merged, replaced)) = self.plan_merge()? else {
            return Ok(false);
        };
        let (first, last, files) = (merged.first, merged.last, replaced.len());
        let _span = tracing::debug_span!("history_merge", first, %last, files).entered();
        let run = self.merge_files(&merged, &replaced)?;
        let mut writer = self.writer.lock();
        let runs = &writer.list.runs;
        let at = runs.iter().position(|run| *run == replaced[0].listed);
        let at = at.filter(|at| {
            let mut there = runs[*at..].iter();
            replaced.iter().all(|run| there.next() == Some(&run.listed))
        });
        let Some(at) = at else {
            // The head has moved below their end meanwhile.
            drop(writer);
            self.remove_files(&[merged])?;
            return Ok(true);
        };
        let mut list = writer.list.clone();
        list.runs.splice(at..at + replaced.len(), [merged]);
        self.replace_list(&mut writer, list)?;
        let before = self.runs.read().clone();
        let mut files = before.files.clone();
        files.splice(at..at + replaced.len(), [run]);
        *self.runs.write() = Arc::new(Runs {
            files,
            ..Runs::clone(&before)
        });
        drop(writer);
        self.remove_files(&replaced.iter().map(|run| run.listed).collect::<Vec<_>>())?;
        Ok(true)
    }

    /// Writes the run that neighbours become.
    fn merge_files(
        &self,
        merged: &ListedRun,
        replaced: &[FileRun],
    ) -> Result<LiveRun, HistoryError> {
        let mut waypoints = Vec::new();
        for FileRun { listed, live } in replaced {
            if let Run::File(run) = &live.run {
                let ids = run.waypoints()?.into_iter();
                waypoints.extend(ids.filter(|id| id.number <= listed.last.number));
            }
        }
        let inputs: Vec<_> = replaced.iter().map(|run| run.live.clone()).collect();
        self.write_run(merged, &inputs, &waypoints)
    }

    /// The run to be, and the runs that it replaces.
    fn plan_merge(&self) -> Result<Option<(ListedRun, Vec<FileRun>)>, HistoryError> {
        self.check_writable()?;
        let mut writer = self.writer.lock();
        let runs = self.runs.read().clone();
        let files = writer.list.runs.iter().zip(&runs.files);
        let mut files: Vec<_> = files
            .map(|(listed, live)| FileRun {
                listed: *listed,
                live: live.clone(),
            })
            .collect();
        let Some(range) = due(&files, writer.list.keep_blocks) else {
            return Ok(None);
        };
        let replaced: Vec<_> = files.drain(range).collect();
        Ok(Some((self.merged_run(&mut writer, &replaced), replaced)))
    }

    fn merged_run(&self, writer: &mut Writer, replaced: &[FileRun]) -> ListedRun {
        let (oldest, newest) = (&replaced[0].listed, &replaced[replaced.len() - 1].listed);
        let next_file = &mut writer.list.next_file;
        self.folder.new_run(next_file, oldest.first, newest.last)
    }

    /// Merges runs that follow one another and are listed as waiting, as long as any are due.
    pub(crate) fn merge_waiting(&self, runs: &mut Vec<FileRun>) -> Result<(), HistoryError> {
        loop {
            let (range, merged) = {
                let mut writer = self.writer.lock();
                let Some(range) = due(runs, writer.list.keep_blocks) else {
                    return Ok(());
                };
                let merged = self.merged_run(&mut writer, &runs[range.clone()]);
                (range, merged)
            };
            let live = self.merge_files(&merged, &runs[range.clone()])?;
            let merged = FileRun {
                listed: merged,
                live,
            };
            let replaced = runs.splice(range, [merged.clone()]);
            let replaced: Vec<_> = replaced.map(|run| run.listed).collect();
            self.list_waiting(merged.listed, &replaced)?;
            self.remove_files(&replaced)?;
        }
    }

    /// Lists a waiting run, which replaces others, if there are any.
    pub(crate) fn list_waiting(
        &self,
        run: ListedRun,
        replaced: &[ListedRun],
    ) -> Result<(), HistoryError> {
        let mut writer = self.writer.lock();
        let mut list = writer.list.clone();
        list.waiting.retain(|run| !replaced.contains(run));
        let at = list.waiting.partition_point(|one| one.first < run.first);
        list.waiting.insert(at, run);
        self.replace_list(&mut writer, list)
    }

    /// Removes the oldest runs of which no block is kept. False if there are none.
    pub(crate) fn prune(&self) -> Result<bool, HistoryError> {
        let _merging = self.merging.lock();
        let mut writer = self.writer.lock();
        let Some(keep) = writer.list.keep_blocks else {
            return Ok(false);
        };
        let before = self.runs.read().clone();
        let oldest_kept = before.upto.number.saturating_sub(keep.get());
        let gone = writer.list.runs.iter();
        let gone = gone
            .take_while(|run| run.last.number <= oldest_kept)
            .count();
        if gone == 0 {
            return Ok(false);
        }
        let mut list = writer.list.clone();
        let removed: Vec<_> = list.runs.drain(..gone).collect();
        list.first = removed.last().map_or(list.first, |run| run.last);
        let first = list.first;
        self.replace_list(&mut writer, list)?;
        *self.runs.write() = Arc::new(Runs {
            first,
            files: before.files[gone..].to_vec(),
            ..Runs::clone(&before)
        });
        drop(writer);
        self.remove_files(&removed)?;
        Ok(true)
    }
}

/// A run in a file, as it is listed, or is going to be.
#[derive(Clone)]
pub(crate) struct FileRun {
    pub(crate) listed: ListedRun,
    pub(crate) live: LiveRun,
}

/// The runs to merge, if any are due in a history of that length.
fn due(runs: &[FileRun], keep_blocks: Option<NonZeroU64>) -> Option<Range<usize>> {
    let sizes: Vec<_> = runs.iter().map(|run| size_of(&run.live)).collect();
    due_for_merge(&sizes, run_blocks_max(keep_blocks))
}

/// The size of a run in a file.
fn size_of(live: &LiveRun) -> RunSize {
    match &live.run {
        Run::File(run) => RunSize {
            entries: run.entries(),
            bytes: run.file_bytes(),
            blocks: (live.last + 1).saturating_sub(*run.blocks().start()),
        },
        Run::Memory(_) => RunSize {
            entries: 0,
            bytes: 0,
            blocks: 0,
        },
    }
}
