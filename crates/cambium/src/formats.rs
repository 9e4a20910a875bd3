//! The formats of all files of a data directory, and of a shard's folder.

/// Those of shards' folders, which are no databases.
#[cfg(feature = "cluster")]
const CLUSTER: &[(&str, u32)] = &cambium_cluster::FORMATS;
#[cfg(not(feature = "cluster"))]
const CLUSTER: &[(&str, u32)] = &[];

const COUNT: usize = 14 + CLUSTER.len();

/// Number of the format of each kind of file that this version writes, by the name of the kind.
///
/// The manifest's number covers the whole directory: a database of another format is rejected by name when it is
/// opened. docs/FORMATS.md says how a reader takes another number of the other kinds.
pub const FORMATS: [(&str, u32); COUNT] = {
    let parts: [&[(&str, u32)]; 5] = [
        &cambium_store::FORMATS,
        &cambium_history::FORMATS,
        &cambium_index::FORMATS,
        &cambium_preimages::FORMATS,
        CLUSTER,
    ];
    let mut all = [("", 0); COUNT];
    let (mut part, mut filled) = (0, 0);
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            all[filled] = parts[part][at];
            at += 1;
            filled += 1;
        }
        part += 1;
    }
    assert!(filled == all.len(), "a kind of file is missing");
    all
};
