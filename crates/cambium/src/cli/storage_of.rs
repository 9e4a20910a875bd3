//! The list of contracts whose storage a partial database keeps: a text file with an address on each line.

use super::{error::Failure, files};
use cambium::{Address, Db, StateError, db::KeptStorage, keccak256};
use std::{
    io::{BufRead, Read},
    path::Path,
};

/// Longest line, in bytes. Comments may be long.
const LINE_BYTES_MAX: u64 = 4096;

/// Reads a list: one address on each line, `#` before comments, and empty lines.
pub(crate) fn read(file: &Path) -> Result<KeptStorage, Failure> {
    let (name, mut lines) = files::lines(file, "addresses of contracts")?;
    let mut accounts = Vec::new();
    for line in 1.. {
        let mut bytes = Vec::new();
        let read = (&mut lines)
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut bytes);
        if read.map_err(Failure::io(Path::new(&name), "read"))? == 0 {
            break;
        }
        let bad = |why: String| Failure::BadLine {
            file: name.clone(),
            line,
            why,
        };
        if bytes.len() as u64 > LINE_BYTES_MAX {
            return Err(bad(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| bad("not UTF-8".to_owned()))?;
        let entry = text.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        let address: Address = entry.parse().map_err(|_| {
            let shown: String = entry.chars().take(80).collect();
            bad(format!("`{shown}` is not an address of 40 hex digits"))
        })?;
        if accounts.len() == KeptStorage::ACCOUNTS_MAX {
            let max = KeptStorage::ACCOUNTS_MAX;
            return Err(bad(format!(
                "more than {max} contracts, and a partial database keeps the storage of {max} at most"
            )));
        }
        accounts.push(keccak256(address));
    }
    Ok(KeptStorage::new(accounts)?)
}

/// Refuses a database that exists already and keeps the storage of other contracts than those in a list that is given.
pub(crate) fn refuse_other(given: Option<&KeptStorage>, db: &Db) -> Result<(), Failure> {
    let (Some(given), own) = (given, db.kept_storage()) else {
        return Ok(());
    };
    let what = match own {
        Some(own) if own == given => return Ok(()),
        None => "the database exists already, and keeps the storage of all contracts".to_owned(),
        Some(own) => format!(
            "the database exists already, and keeps the storage of {} contracts, which are not the {} in the list: \
             `cambium db extend` makes a new database with another list",
            own.accounts().len(),
            given.accounts().len()
        ),
    };
    Err(StateError::BadOptions(what).into())
}
