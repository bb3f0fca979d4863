//! Output of a running call, joined into few events. Needs no runtime: the caller passes the current time.
//!
//! 1. A call has at most [`EVENTS_PER_SECOND`] events in any second, including the event with the rest.
//! 2. The bytes in the events, and the bytes that events count as missed, together are the whole output, in order.
//! 3. Memory is bounded, independent of the amount of output.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_tools::output::{without_cut_end, without_cut_start};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::time::{Duration, Instant};

/// Maximum number of events of a call per second. A person cannot follow more events, and a program can easily read
/// this number.
const EVENTS_PER_SECOND: usize = 20;
const SECOND: Duration = Duration::from_secs(1);
/// Pause after an event, while few bytes are held.
const PAUSE: Duration = Duration::from_millis(50);
/// If this number of bytes is held, the bytes are sent without that pause, so that a fast command can send 5 MB per
/// second.
const BATCH_BYTES: usize = 256 * 1024;
/// Maximum number of held bytes. If more bytes are held, only the last [`BATCH_BYTES`] are kept. Dropping bytes moves
/// the remaining bytes, so bytes are not dropped for each piece.
const HELD_BYTES_MAX: usize = 2 * BATCH_BYTES;

/// Output of one call that is not sent yet.
#[derive(Debug, Default)]
pub(crate) struct OutputBatch {
    held: Vec<u8>,
    /// Number of bytes left out before the held bytes.
    missed: u64,
    /// Times of the latest events: at most [`EVENTS_PER_SECOND`] - 1, because one event is reserved for the rest of the
    /// output.
    sent: VecDeque<Instant>,
}

/// Content of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputEvent {
    pub(crate) text: Arc<str>,
    pub(crate) base64: Option<Arc<str>>,
    pub(crate) missed_bytes: u64,
}

impl OutputBatch {
    /// Adds output, and returns the event to send now, if one is due.
    pub(crate) fn push(&mut self, output: &[u8], now: Instant) -> Option<OutputEvent> {
        self.held.extend_from_slice(output);
        let piece = self.take_due(now);
        if self.held.len() > HELD_BYTES_MAX {
            let from = self.held.len() - BATCH_BYTES;
            let kept = without_cut_start(&self.held[from..]).to_vec();
            self.missed += (self.held.len() - kept.len()) as u64;
            self.held = kept;
        }
        piece
    }

