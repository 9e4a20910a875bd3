//! The tries of the blocks above the base, which compute state roots.

pub(crate) mod unread;
pub(crate) mod shards;
pub(crate) mod base;
pub(crate) mod resolve;
pub(crate) mod portions;
pub(crate) mod slots;
pub(crate) mod update;
pub(crate) mod restore;
pub(crate) mod references;
pub(crate) mod delta;
