//! Numbers in arguments and configuration files: one grammar, and a range for each.
//!
//! | written | counts, gas, block numbers | bytes |
//! |---|---|---|
//! | `1000`, `0x3e8` | 1,000 | 1,000 |
//! | `4k`, `2M`, `1G`, `1T` | powers of 1,000 | powers of 1,024 |
//! | `4Ki`, `2Mi`, `1Gi`, `1Ti` | powers of 1,024 | powers of 1,024 |
//! | `4KB`, `2MiB`, `1GB` | - | powers of 1,024 |
//!
//! Letters may be small or capital. Counts go by powers of ten as gas does in the field; memory and files
//! by powers of two, as in `--memory` of every database.

use std::{
    fmt, fs,
    num::{NonZeroU32, NonZeroU64, NonZeroUsize},
    ops::RangeInclusive,
};

/// Help text on numbers.
pub(crate) const NUMBERS_HELP: &str = "\
Numbers:
  1000, 0x3e8      counts, gas and blocks; 4k, 2M, 1G and 1T are powers of ten (1M is 1,000,000),
                   4Ki, 2Mi, 1Gi and 1Ti powers of two
  512M, 4G, 4GiB   sizes of memory and files: powers of two (1M is 1,048,576 bytes)";

/// Minimum memory for opening a database, in bytes.
pub(crate) const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Default of `--memory` in bytes, which is allowed on any machine.
const MEMORY_DEFAULT: u64 = 1 << 30;

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Things, gas, or block numbers.
    Count,
    /// Bytes of memory or of files.
    Bytes,
}

/// Types that a number of the command line becomes.
pub(crate) trait Number: Sized + Clone + Send + Sync + 'static {
    /// The smallest number of the type.
    const MIN: u64;
    /// The largest number of the type.
    const MAX: u64;

    /// `None` if the number is out of the type's range.
    fn of(number: u64) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty, $min:expr, $max:expr, $of:expr;)+) => {$(
        impl Number for $type {
            const MIN: u64 = $min;
            const MAX: u64 = $max;

            fn of(number: u64) -> Option<Self> {
                ($of)(number)
            }
        }
    )+};
}

numbers! {
    u64, 0, u64::MAX, Some;
    usize, 0, usize::MAX as u64, |number| usize::try_from(number).ok();
    NonZeroU64, 1, u64::MAX, NonZeroU64::new;
    NonZeroUsize, 1, usize::MAX as u64, |number| NonZeroUsize::new(usize::try_from(number).ok()?);
    u8, 0, u8::MAX as u64, |number| u8::try_from(number).ok();
    NonZeroU32, 1, u32::MAX as u64, |number| NonZeroU32::new(u32::try_from(number).ok()?);
}

/// Parses a count, gas or a block number of any size that the type has.
///
/// # Errors
///
/// The allowed values, for users.
pub(crate) fn parse_count<N: Number>(text: &str) -> Result<N, String> {
    within(text, Unit::Count, N::MIN..=N::MAX)
}

/// A parser of counts from a range.
pub(crate) fn count_in<N: Number>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| within(text, Unit::Count, range.clone())
}

/// Parses a percentage.
///
/// # Errors
///
/// The allowed values, for users.
pub(crate) fn parse_percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    within(number, Unit::Count, 0..=100)
}

/// Parses the size of a file, which is at least one block of the device.
///
/// # Errors
///
/// The allowed values, for users.
pub(crate) fn parse_file_size(text: &str) -> Result<u64, String> {
    within(text, Unit::Bytes, 4096..=1 << 40)
}

/// Parses an amount of memory, up to that of the machine.
///
/// # Errors
///
/// The allowed values, for users.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let there = memory_of_machine().unwrap_or(1 << 50);
    within(
        text,
        Unit::Bytes,
        MEMORY_BYTES_MIN..=there.max(MEMORY_DEFAULT),
    )
}

/// Memory of the machine in bytes, if the kernel says so.
pub(super) fn memory_of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: u64 = line?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn within<N: Number>(text: &str, unit: Unit, range: RangeInclusive<u64>) -> Result<N, String> {
    let number = number(text, unit)?;
    let found = number.and_then(|number| N::of(number).filter(|_| range.contains(&number)));
    found.ok_or_else(|| Allowed { range, unit }.to_string())
}

