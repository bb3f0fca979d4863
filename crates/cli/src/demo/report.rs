//! Output of the demo: lines for people, or one JSON object.

use std::sync::Arc;

use allstop_core::Receipt;
use allstop_core::counted::counted;
use allstop_terminal::{OutputPriority, OutputQueue, Style, Styled, Symbol, TextRole, styled};
use serde_json::{Map, Value, json};

use super::proof::{DemoProof, ProcessCounts};
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_receipt};
use crate::host::ProcessHost;
use crate::json_document::DocumentSchema;

/// Width of printed sentences if the output is not a terminal.
const TEXT_WIDTH_DEFAULT: usize = 80;

/// Output of the demo.
pub(super) struct DemoReport<'a> {
    queue: &'a OutputQueue,
    stderr: &'a OutputQueue,
    style: Style,
    json: bool,
    receipt: Option<Arc<Receipt>>,
    proofs: Vec<DemoProof>,
    /// Further fields of the JSON object.
    fields: Map<String, Value>,
    /// Last line of the output if every proof holds.
    conclusion: String,
}

impl<'a> DemoReport<'a> {
    pub(super) fn new(host: &'a ProcessHost, json: bool) -> Self {
        let queue = host.output.stdout();
        Self {
            queue,
            style: host.terminal.style(queue.is_terminal()),
            stderr: host.output.stderr(),
            json,
            receipt: None,
            proofs: Vec::new(),
            fields: Map::new(),
            conclusion: String::new(),
        }
    }

    pub(super) fn print(&mut self, line: impl Into<Styled>) {
        if !self.json {
            self.queue.lines(line, OutputPriority::Required);
        }
    }

    /// Prints a long sentence, wrapped to the width of the output.
    pub(super) fn explain(&mut self, text: impl Into<Styled>) {
        let width = self.queue.columns().unwrap_or(TEXT_WIDTH_DEFAULT);
        for line in text.into().wrap(width.saturating_sub(2)) {
            self.print(styled!["  ", line]);
        }
    }

    /// Prints a line about remains of the demo, such as its folder, on standard error.
    pub(super) fn left(&self, line: &str) {
        self.stderr.lines(line.to_owned(), OutputPriority::Required);
    }

    /// Begins a part of the demo, with a title.
    pub(super) fn title(&mut self, title: &str) {
        self.print(self.style.paint(TextRole::Strong, title));
    }

    /// Sets a field of the JSON object.
    pub(super) fn field(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// Sets the last line of the output, which is printed only if every proof holds.
    pub(super) fn conclude(&mut self, conclusion: impl Into<String>) {
        self.conclusion = conclusion.into();
    }

    pub(super) fn running(&mut self, before: &ProcessCounts) {
        self.print(format!(
            "  running: {}, {} and {}",
            counted(before.tree, "sleep", "sleeps"),
            counted(before.threads, "blocking thread", "blocking threads"),
            counted(before.connections, "connection", "connections")
        ));
    }

    pub(super) fn receipt(&mut self, receipt: &Arc<Receipt>) {
        self.receipt = Some(Arc::clone(receipt));
        if !self.json {
            let width = self.queue.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
            self.queue.lines(
                render_receipt(receipt, self.style, width),
                OutputPriority::Required,
            );
        }
    }

    /// Prints the proofs. True if all of them hold.
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
            let (what, count, expected) = (&proof.what, proof.found, proof.expected);
            let found = if holds {
                format!(" {what}: {count}")
            } else {
                format!(" {what}: {count}, expected {expected}")
            };
            self.print(styled!["  ", sign, found]);
            self.proofs.push(proof);
        }
        all_hold
    }

    /// Prints the end of the demo after a signal.
    pub(super) fn stopped(&mut self) {
        self.print(self.style.paint(TextRole::Warning, "the demo was stopped"));
        if self.json {
            self.end(false);
        }
    }

    /// True if every proof so far holds.
    pub(super) fn all_hold(&self) -> bool {
        self.proofs.iter().all(DemoProof::holds)
    }

    pub(super) fn end(&mut self, ok: bool) {
        if self.json {
            let mut object = json!({
                "ok": ok,
                "receipt": self.receipt,
                "proofs": self.proofs,
            });
            if let Value::Object(object) = &mut object {
                object.append(&mut self.fields);
            }
            DocumentSchema::Demo.print(&object, self.queue);
            return;
        }
        if ok {
            let conclusion = std::mem::take(&mut self.conclusion);
            self.print(self.style.paint(TextRole::Good, conclusion));
            return;
        }
        let failed = self.proofs.iter().filter(|proof| !proof.holds());
        let failed: Vec<_> = failed.map(|proof| proof.what.as_str()).collect();
        let said = if failed.is_empty() {
            "a proof failed: see above".to_owned()
        } else {
            format!("failed: {}", failed.join("; "))
        };
        self.print(self.style.paint(TextRole::Bad, said));
    }
}
