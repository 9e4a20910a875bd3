//! Runs of `./bench state`, as it prints them with `--json`.

use super::figures::{Figures, Load, Machine};
use serde_json::{Map, Value};
use std::{error::Error, fs, path::Path};

/// The figures of Cambium in a run, counters of its last round among them.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) load: Load,
    pub(super) machine: Machine,
    pub(super) pages: f64,
    /// Bytes of all pages.
    pub(super) page_bytes: f64,
    pub(super) index_bytes: f64,
    /// Changes that the counters are about.
    pub(super) changes: f64,
    pub(super) merges: f64,
    pub(super) pages_changed: f64,
    pub(super) log_bytes: f64,
    pub(super) checkpoint_bytes: f64,
    pub(super) commit_ms: f64,
    figures: Figures,
}

impl Run {
    /// Reads the run in a file.
    pub(super) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        let parsed: Value = serde_json::from_str(&text).map_err(|error| named(&error))?;
        Self::of(&parsed).map_err(|error| named(&error).into())
    }

    fn of(report: &Value) -> Result<Self, String> {
        let results = report["results"]
            .as_array()
            .ok_or("it is not a report of ./bench state --json")?;
        let find = |name: &str| results.iter().find(|result| result["store"] == name);
        let own = find("cambium")
            .and_then(Value::as_object)
            .ok_or("it has no result of Cambium")?;
        let get = |name: &str| figure(own, name);
        let alone = find("cambium, alone").and_then(Value::as_object);
        let keys = get("accounts_at_the_end")?;
        let changes = get("keys_a_batch")?;
        let blocks = get("counter_blocks_committed")?;
        let told = get("memory_told_bytes")?;
        let fio = own
            .get("fio_reads_per_second")
            .or_else(|| alone?.get("fio_reads_per_second_depth_128"));
        let reads = get("own_device_reads_a_batch")?;
        let pages = get("pages")?;
        let page_bytes = get("segment_live_bytes")?;
        let cached = get("page_cache_bytes")?;
        Ok(Self {
            load: Load { keys, changes },
            machine: Machine {
                memory_bytes: told,
                cores: report["machine"]["cores"]
                    .as_f64()
                    .ok_or("it does not tell the number of cores")?,
                // Where `fio` was not run: as fast as the engine has read.
                reads_per_second: match fio.and_then(Value::as_f64) {
                    Some(rate) => rate,
                    None => 1e3 * reads / get("read_ms_median")?,
                },
            },
            pages,
            page_bytes,
            index_bytes: get("index_bytes")?,
            changes: blocks * changes,
            merges: get("counter_merges")?.max(1.0),
            pages_changed: get("counter_pages_written")?.max(1.0),
            log_bytes: get("counter_log_bytes_written")?,
            checkpoint_bytes: get("counter_checkpoint_bytes_written")?,
            commit_ms: get("commit_ms_median")?,
            figures: Figures {
                accounts_a_page: keys / pages,
                index_bytes: get("index_bytes")?,
                cached_share: cached / page_bytes,
                reads_a_change: reads / changes,
                bytes_written_a_change: get("bytes_written_a_changed_account")?,
                hashes_a_change: get("counter_node_hashes")? / (blocks * changes),
                processor_us_a_change: get("processor_us_a_changed_account")?,
                batch_ms: get("batch_ms_median")?,
            },
        })
    }

    /// The figures of the run's batches, to be held against the model's.
    pub(super) const fn figures(&self) -> Figures {
        self.figures
    }
}

fn figure(figures: &Map<String, Value>, name: &str) -> Result<f64, String> {
    let value = figures.get(name).and_then(Value::as_f64);
    value.ok_or_else(|| {
        format!("the result of Cambium has no {name}: run ./bench state --json of this version")
    })
}
