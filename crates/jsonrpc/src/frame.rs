//! Frames: a header with the length of the body, an empty line, the body.
//!
//! The format is the "base protocol" of the Language Server Protocol 3.17. Header lines end with `\r\n`; a bare `\n` is
//! accepted too. `Content-Length` is the number of bytes of the body. Other headers are ignored, so every body is read
//! as UTF-8, even if `Content-Type` names a different encoding.

use std::mem;

use thiserror::Error;

/// Maximum number of characters of a wrong header that an error quotes: enough to recognise the header in a log.
const QUOTED_CHARS_MAX: usize = 64;

/// Maximum sizes in a stream of frames. A larger frame is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Maximum bytes of one header, including its line ends and the empty line.
    pub header_bytes_max: usize,
    /// Maximum bytes of one body.
    pub body_bytes_max: usize,
}

/// Reason why a stream can't be read further: the position of the next frame is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The header does not end within the limit.
    #[error("the header of a frame is longer than {header_bytes_max} bytes")]
    HeaderTooLong {
        /// The limit, in bytes.
        header_bytes_max: usize,
    },
    /// A header line has no colon.
    #[error("invalid header line {line:?}: no colon")]
    InvalidHeaderLine {
        /// Start of the line.
        line: String,
    },
    /// The header ended without a `Content-Length`.
    #[error("the header of a frame has no Content-Length")]
    MissingContentLength,
    /// The header names the length twice, even if both values are equal.
    #[error("the header of a frame has more than one Content-Length")]
    RepeatedContentLength,
    /// The length is not a decimal number: empty, signed, or with other characters.
    #[error("invalid Content-Length {value:?}: must be a decimal number")]
    InvalidContentLength {
        /// Start of the value.
        value: String,
    },
    /// The length is a number above the limit.
    #[error("Content-Length {value} is above the limit of {body_bytes_max} bytes")]
    BodyTooLong {
        /// Start of the value, which may be too large for any integer type.
        value: String,
        /// The limit, in bytes.
        body_bytes_max: usize,
    },
}

/// Decoder of a stream of frames that arrives in chunks of any size.
///
/// Call [`push`](Self::push) with each chunk, then [`next_frame`](Self::next_frame) until it returns `None`. If the
/// caller does this, the decoder holds at most one header, one body and the largest chunk. The decoder allocates memory
/// for bytes that have arrived, not for the length that a header announces. The time of decoding is linear in the
/// number of pushed bytes, for all sizes of chunks and frames.
#[derive(Debug)]
pub struct FrameDecoder {
    limits: FrameLimits,
    /// Pushed bytes; the first `input_read_len` of them are decoded.
    input: Vec<u8>,
    input_read_len: usize,
    part: FramePart,
    /// Number of bytes of the current header that are decoded; at most the limit of a header.
    header_len: usize,
    /// Start of a header line whose end has not arrived.
    line: Vec<u8>,
    content_length: Option<usize>,
    /// Start of a body whose end has not arrived.
    body: Vec<u8>,
    failure: Option<FrameError>,
}

#[derive(Debug, Clone, Copy)]
enum FramePart {
    Header,
    Body { len: usize },
}

impl FrameDecoder {
    /// Creates a decoder at the start of a stream.
    pub fn new(limits: FrameLimits) -> Self {
        Self {
            limits,
            input: Vec::new(),
            input_read_len: 0,
            part: FramePart::Header,
            header_len: 0,
            line: Vec::new(),
            content_length: None,
            body: Vec::new(),
            failure: None,
        }
    }

