//! A socket in the file system, for programs of the same user: one JSON value after another, both ways.

use super::session::{self, Ended, Heard, Wire};
use crate::{dispatch::Service, figures::Alive};
use serde_json::value::RawValue;
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::sleep,
};

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens. Its file is removed with it.
#[derive(Debug)]
pub(super) struct Ipc {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Ipc {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Ipc {
    /// Listens at a path, of which the user alone may write. A socket that nobody listens at any more is replaced.
    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        let is_socket = |file: fs::Metadata| file.file_type().is_socket();
        if fs::symlink_metadata(path).is_ok_and(is_socket)
            && std::os::unix::net::UnixStream::connect(path).is_err()
        {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let path = path.to_owned();
        Ok(Self { listener, path })
    }

    /// Accepts connections until it is to end.
    pub(super) async fn run(self, service: Arc<Service>, mut ends: watch::Receiver<()>) {
        let permits = Arc::new(Semaphore::new(service.served.limits.connections));
        let mut open = JoinSet::new();
        loop {
            let accepted = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                accepted = accepted => accepted,
                _ = ends.changed() => break,
            };
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            while open.try_join_next().is_some() {}
            let (service, ends) = (Arc::clone(&service), ends.clone());
            open.spawn(async move {
                let (_permit, _alive) = (permit, Alive::connection(&service.figures));
                let bytes_max = service.served.limits.body_bytes;
                let wire = Values {
                    stream,
                    heard: Vec::new(),
                    bytes_max,
                };
                session::serve(wire, service, ends).await;
            });
        }
        while open.join_next().await.is_some() {}
    }
}

/// JSON values over a socket.
struct Values {
    stream: UnixStream,
    /// Bytes that are no whole value yet.
    heard: Vec<u8>,
    bytes_max: usize,
}

impl Values {
    /// The next whole value among the bytes that came.
    fn whole(&mut self) -> Option<Result<Vec<u8>, Ended>> {
        let mut values = serde_json::Deserializer::from_slice(&self.heard).into_iter::<&RawValue>();
        match values.next()? {
            Ok(value) => {
                // A number could go on.
                let text = value.get();
                let end = values.byte_offset();
                if !text.ends_with(['}', ']', '"']) && end == self.heard.len() {
                    return None;
                }
                let value = text.as_bytes().to_vec();
                self.heard.drain(..end);
                Some(Ok(value))
            }
            Err(error) if error.is_eof() => None,
            Err(_) => Some(Err(Ended)),
        }
    }
}

impl Wire for Values {
    const HAS_SIGNS: bool = false;

    async fn next(&mut self) -> Option<Result<Heard, Ended>> {
        loop {
            if let Some(value) = self.whole() {
                return Some(value.map(Heard::Request));
            }
            if self.heard.len() > self.bytes_max {
                return Some(Err(Ended));
            }
            match self.stream.read_buf(&mut self.heard).await {
                Ok(0) => return None,
                Ok(_) => {}
                Err(_) => return Some(Err(Ended)),
            }
        }
    }

    async fn send(&mut self, part: Vec<u8>, _is_first: bool, is_last: bool) -> Result<(), Ended> {
        self.stream.write_all(&part).await.map_err(|_| Ended)?;
        match is_last {
            true => self.stream.write_all(b"\n").await.map_err(|_| Ended),
            false => Ok(()),
        }
    }

    /// A socket of the same machine tells when its other side has gone.
    async fn ping(&mut self) -> Result<(), Ended> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Ended> {
        self.stream.shutdown().await.map_err(|_| Ended)
    }
}
