//! Pages that were read before anybody asked for them.

use std::collections::BTreeMap;

/// A place in a run, by which pages are found: the run's identity, and the number of the first page.
pub(crate) type Place = (u64, u64);

/// Pages that were read ahead.
#[derive(Default)]
pub(crate) struct PagesAhead {
    pages: BTreeMap<Place, Vec<u8>>,
}

impl PagesAhead {
    /// No pages.
    pub(crate) const NONE: Self = Self {
        pages: BTreeMap::new(),
    };

    /// `len` bytes from a place on, if they were read.
    pub(crate) fn find(&self, place: Place, len: usize) -> Option<&[u8]> {
        self.pages.get(&place)?.get(..len)
    }
}

impl FromIterator<(Place, Vec<u8>)> for PagesAhead {
    fn from_iter<I: IntoIterator<Item = (Place, Vec<u8>)>>(pages: I) -> Self {
        Self {
            pages: pages.into_iter().collect(),
        }
    }
}
