//! Arguments on old states: which are kept, and how they are built.

use super::{super::numbers::parse_count, database::DbArgs};
use cambium::history::WholeNodes;
use clap::{Args as ClapArgs, Subcommand};
use std::{num::NonZeroU64, str::FromStr};

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Make the history of the blocks that the log has, or bring it to the head and down to older blocks
    ///
    /// Another process may import meanwhile, if it does not follow the history itself. An interrupted
    /// build goes on where it was
    Build(HistoryBuildArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryBuildArgs {
    /// The oldest block whose state can be read [default: the oldest that the log allows]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    pub(crate) from: Option<u64>,
    /// What a history that is not there yet keeps: flat for values, archive for proofs, too
    #[arg(long, value_name = "KIND", default_value = "flat")]
    pub(crate) history: HistoryMode,
    #[command(flatten)]
    pub(crate) nodes: NodesArgs,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

/// Which old states are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryMode {
    /// None but those that the block log still has.
    None,
    /// Values, and nodes if it is an archive; of the newest blocks alone, or of all.
    Kept {
        archive: bool,
        blocks: Option<NonZeroU64>,
    },
}

impl FromStr for HistoryMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, blocks) = match text.split_once('=') {
            None => (text, None),
            Some((kind, blocks)) => {
                let wrong = |why| format!("{blocks:?} is not a number of blocks: {why}");
                (kind, Some(parse_count(blocks).map_err(wrong)?))
            }
        };
        match kind {
            "none" if blocks.is_none() => Ok(Self::None),
            "flat" | "archive" => Ok(Self::Kept {
                archive: kind == "archive",
                blocks,
            }),
            _ => {
                Err("the kinds are none, flat, archive, flat=BLOCKS and archive=BLOCKS".to_owned())
            }
        }
    }
}

/// How an archive keeps nodes.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct NodesArgs {
    /// Of a new archive: one entry of a branch out of N has all sixteen children, and the others those
    /// that changed; `whole` for all. More of them make it larger, and proofs faster
    #[arg(long, value_name = "N", value_parser = parse_whole_nodes, default_value = "8")]
    pub(crate) nodes: WholeNodes,
}

fn parse_whole_nodes(text: &str) -> Result<WholeNodes, String> {
    if text == "whole" {
        return Ok(WholeNodes::ALL);
    }
    let one_of = parse_count(text).map_err(|why| format!("neither `whole` nor a number: {why}"))?;
    Ok(WholeNodes { one_of })
}
