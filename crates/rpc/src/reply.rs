//! Answers, written while they are made.

use crate::{
    error::RpcError,
    held::{Held, no_room},
};
use serde::Serialize;
use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};
use tokio::{runtime::Handle, sync::mpsc, time::timeout};

/// Bytes of a piece that goes to the client.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Longest time for which a client may take no piece of a long answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pieces that wait for the client.
pub(crate) const PIECES_WAITING: usize = 4;

/// A part of the answer to a request.
#[derive(Debug)]
pub(crate) enum Piece {
    /// There are more.
    More(Vec<u8>),
    /// There is no other one. Without it the answer was given up.
    Last(Vec<u8>),
}

/// Who receives the pieces of an answer.
enum To {
    /// Nobody until the answer is whole.
    Kept,
    /// Nobody at all: the call was sent without an identifier.
    Nobody,
    Client(mpsc::Sender<Piece>),
}

/// Where an answer goes: a buffer, which is sent piece by piece once it is long.
pub(crate) struct Out {
    buffer: Vec<u8>,
    to: To,
    sent: u64,
    bytes_max: u64,
    /// What the request and its answer hold, and how much of it is the request's. `None` if nobody counts it.
    held: Option<(Arc<Held>, usize)>,
}

impl Out {
    /// An answer that is sent piece by piece.
    pub(crate) const fn streaming(to: mpsc::Sender<Piece>, bytes_max: u64) -> Self {
        Self {
            buffer: Vec::new(),
            to: To::Client(to),
            sent: 0,
            bytes_max,
            held: None,
        }
    }

    /// An answer that nobody waits for.
    pub(crate) const fn unwanted(bytes_max: u64) -> Self {
        Self {
            buffer: Vec::new(),
            to: To::Nobody,
            sent: 0,
            bytes_max,
            held: None,
        }
    }

    /// An answer that is kept.
    pub(crate) const fn kept(bytes_max: u64) -> Self {
        Self {
            buffer: Vec::new(),
            to: To::Kept,
            sent: 0,
            bytes_max,
            held: None,
        }
    }

    /// Counts the answer as held by its request, which has `request_bytes`.
    pub(crate) fn holding(self, held: Arc<Held>, request_bytes: usize) -> Self {
        Self {
            held: Some((held, request_bytes)),
            ..self
        }
    }

    /// Holds this many bytes of the answer. False if there is no room for them.
    fn hold(&self, bytes: usize) -> bool {
        let held = self.held.as_ref();
        held.is_none_or(|(held, request)| held.grow_to(request + bytes))
    }

    /// Makes room in the buffer. Fails if the server has none.
    fn reserve(&mut self, more: usize) -> io::Result<()> {
        let (len, capacity) = (self.buffer.len(), self.buffer.capacity());
        if len + more <= capacity.max(PIECE_BYTES) {
            return Ok(());
        }
        let wanted = (len + more).max(capacity + capacity / 2);
        // Errors, and what is between answers, are short: they are written in any case.
        if !self.hold(wanted) && self.bytes_max != u64::MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.buffer.reserve_exact(wanted - len);
        Ok(())
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.sent + self.buffer.len() as u64
    }

    /// Whether a part of it has gone that was written when it had at least this length.
    pub(crate) const fn has_gone_since(&self, len: u64) -> bool {
        self.sent > len
    }

