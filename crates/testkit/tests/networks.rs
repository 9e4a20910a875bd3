//! Names of networks in fixtures.

use alloy_primitives::U256;
use cambium_testkit::network;

#[test]
fn every_kind_of_network_name_is_understood() {
    let dao = network("HomesteadToDaoAt5").unwrap();
    assert_eq!(
        (dao.homestead_block, dao.dao_fork_block),
        (Some(0), Some(5))
    );
    let merge = network("ArrowGlacierToParisAtDiffC0000").unwrap();
    assert_eq!(merge.terminal_total_difficulty, Some(U256::from(0xc0000)));
    let shanghai = network("ParisToShanghaiAtTime15k").unwrap();
    assert_eq!(shanghai.shanghai_time, Some(15_000));
    assert_eq!(shanghai.terminal_total_difficulty, Some(U256::ZERO));
    let bpo = network("BPO1ToBPO2AtTime15k").unwrap();
    assert_eq!(bpo.bpo_times[..2], [Some(0), Some(15_000)]);
    let amsterdam = network("BPO2ToAmsterdamAtTime15k").unwrap();
    assert_eq!(amsterdam.bpo_times[..2], [Some(0), Some(0)]);
    assert_eq!(amsterdam.amsterdam_time, Some(15_000));
    assert_eq!(network("Verkle"), None);
}
