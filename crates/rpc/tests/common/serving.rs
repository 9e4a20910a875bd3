//! A service behind a port of its own.

use cambium_rpc::{Server, Service};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{runtime::Builder, sync::oneshot};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// A server that ends when this is dropped.
pub struct Serving {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub fn new(service: Arc<Service>) -> Self {
        Self::with_socket(service, None)
    }

    /// Listens at a socket in the file system as well, if one is named.
    pub fn with_socket(service: Arc<Service>, ipc: Option<PathBuf>) -> Self {
        let (to_address, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::listen("127.0.0.1:0".parse().unwrap()).await;
                let server = match ipc {
                    Some(path) => server.unwrap().with_socket(&path).unwrap(),
                    None => server.unwrap(),
                };
                to_address.send(server.address()).unwrap();
                let stopped = async {
                    let _ = stopped.await;
                };
                server.run(service, stopped).await;
            });
            runtime.shutdown_timeout(Duration::from_secs(5));
        });
        Self {
            address: address.recv().unwrap(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        stream
    }

    /// Sends a request on a connection of its own, and returns without the answer.
    pub fn send(&self, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        stream
    }

    pub fn socket(&self) -> WebSocket<TcpStream> {
        let url = format!("ws://{}/", self.address);
        client(url, self.connect()).unwrap().0
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// The answer to what [`Serving::send`] has sent, which has a length.
pub fn answer(mut stream: TcpStream) -> Value {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{text}"))
}

/// Calls a method over a WebSocket, and returns what comes next.
pub fn call(socket: &mut WebSocket<TcpStream>, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    socket.send(Message::text(request.to_string())).unwrap();
    hear(socket)
}

/// The next message.
pub fn hear(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}
