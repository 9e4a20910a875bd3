//! What is kept in memory to answer reads: values of accounts and slots, and codes as they run.

pub(crate) mod codes;
pub(crate) mod values;
