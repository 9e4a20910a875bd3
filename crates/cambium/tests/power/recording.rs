//! Commands that a drive received, and those that it may have executed when the power goes.

use std::sync::Arc;

/// Bytes that an image shares with its copies.
const BLOCK: usize = 4096;

/// The smallest piece that a drive writes whole.
const SECTOR: usize = 512;

/// The content of a drive. Copies share what neither has changed.
#[derive(Clone)]
pub(crate) struct Image {
    /// `None` for zeros.
    blocks: Vec<Option<Arc<[u8; BLOCK]>>>,
}

impl Image {
    /// A drive of zeros.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            blocks: vec![None; bytes.div_ceil(BLOCK)],
        }
    }

    /// A drive with that content.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut image = Self::new(bytes.len());
        image.write(bytes, 0);
        image
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    /// Bytes at `offset`, up to the end of the drive.
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let end = (offset + len).min(self.len());
        let mut bytes = Vec::with_capacity(len);
        let mut at = offset;
        while at < end {
            let next = ((at / BLOCK + 1) * BLOCK).min(end);
            match &self.blocks[at / BLOCK] {
                Some(block) => bytes.extend(&block[at % BLOCK..at % BLOCK + (next - at)]),
                None => bytes.resize(bytes.len() + (next - at), 0),
            }
            at = next;
        }
        bytes
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: usize) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(BLOCK - at % BLOCK));
            let block = &mut self.blocks[at / BLOCK];
            if block.is_some() || part.iter().any(|byte| *byte != 0) {
                let block = Arc::make_mut(block.get_or_insert_with(|| Arc::new([0; BLOCK])));
                block[at % BLOCK..][..part.len()].copy_from_slice(part);
            }
            (at, rest) = (at + part.len(), after);
        }
    }

    /// Blocks that are not all zeros, with their offsets.
    pub(crate) fn written(&self) -> impl Iterator<Item = (usize, &[u8; BLOCK])> {
        let blocks = self.blocks.iter().enumerate();
        blocks.filter_map(|(at, block)| Some((at * BLOCK, block.as_deref()?)))
    }
}

/// Known bounds of the head at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The newest head that was acknowledged; `None` before the database was.
    pub(crate) head: Option<u64>,
    /// The lowest that the head may be, and the highest, by what was begun and not acknowledged.
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// An event at a drive or its recorder.
#[derive(Clone)]
pub(crate) enum Event {
    Write {
        offset: u64,
        bytes: Vec<u8>,
        /// It is durable once it is done, without a flush.
        is_forced: bool,
    },
    /// All that was written before is durable once this is done.
    Flush,
    Mark(Mark),
}

/// The events of a drive, in order, and its content before them.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) before: Image,
    pub(crate) events: Vec<Event>,
}

/// A drive after a loss of power.
pub(crate) struct Cut {
    pub(crate) image: Image,
    /// Known bounds of the head when the power went.
    pub(crate) mark: Mark,
    /// Writes that no flush had made durable, and how many of them are there, in whole or in part.
    pub(crate) unflushed: usize,
    pub(crate) kept: usize,
    pub(crate) torn: usize,
}

impl Recording {
    /// Flushes in it.
    pub(crate) fn flushes(&self) -> usize {
        let is_flush = |event: &&Event| matches!(event, Event::Flush);
        self.events.iter().filter(is_flush).count()
    }

    /// Writes after the last flush within the first `at` events.
    pub(crate) fn unflushed(&self, at: usize) -> usize {
        let newest = self.events[..at].iter().rev();
        let newest = newest.take_while(|event| !matches!(event, Event::Flush));
        newest
            .filter(|event| matches!(event, Event::Write { .. }))
            .count()
    }

    /// Cuts the power after `at` events: flushed writes are there, and of later ones any part.
    pub(crate) fn cut(&self, at: usize, random: &mut Random) -> Cut {
        let events = &self.events[..at];
        let is_flush = |event: &Event| matches!(event, Event::Flush);
        let durable = events.iter().rposition(is_flush).map_or(0, |at| at + 1);
        let mut cut = self.honest(durable, at);
        // From none to all of the later writes.
        let percent = [0, 10, 50, 90, 100][random.below(5) as usize];
        let piece = [SECTOR, BLOCK][random.below(2) as usize];
        for event in &events[durable..] {
            let Event::Write {
                offset,
                bytes,
                is_forced,
            } = event
            else {
                continue;
            };
            cut.unflushed += 1;
            if *is_forced || random.below(100) < percent {
                cut.image.write(bytes, *offset as usize);
                cut.kept += 1;
            } else if bytes.len() > BLOCK && random.below(100) < 30 {
                // A single block of a file system is written whole: ext4 relies on that for the
                // commit blocks of its journal. Of more than that any pieces may be there.
                for (at, part) in bytes.chunks(piece).enumerate() {
                    if random.below(2) == 0 {
                        cut.image.write(part, *offset as usize + at * piece);
                    }
                }
                cut.torn += 1;
            }
        }
        cut
    }

    /// Cuts the power after `at` events, on a drive that has reported the last `lost` writes as
    /// durable, flushed or not, and has not written them.
    pub(crate) fn cut_of_a_liar(&self, at: usize, lost: usize) -> Cut {
        let writes = self.events[..at].iter().enumerate();
        let mut writes = writes.filter(|(_, event)| matches!(event, Event::Write { .. }));
        let end = writes.nth_back(lost).map_or(0, |(at, _)| at + 1);
        self.honest(end, at)
    }

    /// All writes before `end`, with the mark at `at`.
    fn honest(&self, end: usize, at: usize) -> Cut {
        let mut image = self.before.clone();
        for event in &self.events[..end] {
            if let Event::Write { offset, bytes, .. } = event {
                image.write(bytes, *offset as usize);
            }
        }
        let marks = self.events[..at].iter().rev();
        let mut marks = marks.filter_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        });
        Cut {
            image,
            mark: marks.next().expect("a mark at the beginning"),
            unflushed: 0,
            kept: 0,
            torn: 0,
        }
    }
}

/// A generator of random numbers (xorshift), good enough to choose moments by.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
