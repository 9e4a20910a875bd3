//! Followers of the chain during an import: a history, an index. The chain does not need them, so an import continues
//! without one that fails, and reports it.

use super::output::Output;
use cambium::Db;
use std::fmt::Display;

/// A follower of a chain, or the reason why there is none.
pub(crate) enum Followed<F> {
    /// There is none.
    None,
    By(F),
    /// There is one, which can't follow. The user has been told.
    Refused {
        error: String,
    },
}

impl<F> Followed<F> {
    /// Says why `what` can't follow. The log keeps all blocks, so that they are there once it can.
    pub(crate) fn refused(what: &'static str, error: &dyn Display, db: &Db, out: &Output) -> Self {
        db.keep_log_above(what, 0);
        out.error(format_args!(
            "the {what} does not follow this import, for which the log keeps all blocks: {error}"
        ));
        let error = error.to_string();
        Self::Refused { error }
    }

    /// Ends what follows, and says what is wrong with it. Returns that.
    pub(crate) fn finish<T, E: Display>(
        self,
        what: &str,
        end: impl FnOnce(F) -> Result<T, E>,
        out: &Output,
    ) -> Option<String> {
        match self {
            Self::None => None,
            Self::Refused { error } => Some(error),
            Self::By(follower) => {
                let error = end(follower).err()?.to_string();
                out.error(format_args!(
                    "the {what} does not follow the chain any more: {error}"
                ));
                Some(error)
            }
        }
    }
}
