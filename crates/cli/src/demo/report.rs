//! What the demo says: lines for people, or one JSON object.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Receipt;
use serde_json::json;

use super::proof::{Before, Proof};
use crate::display::{
    Keep, Lane, RECEIPT_WIDTH_DEFAULT, Role, Style, Styled, Symbol, render_receipt, styled,
};
use crate::host::Host;

/// What the demo says.
pub(super) struct Report<'a> {
    lane: &'a Lane,
    style: Style,
    json: bool,
    receipt: Option<Arc<Receipt>>,
    proofs: Vec<Proof>,
    answer: String,
    /// From the stop to the turn's outcome.
    pub(super) elapsed: Option<Duration>,
}

impl<'a> Report<'a> {
    pub(super) fn new(host: &'a Host, json: bool) -> Self {
        let lane = host.output.stdout();
        Self {
            lane,
            style: host.terminal.style(lane.is_terminal()),
            json,
            receipt: None,
            proofs: Vec::new(),
            answer: String::new(),
            elapsed: None,
        }
    }

    pub(super) fn say(&mut self, line: impl Into<Styled>) {
        if !self.json {
            self.lane.lines(line, Keep::Must);
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
            let width = self.lane.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
            self.lane
                .lines(render_receipt(receipt, self.style, width), Keep::Must);
        }
    }

    /// Says what was found. Whether all of it holds.
    pub(super) fn proofs(&mut self, proofs: Vec<Proof>) -> bool {
        let mut all_hold = true;
        for proof in proofs {
            let holds = proof.holds();
            all_hold &= holds;
            let (role, symbol) = if holds {
                (Role::Good, Symbol::Good)
            } else {
                (Role::Bad, Symbol::Bad)
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
        self.say(self.style.paint(Role::Warning, "the demo was stopped"));
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
            self.lane.json(&object.to_string(), Keep::Last);
            return;
        }
        let elapsed = self.elapsed.unwrap_or_default();
        self.say(if ok {
            let said = format!("nothing is left; the stop took {elapsed:.1?}");
            self.style.paint(Role::Good, said)
        } else {
            self.style.paint(
                Role::Bad,
                "something is left, or a claim did not hold: see above",
            )
        });
    }
}