/// The number that a text stands for; `None` if it does not fit into 64 bits.
fn number(text: &str, unit: Unit) -> Result<Option<u64>, String> {
    let no_number = || {
        let example = match unit {
            Unit::Count => {
                "a number is written as 1000, 0x3e8, 4k, 2M (2,000,000) or 2Mi (2,097,152)"
            }
            Unit::Bytes => "a size is written as 512M or 4G: powers of two, of bytes",
        };
        example.to_owned()
    };
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return match is_hex {
            true => Ok(u64::from_str_radix(digits, 16).ok()),
            false => Err(no_number()),
        };
    }
    let letters = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &text[..text.len() - letters.len()];
    if digits.is_empty() {
        return Err(no_number());
    }
    let factor = factor(&letters.to_ascii_lowercase(), unit).ok_or_else(no_number)?;
    Ok(digits
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(factor)))
}

/// Factor of the letters after a number.
fn factor(letters: &str, unit: Unit) -> Option<u64> {
    let (letters, binary) = match unit {
        Unit::Bytes => (letters.strip_suffix('b').unwrap_or(letters), true),
        Unit::Count => (letters, letters.ends_with('i')),
    };
    let power = match letters.strip_suffix('i').unwrap_or(letters) {
        "" if letters.is_empty() => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let base: u64 = if binary { 1024 } else { 1000 };
    Some(base.pow(power))
}

/// Prints a range for people.
struct Allowed {
    range: RangeInclusive<u64>,
    unit: Unit,
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (*self.range.start(), *self.range.end());
        match self.unit {
            Unit::Bytes => write!(f, "between {} and {}", size(min), size(max)),
            Unit::Count if min == 0 => write!(f, "at most {max}"),
            Unit::Count => write!(f, "between {min} and {max}"),
        }
    }
}

/// A size as it can be given, rounded down: `4K`, `23G`.
fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    // As many digits as a limit needs.
    let fitting = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    match fitting {
        None => bytes.to_string(),
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_decimal_hexadecimal_or_have_a_letter() {
        for (text, expected) in [
            ("0", 0),
            ("1000", 1_000),
            ("0x3e8", 1_000),
            ("0X3E8", 1_000),
            ("4k", 4_000),
            ("60M", 60_000_000),
            ("1g", 1_000_000_000),
            ("2T", 2_000_000_000_000),
            ("4Ki", 4 << 10),
            ("2mi", 2 << 20),
            ("1Gi", 1 << 30),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_count::<u64>(text), Ok(expected), "{text}");
        }
        for bad in [
            "", "M", "-1M", "+1", "1.5M", "1_000", "1,000", "0x", "0xzz", "0x4G", "1i", "1B",
            "4MB", "2 M", "1Q", "é",
        ] {
            let told = parse_count::<u64>(bad).unwrap_err();
            assert!(told.contains("2M (2,000,000)"), "{bad}: {told}");
        }
        for large in [
            "18446744073709551616",
            "99999999999T",
            "0x10000000000000000",
        ] {
            let told = parse_count::<u64>(large).unwrap_err();
            assert_eq!(told, "at most 18446744073709551615", "{large}");
        }
    }

    #[test]
    fn counts_out_of_range_are_refused_with_the_range() {
        let threads = count_in::<NonZeroUsize>(1..=1024);
        assert_eq!(threads("1Ki").map(NonZeroUsize::get), Ok(1024));
        for bad in ["0", "1025", "1M", "99999999999999999999"] {
            assert_eq!(threads(bad), Err("between 1 and 1024".to_owned()), "{bad}");
        }
        assert_eq!(parse_percent("100%"), Ok(100));
        assert_eq!(parse_percent("101"), Err("at most 100".to_owned()));
        assert_eq!(parse_percent("356"), Err("at most 100".to_owned()));
        let all = "between 1 and 18446744073709551615";
        for bad in ["0", "99999999999999999999"] {
            assert_eq!(parse_count::<NonZeroU64>(bad), Err(all.to_owned()), "{bad}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, expected) in [
            ("512M", 512 << 20),
            ("1g", 1 << 30),
            ("512MB", 512 << 20),
            ("512MiB", 512 << 20),
            ("512mi", 512 << 20),
            ("1048576", 1 << 20),
            ("1048576B", 1 << 20),
            ("0x100000", 1 << 20),
        ] {
            assert_eq!(parse_memory(text), Ok(expected), "{text}");
        }
        for bad in ["", "M", "-1G", "1.5G", "1X", "4 g é", "iB", "1i"] {
            let told = parse_memory(bad).unwrap_err();
            assert!(told.contains("512M or 4G"), "{bad}: {told}");
        }
        for absurd in ["0", "100K", "900T", "99999999999T"] {
            let told = parse_memory(absurd).unwrap_err();
            assert!(told.starts_with("between 1M and "), "{absurd}: {told}");
        }
        let told = parse_file_size("1").unwrap_err();
        assert_eq!(told, "between 4K and 1T");
    }
}
