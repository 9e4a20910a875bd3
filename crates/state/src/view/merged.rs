//! Two sources of leaves in the order of their keys, one above the other.

use alloy_primitives::B256;
use cambium_snapshot::StateError;

/// A source of pairs of key and value, in the ascending order of their keys.
pub(super) trait Source {
    type Value;

    /// Returns the next pair. `None` at the end, and whenever it is called after it.
    fn next(&mut self) -> Result<Option<(B256, Self::Value)>, StateError>;
}

/// All keys of two sources. The value of a key that both have is that of the upper one.
pub(super) struct Merged<U: Source, L: Source<Value = U::Value>> {
    upper: Peeked<U>,
    lower: Peeked<L>,
}

impl<U: Source, L: Source<Value = U::Value>> Merged<U, L> {
    pub(super) const fn new(upper: U, lower: L) -> Self {
        Self {
            upper: Peeked::new(upper),
            lower: Peeked::new(lower),
        }
    }
}

impl<U: Source, L: Source<Value = U::Value>> Source for Merged<U, L> {
    type Value = U::Value;

    fn next(&mut self) -> Result<Option<(B256, U::Value)>, StateError> {
        let (upper, lower) = (self.upper.key()?, self.lower.key()?);
        let is_upper = match (upper, lower) {
            (Some(upper), Some(lower)) => upper <= lower,
            (upper, _) => upper.is_some(),
        };
        if !is_upper {
            return Ok(self.lower.next.take());
        }
        if upper == lower {
            self.lower.next = None;
        }
        Ok(self.upper.next.take())
    }
}

/// A source, and the pair that was read from it and not taken yet.
struct Peeked<S: Source> {
    source: S,
    next: Option<(B256, S::Value)>,
}

impl<S: Source> Peeked<S> {
    const fn new(source: S) -> Self {
        Self { source, next: None }
    }

    /// Returns the key of the next pair.
    fn key(&mut self) -> Result<Option<B256>, StateError> {
        if self.next.is_none() {
            self.next = self.source.next()?;
        }
        Ok(self.next.as_ref().map(|(key, _)| *key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct List(std::vec::IntoIter<(u8, u8)>);

    impl Source for List {
        type Value = u8;

        fn next(&mut self) -> Result<Option<(B256, u8)>, StateError> {
            let next = self.0.next();
            Ok(next.map(|(key, value)| (B256::repeat_byte(key), value)))
        }
    }

    #[test]
    fn the_upper_source_counts_where_both_have_a_key() {
        let list = |pairs: &[(u8, u8)]| List(Vec::from(pairs).into_iter());
        let merged = |upper: &[(u8, u8)], lower: &[(u8, u8)]| {
            let mut merged = Merged::new(list(upper), list(lower));
            let next = || merged.next().expect("lists do not fail");
            let pairs = std::iter::from_fn(next);
            pairs
                .map(|(key, value)| (key[0], value))
                .collect::<Vec<_>>()
        };
        let pairs = [(1, 1), (3, 3), (4, 4)];
        assert_eq!(merged(&pairs, &[]), pairs);
        assert_eq!(merged(&[], &pairs), pairs);
        let lower = [(0, 10), (1, 11), (2, 12), (4, 14), (9, 19)];
        let both = [(0, 10), (1, 1), (2, 12), (3, 3), (4, 4), (9, 19)];
        assert_eq!(merged(&pairs, &lower), both);
    }
}
