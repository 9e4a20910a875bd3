//! Fields of containers, both ways.
//!
//! The fixed part of a container has each field of fixed length itself, and the offset of each other one, 4 bytes from the
//! start of the container. What the offsets point to follows in the same order, without gaps. A list of items of fixed length is
//! those one after another; any other list is the offsets of its items, and then the items.

use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bytes, FixedBytes, U256};
use ssz::{
    BYTES_PER_LENGTH_OFFSET, Decode, DecodeError, SszDecoder, SszDecoderBuilder,
    decode_list_of_variable_length_items, encode_length, read_offset,
};

/// Most transactions of a payload.
pub(super) const TRANSACTIONS_MAX: usize = 1 << 20;
/// Most bytes of a transaction, an access list, or execution requests of a type.
pub(super) const PART_BYTES_MAX: usize = 1 << 30;
/// Most withdrawals of a payload.
pub(super) const WITHDRAWALS_MAX: usize = 16;
/// Bytes of a withdrawal: index, validator, address, amount.
pub(super) const WITHDRAWAL_BYTES: usize = 8 + 8 + 20 + 8;

/// Why bytes are not what they should be. The places of their parts are wrong, or a list is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SszError {
    /// Lengths or offsets do not fit the bytes.
    #[error("{what}: its offsets or its length do not fit")]
    Layout {
        /// The container or the field.
        what: &'static str,
    },
    /// A list has more items, or a field more bytes, than there may be.
    #[error("{what}: its length is {got}, over the limit of {most}")]
    TooLong {
        /// The field.
        what: &'static str,
        /// Its items, or bytes.
        got: usize,
        /// As many as there may be.
        most: usize,
    },
}

fn layout(what: &'static str) -> impl Fn(DecodeError) -> SszError {
    move |_| SszError::Layout { what }
}

const fn within(what: &'static str, got: usize, most: usize) -> Result<(), SszError> {
    match got > most {
        true => Err(SszError::TooLong { what, got, most }),
        false => Ok(()),
    }
}

/// The length of a field in the fixed part; `None` if it has an offset there.
pub(super) type FieldLength = Option<usize>;

/// Bytes of the fixed part of a container.
pub(super) fn fixed_bytes(lengths: &[FieldLength]) -> usize {
    let bytes = |length: &FieldLength| length.unwrap_or(BYTES_PER_LENGTH_OFFSET);
    lengths.iter().map(bytes).sum()
}

/// The fields of a container that are not taken yet.
pub(super) struct Fields<'b> {
    what: &'static str,
    decoder: SszDecoder<'b>,
    whole: &'b Bytes,
}

impl<'b> Fields<'b> {
    /// Takes a container apart, which stands in `whole`.
    pub(super) fn of(
        what: &'static str,
        whole: &'b Bytes,
        container: &'b [u8],
        lengths: &[FieldLength],
    ) -> Result<Self, SszError> {
        let mut builder = SszDecoderBuilder::new(container);
        for length in lengths {
            let bytes = length.unwrap_or(BYTES_PER_LENGTH_OFFSET);
            let registered = builder.register_type_parameterized(length.is_some(), bytes);
            registered.map_err(layout(what))?;
        }
        let decoder = builder.build().map_err(layout(what))?;
        Ok(Self {
            what,
            decoder,
            whole,
        })
    }

    /// The bytes of the next field.
    pub(super) fn next(&mut self) -> Result<&'b [u8], SszError> {
        self.decoder.decode_next_with(Ok).map_err(layout(self.what))
    }

    fn value<T: Decode>(&mut self) -> Result<T, SszError> {
        self.decoder.decode_next().map_err(layout(self.what))
    }

    pub(super) fn number(&mut self) -> Result<u64, SszError> {
        self.value()
    }

    pub(super) fn large_number(&mut self) -> Result<U256, SszError> {
        self.value()
    }

    pub(super) fn hash(&mut self) -> Result<B256, SszError> {
        self.value()
    }

    pub(super) fn address(&mut self) -> Result<Address, SszError> {
        self.value()
    }

    pub(super) fn fixed<const N: usize>(&mut self) -> Result<FixedBytes<N>, SszError> {
        let what = self.what;
        FixedBytes::try_from(self.next()?).map_err(|_| SszError::Layout { what })
    }

    /// Bytes, where they are in the request.
    pub(super) fn bytes(&mut self, what: &'static str, most: usize) -> Result<Bytes, SszError> {
        let bytes = self.next()?;
        within(what, bytes.len(), most)?;
        Ok(self.whole.slice_ref(bytes))
    }

    /// A list of bytes, where they are in the request.
    pub(super) fn byte_lists(
        &mut self,
        what: &'static str,
        most: usize,
    ) -> Result<Vec<Bytes>, SszError> {
        let items = variable_items(what, self.next()?, most)?;
        let take = |item: &[u8]| {
            within(what, item.len(), PART_BYTES_MAX)?;
            Ok(self.whole.slice_ref(item))
        };
        items.into_iter().map(take).collect()
    }

    pub(super) fn withdrawals(&mut self) -> Result<Vec<Withdrawal>, SszError> {
        let what = "withdrawals";
        let items = fixed_items(what, self.next()?, WITHDRAWAL_BYTES, WITHDRAWALS_MAX)?;
        let lengths = [Some(8), Some(8), Some(20), Some(8)];
        let decode = |item| {
            let mut fields = Fields::of(what, self.whole, item, &lengths)?;
            Ok(Withdrawal {
                index: fields.number()?,
                validator_index: fields.number()?,
                address: fields.address()?,
                amount: fields.number()?,
            })
        };
        items.map(decode).collect()
    }

    pub(super) fn hashes(
        &mut self,
        what: &'static str,
        most: usize,
    ) -> Result<Vec<B256>, SszError> {
        let items = fixed_items(what, self.next()?, B256::len_bytes(), most)?;
        Ok(items.map(B256::from_slice).collect())
    }
}

