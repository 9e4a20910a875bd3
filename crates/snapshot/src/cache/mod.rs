//! Caches that answer single reads: values of accounts and slots, and executable contract code.

pub(crate) mod codes;
pub(crate) mod values;
