//! WebSockets.

use super::session::{Ended, Heard, Wire};
use futures_util::{SinkExt, StreamExt};
use hyper::{body::Bytes, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        protocol::{
            Role, WebSocketConfig,
            frame::{
                Frame,
                coding::{Data, OpCode},
            },
        },
    },
};

/// Most bytes that wait for a client.
const WRITE_BYTES: usize = 4 << 20;
/// Most bytes of a frame.
const FRAME_BYTES: usize = 1 << 20;

/// A WebSocket.
pub(super) struct Socket(WebSocketStream<TokioIo<Upgraded>>);

impl From<Error> for Ended {
    fn from(_: Error) -> Self {
        Self
    }
}

impl Socket {
    /// What a connection has become. Requests have at most `bytes_max` bytes.
    pub(super) async fn new(upgraded: Upgraded, bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(bytes_max))
            .max_frame_size(Some(bytes_max))
            .max_write_buffer_size(WRITE_BYTES);
        let io = TokioIo::new(upgraded);
        Self(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await)
    }
}

impl Wire for Socket {
    const HAS_SIGNS: bool = true;

    async fn next(&mut self) -> Option<Result<Heard, Ended>> {
        Some(match self.0.next().await? {
            Ok(Message::Close(_)) => return None,
            Ok(message) if message.is_text() || message.is_binary() => {
                Ok(Heard::Request(message.into_data().into()))
            }
            Ok(_) => Ok(Heard::Alive),
            Err(error) => Err(error.into()),
        })
    }

    /// A part may be longer than what waits for a client: it is sent in frames that are not.
    async fn send(&mut self, part: Vec<u8>, is_first: bool, is_last: bool) -> Result<(), Ended> {
        let mut rest = Bytes::from(part);
        let mut code = if is_first { Data::Text } else { Data::Continue };
        loop {
            let own = rest.split_to(rest.len().min(FRAME_BYTES));
            let frame = Frame::message(own, OpCode::Data(code), is_last && rest.is_empty());
            self.0.send(Message::Frame(frame)).await?;
            if rest.is_empty() {
                return Ok(());
            }
            code = Data::Continue;
        }
    }

    async fn ping(&mut self) -> Result<(), Ended> {
        Ok(self.0.send(Message::Ping(Default::default())).await?)
    }

    async fn close(&mut self) -> Result<(), Ended> {
        Ok(self.0.send(Message::Close(None)).await?)
    }
}