    /// Whether so many bytes more are allowed.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.len().saturating_add(bytes as u64) <= self.bytes_max
            && self.hold(self.buffer.len().saturating_add(bytes))
    }

    /// Takes back what was written since it had this length, of which nothing has gone.
    pub(crate) fn rewind(&mut self, len: u64) {
        self.buffer.truncate((len - self.sent) as usize);
    }

    /// Writes what does not count: errors, and what is between answers.
    pub(crate) fn exempt<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        let bytes_max = std::mem::replace(&mut self.bytes_max, u64::MAX);
        let written = write(self);
        self.bytes_max = bytes_max;
        written
    }

    /// Sends the buffer as a piece.
    fn send(&mut self) -> io::Result<()> {
        // This piece, and as many as may wait before it.
        let pieces = (1 + PIECES_WAITING) * PIECE_BYTES;
        if self.sent == 0 && matches!(self.to, To::Client(_)) && !self.hold(pieces) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let piece = std::mem::take(&mut self.buffer);
        self.sent += piece.len() as u64;
        let To::Client(to) = &self.to else {
            return Ok(());
        };
        // A client that is slower than that does without: the thread is wanted by others.
        let sent = timeout(PATIENCE, to.send(Piece::More(piece)));
        match Handle::current().block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// The bytes that have not gone.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.buffer
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.len() + bytes.len() as u64 > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if matches!(self.to, To::Kept) {
            self.reserve(bytes.len())?;
            self.buffer.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        // A long value is taken apart too: what waits for a client is counted in pieces.
        let taken = bytes.len().min(PIECE_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == PIECE_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the result of one call. Nothing is written before the first byte of the result is, so that an error until then is
/// an answer as well.
pub struct Reply<'o> {
    out: &'o mut Out,
    /// The identifier that the client gave the call, as it was sent.
    id: &'o str,
    has_begun: bool,
}

impl<'o> Reply<'o> {
    pub(crate) const fn new(out: &'o mut Out, id: &'o str) -> Self {
        Self {
            out,
            id,
            has_begun: false,
        }
    }

    /// The whole result.
    ///
    /// # Errors
    ///
    /// If the answer is too large, or the client has left.
    pub fn value(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), RpcError> {
        serde_json::to_writer(self, value).map_err(|error| match error.io_error_kind() {
            Some(kind) => write_error(kind),
            None => RpcError::internal(error),
        })
    }

    /// The whole result, which is JSON already.
    ///
    /// # Errors
    ///
    /// As [`Reply::value`].
    pub fn json(&mut self, json: &str) -> Result<(), RpcError> {
        self.write_all(json.as_bytes())
            .map_err(|error| write_error(error.kind()))
    }

    /// A result that is a list, one item after another.
    ///
    /// # Errors
    ///
    /// As [`Reply::value`].
    pub fn list(&mut self) -> Result<ListReply<'_, 'o>, RpcError> {
        self.json("[")?;
        Ok(ListReply {
            reply: self,
            is_empty: true,
        })
    }

    /// Ends the answer, or makes it that of an error. Fails if neither can be.
    pub(crate) fn end(mut self, result: Result<(), RpcError>) -> Result<(), RpcError> {
        let result = match (result, self.has_begun) {
            (Ok(()), false) => self.json("null"),
            (result, _) => result,
        };
        match result {
            // A filter has moved on with what is written so far, which is why the last byte does not fail.
            Ok(()) => {
                let written = self.out.exempt(|out| out.write_all(b"}"));
                written.map_err(|error| write_error(error.kind()))
            }
            Err(error) => Err(error),
        }
    }
}

/// The error of an answer that is too large.
pub(crate) fn too_large() -> RpcError {
    RpcError::new(RpcError::TOO_LARGE, "the response is too large")
}

/// The error of a write.
fn write_error(kind: io::ErrorKind) -> RpcError {
    match kind {
        io::ErrorKind::FileTooLarge => too_large(),
        io::ErrorKind::OutOfMemory => no_room(),
        _ => RpcError::new(RpcError::TIMEOUT, "the client has left"),
    }
}

/// JSON of the result.
impl Write for Reply<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.has_begun {
            self.has_begun = true;
            self.out.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":")?;
            self.out.write_all(self.id.as_bytes())?;
            self.out.write_all(b",\"result\":")?;
        }
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A result that is a list.
pub struct ListReply<'r, 'o> {
    reply: &'r mut Reply<'o>,
    is_empty: bool,
}

impl ListReply<'_, '_> {
    /// The next item.
    ///
    /// # Errors
    ///
    /// As [`Reply::value`].
    pub fn item(&mut self, item: &(impl Serialize + ?Sized)) -> Result<(), RpcError> {
        if !self.is_empty {
            self.reply.json(",")?;
        }
        self.is_empty = false;
        self.reply.value(item)
    }

    /// The end of the list.
    ///
    /// # Errors
    ///
    /// As [`Reply::value`].
    pub fn end(self) -> Result<(), RpcError> {
        self.reply.json("]")
    }
}