    /// If the held output is due, returns it without an incomplete character at its end.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<OutputEvent> {
        if self.free_at().is_some_and(|at| now < at) {
            return None;
        }
        let whole = without_cut_end(&self.held).len();
        let cut = self.held.split_off(whole);
        let piece = self.take_all();
        self.held = cut;
        if piece.is_some() {
            if self.sent.len() == EVENTS_PER_SECOND - 1 {
                self.sent.pop_front();
            }
            self.sent.push_back(now);
        }
        piece
    }

    /// Returns all held output, after the call has ended.
    pub(crate) fn take_all(&mut self) -> Option<OutputEvent> {
        if self.held.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.held);
        let is_text = str::from_utf8(&bytes).is_ok();
        let base64 = (!is_text).then(|| BASE64.encode(&bytes).into());
        let text = String::from_utf8_lossy(&bytes).into();
        Some(OutputEvent {
            text,
            base64,
            missed_bytes: std::mem::take(&mut self.missed),
        })
    }

    /// Time at which [`take_due`](Self::take_due) returns output; `None` if no output becomes due before more output
    /// arrives.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let is_held = !without_cut_end(&self.held).is_empty();
        self.free_at().filter(|_| is_held)
    }

    /// Earliest time of the next event; `None` if no event was sent yet.
    fn free_at(&self) -> Option<Instant> {
        let last = *self.sent.back()?;
        let is_full = self.sent.len() == EVENTS_PER_SECOND - 1;
        let first = self.sent.front().filter(|_| is_full);
        let second = first.map_or(last, |first| *first + SECOND);
        let paused = if self.held.len() < BATCH_BYTES {
            last + PAUSE
        } else {
            last
        };
        Some(paused.max(second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(piece: Option<OutputEvent>) -> Option<String> {
        let piece = piece?;
        assert_eq!((piece.base64, piece.missed_bytes), (None, 0));
        Some(piece.text.to_string())
    }

    /// Passes pieces through a batch, one in each interval `every`, as the engine does. Returns the events with their
    /// times.
    fn run(pieces: &[&[u8]], every: Duration) -> Vec<(Instant, OutputEvent)> {
        let mut batch = OutputBatch::default();
        let mut now = Instant::now();
        let mut sent = Vec::new();
        for piece in pieces {
            sent.extend(batch.push(piece, now).map(|piece| (now, piece)));
            let next = now + every;
            while let Some(at) = batch.due_at().filter(|at| *at < next) {
                sent.extend(batch.take_due(at).map(|piece| (at, piece)));
            }
            now = next;
        }
        sent.extend(batch.take_all().map(|piece| (now, piece)));
        sent
    }

    #[track_caller]
    fn assert_rate(sent: &[(Instant, OutputEvent)]) {
        for window in sent.windows(EVENTS_PER_SECOND + 1) {
            let [(first, _), .., (last, _)] = window else {
                unreachable!("a window has two ends")
            };
            assert!(*last - *first >= SECOND, "{:?}", *last - *first);
        }
    }

    fn bytes(sent: &[(Instant, OutputEvent)]) -> Vec<u8> {
        let mut all = Vec::new();
        for (_, piece) in sent {
            match &piece.base64 {
                Some(base64) => all.extend(BASE64.decode(base64.as_bytes()).unwrap()),
                None => all.extend_from_slice(piece.text.as_bytes()),
            }
        }
        all
    }

    #[test]
    fn first_output_is_sent_at_once_and_more_after_a_pause() {
        let (mut batch, now) = (OutputBatch::default(), Instant::now());
        assert_eq!(text(batch.push(b"a\n", now)).as_deref(), Some("a\n"));
        assert_eq!(batch.due_at(), None);
        assert_eq!(batch.push(b"b\n", now), None);
        assert_eq!(batch.due_at(), Some(now + PAUSE));
        assert_eq!(batch.push(b"c\n", now + PAUSE / 2), None);
        assert_eq!(batch.due_at(), Some(now + PAUSE));
        assert_eq!(batch.take_due(now + PAUSE / 2), None);
        let due = batch.take_due(now + PAUSE);
        assert_eq!(text(due).as_deref(), Some("b\nc\n"));
        assert_eq!(batch.push(b"d", now + PAUSE), None);
        assert_eq!(text(batch.take_all()).as_deref(), Some("d"));
        assert_eq!((batch.take_all(), batch.due_at()), (None, None));
    }

    #[test]
    fn a_second_has_at_most_twenty_events_and_no_byte_is_lost() {
        let lines: Vec<String> = (0..30_000).map(|line| format!("{line} é\n")).collect();
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        for every in [0, 10, 100, 7_000, 60_000] {
            let sent = run(&lines, Duration::from_micros(every));
            assert_rate(&sent);
            assert_eq!(bytes(&sent), lines.concat(), "{every} µs");
        }
    }

    #[test]
    fn much_output_at_once_needs_no_pause() {
        let piece = vec![b'x'; 64 * 1024];
        let pieces = vec![&piece[..]; 4 * (EVENTS_PER_SECOND - 1)];
        let sent = run(&pieces, Duration::ZERO);
        assert_rate(&sent);
        assert_eq!(bytes(&sent), pieces.concat());
    }

    #[test]
    fn a_flood_is_bounded_and_what_is_left_out_is_counted() {
        let piece = "é\n".repeat(20_001);
        let mut batch = OutputBatch::default();
        let (mut pushed, mut seen, mut missed, mut events) = (0, 0, 0, 0);
        let (mut now, begin) = (Instant::now(), Instant::now());
        while pushed < 100_000_000 {
            let sent = batch.push(piece.as_bytes(), now);
            assert!(batch.held.len() <= HELD_BYTES_MAX);
            pushed += piece.len();
            now += Duration::from_micros(100);
            if let Some(piece) = sent {
                assert_eq!(piece.base64, None, "cut inside a character");
                assert!(piece.text.len() <= HELD_BYTES_MAX + 100_000);
                (seen, missed) = (seen + piece.text.len(), missed + piece.missed_bytes);
                events += 1;
            }
        }
        let rest = batch.take_all().unwrap();
        assert!(rest.text.ends_with("é\n"), "the end is kept");
        (seen, missed) = (seen + rest.text.len(), missed + rest.missed_bytes);
        assert!(missed > 0);
        assert_eq!(seen as u64 + missed, pushed as u64);
        let seconds = (now - begin).as_secs() as usize + 1;
        assert!(events < EVENTS_PER_SECOND * seconds, "{events} events");
    }

    #[test]
    fn a_character_is_never_cut() {
        let (mut batch, now) = (OutputBatch::default(), Instant::now());
        let bytes = "€".as_bytes();
        assert_eq!(batch.push(&bytes[..1], now), None);
        assert_eq!(
            batch.due_at(),
            None,
            "it waits for the rest, not for a time"
        );
        assert_eq!(batch.push(&bytes[1..2], now), None);
        let whole = batch.push(&[&bytes[2..], &bytes[..2]].concat(), now);
        assert_eq!(text(whole).as_deref(), Some("€"));
        let rest = batch.take_all().unwrap();
        assert_eq!(
            &*rest.text, "\u{fffd}",
            "the output ends inside a character"
        );
        assert_eq!(rest.base64.as_deref(), Some("4oI="));
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        let all: Vec<u8> = (0..=255).collect();
        let pieces: Vec<&[u8]> = all.chunks(7).cycle().take(1_000).collect();
        let sent = run(&pieces, Duration::from_millis(3));
        assert!(sent.iter().any(|(_, piece)| piece.base64.is_some()));
        assert_eq!(bytes(&sent), pieces.concat());
    }
}
