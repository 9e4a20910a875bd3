//! Who may call a server with a secret.

use crate::common::{consensus::Consensus, served_of, workload_genesis};
use cambium_rpc::{JwtError, JwtSecret, Limits, PoolLimits, Server};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{runtime::Builder, sync::oneshot};

#[test]
fn only_those_with_a_fresh_token_of_the_secret_may_call() {
    let secret = JwtSecret::new([7; 32]);
    let served = served_of(
        workload_genesis(),
        Limits::of_engine(),
        PoolLimits::default(),
    );
    let service = Arc::new(Consensus::new(served).service);
    let (to_address, address) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let own = secret.clone();
    let running = thread::spawn(move || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = Server::listen("127.0.0.1:0".parse().unwrap())
                .await
                .unwrap();
            to_address.send(server.address()).unwrap();
            let stopped = async {
                let _ = stopped.await;
            };
            server.with_jwt(own).run(service, stopped).await;
        });
    });
    let address = address.recv().unwrap();
    let status = |lines: &str| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(status == 200, answer.contains("\"result\""));
        status
    };
    let bearer = |token: &str| status(&format!("Authorization: Bearer {token}\r\n"));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    assert_eq!(status(""), 401);
    assert_eq!(status("Authorization: Basic abc\r\n"), 401);
    assert_eq!(bearer("abc"), 401);
    assert_eq!(bearer("a.b.c"), 401);
    assert_eq!(bearer(&JwtSecret::new([8; 32]).token()), 401);
    assert_eq!(bearer(&secret.token_at(now - 90)), 401);
    assert_eq!(bearer(&secret.token_at(now + 90)), 401);
    assert_eq!(bearer(&secret.token_at(now - 30)), 200);
    assert_eq!(bearer(&secret.token()), 200);
    // Another algorithm, or none.
    let token = secret.token();
    let (_, rest) = token.split_once('.').unwrap();
    for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJIUzUxMiJ9"] {
        assert_eq!(bearer(&format!("{header}.{rest}")), 401);
    }
    let (unsigned, _) = token.rsplit_once('.').unwrap();
    assert_eq!(bearer(&format!("{unsigned}.")), 401);
    assert!(token.starts_with("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."));
    // A connection can't become a WebSocket without it, either.
    let upgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: abc\r\n";
    assert_eq!(status(upgrade), 401);
    drop(stop);
    running.join().unwrap();
}

#[test]
fn a_secret_is_read_or_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwt.hex");
    let made = JwtSecret::read_or_make(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.trim().len(), 64);
    assert!(JwtSecret::read_or_make(&path).unwrap() == made);
    fs::write(&path, format!("0x{}", text.trim())).unwrap();
    assert!(JwtSecret::read(&path).unwrap() == made);
    for wrong in ["", "0x12", "no secret", &"zz".repeat(32)] {
        fs::write(&path, wrong).unwrap();
        let error = JwtSecret::read_or_make(&path).unwrap_err();
        assert!(matches!(error, JwtError::NoSecret { .. }), "{error}");
    }
    assert!(JwtSecret::read(&folder.path().join("none")).is_err());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::remove_file(&path).unwrap();
        JwtSecret::read_or_make(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
