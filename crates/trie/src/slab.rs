//! Items of one type by index, and the division of a slab into parts for several threads.
//!
//! Items are stored in chunks and never move: tries grow fast, and an index is large and
//! long-lived.
//!
//! ```text
//!   chunk     0     1     2     3     4     5     6
//!   space   home  home  part  part  home  part  part        parts: one for each nibble
//!                         3     7           3     0
//!
//!   detached part 3   -     -     2     -     -     5     -        a slab with the same indices
//! ```
//!
//! Each chunk belongs to one *space*: home, or one of sixteen parts. A detached part is a slab of
//! its own that has only the chunks of that part, under their numbers. So all indices stay valid,
//! and another thread can change the items of the part while nothing is shared.

use alloc::{boxed::Box, vec::Vec};

/// Items of one chunk, as a power of two: 14 to 28 KiB of nodes.
const CHUNK_BITS: u32 = 8;
const CHUNK_ITEMS: usize = 1 << CHUNK_BITS;
/// Number of bits of an index.
pub(crate) const INDEX_BITS: u32 = 29;
/// Number of parts of a divided slab.
pub(crate) const PARTS: usize = 16;

/// In place of the number of a chunk where there is none.
const NO_CHUNK: u32 = u32::MAX;

/// A set of chunks, with the places for its next items.
#[derive(Clone)]
struct Space {
    /// Number of the only chunk of the space that may not be full, or [`NO_CHUNK`].
    open: u32,
    /// Indices of freed items.
    free: Vec<u32>,
}

impl Space {
    const fn new() -> Self {
        Self {
            open: NO_CHUNK,
            free: Vec::new(),
        }
    }
}

/// What a divided slab has besides its home space.
#[derive(Clone)]
struct Division<T> {
    spaces: [Space; PARTS],
    /// The chunks of the parts while they are detached. Kept when they are attached, empty, so that detaching
    /// them the next time only moves chunks.
    tables: [Vec<Vec<T>>; PARTS],
    /// For each chunk the number of its part plus one, or 0 for home. Later chunks are home's.
    owners: Vec<u8>,
    /// The part that gets new items, or home.
    current: Option<usize>,
    /// Numbers below that of the last chunk that no chunk has.
    spare: Vec<u32>,
}

