//! Sizes of a database, sampled again and again, and whether they grow.

use cambium_disk::BLOCK_BYTES;
use cambium_state::Db;
use cambium_testkit::say;
use std::{fs, io, os::unix::fs::MetadataExt, path::Path, time::Duration};

/// One figure of a sample.
type Figure = fn(&Sample) -> u64;

/// Figures by name.
pub(crate) struct Sample {
    seconds: f64,
    blocks: u64,
    /// Bytes of the block log and its index on disk: these grow.
    log_bytes: u64,
    block_index_bytes: u64,
    /// Figures that must not grow.
    flat: Vec<(&'static str, u64)>,
}

impl Sample {
    pub(crate) fn take(dir: &Path, db: &Db, elapsed: Duration, blocks: u64) -> Self {
        let stats = db.stats().unwrap();
        let on_disk = |names: &[&str]| -> u64 {
            names
                .iter()
                .map(|name| disk_bytes(&dir.join(name)).unwrap())
                .sum()
        };
        let log_bytes = on_disk(&["log"]);
        let block_index_bytes = on_disk(&["blocks.idx"]);
        let all = on_disk(&[""]);
        let flat = vec![
            ("disk", all.saturating_sub(log_bytes + block_index_bytes)),
            ("files", entries(dir) + entries(&dir.join("segments"))),
            ("descriptors", entries(Path::new("/proc/self/fd"))),
            ("threads", entries(Path::new("/proc/self/task"))),
            ("rss", resident_bytes()),
            ("segments", stats.segments as u64),
            ("seg_bytes", stats.segment_bytes),
            ("live_bytes", stats.segment_live_bytes),
            ("overlay", stats.overlay_bytes as u64),
            ("delta", stats.delta_bytes as u64),
            ("pinned", stats.pinned_bytes as u64),
            ("index", stats.index_bytes as u64),
            ("pages", stats.pages),
            ("caches", stats.page_cache_bytes + stats.code_cache_bytes),
            ("entries", stats.value_cache_bytes as u64),
            ("held", stats.held_snapshots as u64),
            ("restored_states", stats.restored_states as u64),
            ("codes", stats.codes as u64),
        ];
        Self {
            seconds: elapsed.as_secs_f64(),
            blocks,
            log_bytes,
            block_index_bytes,
            flat,
        }
    }
}

/// Disk space of a file, or of a directory with all in it.
fn disk_bytes(path: &Path) -> io::Result<u64> {
    let own = match fs::symlink_metadata(path) {
        // Files come and go while they are counted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        own => own?,
    };
    let mut bytes = own.blocks() * 512;
    if own.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

fn entries(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().count() as u64
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}

impl Sample {
    /// Prints the names of the figures.
    pub(crate) fn print_names(&self) {
        let mut row = format!(
            "{:>7} {:>8} {:>11} {:>11}",
            "seconds", "blocks", "log", "blocks.idx"
        );
        for (name, _) in &self.flat {
            row += &format!(" {name:>11}");
        }
        say(&row);
    }

    /// Prints the figures.
    pub(crate) fn print(&self) {
        let mut row = format!(
            "{:>7.1} {:>8} {:>11} {:>11}",
            self.seconds, self.blocks, self.log_bytes, self.block_index_bytes
        );
        for (_, value) in &self.flat {
            row += &format!(" {value:>11}");
        }
        say(&row);
    }
}

/// How much may be added from the middle third to the last, as a share: in the short form caches
/// are still filling, and there are few samples of what comes and goes.
const fn allowance(is_long: bool) -> f64 {
    match is_long {
        true => 0.15,
        false => 0.50,
    }
}

/// And as a number: of small counts one more is many per cent, and layers come and go as a whole.
fn slack(name: &str) -> f64 {
    match name {
        "files" | "descriptors" | "threads" | "segments" | "pages" | "held" | "restored_states"
        | "codes" => 3.0,
        // A view holds all layers of its time, or none, as merges come.
        "pinned" => 5_242_880.0,
        _ => 1_048_576.0, // Of bytes.
    }
}

/// Fails if something grows from the middle third to the last one. By `log_bytes_ahead` the log may
/// be longer than its records: files are made ready before they are begun. Any sample may have all
/// of it or nothing, the last of a third as well as the first.
pub(crate) fn assert_flat(samples: &[Sample], span: Duration, log_bytes_ahead: u64) {
    let third = samples.len() / 3;
    let (middle, last) = (&samples[third..2 * third], &samples[2 * third..]);
    let is_long = span >= Duration::from_secs(600);
    let mut grown = Vec::new();
    let mut told = String::from("endurance: middle third -> last third, median and 9th tenth:");
    for (at, (name, _)) in samples[0].flat.iter().enumerate() {
        let of = |samples: &[Sample], part: f64| {
            let mut values: Vec<_> = samples.iter().map(|sample| sample.flat[at].1).collect();
            values.sort_unstable();
            values[(values.len() as f64 * part) as usize] as f64
        };
        for part in [0.5, 0.9] {
            let (before, after) = (of(middle, part), of(last, part));
            told += &format!("\n  {name:>11} {before:>12} -> {after:>12}");
            // A figure that varies much has no steady median over few samples.
            let counts = is_long || part > 0.5;
            if counts && after > before * (1.0 + allowance(is_long)) + slack(name) {
                grown.push(format!("{name}: {before} -> {after}"));
            }
        }
    }
    let growth = |samples: &[Sample], of: Figure| {
        of(&samples[samples.len() - 1]) as f64 - of(&samples[0]) as f64
    };
    let blocks = |samples| growth(samples, |sample| sample.blocks);
    let growing: [(_, Figure, _); 2] = [
        ("log", |sample| sample.log_bytes, log_bytes_ahead),
        (
            "blocks.idx",
            |sample| sample.block_index_bytes,
            BLOCK_BYTES as u64,
        ),
    ];
    for (name, of, ahead) in growing {
        let rate = |samples| growth(samples, of) / blocks(samples);
        let (before, after) = (rate(middle), rate(last));
        told += &format!("\n  {name:>11} {before:>12.1} -> {after:>12.1} bytes a block");
        let of_steps = |samples| ahead as f64 / blocks(samples);
        let most = (before + of_steps(middle)) * (1.0 + allowance(is_long)) + of_steps(last);
        if after > most {
            grown.push(format!("{name}: {before:.1} -> {after:.1} bytes a block"));
        }
    }
    say(&told);
    assert!(grown.is_empty(), "these grow: {grown:#?}");
}
