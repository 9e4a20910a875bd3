//! Bodies of requests, which count as held from when they come.

use crate::held::Held;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

/// Why a body did not come as a whole.
pub(super) enum Broken {
    TooLarge,
    NoRoom,
    BrokeOff,
}

/// The bytes of a body, `bytes_max` at most.
pub(super) async fn received(
    mut body: Incoming,
    bytes_max: usize,
    held: &Held,
) -> Result<Vec<u8>, Broken> {
    let mut all = Vec::new();
    // Room is made for what has come, not for what is announced.
    let announced = body.size_hint().exact();
    let announced = announced.map_or(bytes_max, |bytes| bytes as usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Broken::BrokeOff)?;
        let Ok(more) = frame.into_data() else {
            continue;
        };
        let wanted = all.len() + more.len();
        if wanted > bytes_max {
            return Err(Broken::TooLarge);
        }
        if wanted > all.capacity() {
            let wanted = wanted.max((2 * all.capacity()).min(announced));
            if !held.grow_to(wanted) {
                return Err(Broken::NoRoom);
            }
            all.reserve_exact(wanted - all.len());
        }
        all.extend_from_slice(&more);
    }
    Ok(all)
}