    /// Takes the next bytes of the stream. After an error, the bytes are discarded.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        // Moves at most as many bytes as were decoded since the last move, so the total time of all moves is linear.
        if self.input_read_len >= self.input.len() - self.input_read_len {
            self.input.drain(..self.input_read_len);
            self.input_read_len = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// Returns the body of the next frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// If the stream can't be read further. Every later call returns the same error. Frames before the wrong header are
    /// returned first.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.decode().inspect_err(|error| {
            *self = Self {
                failure: Some(error.clone()),
                ..Self::new(self.limits)
            };
        })
    }

    /// True if all pushed bytes were returned as whole frames. If the stream ends here, no frame is incomplete.
    ///
    /// False after an error, and while `next_frame` has not yet returned `None` for the pushed bytes.
    pub fn is_at_boundary(&self) -> bool {
        self.failure.is_none()
            && matches!(self.part, FramePart::Header)
            && self.header_len == 0
            && self.unread().is_empty()
    }

    fn unread(&self) -> &[u8] {
        &self.input[self.input_read_len..]
    }

    fn decode(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        loop {
            match self.part {
                FramePart::Body { len } => return Ok(self.read_body(len)),
                FramePart::Header => {
                    if !self.read_line()? {
                        return Ok(None);
                    }
                    let line = mem::take(&mut self.line);
                    self.apply_line(&line)?;
                }
            }
        }
    }

    /// Moves input to `line`. Returns true when the line is complete.
    fn read_line(&mut self) -> Result<bool, FrameError> {
        let header_bytes_max = self.limits.header_bytes_max;
        let room = header_bytes_max - self.header_len;
        let unread = &self.input[self.input_read_len..];
        let within = &unread[..unread.len().min(room)];
        let newline = within.iter().position(|byte| *byte == b'\n');
        if newline.is_none() && unread.len() > room {
            return Err(FrameError::HeaderTooLong { header_bytes_max });
        }
        let taken = newline.map_or(within.len(), |at| at + 1);
        self.line.extend_from_slice(&within[..taken]);
        self.header_len += taken;
        self.input_read_len += taken;
        Ok(newline.is_some())
    }

    fn apply_line(&mut self, line: &[u8]) -> Result<(), FrameError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let length = self.content_length.take();
            let len = length.ok_or(FrameError::MissingContentLength)?;
            self.part = FramePart::Body { len };
            return Ok(());
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(FrameError::InvalidHeaderLine { line: quoted(line) });
        };
        let name = line[..colon].trim_ascii();
        if !name.eq_ignore_ascii_case(b"content-length") {
            return Ok(());
        }
        if self.content_length.is_some() {
            return Err(FrameError::RepeatedContentLength);
        }
        let value = line[colon + 1..].trim_ascii();
        self.content_length = Some(body_len(value, self.limits.body_bytes_max)?);
        Ok(())
    }

    /// Moves input to `body`, and returns the body when it is complete.
    fn read_body(&mut self, len: usize) -> Option<Vec<u8>> {
        let unread = &self.input[self.input_read_len..];
        let taken = unread.len().min(len - self.body.len());
        let filled = self.body.len() + taken;
        if filled > self.body.capacity() {
            // Doubles the capacity, but never beyond the length of the whole body.
            let capacity = self.body.capacity().saturating_mul(2).clamp(filled, len);
            self.body.reserve_exact(capacity - self.body.len());
        }
        self.body.extend_from_slice(&unread[..taken]);
        self.input_read_len += taken;
        if filled < len {
            return None;
        }
        self.part = FramePart::Header;
        self.header_len = 0;
        Some(mem::take(&mut self.body))
    }
}

/// Returns the frame of a body: `Content-Length: N\r\n\r\n` and the body.
pub fn encode_frame(body: &[u8]) -> Vec<u8> {
    let header = format!("Content-Length: {}\r\n\r\n", body.len());
    [header.as_bytes(), body].concat()
}

fn body_len(value: &[u8], body_bytes_max: usize) -> Result<usize, FrameError> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(FrameError::InvalidContentLength {
            value: quoted(value),
        });
    }
    value
        .iter()
        .try_fold(0_usize, |len, digit| {
            len.checked_mul(10)?.checked_add(usize::from(digit - b'0'))
        })
        .filter(|len| *len <= body_bytes_max)
        .ok_or_else(|| FrameError::BodyTooLong {
            value: quoted(value),
            body_bytes_max,
        })
}

fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().take(QUOTED_CHARS_MAX).collect()
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
