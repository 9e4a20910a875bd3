//! Lists of byte strings in a file: a peer's input for each block. They are made before the measurement.

use super::plan::Failure;
use alloy_primitives::Bytes;
use std::io::{Read, Write};

/// Appends a list.
pub(super) fn put_list(file: &mut impl Write, items: &[impl AsRef<[u8]>]) -> Result<(), Failure> {
    file.write_all(&(items.len() as u32).to_le_bytes())?;
    for item in items {
        let item = item.as_ref();
        file.write_all(&(item.len() as u32).to_le_bytes())?;
        file.write_all(item)?;
    }
    Ok(())
}

/// Reads the next list.
pub(super) fn next_list(file: &mut impl Read) -> Result<Vec<Bytes>, Failure> {
    let count = next_number(file)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let mut item = vec![0; next_number(file)?];
        file.read_exact(&mut item)?;
        items.push(item.into());
    }
    Ok(items)
}

fn next_number(file: &mut impl Read) -> Result<usize, Failure> {
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes) as usize)
}
