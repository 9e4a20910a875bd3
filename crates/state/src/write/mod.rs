//! From a session to durable blocks, pages, and a new head.

pub(crate) mod merge;
pub(crate) mod catch_up;
pub(crate) mod pacing;
pub(crate) mod roots;
pub(crate) mod seal;
pub(crate) mod sealed;
pub(crate) mod session;
pub(crate) mod commit;
pub(crate) mod head;
