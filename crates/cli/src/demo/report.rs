//! Output of the demo: lines for people, or one JSON object.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Receipt;
use serde_json::json;

use super::proof::{Before, DemoProof};
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_receipt};
use crate::host::ProcessHost;
use crate::terminal::{OutputPriority, OutputQueue, Style, Styled, Symbol, TextRole, styled};

/// Output of the demo.
pub(super) struct DemoReport<'a> {
    queue: &'a OutputQueue,
    style: Style,
    json: bool,
    receipt: Option<Arc<Receipt>>,
    proofs: Vec<DemoProof>,
    answer: String,
    /// From the stop to the turn's outcome.
    pub(super) elapsed: Option<Duration>,
}

impl<'a> DemoReport<'a> {
    pub(super) fn new(host: &'a ProcessHost, json: bool) -> Self {
        let queue = host.output.stdout();
        Self {
            queue,
            style: host.terminal.style(queue.is_terminal()),
            json,
            receipt: None,
            proofs: Vec::new(),
            answer: String::new(),
            elapsed: None,
        }
    }

    pub(super) fn say(&mut self, line: impl Into<Styled>) {
        if !self.json {
            self.queue.lines(line, OutputPriority::Must);
        }
    }

    pub(super) fn running(&mut self, before: &Before) {
        self.say(format!(
            "  {} sleeps, {} thread and {} connection are there",
            before.tree, before.threads, before.connections
        ));
    }

    pub(super) fn receipt(&mut self, receipt: &Arc<Receipt>) {
        self.receipt = Some(Arc::clone(receipt));
        if !self.json {
            let width = self.queue.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
            self.queue.lines(
                render_receipt(receipt, self.style, width),
                OutputPriority::Must,
            );
        }
    }

    /// Says what was found. Whether all of it holds.
    pub(super) fn proofs(&mut self, proofs: Vec<DemoProof>) -> bool {
        let mut all_hold = true;
        for proof in proofs {
            let holds = proof.holds();
            all_hold &= holds;
            let (role, symbol) = if holds {
                (TextRole::Good, Symbol::Good)
            } else {
                (TextRole::Bad, Symbol::Bad)
            };
            let sign = self.style.paint(role, self.style.symbol(symbol));
            let found = format!(" {}: {}", proof.what, proof.found);
            self.say(styled!["  ", sign, found]);
            self.proofs.push(proof);
        }
        all_hold
    }

    pub(super) fn answer(&mut self, answer: &str) {
        answer.clone_into(&mut self.answer);
        self.say(format!("  {answer}"));
    }

    /// The end after a signal.
    pub(super) fn stopped(&mut self) {
        self.say(self.style.paint(TextRole::Warning, "the demo was stopped"));
        if self.json {
            self.end(false);
        }
    }

    pub(super) fn end(&mut self, ok: bool) {
        if self.json {
            let object = json!({
                "schema": "allstop.demo/1",
                "ok": ok,
                "receipt": self.receipt,
                "proofs": self.proofs,
                "next_answer": self.answer,
                "stop_ms": self.elapsed.map(|elapsed| elapsed.as_millis() as u64),
            });
            self.queue.json(&object.to_string(), OutputPriority::Last);
            return;
        }
        let elapsed = self.elapsed.unwrap_or_default();
        self.say(if ok {
            let said = format!("nothing is left; the stop took {elapsed:.1?}");
            self.style.paint(TextRole::Good, said)
        } else {
            self.style.paint(
                TextRole::Bad,
                "something is left, or a claim did not hold: see above",
            )
        });
    }
}
