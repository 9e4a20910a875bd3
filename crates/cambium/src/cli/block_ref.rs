//! Blocks in arguments: `latest`, `earliest`, `safe`, `finalized`, a number, or a hash.

use super::numbers::parse_count;
use cambium::BlockRef;

/// Accepted forms of a block argument.
const FORMS: &str = "a block is latest, earliest, safe, finalized, a number (1000, 0x3e8, 2M) or a hash (0x and 64 digits)";

/// Parses the name of a block, and says what is wrong with it.
pub(crate) fn parse_block(text: &str) -> Result<BlockRef, String> {
    match (text, text.strip_prefix("0x")) {
        ("latest", _) => Ok(BlockRef::Latest),
        ("earliest", _) => Ok(BlockRef::Earliest),
        ("safe", _) => Ok(BlockRef::Safe),
        ("finalized", _) => Ok(BlockRef::Finalized),
        (_, Some(digits)) if digits.len() == 64 => {
            let hash = text.parse().map_err(|_| FORMS.to_owned())?;
            Ok(BlockRef::Hash(hash))
        }
        (_, Some(digits)) if digits.len() > 16 && digits.bytes().all(|c| c.is_ascii_hexdigit()) => {
            let digits = digits.len();
            Err(format!("a hash has 64 digits after 0x, and not {digits}"))
        }
        _ if text.starts_with(|c: char| c.is_ascii_digit()) => {
            parse_count(text).map(BlockRef::Number)
        }
        _ => Err(FORMS.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium::B256;

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
            assert_eq!(parse_block(text), Ok(expected), "{text}");
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
            assert!(parse_block(text).is_err(), "{text}");
        }
    }
}
