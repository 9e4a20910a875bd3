//! Changes as serde has them. Changes that are read obey the rules of [`Changes::try_new`].

use crate::{
    AccountDiff, AccountUpdate, Changes, EntryValue, INLINE_VALUE_BYTES_MAX, StoredValue,
    VALUE_BYTES_MAX,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes, U256};
use core::fmt;
use serde::{
    Deserialize, Deserializer, Serializer,
    de::{Error, MapAccess, Visitor},
};

/// Slots as a map from path to value.
pub(crate) mod slots {
    use super::{B256, Deserializer, MapAccess, Serializer, SlotsVisitor, U256, Vec, Visitor, fmt};

    pub(crate) fn serialize<S: Serializer>(
        slots: &[(B256, U256)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(slots.iter().map(|(slot, value)| (slot, value)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(B256, U256)>, D::Error> {
        from.deserialize_map(SlotsVisitor)
    }

    impl<'de> Visitor<'de> for SlotsVisitor {
        type Value = Vec<(B256, U256)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of values by hashed slot")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            // Grows with the entries: a length in the input is not trusted. Every slot is kept, so that a duplicate is
            // rejected.
            let mut slots = Vec::new();
            while let Some(entry) = map.next_entry()? {
                slots.push(entry);
            }
            Ok(slots)
        }
    }
}

/// Reads slots in any order.
struct SlotsVisitor;

/// An [`AccountDiff`] that is not checked.
#[derive(Deserialize)]
struct UncheckedDiff {
    path: B256,
    account: AccountUpdate,
    #[serde(default)]
    wipe: bool,
    #[serde(default, with = "slots")]
    slots: Vec<(B256, U256)>,
}

impl From<UncheckedDiff> for AccountDiff {
    fn from(diff: UncheckedDiff) -> Self {
        let UncheckedDiff {
            path,
            account,
            wipe,
            slots,
        } = diff;
        Self {
            path,
            account,
            wipe,
            slots,
        }
    }
}

/// Sorts the slots, and sets the wipe of a deletion.
impl<'de> Deserialize<'de> for AccountDiff {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let diff = UncheckedDiff::deserialize(from)?.into();
        let checked = Changes::try_new(Vec::from([diff])).map_err(D::Error::custom)?;
        let mut diffs = checked.into_accounts();
        diffs.pop().ok_or_else(|| D::Error::custom("no change"))
    }
}

/// Takes accounts in any order.
impl<'de> Deserialize<'de> for Changes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let diffs = Vec::<UncheckedDiff>::deserialize(from)?;
        let diffs = diffs.into_iter().map(AccountDiff::from).collect();
        Self::try_new(diffs).map_err(D::Error::custom)
    }
}

/// An [`EntryValue`] that is not checked.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum UncheckedValue {
    Inline(Bytes),
    Stored(StoredValue),
}

impl<'de> Deserialize<'de> for EntryValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match UncheckedValue::deserialize(from)? {
            UncheckedValue::Inline(bytes) if bytes.len() > INLINE_VALUE_BYTES_MAX => {
                Err(D::Error::custom(format_args!(
                    "an inline value of {} bytes: at most {INLINE_VALUE_BYTES_MAX} are possible",
                    bytes.len()
                )))
            }
            UncheckedValue::Inline(bytes) => Ok(Self::Inline(bytes)),
            UncheckedValue::Stored(stored) => {
                let range = INLINE_VALUE_BYTES_MAX + 1..=VALUE_BYTES_MAX;
                match range.contains(&(stored.len as usize)) {
                    true => Ok(Self::Stored(stored)),
                    false => Err(D::Error::custom(format_args!(
                        "a stored value of {} bytes: {} to {VALUE_BYTES_MAX} are possible",
                        stored.len,
                        INLINE_VALUE_BYTES_MAX + 1
                    ))),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Account, BlockId};
    use alloc::{format, string::ToString, vec};
    use core::num::NonZeroU64;
    use proptest::prelude::*;
    use serde_json::json;

    fn update() -> impl Strategy<Value = AccountUpdate> {
        let account = (any::<u64>(), any::<[u8; 32]>(), any::<[u8; 32]>());
        let stored = (any::<[u8; 32]>(), 513u32..(16 << 20), 1u64..);
        prop_oneof![
            Just(AccountUpdate::Keep),
            Just(AccountUpdate::Delete),
            account.prop_map(|(nonce, balance, code_hash)| AccountUpdate::Put(Account {
                nonce,
                balance: U256::from_be_bytes(balance),
                code_hash: code_hash.into(),
            })),
            proptest::collection::vec(any::<u8>(), 0..=INLINE_VALUE_BYTES_MAX)
                .prop_map(|bytes| AccountUpdate::Entry(EntryValue::Inline(bytes.into()))),
            stored.prop_map(|(hash, len, place)| {
                AccountUpdate::Entry(EntryValue::Stored(StoredValue {
                    hash: hash.into(),
                    len,
                    place: NonZeroU64::new(place).unwrap(),
                }))
            }),
        ]
    }

    fn changes() -> impl Strategy<Value = Changes> {
        let slots = proptest::collection::btree_map(any::<[u8; 32]>(), any::<[u8; 32]>(), 0..5);
        let diff = (update(), any::<bool>(), slots);
        proptest::collection::btree_map(any::<[u8; 32]>(), diff, 0..6).prop_map(|diffs| {
            let diffs = diffs.into_iter().map(|(path, (account, wipe, slots))| {
                let has_slots = matches!(account, AccountUpdate::Keep | AccountUpdate::Put(_));
                let slots = slots.into_iter().filter(|_| has_slots);
                let slots = slots.map(|(slot, value)| (slot.into(), U256::from_be_bytes(value)));
                AccountDiff {
                    path: path.into(),
                    wipe: wipe && has_slots,
                    account,
                    slots: slots.collect(),
                }
            });
            Changes::new(diffs.collect())
        })
    }

    proptest! {
        #[test]
        fn changes_survive_json(changes in changes()) {
            let text = serde_json::to_string(&changes).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Changes>(&text).unwrap(), &changes);
            let value = serde_json::to_value(&changes).unwrap();
            prop_assert_eq!(&serde_json::from_value::<Changes>(value).unwrap(), &changes);
            for diff in changes.accounts() {
                let text = serde_json::to_string(diff).unwrap();
                prop_assert_eq!(&serde_json::from_str::<AccountDiff>(&text).unwrap(), diff);
            }
        }
    }

