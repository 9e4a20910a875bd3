//! Sections of a checkpoint that the engine reads, above all its index.

use crate::{
    database::{check_error, open, options, template, use_all},
    input::Input,
};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::Reader;
use cambium_store::{Checkpoint, CheckpointWriter, PIECE_SUM_BYTES};
use cambium_trie::{Link, NodeView, PartialTrie, SHARDS};
use std::{collections::BTreeMap, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// Names of sections, in the order of their numbers in an input.
pub(crate) const SECTIONS: [&str; 11] = [
    "tops",
    "index",
    "changed",
    "changes",
    "meta",
    "recent",
    "segments",
    "retired",
    "retired_before",
    "live",
    "manifest",
];

/// Input: a byte of flags (bit 0: use the database with an incremental newest checkpoint; bit 1:
/// keep as much of the index on disk as possible; bit 2: keep the checksums of parts; the others
/// select what is done with the database); then any number of edits of the newest checkpoint, each
/// with the number of a section, the kind of edit (replace it, overwrite at an offset, insert at an
/// offset), the offset, and bytes.
///
/// The database opens, or returns an error of damage. Its results are true, or errors of damage.
pub fn index(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.u8();
    let template = template(how & 1 != 0);
    let disk = template.disk.duplicate();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut sections = Sections::read(&shared);
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        sections.change(&mut input);
    }
    if how & 4 == 0 {
        sections.seal();
    }
    sections.write(&disk, shared);
    let index_bytes_max = (how & 2 != 0).then_some(0);
    match open(&disk, options(index_bytes_max)) {
        Ok((db, _)) => use_all(&db, template, how),
        Err(error) => {
            check_error(&error);
            let text = error.to_string();
            let names_it = [
                "checkpoint",
                "log/",
                "segments/",
                "codes.dat",
                "blocks.idx",
                "page",
            ];
            assert!(names_it.iter().any(|name| text.contains(name)), "{text}");
        }
    }
}

/// All sections of the newest checkpoint.
pub(crate) struct Sections {
    newest: u64,
    before: Option<u64>,
    /// Names and contents, in the order in which they are written.
    pub(crate) named: Vec<(String, Vec<u8>)>,
}

impl Sections {
    pub(crate) fn read(disk: &Arc<dyn Disk>) -> Self {
        let newest = Checkpoint::usable(disk).expect("a disk that works")[0];
        let checkpoint = Checkpoint::open(disk, newest).expect("a sound one");
        let names = checkpoint.sections().filter(|name| *name != "on");
        let named = names.map(|name| {
            let bytes = checkpoint.read_section(name).expect("a sound one");
            (name.to_owned(), bytes)
        });
        Self {
            newest,
            before: checkpoint.id().before(),
            named: named.collect(),
        }
    }

    fn change(&mut self, input: &mut Input<'_>) {
        let name = SECTIONS[input.below(SECTIONS.len())];
        let (how, offset) = (input.u8(), usize::from(input.u16()));
        let piece = input.piece();
        let Some((_, bytes)) = self.named.iter_mut().find(|(other, _)| other == name) else {
            return self.named.push((name.to_owned(), piece.to_vec()));
        };
        let at = offset.min(bytes.len());
        match how % 4 {
            0 => *bytes = piece.to_vec(),
            1 => {
                let end = (at + piece.len()).min(bytes.len());
                _ = bytes.splice(at..end, piece.iter().copied());
            }
            2 => _ = bytes.splice(at..at, piece.iter().copied()),
            _ => _ = bytes.splice(at..(at + piece.len()).min(bytes.len()), []),
        }
    }

    fn section(&mut self, name: &str) -> Vec<u8> {
        let found = self.named.iter().find(|(other, _)| other == name);
        found.map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    }

    /// Corrects the checksums of all parts to which other sections refer.
    fn seal(&mut self) {
        let mut ranges = BTreeMap::new();
        let (tops, changed) = (self.section("tops"), self.section("changed"));
        let _ = parts_of(&tops, &mut |from, to| {
            _ = ranges.insert(("index", from), to)
        });
        let _ = pieces_of(&changed, &mut |from, to| {
            _ = ranges.insert(("changes", from), to)
        });
        for ((name, from), to) in ranges {
            let section = self.named.iter_mut().find(|(other, _)| other == name);
            let piece = section.and_then(|(_, bytes)| bytes.get_mut(from..to));
            if let Some(piece) = piece.filter(|piece| piece.len() >= PIECE_SUM_BYTES) {
                let sum = xxh3_64(&piece[PIECE_SUM_BYTES..]);
                piece[..PIECE_SUM_BYTES].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }

    /// Writes the checkpoint in place of the newest one.
    fn write(&self, disk: &FaultyDisk, shared: Arc<dyn Disk>) {
        let name = |sequence: u64| format!("checkpoint-{sequence:08}");
        let stays = |sequence: &u64| Some(*sequence) == self.before;
        for sequence in (1..=self.newest).filter(|sequence| !stays(sequence)) {
            if disk.exists(&name(sequence)).expect("a disk that works") {
                disk.remove(&name(sequence)).expect("a disk that works");
            }
        }
        let mut writer = match self.before {
            None => CheckpointWriter::create(shared, None),
            Some(before) => {
                let before = Checkpoint::open(&shared, before).expect("a sound one");
                CheckpointWriter::create_incremental(shared, before.id())
            }
        }
        .expect("a disk that works");
        for (name, bytes) in &self.named {
            writer.section(name).expect("a disk that works");
            writer.write(bytes).expect("a disk that works");
        }
        writer.finish().expect("a disk that works");
    }
}

/// Calls `part` with the offset and length of each part that the top levels refer to.
fn parts_of(tops: &[u8], part: &mut impl FnMut(usize, usize)) -> Option<()> {
    let mut reader = Reader::new(tops);
    for _ in 0..SHARDS {
        let offset = reader.varint().ok()?;
        let (_, _) = (reader.varint().ok()?, reader.varint().ok()?);
        let len = reader.count(1).ok()?;
        let Ok(top) = PartialTrie::decode(reader.take(len).ok()?) else {
            continue;
        };
        walk(&top, top.root(), &mut |place| {
            let from = offset.checked_add((place & !(1 << 63)) >> 16);
            let to = from.and_then(|from| from.checked_add(place & 0xffff));
            if let (Some(from), Some(to)) = (from, to)
                && place >> 63 == 1
                && to <= 1 << 32
            {
                part(from as usize, to as usize);
            }
        });
    }
    Some(())
}

fn walk(trie: &PartialTrie, link: Link, place: &mut impl FnMut(u64)) {
    match trie.visit(link) {
        NodeView::Stub(stub) => stub.place.into_iter().for_each(|found| place(found.get())),
        NodeView::Branch { children } => {
            for child in children {
                walk(trie, *child, place);
            }
        }
        NodeView::Extension { child, .. } => walk(trie, child, place),
        NodeView::Account { storage, .. } => walk(trie, storage, place),
        NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => {}
    }
}

/// Calls `piece` with the position of each piece of changes.
fn pieces_of(changed: &[u8], piece: &mut impl FnMut(usize, usize)) -> Option<()> {
    let mut reader = Reader::new(changed);
    for _ in 0..SHARDS {
        let (offset, len) = (reader.varint().ok()?, reader.varint().ok()?);
        reader.varint().ok()?;
        if let Some(end) = offset.checked_add(len).filter(|end| *end <= 1 << 32) {
            piece(offset as usize, end as usize);
        }
    }
    Some(())
}
