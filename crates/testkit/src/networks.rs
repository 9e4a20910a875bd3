//! Fork configurations by the names that public fixtures use.

use alloy_eips::eip7840::BlobParams;
use alloy_primitives::U256;
use cambium_chain::{BlobSchedule, ChainSpec};
use std::collections::BTreeMap;

/// Networks named after a fork. That fork and all forks before it are active from genesis.
const FORKS: &[&str] = &[
    "Frontier",
    "Homestead",
    "EIP150",
    "EIP158",
    "Byzantium",
    "Constantinople",
    "ConstantinopleFix",
    "Istanbul",
    "MuirGlacier",
    "Berlin",
    "London",
    "ArrowGlacier",
    "GrayGlacier",
    "Paris",
    "Shanghai",
    "Cancun",
    "Prague",
    "Osaka",
    "BPO1",
    "BPO2",
    "BPO3",
    "BPO4",
    "BPO5",
    "Amsterdam",
];

/// Activation of a network's last fork.
#[derive(Clone, Copy)]
enum Point {
    Block(u64),
    Difficulty(U256),
    Time(u64),
}

/// Returns the configuration of a fixture's `network`: a fork, `XToYAtN`, `XToYAtTimeNk` or
/// `XToYAtDiffN`. Returns `None` if the name is unknown.
pub fn network(name: &str) -> Option<ChainSpec> {
    if let Some(spec) = from_genesis(name) {
        return Some(spec);
    }
    let (forks, point) = name.rsplit_once("At")?;
    let (before, after) = forks.split_once("To")?;
    let mut spec = from_genesis(before)?;
    activate(&mut spec, after, point_of(point)?)?;
    Some(spec)
}

fn from_genesis(name: &str) -> Option<ChainSpec> {
    let last = FORKS.iter().position(|fork| *fork == name)?;
    let mut spec = ChainSpec::default();
    for fork in &FORKS[..=last] {
        let bpo = fork.starts_with("BPO");
        if bpo && name == "Amsterdam" {
            continue;
        }
        activate(&mut spec, fork, Point::Block(0))?;
    }
    Some(spec)
}

fn point_of(text: &str) -> Option<Point> {
    if let Some(difficulty) = text.strip_prefix("Diff") {
        return U256::from_str_radix(difficulty, 16)
            .ok()
            .map(Point::Difficulty);
    }
    if let Some(time) = text.strip_prefix("Time") {
        let thousands: u64 = time.strip_suffix('k')?.parse().ok()?;
        return Some(Point::Time(thousands * 1_000));
    }
    text.parse().ok().map(Point::Block)
}

fn activate(spec: &mut ChainSpec, fork: &str, point: Point) -> Option<()> {
    let (number, difficulty) = match point {
        Point::Block(number) | Point::Time(number) => (Some(number), U256::from(number)),
        Point::Difficulty(difficulty) => (None, difficulty),
    };
    match fork {
        "Frontier" => {}
        "Homestead" => spec.homestead_block = number,
        "Dao" => (spec.dao_fork_block, spec.dao_fork_support) = (number, true),
        "EIP150" => spec.eip150_block = number,
        "EIP158" => (spec.eip155_block, spec.eip158_block) = (number, number),
        "Byzantium" => spec.byzantium_block = number,
        "Constantinople" => {
            (spec.constantinople_block, spec.petersburg_block) = (number, Some(u64::MAX));
        }
        "ConstantinopleFix" => {
            (spec.constantinople_block, spec.petersburg_block) = (number, number);
        }
        "Istanbul" => spec.istanbul_block = number,
        "MuirGlacier" => spec.muir_glacier_block = number,
        "Berlin" => spec.berlin_block = number,
        "London" => spec.london_block = number,
        "ArrowGlacier" => spec.arrow_glacier_block = number,
        "GrayGlacier" => spec.gray_glacier_block = number,
        "Paris" => spec.terminal_total_difficulty = Some(difficulty),
        "Shanghai" => spec.shanghai_time = number,
        "Cancun" => spec.cancun_time = number,
        "Prague" => spec.prague_time = number,
        "Osaka" => spec.osaka_time = number,
        "Amsterdam" => spec.amsterdam_time = number,
        _ => {
            let which: usize = fork.strip_prefix("BPO")?.parse().ok()?;
            *spec.bpo_times.get_mut(which.checked_sub(1)?)? = number;
        }
    }
    Some(())
}

/// Converts the blob schedule of a fixture, by fork name.
pub fn blob_schedule(by_fork: &BTreeMap<String, BlobParams>) -> BlobSchedule {
    let of = |fork: &str| by_fork.get(fork).copied();
    BlobSchedule {
        cancun: of("Cancun"),
        prague: of("Prague"),
        osaka: of("Osaka"),
        bpo: ["BPO1", "BPO2", "BPO3", "BPO4", "BPO5"].map(of),
        amsterdam: of("Amsterdam"),
    }
}
