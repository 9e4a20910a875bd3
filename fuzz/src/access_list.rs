//! Block access lists.

use crate::input::Input;
use alloy_primitives::{U256, keccak256};
use alloy_rlp::Decodable;
use cambium_primitives::{AccessList, AccessListLimits, Account, AccountChanges, PreStateValues};

/// Input: the maximum index (2 bytes), the maximum number of items (2), the length of the pre-state
/// values (2), the list, the values.
///
/// A decoded list is within its limits and is encoded to the same bytes, on which its hash depends.
/// A list built from its parts equals it.
pub fn access_list(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let limits = AccessListLimits {
        index_max: input.u16().into(),
        items_max: input.u16().into(),
    };
    let found_len = usize::from(input.u16());
    let rest = input.rest();
    let (rlp, found) = rest.split_at(rest.len().saturating_sub(found_len));
    let Ok(list) = AccessList::decode(rlp, &limits) else {
        return;
    };
    assert_eq!(list.encode(), rlp, "another encoding of the same list");
    assert_eq!(list.hash(), keccak256(rlp));
    assert!(list.counts().items() <= limits.items_max);
    let foreign = Vec::<AccountChanges>::decode(&mut &*rlp).expect("a list to others, too");
    assert_eq!(foreign, list.accounts());
    assert_eq!(AccessList::new(foreign, &limits).as_ref(), Ok(&list));
    assert!(list.accounts().is_sorted_by(|a, b| a.address < b.address));
    for account in list.accounts() {
        assert_eq!(list.account(&account.address), Some(account));
    }
    let twin = AccessList::decode(rlp, &limits).expect("decoded before");
    assert_eq!(list.first_difference(&twin), None);
    let changes_only = list.changes_only();
    assert_eq!(changes_only.counts().changes(), list.counts().changes());
    assert_eq!(changes_only.counts().slots_read, 0);
    let difference = list.first_difference(&changes_only);
    assert_eq!(difference.is_none(), changes_only == list);

    // The list is untrusted, so the values that it claims need not fit the pre-state.
    for found in [None, Some(Account::default())] {
        for value in [U256::ZERO, U256::ONE] {
            let made = list.changes(|_| Ok::<_, ()>(found), |_, _| Ok(value));
            let made = made.expect("changes");
            assert!(made.counts().0 as u64 <= list.counts().accounts_changed);
        }
    }
    assert!(list.codes().is_sorted_by(|a, b| a.0 < b.0));

    let nothing = |_| Ok::<_, ()>(None::<Account>);
    let empty = PreStateValues::read(&list, nothing, |_, _| Ok(U256::ZERO)).expect("values");
    assert_eq!(
        PreStateValues::decode(&empty.encode(), &list).as_ref(),
        Ok(&empty)
    );
    if let Ok(values) = PreStateValues::decode(found, &list) {
        assert_eq!(
            values.encode(),
            found,
            "another encoding of the same values"
        );
        assert!(values.is_of(&list));
    }
}