/// Items of one type by index. Indices of freed items are reused.
#[derive(Clone)]
pub(crate) struct Slab<T> {
    /// The chunks by their numbers; an empty one where there is none. In a slab that was never divided, all
    /// chunks except the last are full. The first of a space grows like a vector, for the many
    /// small tries.
    chunks: Vec<Vec<T>>,
    home: Space,
    division: Option<Box<Division<T>>>,
    /// Number of the next new chunk of a detached part, or [`NO_CHUNK`] if the slab is no such part. The
    /// one after it has a number greater by [`PARTS`], so that the numbers of all parts differ.
    next_of_part: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            home: Space::new(),
            division: None,
            next_of_part: NO_CHUNK,
        }
    }

    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let space = self.space();
        if let Some(index) = space.free.pop() {
            self[index] = item;
            return index;
        }
        let open = space.open;
        let number = match open {
            NO_CHUNK => self.add_chunk(1),
            number if self.chunks[number as usize].len() < CHUNK_ITEMS => number,
            _ => self.add_chunk(CHUNK_ITEMS),
        };
        let chunk = &mut self.chunks[number as usize];
        let index = number << CHUNK_BITS | chunk.len() as u32;
        chunk.push(item);
        index
    }

    /// The space that gets new items.
    fn space(&mut self) -> &mut Space {
        match &mut self.division {
            None => &mut self.home,
            Some(division) => match division.current {
                None => &mut self.home,
                Some(part) => &mut division.spaces[part],
            },
        }
    }

    /// Adds a chunk to the space that gets new items. Returns its number.
    fn add_chunk(&mut self, capacity: usize) -> u32 {
        let spare = self
            .division
            .as_mut()
            .and_then(|division| division.spare.pop());
        let number = match (spare, self.next_of_part) {
            (Some(number), _) => number as usize,
            (None, NO_CHUNK) => self.chunks.len(),
            (None, next) => {
                self.next_of_part += PARTS as u32;
                next as usize
            }
        };
        assert!(
            number < 1 << (INDEX_BITS - CHUNK_BITS),
            "an arena of 2^29 nodes of one type is full"
        );
        if self.chunks.len() <= number {
            self.chunks.resize_with(number + 1, Vec::new);
        }
        self.chunks[number].reserve_exact(capacity);
        if let Some(division) = &mut self.division {
            if division.owners.len() <= number {
                division.owners.resize(number + 1, 0);
            }
            division.owners[number] = division.current.map_or(0, |part| part as u8 + 1);
        }
        self.space().open = number as u32;
        number as u32
    }

    pub(crate) fn remove(&mut self, index: u32) {
        let owner = self.division.as_mut().and_then(|division| {
            let owner = division.owners.get((index >> CHUNK_BITS) as usize)?;
            Some(&mut division.spaces[usize::from(*owner).checked_sub(1)?])
        });
        owner.unwrap_or(&mut self.home).free.push(index);
    }

    /// Makes `part` the place of new items, or home. Divides the slab.
    pub(crate) fn enter(&mut self, part: Option<usize>) {
        let division = self.division.get_or_insert_with(|| {
            Box::new(Division {
                spaces: [const { Space::new() }; PARTS],
                tables: [const { Vec::new() }; PARTS],
                owners: Vec::new(),
                current: None,
                spare: Vec::new(),
            })
        });
        division.current = part;
    }

    /// Takes out all parts of a divided slab, which must all be attached again before it is used
    /// next.
    pub(crate) fn detach(&mut self) -> [Self; PARTS] {
        self.enter(None);
        let end = self.chunks.len();
        let division = self.division.as_mut().expect("just divided");
        let mut parts = core::array::from_fn(|part| Self {
            chunks: core::mem::take(&mut division.tables[part]),
            home: core::mem::replace(&mut division.spaces[part], Space::new()),
            division: None,
            next_of_part: (end + part) as u32,
        });
        for (number, owner) in division.owners.iter().enumerate() {
            if let Some(part) = usize::from(*owner).checked_sub(1) {
                let part: &mut Self = &mut parts[part];
                if part.chunks.len() <= number {
                    part.chunks.resize_with(end, Vec::new);
                }
                part.chunks[number] = core::mem::take(&mut self.chunks[number]);
            }
        }
        parts
    }

    /// Puts back all parts.
    pub(crate) fn attach(&mut self, parts: impl Iterator<Item = Self>) {
        let division = self.division.as_mut().expect("a slab that was divided");
        let end = self.chunks.len();
        for (part, slab) in parts.enumerate() {
            division.spaces[part] = slab.home;
            division.tables[part] = slab.chunks;
        }
        for (number, owner) in division.owners.iter().enumerate() {
            if let Some(part) = usize::from(*owner).checked_sub(1) {
                self.chunks[number] = core::mem::take(&mut division.tables[part][number]);
            }
        }
        let new_end = division.tables.iter().map(Vec::len).fold(end, usize::max);
        self.chunks.resize_with(new_end, Vec::new);
        division.owners.resize(new_end, 0);
        for number in end..new_end {
            // The part that numbers its new chunks so.
            let part = (number - end) % PARTS;
            match division.tables[part].get_mut(number) {
                Some(chunk) if !chunk.is_empty() => {
                    self.chunks[number] = core::mem::take(chunk);
                    division.owners[number] = part as u8 + 1;
                }
                _ => division.spare.push(number as u32),
            }
        }
    }

    /// Sum of `of_chunk`, the length or capacity of a chunk, over all chunks.
    fn items(&self, of_chunk: impl Fn(&Vec<T>) -> usize) -> usize {
        match self.division {
            None if self.next_of_part == NO_CHUNK => {
                let full = self.chunks.len().saturating_sub(1) * CHUNK_ITEMS;
                full + self.chunks.last().map_or(0, of_chunk)
            }
            _ => self.chunks.iter().map(of_chunk).sum(),
        }
    }

    /// Number of freed items.
    fn freed(&self) -> usize {
        let parts = self.division.iter().flat_map(|division| &division.spaces);
        self.home.free.len() + parts.map(|space| space.free.len()).sum::<usize>()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let mut bytes = self.items(Vec::capacity) * size_of::<T>()
            + self.chunks.capacity() * size_of::<Vec<T>>()
            + self.home.free.capacity() * size_of::<u32>();
        if let Some(division) = &self.division {
            let free = division.spaces.iter().map(|space| space.free.capacity());
            let tables = division.tables.iter().map(Vec::capacity).sum::<usize>();
            bytes += size_of::<Division<T>>()
                + tables * size_of::<Vec<T>>()
                + (free.sum::<usize>() + division.spare.capacity()) * size_of::<u32>()
                + division.owners.capacity();
        }
        bytes
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.chunks.iter_mut().for_each(Vec::shrink_to_fit);
        self.chunks.shrink_to_fit();
        self.home.free.shrink_to_fit();
    }

    /// Returns the size of all items, and that of freed ones, in bytes.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let bytes = |items| items * size_of::<T>();
        (bytes(self.items(Vec::len)), bytes(self.freed()))
    }

    pub(crate) fn len(&self) -> usize {
        self.items(Vec::len) - self.freed()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.chunks[(index >> CHUNK_BITS) as usize][index as usize % CHUNK_ITEMS]
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index >> CHUNK_BITS) as usize][index as usize % CHUNK_ITEMS]
    }
}
