//! Sizes of files and of memory in arguments: `512M`, `4G`.

/// Minimum memory for opening a database, in bytes.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Parses the size of a file, which is at least one block of the device.
pub(crate) fn parse_file_size(text: &str) -> Result<u64, String> {
    parse_bytes(text, 4096, "the minimum is 4K")
}

/// Parses an amount of memory.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    parse_bytes(text, MEMORY_BYTES_MIN, "the minimum is 1M")
}

fn parse_bytes(text: &str, min: u64, too_few: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err("a size is a number with K, M, G or T: 512M, 4G".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "a size is a number with K, M, G or T: 512M, 4G".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes >= min => Ok(bytes),
        Some(_) => Err(too_few.to_owned()),
        None => Err("the size does not fit into 64 bits".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_letter() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("4g"), Ok(4 << 30));
        assert_eq!(parse_size("2 GiB").ok(), None);
        assert_eq!(parse_size("1048576"), Ok(1 << 20));
        for bad in [
            "",
            "M",
            "-1G",
            "1.5G",
            "1X",
            "99999999999T",
            "100K",
            "4 g é",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
