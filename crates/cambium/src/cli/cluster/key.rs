//! Keys of builders: 32 bytes in hexadecimal, in a file that nobody else can read.

use super::super::{args::cluster::KeyArgs, error::Failure, output::Report};
use cambium::B256;
use cambium_cluster::Signer;
use serde_json::json;
use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

pub(super) fn run(args: &KeyArgs) -> Result<Report, Failure> {
    let made = make(&args.file)?;
    let address = read(&args.file, 0)?.address();
    let text = match made {
        true => format!(
            "A new key is in {}. Its address, for --builder:\n{address}",
            args.file.display()
        ),
        false => address.to_string(),
    };
    let json = json!({ "address": address, "made": made });
    Ok(Report::new(text, json))
}

/// Makes a key, unless there is one. Returns whether it did.
pub(super) fn make(path: &Path) -> Result<bool, Failure> {
    let created = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = match created {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(Failure::io(path, "create")(error)),
    };
    let mut key = [0; 32];
    let random = fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key));
    random.map_err(Failure::io(Path::new("/dev/urandom"), "read"))?;
    let written = writeln!(file, "{}", B256::from(key)).and_then(|()| file.sync_all());
    written.map_err(Failure::io(path, "write"))?;
    Ok(true)
}

/// The signer of a chain with the key in a file.
pub(super) fn read(path: &Path, chain_id: u64) -> Result<Signer, Failure> {
    let text = fs::read_to_string(path).map_err(Failure::io(path, "read"))?;
    let no_key = || {
        let path = path.display();
        Failure::cluster(format!(
            "{path} is no key, which is 32 bytes in hexadecimal: cluster key makes one"
        ))
    };
    let key: B256 = text.trim().parse().map_err(|_| no_key())?;
    Signer::new(chain_id, key.0).map_err(|_| no_key())
}
