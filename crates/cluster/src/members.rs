//! What the processes of a cluster tell each other about themselves.

use crate::range::ShardRange;
use std::{collections::BTreeMap, fmt, str::FromStr};

/// What a process is, and where it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A replica of a shard.
    Shard {
        /// Which part of the state it owns.
        range: ShardRange,
        /// Its address, such as `http://10.0.0.7:7100`.
        address: String,
    },
    /// A builder.
    Builder {
        /// Its address.
        address: String,
    },
}

/// What a process tells about itself can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say what a process is: shard INDEX COUNT ADDRESS, or builder ADDRESS")]
pub struct RoleError(pub String);

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard { range, address } => {
                write!(f, "shard {} {} {address}", range.index(), range.count())
            }
            Self::Builder { address } => write!(f, "builder {address}"),
        }
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let unknown = || RoleError(text.chars().take(200).collect());
        let words: Vec<_> = text.split(' ').collect();
        match words[..] {
            ["shard", index, count, address] => {
                let number = |word: &str| word.parse().map_err(|_| unknown());
                let range = ShardRange::new(number(index)?, number(count)?);
                Ok(Self::Shard {
                    range: range.map_err(|_| unknown())?,
                    address: address.to_owned(),
                })
            }
            ["builder", address] => Ok(Self::Builder {
                address: address.to_owned(),
            }),
            _ => Err(unknown()),
        }
    }
}

/// The replicas of all shards, by the number of the shard. Shards without one have an empty list; processes of another
/// division are left out.
pub fn replicas(roles: &[Role], count: usize) -> Vec<Vec<String>> {
    let mut by_shard = BTreeMap::<usize, Vec<String>>::new();
    for role in roles {
        if let Role::Shard { range, address } = role
            && range.count() == count
        {
            let own = by_shard.entry(range.index()).or_default();
            own.push(address.clone());
        }
    }
    (0..count)
        .map(|index| by_shard.remove(&index).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_what_it_was_written_from() {
        let role = Role::Shard {
            range: ShardRange::new(3, 16).unwrap(),
            address: "http://127.0.0.1:7103".to_owned(),
        };
        assert_eq!(role.to_string().parse(), Ok(role));
        let role = Role::Builder {
            address: "http://127.0.0.1:7000".to_owned(),
        };
        assert_eq!(role.to_string().parse(), Ok(role));
        for text in [
            "",
            "shard",
            "shard 3 16",
            "shard 3 3 x",
            "shard 16 16 x",
            "shard 1 2 x y",
        ] {
            assert_eq!(text.parse::<Role>(), Err(RoleError(text.to_owned())));
        }
    }

    #[test]
    fn replicas_are_grouped_by_shard() {
        let role = |index, count, address: &str| Role::Shard {
            range: ShardRange::new(index, count).unwrap(),
            address: address.to_owned(),
        };
        let roles = [role(1, 2, "a"), role(0, 4, "b"), role(1, 2, "c")];
        assert_eq!(
            replicas(&roles, 2),
            [Vec::new(), vec!["a".to_owned(), "c".to_owned()]]
        );
    }
}