/// The items of a list of fixed length each.
pub(super) fn fixed_items<'b>(
    what: &'static str,
    list: &'b [u8],
    item_bytes: usize,
    most: usize,
) -> Result<std::slice::ChunksExact<'b, u8>, SszError> {
    if !list.len().is_multiple_of(item_bytes) {
        return Err(SszError::Layout { what });
    }
    within(what, list.len() / item_bytes, most)?;
    Ok(list.chunks_exact(item_bytes))
}

/// Where an item is in memory.
struct Place(usize, usize);

impl Decode for Place {
    fn is_ssz_fixed_len() -> bool {
        false
    }

    fn from_ssz_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(bytes.as_ptr().addr(), bytes.len()))
    }
}

/// The items of a list, each of any length. The decoder makes values that borrow nothing, so it tells their places.
pub(super) fn variable_items<'b>(
    what: &'static str,
    list: &'b [u8],
    most: usize,
) -> Result<Vec<&'b [u8]>, SszError> {
    if !list.is_empty() {
        let first = read_offset(list).map_err(layout(what))?;
        within(what, first / BYTES_PER_LENGTH_OFFSET, most)?;
    }
    let places: Vec<Place> =
        decode_list_of_variable_length_items(list, Some(most)).map_err(layout(what))?;
    let start = list.as_ptr().addr();
    let item = |Place(from, len): Place| &list[from - start..from - start + len];
    Ok(places.into_iter().map(item).collect())
}

/// Appends the offset of what follows a fixed part, or of a later part.
pub(in crate::engine) fn append_offset(out: &mut Vec<u8>, offset: usize) {
    out.extend_from_slice(&encode_length(offset));
}

/// Appends a list of items of any length, each by `append`.
pub(in crate::engine) fn append_list<T>(
    out: &mut Vec<u8>,
    items: impl ExactSizeIterator<Item = T>,
    mut append: impl FnMut(&mut Vec<u8>, T),
) {
    let start = out.len();
    out.resize(start + items.len() * BYTES_PER_LENGTH_OFFSET, 0);
    for (index, item) in items.enumerate() {
        let at = start + index * BYTES_PER_LENGTH_OFFSET;
        let offset = encode_length(out.len() - start);
        out[at..at + BYTES_PER_LENGTH_OFFSET].copy_from_slice(&offset);
        append(out, item);
    }
}

pub(super) fn append_byte_lists(out: &mut Vec<u8>, items: &[Bytes]) {
    append_list(out, items.iter(), |out, item| out.extend_from_slice(item));
}

pub(super) fn append_hashes(out: &mut Vec<u8>, hashes: &[B256]) {
    for hash in hashes {
        out.extend_from_slice(hash.as_slice());
    }
}

pub(super) fn append_withdrawals(out: &mut Vec<u8>, all: &[Withdrawal]) {
    for one in all {
        out.extend_from_slice(&one.index.to_le_bytes());
        out.extend_from_slice(&one.validator_index.to_le_bytes());
        out.extend_from_slice(one.address.as_slice());
        out.extend_from_slice(&one.amount.to_le_bytes());
    }
}

/// Writes a container: fields of fixed length, and offsets of those that follow the fixed part.
pub(super) struct Container<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// Where the next field stands in the fixed part.
    at: usize,
}

impl<'o> Container<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, lengths: &[FieldLength]) -> Self {
        let start = out.len();
        out.resize(start + fixed_bytes(lengths), 0);
        Self {
            out,
            start,
            at: start,
        }
    }

    /// Writes a field of fixed length.
    pub(super) fn fixed(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(super) fn number(&mut self, number: u64) {
        self.fixed(&number.to_le_bytes());
    }

    /// Writes a field by `append`, which appends its bytes.
    pub(super) fn variable(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        let offset = encode_length(self.out.len() - self.start);
        self.fixed(&offset);
        append(self.out);
    }

    /// Writes bytes of any length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.variable(|out| out.extend_from_slice(bytes));
    }
}
