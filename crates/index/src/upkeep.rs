//! Merging the runs of an index.

use crate::{
    IndexError,
    entry::Kind,
    extents::Extents,
    keeper::{Keeper, LiveRun},
    list::RunList,
    merge::Merged,
};
use cambium_runs::{ListedRun, RunSize, due_for_merge};
use std::{ops::Range, sync::Arc};

impl Keeper {
    /// Merges runs as long as any are due.
    pub(crate) fn merge_all(&self) -> Result<(), IndexError> {
        while self.merge_once()? {}
        Ok(())
    }

    /// Merges the runs that are due. False if none are.
    fn merge_once(&self) -> Result<bool, IndexError> {
        let _merging = self.merging.lock();
        self.check_writable()?;
        let (merged, replaced, live) = {
            let mut list = self.list.lock();
            let runs = self.live.read().runs.clone();
            let Some(range) = due(&list, &runs) else {
                return Ok(false);
            };
            let replaced = list.runs[range.clone()].to_vec();
            let (first, last) = (replaced[0].first, replaced[replaced.len() - 1].last);
            let merged = self.folder.new_run(&mut list.next_file, first, last);
            (merged, replaced, runs[range].to_vec())
        };
        let run = self.write_merged(&merged, &live)?;
        let mut kept = self.list.lock();
        // Taking back waits for a merge, so the runs are still there; new ones are behind them.
        let at = kept.runs.iter().position(|run| *run == replaced[0]);
        let Some(at) = at else {
            drop(kept);
            self.remove_runs(&[merged])?;
            return Ok(true);
        };
        let mut list = kept.clone();
        list.runs.splice(at..at + replaced.len(), [merged]);
        self.list_run(&mut kept, list, &merged)?;
        let mut live = self.live.write();
        let mut runs = live.runs.to_vec();
        runs.splice(at..at + replaced.len(), [run]);
        live.runs = Arc::new(runs);
        drop(live);
        drop(kept);
        self.place_filters();
        self.remove_runs(&replaced)?;
        Ok(true)
    }

    fn write_merged(&self, merged: &ListedRun, runs: &[LiveRun]) -> Result<LiveRun, IndexError> {
        let mut extents = Extents::default();
        for run in runs {
            for number in run.first()..=run.last {
                if let Some(extent) = run.extent(number) {
                    extents.push(extent);
                }
            }
        }
        let hashes = runs.iter().map(|run| run.run.entries(Kind::Hashes)).sum();
        self.write_run(merged, hashes, &extents, |writer| {
            for kind in Kind::ALL {
                let mut entries = Merged::new(runs, kind)?;
                while let Some(entry) = entries.next()? {
                    writer.push(kind, entry)?;
                }
                writer.end_section()?;
            }
            Ok(())
        })
    }
}

/// The runs to merge, if any are due: runs with nothing missing between them.
fn due(list: &RunList, runs: &[LiveRun]) -> Option<Range<usize>> {
    let size = |live: &LiveRun| RunSize {
        entries: Kind::ALL.iter().map(|kind| live.run.entries(*kind)).sum(),
        bytes: live.run.file_bytes(),
        blocks: live.last + 1 - live.first(),
    };
    let mut from = 0;
    for group in list.runs.chunk_by(|a, b| a.last.number + 1 == b.first) {
        let range = from..from + group.len();
        from = range.end;
        let sizes: Vec<_> = runs[range.clone()].iter().map(size).collect();
        if let Some(due) = due_for_merge(&sizes, u64::MAX) {
            return Some(range.start + due.start..range.start + due.end);
        }
    }
    None
}
