//! Blocks in arguments: `latest`, `earliest`, a number, or a hash.

use super::{error::Failure, numbers::parse_count};
use cambium::{B256, BlockId, ChainError, Db, StateError};
use std::{fmt, str::FromStr};

/// A block of a database, as it is named in arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockRef {
    /// The head.
    Latest,
    /// The first block of the database.
    Earliest,
    /// The newest block that was called safe.
    Safe,
    /// The newest block that was called finalized.
    Finalized,
    /// The canonical block of that number.
    Number(u64),
    /// The block of that hash, on any branch.
    Hash(B256),
}

/// What can stand for a block.
const FORMS: &str = "a block is latest, earliest, safe, finalized, a number (1000, 0x3e8, 2M) or a hash (0x and 64 digits)";

impl FromStr for BlockRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("0x")) {
            ("latest", _) => Ok(Self::Latest),
            ("earliest", _) => Ok(Self::Earliest),
            ("safe", _) => Ok(Self::Safe),
            ("finalized", _) => Ok(Self::Finalized),
            (_, Some(digits)) if digits.len() == 64 => {
                let hash = text.parse().map_err(|_| FORMS.to_owned())?;
                Ok(Self::Hash(hash))
            }
            (_, Some(digits))
                if digits.len() > 16 && digits.bytes().all(|c| c.is_ascii_hexdigit()) =>
            {
                let digits = digits.len();
                Err(format!("a hash has 64 digits after 0x, and not {digits}"))
            }
            _ if text.starts_with(|c: char| c.is_ascii_digit()) => {
                parse_count(text).map(Self::Number)
            }
            _ => Err(FORMS.to_owned()),
        }
    }
}

impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Earliest => f.write_str("earliest"),
            Self::Safe => f.write_str("safe"),
            Self::Finalized => f.write_str("finalized"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Hash(hash) => write!(f, "{hash}"),
        }
    }
}

/// Where the state after a block is found.
pub(crate) enum Place {
    /// The head.
    Head,
    /// A canonical block, which the history may have, too.
    Canonical(u64),
    /// A block on another branch.
    Aside(BlockId),
}

impl BlockRef {
    /// Where the state after the block is found. A number need not be one of the database.
    pub(crate) fn place(self, db: &Db) -> Result<Place, Failure> {
        let block = match self {
            Self::Latest => return Ok(Place::Head),
            Self::Number(number) => return Ok(Place::Canonical(number)),
            block => block.find(db)?,
        };
        let is_canonical = db.block_id(block.number)? == Some(block);
        Ok(match is_canonical {
            true => Place::Canonical(block.number),
            false => Place::Aside(block),
        })
    }

    /// The block in a database, as one of the chain of `head`, whether or not that is canonical.
    pub(crate) fn find_below(self, db: &Db, head: BlockId) -> Result<BlockId, Failure> {
        match self {
            Self::Latest => Ok(head),
            Self::Number(number) => {
                let found = db.ancestor(head, number)?;
                Ok(found.ok_or(ChainError::NoSuchBlock { number, head })?)
            }
            block => block.find(db),
        }
    }

    /// The canonical block in a database.
    pub(crate) fn find_canonical(self, db: &Db) -> Result<BlockId, Failure> {
        let block = self.find(db)?;
        match db.block_id(block.number)? == Some(block) {
            true => Ok(block),
            false => Err(Failure::NotCanonical(block)),
        }
    }

    /// The block in a database.
    pub(crate) fn find(self, db: &Db) -> Result<BlockId, Failure> {
        let finality = db.finality();
        let marked = |block: Option<BlockId>, what| block.ok_or(Failure::NotMarked(what));
        match self {
            Self::Latest => Ok(db.head()),
            Self::Earliest => Ok(db.genesis()),
            Self::Safe => marked(finality.safe, "safe"),
            Self::Finalized => marked(finality.finalized, "finalized"),
            Self::Number(number) => {
                let head = db.head();
                let found = db.block_id(number)?;
                Ok(found.ok_or(ChainError::NoSuchBlock { number, head })?)
            }
            Self::Hash(hash) => {
                let found = db.search(&hash)?;
                Ok(found.ok_or(StateError::UnknownBlock(hash))?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_named_by_word_number_or_hash() {
        let hash = B256::repeat_byte(0xab);
        for (text, expected) in [
            ("latest", BlockRef::Latest),
            ("earliest", BlockRef::Earliest),
            ("safe", BlockRef::Safe),
            ("finalized", BlockRef::Finalized),
            ("0", BlockRef::Number(0)),
            ("1000", BlockRef::Number(1000)),
            ("0x3e8", BlockRef::Number(1000)),
            ("1k", BlockRef::Number(1000)),
            ("2M", BlockRef::Number(2_000_000)),
            (&hash.to_string(), BlockRef::Hash(hash)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "+1",
            "0x",
            "1.5",
            "0xzz",
            "newest",
            "99999999999999999999",
        ] {
            assert!(text.parse::<BlockRef>().is_err(), "{text}");
        }
    }
}
