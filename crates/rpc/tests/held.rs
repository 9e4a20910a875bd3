//! Bytes that requests and their answers hold in memory.

use crate::common::{
    serving::{Serving, answer, hear},
    workload_genesis,
};
use cambium_node::Node;
use cambium_rpc::{Kind, Limits, Methods, Served, Service};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};
use tokio_tungstenite::tungstenite::Message;

const MIB: usize = 1 << 20;
const KIB: usize = 1 << 10;

/// A door that calls of `my_wait` stand before until it is opened.
#[derive(Default)]
struct Door {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Door {
    fn pass(&self) {
        let open = self.is_open.lock().unwrap();
        let waited = self.opened.wait_while(open, |open| !*open);
        drop(waited.unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

fn service(limits: Limits, door: &Arc<Door>) -> Arc<Service> {
    let door = Arc::clone(door);
    let methods = Methods::none()
        .with(
            "my_wait(Padding)",
            Kind::Quick,
            move |_, mut params, reply| {
                let _: String = params.required()?;
                params.end()?;
                door.pass();
                reply.value(&"passed")
            },
        )
        .with("my_text(Length)", Kind::Quick, |_, mut params, reply| {
            let length: usize = params.required()?;
            params.end()?;
            let mut list = reply.list()?;
            for _ in 0..length / KIB {
                list.item(&"x".repeat(KIB - 3))?;
            }
            list.end()
        });
    let node = Arc::new(Node::of_chain(workload_genesis()));
    Arc::new(Service::new(Arc::new(Served::new(node, limits)), methods))
}

fn request(method: &str, param: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": [param]}).to_string()
}

/// Waits until something is true.
fn until(what: &str, is_true: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn requests_that_wait_hold_no_more_than_the_server_has_room_for() {
    let limits = Limits {
        body_bytes: 2 * MIB,
        held_bytes: 4 * MIB,
        threads: 1,
        ..Limits::default()
    };
    let door = Arc::default();
    let service = service(limits, &door);
    let server = Serving::new(Arc::clone(&service));
    let large = request("my_wait", json!("x".repeat(MIB)));
    let small = request("my_wait", json!(""));
    assert_eq!(service.held_bytes(), 0);
    // One is executed and two wait, since there is one thread. Each may have its answer's first piece besides.
    let waiting: Vec<_> = (0..3).map(|_| server.send(&large)).collect();
    until("three requests are held", || {
        service.held_bytes() >= 3 * MIB
    });
    let refused = answer(server.send(&large));
    assert_eq!(refused["error"]["code"], -32005, "{refused}");
    assert!(service.held_bytes() <= limits.held_bytes);
    // There is room for a small one.
    let little = server.send(&small);
    until("the small one is held", || {
        service.held_bytes() > 3 * MIB + 4 * 64 * KIB
    });
    door.open();
    for stream in waiting.into_iter().chain([little]) {
        assert_eq!(answer(stream)["result"], "passed");
    }
    until("all is given back", || service.held_bytes() == 0);
    assert_eq!(answer(server.send(&large))["result"], "passed");
}

#[test]
fn a_client_that_does_not_read_keeps_one_batch_alone_in_memory() {
    let limits = Limits {
        held_bytes: 64 * MIB,
        ..Limits::default()
    };
    let service = service(limits, &Arc::default());
    let server = Serving::new(Arc::clone(&service));
    let mut socket = server.socket();
    let batch = format!("[{}]", request("my_text", json!(8 * MIB)));
    for _ in 0..10 {
        socket.send(Message::text(batch.clone())).unwrap();
    }
    until("a batch is answered", || service.held_bytes() >= 8 * MIB);
    for _ in 0..100 {
        let held = service.held_bytes();
        assert!(held < 16 * MIB, "{held} bytes are held");
        thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..10 {
        let all = hear(&mut socket);
        assert_eq!(all[0]["result"].as_array().unwrap().len(), 8 * KIB);
    }
    until("all is given back", || service.held_bytes() == 0);
}

#[test]
fn a_batch_that_the_server_has_no_room_for_is_answered_as_far_as_it_has() {
    let limits = Limits {
        body_bytes: MIB,
        held_bytes: 3 * MIB,
        ..Limits::default()
    };
    let service = service(limits, &Arc::default());
    let server = Serving::new(Arc::clone(&service));
    let one = request("my_text", json!(MIB));
    let batch = format!("[{}]", vec![one; 6].join(","));
    let all = answer(server.send(&batch));
    assert_eq!(all[0]["result"].as_array().unwrap().len(), KIB, "{all}");
    assert_eq!(all[5]["error"]["code"], -32005);
    until("all is given back", || service.held_bytes() == 0);
}