    #[test]
    fn json_has_the_numbers_of_json_rpc() {
        let [a, b] = [1, 2].map(B256::repeat_byte);
        let account = Account {
            nonce: 10,
            balance: U256::from(256),
            code_hash: b,
        };
        let changes = Changes::new(vec![
            AccountDiff {
                path: a,
                account: AccountUpdate::Put(account),
                wipe: true,
                slots: vec![(b, U256::from(17)), (a, U256::ZERO)],
            },
            AccountDiff {
                path: b,
                account: AccountUpdate::Delete,
                wipe: true,
                slots: vec![],
            },
        ]);
        let (a, b) = (a.to_string(), b.to_string());
        let expected = json!([
            {
                "path": a,
                "account": { "put": { "nonce": "0xa", "balance": "0x100", "codeHash": b } },
                "wipe": true,
                "slots": { &*a: "0x0", &*b: "0x11" },
            },
            { "path": b, "account": "delete", "wipe": true, "slots": {} },
        ]);
        assert_eq!(serde_json::to_value(&changes).unwrap(), expected);
        let id = BlockId::new(16, B256::repeat_byte(3));
        let value = serde_json::to_value(id).unwrap();
        assert_eq!(value, json!({ "number": "0x10", "hash": id.hash }));
        assert_eq!(serde_json::from_value::<BlockId>(value).unwrap(), id);
    }

    #[test]
    fn what_is_read_obeys_the_rules_of_changes() {
        let [a, b] = [1, 2].map(|byte| B256::repeat_byte(byte).to_string());
        let read = |text: &str| serde_json::from_str::<Changes>(text);
        // Any order, and the parts that are not there.
        let changes = read(&format!(
            r#"[{{"path":"{b}","account":"delete"}},
                {{"path":"{a}","account":"keep","slots":{{"{b}":"0x1","{a}":"0x2"}}}}]"#
        ));
        let changes = changes.unwrap();
        let [first, second] = changes.accounts() else {
            panic!("two changes");
        };
        assert!(first.slots[0].0 < first.slots[1].0 && second.wipe);
        for (text, expected) in [
            (
                format!(r#"{{"path":"{a}","account":"keep","slots":{{"{b}":"0x1","{b}":"0x1"}}}}"#),
                "two values for the slot",
            ),
            (
                format!(r#"{{"path":"{a}","account":"delete","slots":{{"{b}":"0x0"}}}}"#),
                "is deleted, and is given slots",
            ),
            (
                format!(r#"{{"path":"{a}","account":{{"entry":{{"inline":"0x"}}}},"wipe":true}}"#),
                "the entry at",
            ),
            (
                format!(
                    r#"{{"path":"{a}","account":{{"entry":{{"inline":"0x{}"}}}}}}"#,
                    "00".repeat(INLINE_VALUE_BYTES_MAX + 1)
                ),
                "an inline value of 513 bytes",
            ),
            (
                format!(
                    r#"{{"path":"{a}","account":{{"entry":{{"stored":{{"hash":"{a}","len":"0x200","place":"0x1"}}}}}}}}"#
                ),
                "a stored value of 512 bytes",
            ),
            (
                format!(
                    r#"{{"path":"{a}","account":{{"entry":{{"stored":{{"hash":"{a}","len":"0x201","place":"0x0"}}}}}}}}"#
                ),
                "zero",
            ),
            (
                format!(
                    r#"{{"path":"{a}","account":{{"put":{{"nonce":"0x10000000000000000","balance":"0x0","codeHash":"{a}"}}}}}}"#
                ),
                "",
            ),
        ] {
            let one = serde_json::from_str::<AccountDiff>(&text).unwrap_err();
            assert!(one.to_string().contains(expected), "{text}: {one}");
            let list = read(&format!("[{text}]")).unwrap_err();
            assert!(list.to_string().contains(expected), "{text}: {list}");
        }
        let twice = format!(r#"{{"path":"{a}","account":"keep"}}"#);
        let error = read(&format!("[{twice},{twice}]")).unwrap_err();
        assert!(error.to_string().contains("two changes of the account"));
    }
}
