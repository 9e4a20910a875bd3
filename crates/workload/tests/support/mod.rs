//! Helpers that these tests share.
#![allow(
    dead_code,
    reason = "each test file is a crate of its own and uses a part of this"
)]

pub(crate) mod model;
