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

/// The place of new items.
#[derive(Clone, Default)]
struct Space {
    /// Number of the only chunk of the space that may not be full.
    open: Option<u32>,
    /// Indices of freed items.
    free: Vec<u32>,
}

/// What a divided slab has besides its home space.
#[derive(Clone)]
struct Division {
    spaces: [Space; PARTS],
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
    division: Option<Box<Division>>,
    /// Number of the first new chunk of a detached part. Each further one has a number greater by
    /// [`PARTS`], so that the numbers of all parts differ.
    next_of_part: Option<usize>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            home: Space {
                open: None,
                free: Vec::new(),
            },
            division: None,
            next_of_part: None,
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
            Some(number) if self.chunks[number as usize].len() < CHUNK_ITEMS => number,
            _ => self.add_chunk(if open.is_some() { CHUNK_ITEMS } else { 1 }),
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
        let number = match (spare, &mut self.next_of_part) {
            (Some(number), _) => number as usize,
            (None, None) => self.chunks.len(),
            (None, Some(next)) => {
                let number = *next;
                *next += PARTS;
                number
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
        self.space().open = Some(number as u32);
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
                spaces: Default::default(),
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
            chunks: Vec::new(),
            home: core::mem::take(&mut division.spaces[part]),
            division: None,
            next_of_part: Some(end + part),
        });
        for (number, owner) in division.owners.iter().enumerate() {
            if let Some(part) = usize::from(*owner).checked_sub(1) {
                let part: &mut Self = &mut parts[part];
                part.chunks.resize_with(number + 1, Vec::new);
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
            if self.chunks.len() < slab.chunks.len() {
                self.chunks.resize_with(slab.chunks.len(), Vec::new);
                division.owners.resize(slab.chunks.len(), 0);
            }
            for (number, chunk) in slab.chunks.into_iter().enumerate() {
                if !chunk.is_empty() {
                    self.chunks[number] = chunk;
                    division.owners[number] = part as u8 + 1;
                }
            }
        }
        let is_none = |number: &u32| self.chunks[*number as usize].is_empty();
        division
            .spare
            .extend((end as u32..self.chunks.len() as u32).filter(is_none));
    }

    /// Number of items, including freed ones.
    fn items(&self, of_chunk: impl Fn(&Vec<T>) -> usize) -> usize {
        match self.division {
            None if self.next_of_part.is_none() => {
                let full = self.chunks.len().saturating_sub(1) * CHUNK_ITEMS;
                full + self.chunks.last().map_or(0, of_chunk)
            }
            _ => self.chunks.iter().map(of_chunk).sum(),
        }
    }

    /// Indices of freed items.
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
            bytes += size_of::<Division>()
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
