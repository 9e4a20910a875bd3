//! Ranges widened to whole blocks, and aligned memory, as direct I/O requires.

/// A range that is read in order to get a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Window {
    /// The smallest window around `len` bytes at `offset` whose ends are multiples of `align`.
    /// `None` if no file is that long.
    pub(super) fn around(offset: u64, len: usize, align: u64) -> Option<Self> {
        let end = offset.checked_add(len as u64)?;
        let end = end.checked_next_multiple_of(align)?;
        (end <= i64::MAX as u64).then_some(Self {
            start: offset - offset % align,
            end,
        })
    }

    pub(super) const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Splits the window into pieces of at most `max` bytes, a multiple of its alignment.
    pub(super) fn pieces(self, max: usize) -> impl Iterator<Item = Self> {
        (self.start..self.end).step_by(max).map(move |start| Self {
            start,
            end: self.end.min(start + max as u64),
        })
    }
}

/// Copies the overlap of `bytes`, which were read at `start`, into `out`, which is at `offset` of
/// the file. Returns false if `bytes` end too early: before `out` does and before `end`.
pub(super) fn copy_part(out: &mut [u8], offset: u64, start: u64, end: u64, bytes: &[u8]) -> bool {
    let out_end = offset + out.len() as u64;
    let (from, to) = (offset.max(start), out_end.min(end));
    if from >= to {
        return true;
    }
    let Some(part) = bytes.get((from - start) as usize..(to - start) as usize) else {
        return false;
    };
    out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
    true
}

/// A buffer whose start is aligned to [`AlignedBuf::ALIGN`].
#[derive(Debug, Default)]
pub(super) struct AlignedBuf {
    bytes: Vec<u8>,
}

impl AlignedBuf {
    pub(super) const ALIGN: usize = 4096;

    /// Returns `len` bytes with unspecified content.
    pub(super) fn take(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + Self::ALIGN {
            self.bytes = vec![0; len + Self::ALIGN];
        }
        let start = self.bytes.as_ptr().align_offset(Self::ALIGN);
        &mut self.bytes[start..start + len]
    }

    /// Frees the buffer if it is larger than `keep` bytes.
    pub(super) fn shrink(&mut self, keep: usize) {
        if self.bytes.len() > keep + Self::ALIGN {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_smallest_that_holds_the_range() {
        let window = |offset, len, align| {
            Window::around(offset, len, align).map(|window| (window.start, window.end))
        };
        assert_eq!(window(100, 50, 1), Some((100, 150)));
        assert_eq!(window(511, 2, 512), Some((0, 1024)));
        assert_eq!(window(512, 512, 512), Some((512, 1024)));
        assert_eq!(window(4095, 4098, 4096), Some((0, 12288)));
        assert_eq!(window(u64::MAX, 1, 1), None);
        assert_eq!(window(u64::MAX - 10, 5, 512), None);
        assert_eq!(window(1 << 63, 1, 1), None);
    }

    #[test]
    fn the_pieces_of_a_window_put_together_what_was_wanted() {
        let file: Vec<u8> = (0..20_000u32).map(|n| n as u8 ^ (n >> 8) as u8).collect();
        for (offset, len) in [(0, 1), (700, 9_000), (4_095, 2), (513, 512), (8_192, 8_192)] {
            let window = Window::around(offset, len, 512).unwrap();
            let mut out = vec![0; len];
            for piece in window.pieces(1024) {
                assert!(piece.len() <= 1024 && piece.start % 512 == 0);
                let bytes = &file[piece.start as usize..piece.end as usize];
                assert!(copy_part(&mut out, offset, piece.start, piece.end, bytes));
            }
            assert_eq!(out, file[offset as usize..offset as usize + len]);
        }
        let mut out = [0; 10];
        assert!(copy_part(&mut out, 5, 0, 512, &[1; 15]), "just long enough");
        assert!(!copy_part(&mut out, 5, 0, 512, &[1; 14]), "too short");
        assert!(
            copy_part(&mut out, 5, 512, 1024, &[]),
            "nothing wanted of it"
        );
    }

    #[test]
    fn an_aligned_buffer_begins_at_a_block() {
        let mut buf = AlignedBuf::default();
        for len in [1, 5_000, 100, 70_000] {
            let bytes = buf.take(len);
            assert_eq!((bytes.len(), bytes.as_ptr() as usize % 4096), (len, 0));
        }
        buf.shrink(10);
        assert_eq!(buf.bytes.len(), 0);
    }
}
