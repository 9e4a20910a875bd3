use super::{
    format::{
        CheckpointId, FLUSH_BYTES, FORMAT, HEADER_BYTES, decode_directory, directory_checksum,
        encode_directory, header_of,
    },
    latest::{load_latest_checkpoint, quarantine},
    names::{TEMPORARY, name_of, sequence_of},
    pieces::put_piece,
    reader::Checkpoint,
    writer::CheckpointWriter,
};
use crate::StoreError;
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Disk, Fault, FaultyDisk};
use proptest::prelude::*;
use std::sync::Arc;

type Sections = Vec<(&'static str, Vec<u8>)>;

fn sections(seed: u8) -> Sections {
    let long = (0..FLUSH_BYTES + 5_000)
        .map(|at| (at as u8).wrapping_mul(seed))
        .collect();
    vec![
        ("head", vec![seed; 40]),
        ("index", long),
        ("empty", vec![]),
        ("table", vec![9; 7]),
    ]
}

fn arc(disk: &FaultyDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn write(disk: &FaultyDisk, sections: &Sections) -> Result<u64, StoreError> {
    let mut writer = CheckpointWriter::create(arc(disk), None)?;
    for (name, bytes) in sections {
        writer.section(name)?;
        for piece in bytes.chunks(300_000) {
            writer.write(piece)?;
        }
    }
    Ok(writer.finish()?.id.sequence)
}

/// Writes an incremental checkpoint based on `before`.
fn write_on(disk: &FaultyDisk, before: CheckpointId, seed: u8) -> CheckpointId {
    let mut writer = CheckpointWriter::create_incremental(arc(disk), before).unwrap();
    writer.section("head").unwrap();
    writer.write(&[seed; 10]).unwrap();
    writer.finish().unwrap().id
}

fn small(seed: u8) -> Sections {
    vec![("head", vec![seed; 10]), ("table", vec![9; 7])]
}

/// The newest intact checkpoint, and the errors of newer ones.
struct Found {
    checkpoint: Checkpoint,
    damaged: Vec<StoreError>,
}

/// Loads the newest checkpoint. Sets damaged ones aside if there is an intact one, as opening a
/// database does.
fn try_load(disk: &FaultyDisk) -> Result<Option<Found>, StoreError> {
    let operations = disk.operations();
    let arc = arc(disk);
    let found = load_latest_checkpoint(&arc, StoreError::is_corruption, |checkpoint| {
        checkpoint.verify()?;
        Ok::<_, StoreError>(checkpoint.sequence())
    })?;
    assert_eq!(disk.operations(), operations, "changed by looking");
    let (aside, mut damaged): (Vec<_>, Vec<_>) = found.damaged.into_iter().unzip();
    let Some(loaded) = found.loaded else {
        return match damaged.is_empty() {
            true => Ok(None),
            false => Err(damaged.remove(0)),
        };
    };
    quarantine(disk, &aside)?;
    let checkpoint = Checkpoint::open(&arc, loaded)?;
    Ok(Some(Found {
        checkpoint,
        damaged,
    }))
}

fn load(disk: &FaultyDisk) -> Found {
    try_load(disk).unwrap().expect("a checkpoint")
}

fn assert_holds(checkpoint: &Checkpoint, sections: &Sections) {
    assert!(
        checkpoint
            .sections()
            .eq(sections.iter().map(|(name, _)| *name))
    );
    for (name, bytes) in sections {
        assert_eq!(checkpoint.section_len(name), Some(bytes.len() as u64));
        assert_eq!(&checkpoint.read_section(name).unwrap(), bytes);
        let (half, len) = (bytes.len() as u64 / 2, bytes.len() as u64);
        let reader = checkpoint.read_pieces(name).unwrap();
        let ranges = [(half, len - half), (half + 1, len - half), (0, half)];
        let read = reader.read_batch(&ranges);
        assert_eq!(read[0].as_ref().unwrap(), &bytes[half as usize..]);
        assert!(read[1].is_err());
        assert_eq!(read[2].as_ref().unwrap(), &bytes[..half as usize]);
        assert_eq!(&reader.read(0, len).unwrap(), bytes);
        assert!(reader.read(1, len).is_err());
    }
    assert_eq!(checkpoint.section_len("other"), None);
    assert!(
        checkpoint
            .read_section("other")
            .unwrap_err()
            .to_string()
            .contains("other")
    );
}

#[test]
fn the_newest_checkpoint_is_read_back_and_the_last_two_are_kept() {
    let disk = FaultyDisk::new(1);
    assert!(try_load(&disk).unwrap().is_none());
    for sequence in 1..=4 {
        assert_eq!(write(&disk, &sections(sequence as u8)).unwrap(), sequence);
        let loaded = load(&disk);
        assert_eq!(
            (loaded.checkpoint.sequence(), loaded.damaged.len()),
            (sequence, 0)
        );
        assert_holds(&loaded.checkpoint, &sections(sequence as u8));
    }
    let disk = disk.crash();
    assert_holds(&load(&disk).checkpoint, &sections(4));
    let files = disk.files();
    assert!(
        files.contains(&name_of(4)) && files.contains(&name_of(3)),
        "{files:?}"
    );
}

#[test]
fn what_the_last_two_are_on_is_kept_and_nothing_else() {
    let disk = FaultyDisk::new(8);
    let kept = |disk: &FaultyDisk| -> Vec<u64> {
        let names = disk.files().into_iter();
        names.map(|name| sequence_of(&name).unwrap().0).collect()
    };
    let id = |sequence| Checkpoint::open(&arc(&disk), sequence).unwrap().id();
    write(&disk, &small(1)).unwrap();
    assert_eq!(id(1).before(), None);
    let mut newest = id(1);
    for seed in cambium_seeds::seeds!(2..=4) {
        newest = write_on(&disk, newest, seed);
        assert_eq!(newest, id(seed.into()));
        assert_eq!(newest.before(), Some(u64::from(seed) - 1));
        assert_eq!(kept(&disk), (1..=u64::from(seed)).collect::<Vec<_>>());
    }
    // The previous checkpoint is still based on all of them.
    write(&disk, &small(5)).unwrap();
    assert_eq!(kept(&disk), [1, 2, 3, 4, 5]);
    newest = write_on(&disk, id(5), 6);
    assert_eq!(kept(&disk), [5, 6]);
    write_on(&disk, newest, 7);
    let found = load(&disk.crash()).checkpoint;
    let heads: Vec<_> = std::iter::successors(Some(found), |found| found.before().unwrap())
        .map(|found| (found.sequence(), found.read_section("head").unwrap()))
        .collect();
    assert_eq!(
        heads,
        [(7, vec![7; 10]), (6, vec![6; 10]), (5, vec![5; 10])]
    );
}

#[test]
fn damage_to_what_a_checkpoint_is_on_is_damage_to_it() {
    for sequence in 1..=3 {
        let disk = FaultyDisk::new(9);
        write(&disk, &small(1)).unwrap();
        let first = Checkpoint::open(&arc(&disk), 1).unwrap().id();
        let second = write_on(&disk, first, 2);
        write_on(&disk, second, 3);
        disk.flip_bit(&name_of(sequence), HEADER_BYTES + 12, 1);
        let told = format!("checkpoint-0000000{sequence} is damaged");
        if sequence < 3 {
            // Both usable checkpoints are based on it.
            let error = try_load(&disk).err().expect("damage").to_string();
            assert!(error.starts_with(&told), "{error}");
            // Nothing is set aside if no checkpoint is intact.
            assert_eq!(disk.files(), [name_of(1), name_of(2), name_of(3)]);
            continue;
        }
        let found = load(&disk);
        assert_eq!(found.checkpoint.sequence(), sequence - 1);
        assert!(
            found
                .damaged
                .iter()
                .all(|error| error.to_string().starts_with(&told)),
            "{:?}",
            found.damaged
        );
        // The next checkpoint is based on the one found. Those set aside don't count.
        let id = write_on(&disk, found.checkpoint.id(), 9);
        assert_eq!((id.sequence, id.before()), (4, Some(sequence - 1)));
        assert_eq!(load(&disk).checkpoint.sequence(), 4);
    }
}

#[test]
fn after_a_damaged_checkpoint_the_one_before_is_used_and_kept() {
    let disk = FaultyDisk::new(2);
    (1..=3).for_each(|seed| _ = write(&disk, &small(seed)).unwrap());
    let len = disk.contents(&name_of(3)).unwrap().len() as u64;
    for at in 0..len {
        disk.flip_bit(&name_of(3), at, (at % 8) as u8);
        let loaded = load(&disk);
        assert_holds(&loaded.checkpoint, &small(2));
        let [error] = &loaded.damaged[..] else {
            panic!("byte {at}: {:?}", loaded.damaged)
        };
        assert!(
            error
                .to_string()
                .starts_with("checkpoint-00000003 is damaged"),
            "{error}"
        );
        disk.rename("checkpoint-00000003.damaged", &name_of(3))
            .unwrap();
        disk.flip_bit(&name_of(3), at, (at % 8) as u8);
    }
    disk.flip_bit(&name_of(3), 30, 0);
    load(&disk);
    assert_eq!(write(&disk, &small(4)).unwrap(), 4);
    disk.flip_bit(&name_of(4), 30, 0);
    assert_holds(&load(&disk).checkpoint, &small(2));
    disk.flip_bit(&name_of(2), 30, 0);
    let error = try_load(&disk).err().expect("damage").to_string();
    assert!(
        error.starts_with("checkpoint-00000002 is damaged at byte 24"),
        "{error}"
    );
}

#[test]
fn what_is_older_than_the_last_two_is_never_gone_by() {
    let disk = FaultyDisk::new(11);
    write(&disk, &small(1)).unwrap();
    let mut newest = Checkpoint::open(&arc(&disk), 1).unwrap().id();
    (2..=4).for_each(|seed| newest = write_on(&disk, newest, seed));
    disk.flip_bit(&name_of(4), 30, 0);
    assert_eq!(load(&disk).checkpoint.sequence(), 3);
    // The checkpoint that was set aside counts as one of the two.
    let newest = Checkpoint::usable(&arc(&disk)).unwrap()[0];
    let newest = Checkpoint::open(&arc(&disk), newest).unwrap();
    assert_eq!(
        (newest.sequence(), newest.chain().unwrap()),
        (3, vec![1, 2, 3])
    );
    disk.flip_bit(&name_of(3), 30, 0);
    let error = try_load(&disk).err().expect("damage").to_string();
    assert!(error.starts_with("checkpoint-00000003"), "{error}");
    // After the next checkpoint two are usable again.
    disk.flip_bit(&name_of(3), 30, 0);
    assert_eq!(write_on(&disk, newest.id(), 5).sequence, 5);
    disk.flip_bit(&name_of(5), 30, 0);
    assert_eq!(load(&disk).checkpoint.sequence(), 3);
}

#[test]
fn a_checkpoint_cut_short_is_damaged() {
    let disk = FaultyDisk::new(3);
    (1..=2).for_each(|seed| _ = write(&disk, &small(seed)).unwrap());
    let whole = disk.contents(&name_of(2)).unwrap();
    for len in 0..whole.len() as u64 {
        disk.open(&name_of(2)).unwrap().set_len(len).unwrap();
        assert_holds(&load(&disk).checkpoint, &small(1));
        disk.rename("checkpoint-00000002.damaged", &name_of(2))
            .unwrap();
        disk.open(&name_of(2)).unwrap().write_at(&whole, 0).unwrap();
    }
}

#[test]
fn a_checkpoint_that_can_t_be_read_now_is_neither_damaged_nor_passed_over() {
    let disk = FaultyDisk::new(10);
    (1..=2).for_each(|seed| _ = write(&disk, &small(seed)).unwrap());
    let names = disk.files();
    for fault in [Fault::FailedRead, Fault::FailedOpen] {
        for prefix in ["checkpoint-00000002", "checkpoint-"] {
            disk.inject(fault, prefix, 1);
            let error = try_load(&disk).err().expect("an error");
            assert!(matches!(error, StoreError::Disk(_)), "{error}");
            assert_eq!(disk.files(), names);
        }
    }
    // Checkpoints on which another may be based are not removed either.
    let id = write_on(&disk, Checkpoint::open(&arc(&disk), 2).unwrap().id(), 3);
    let mut writer = CheckpointWriter::create(arc(&disk), None).unwrap();
    writer.section("head").unwrap();
    disk.inject(Fault::FailedOpen, &name_of(3), 1);
    let newest = writer.finish().unwrap().id.sequence;
    assert_eq!((id.before(), newest), (Some(2), 4));
    let kept = disk.files();
    assert!(kept.contains(&name_of(2)) && kept.contains(&name_of(3)));
    disk.remove(&name_of(4)).unwrap();
    assert_eq!(load(&disk).checkpoint.sequence(), 3);
}

#[test]
fn one_not_finished_never_was_and_leaves_nothing() {
    let disk = FaultyDisk::new(4);
    write(&disk, &small(1)).unwrap();
    let mut writer = CheckpointWriter::create(arc(&disk), None).unwrap();
    writer.section("head").unwrap();
    drop(writer);
    assert_eq!(disk.files(), [name_of(1)]);
    disk.limit_space(Some(100_000));
    let error = write(&disk, &sections(2)).unwrap_err();
    assert!(error.to_string().contains("disk full"), "{error}");
    assert_eq!(disk.files(), [name_of(1)]);
    disk.limit_space(None);
    disk.create(&(name_of(2) + TEMPORARY)).unwrap();
    assert_eq!(write(&disk, &small(2)).unwrap(), 2);
    assert_eq!(disk.files(), [name_of(1), name_of(2)]);
}

/// Writes a checkpoint with another format number.
fn write_other_format(disk: &FaultyDisk, sequence: u64, format: u32) {
    let mut bytes = header_of(sequence, format).to_vec();
    let mut directory = HEADER_BYTES.to_le_bytes().to_vec();
    directory.extend(0u64.to_le_bytes());
    let sum = directory_checksum(sequence, format, &directory);
    bytes.extend(directory);
    bytes.extend(sum.to_le_bytes());
    let file = disk.create(&name_of(sequence)).unwrap();
    file.write_at(&bytes, 0).unwrap();
}

#[test]
fn another_format_is_refused_and_not_passed_over() {
    for (format, word) in [(FORMAT + 1, "newer"), (FORMAT - 1, "older")] {
        let disk = FaultyDisk::new(6);
        write(&disk, &small(1)).unwrap();
        write_other_format(&disk, 2, format);
        let error = try_load(&disk).err().expect("a refusal").to_string();
        let expected = format!(
            "checkpoint-00000002 was written by {}",
            match word {
                "newer" => "a newer Cambium",
                _ => "an older Cambium",
            }
        );
        assert!(error.starts_with(&expected), "{error}");
        assert_eq!(disk.files(), [name_of(1), name_of(2)]);
    }
}

#[test]
fn a_damaged_piece_is_told_by_file_and_offset_and_the_rest_is_read() {
    let disk = FaultyDisk::new(7);
    let mut section = Vec::new();
    let lens =
        [1, 2, 3].map(|seed: u8| put_piece(&mut section, |out| out.extend([seed; 100])) as u64);
    assert_eq!(lens, [108; 3]);
    write(&disk, &vec![("head", vec![1; 10]), ("pieces", section)]).unwrap();
    let checkpoint = load(&disk).checkpoint;
    let reader = checkpoint.read_pieces("pieces").unwrap();
    disk.flip_bit(&name_of(1), 24 + 10 + 108 + 50, 3);
    let read = reader.read_batch(&[(0, 108), (108, 108), (216, 108)]);
    let pieces: Vec<_> = (0..3)
        .zip(&read)
        .map(|(at, bytes)| reader.check(at * 108, bytes.as_ref().unwrap()))
        .collect();
    assert_eq!(pieces[0].as_ref().unwrap(), &[1; 100]);
    assert_eq!(pieces[2].as_ref().unwrap(), &[3; 100]);
    let error = pieces[1].as_ref().unwrap_err().to_string();
    assert!(
        error.starts_with("checkpoint-00000001 is damaged at byte 142: "),
        "{error}"
    );
    // An open section stays readable after the file's removal.
    disk.remove(&name_of(1)).unwrap();
    assert_eq!(reader.read(0, 108).unwrap()[8..], [1; 100]);
}

#[test]
fn power_may_be_lost_at_any_step_of_writing_one() {
    for seed in cambium_seeds::seeds!(0..40) {
        let disk = FaultyDisk::new(seed);
        write(&disk, &small(1)).unwrap();
        write(&disk, &small(2)).unwrap();
        disk.lose_power_after(seed % 7);
        let written = write(&disk, &small(3));
        let disk = disk.crash();
        let loaded = load(&disk);
        assert!(loaded.damaged.is_empty(), "{:?}", loaded.damaged);
        let sequence = loaded.checkpoint.sequence();
        assert!(
            sequence == 3 || (sequence == 2 && written.is_err()),
            "{sequence}"
        );
        assert_holds(&loaded.checkpoint, &small(sequence as u8));
        assert!(write(&disk, &small(9)).is_ok());
    }
}

#[test]
fn the_format_is_what_it_was() {
    let disk = FaultyDisk::new(5);
    write(&disk, &small(1)).unwrap();
    // Existing data directories contain this format. Changing it requires a new format number.
    assert_eq!(
        keccak256(disk.contents(&name_of(1)).unwrap()),
        b256!("30696300bc2b2f425bafe6ba2bcbe1de8ae241443dfbc4920889e795a311662a")
    );
}

proptest! {
    #[test]
    fn a_made_up_directory_never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
        start in 0u64..100,
    ) {
        let mut sealed = bytes;
        sealed.extend(start.to_le_bytes());
        sealed.extend(1u64.to_le_bytes());
        let sum = directory_checksum(1, FORMAT, &sealed);
        sealed.extend(sum.to_le_bytes());
        if let Ok(sections) = decode_directory(1, FORMAT, &sealed, start) {
            prop_assert_eq!(encode_directory(1, &sections, start), sealed);
        }
    }
}
