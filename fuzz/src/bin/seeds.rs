//! Writes the seeds of all targets to `corpus`, beside the inputs that searches have added.

use cambium_fuzz::{TARGETS, seeds};
use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpus.join(target.name);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds(target.name) {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
