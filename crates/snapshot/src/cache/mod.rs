//! Caches in front of index, pages and code file: values of accounts and slots, and executable
//! contract code.

pub(crate) mod codes;
pub(crate) mod values;
