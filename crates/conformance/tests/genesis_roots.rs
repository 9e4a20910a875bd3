//! The public chains' genesis files.

use cambium_conformance::{GenesisFiles, run_suite};

#[test]
fn public_genesis_files_give_their_known_roots_in_a_sound_database() {
    if let Some(suite) = GenesisFiles::new() {
        run_suite(&suite).conclude(6);
    }
}
