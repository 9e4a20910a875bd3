//! WebSockets.

use super::session::{Ended, Heard, Wire};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
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

    async fn send(&mut self, part: Vec<u8>, is_first: bool, is_last: bool) -> Result<(), Ended> {
        let code = if is_first { Data::Text } else { Data::Continue };
        let frame = Frame::message(part, OpCode::Data(code), is_last);
        Ok(self.0.send(Message::Frame(frame)).await?)
    }

    async fn ping(&mut self) -> Result<(), Ended> {
        Ok(self.0.send(Message::Ping(Default::default())).await?)
    }

    async fn close(&mut self) -> Result<(), Ended> {
        Ok(self.0.send(Message::Close(None)).await?)
    }
}
