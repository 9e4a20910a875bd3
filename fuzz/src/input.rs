//! Splitting a fuzzer's bytes into numbers and pieces. Once the bytes are used up, numbers are zero
//! and pieces are empty.

/// The bytes that are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns a number below `end`, which is at most 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.u8()) % end
    }

    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns a piece: a length of two bytes, followed by that many bytes.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.take(len.into())
    }

    /// Returns fewer than `max` pieces.
    pub(crate) fn pieces(&mut self, max: usize) -> Vec<Vec<u8>> {
        let count = self.below(max);
        (0..count).map(|_| self.piece().to_vec()).collect()
    }

    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The inverse of [`Input`], for seeds.
#[derive(Debug, Default)]
pub(crate) struct Output(pub(crate) Vec<u8>);

impl Output {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn piece(&mut self, bytes: &[u8]) -> &mut Self {
        let len = u16::try_from(bytes.len()).expect("a small piece");
        self.u16(len).bytes(bytes)
    }

    pub(crate) fn pieces(&mut self, pieces: &[Vec<u8>]) -> &mut Self {
        self.u8(u8::try_from(pieces.len()).expect("a few pieces"));
        for piece in pieces {
            self.piece(piece);
        }
        self
    }
}
