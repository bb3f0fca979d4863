//! Content of a permission question: the tool call, and the change that the call would make.

use allstop_remote::ShownQuestion;
use allstop_terminal::{QuestionContent, QuestionLine, Style, TextRole, escape_question};
use allstop_tools::EffectPreview;

use crate::display::{change_counts, change_role};

/// Content of a question. `call` is the escaped id of its call.
pub(super) fn question_content(
    question: &ShownQuestion,
    call: &str,
    style: Style,
) -> QuestionContent {
    let mut subject = question.subject.clone();
    let lines = question_lines(question, &mut subject, style);
    QuestionContent {
        subject,
        call: call.to_owned(),
        asker: question.asker.clone(),
        lines,
    }
}

/// Lines below the title. If the call changes a file, the size of the change is added to `subject`. If the file is a
/// link, its target is added, too.
fn question_lines(
    question: &ShownQuestion,
    subject: &mut String,
    style: Style,
) -> Vec<QuestionLine> {
    let mut lines = Vec::new();
    let warning = |text: &str| QuestionLine::new(Some(TextRole::Warning), text);
    match question.preview.as_deref() {
        Some(EffectPreview::Change(change)) => {
            let asked = question.path.as_deref();
            if asked.is_some_and(|asked| asked.trim_start_matches("./") != change.path) {
                let path = escape_question(&change.path);
                *subject = format!("{subject} (the file {path})");
            }
            subject.push_str(&change_counts(change, style));
            for line in &change.lines {
                let text = format!("{}{}", line.kind.sign(), line.text);
                lines.push(QuestionLine::new(change_role(line.kind), &text));
            }
            if change.lines_left_out > 0 {
                lines.push(warning(&format!(
                    "lines not shown: {}; the call's arguments contain the whole change",
                    change.lines_left_out
                )));
            }
            lines.extend(change.note.as_deref().map(warning));
            if !change.lines.is_empty() {
                return lines;
            }
        }
        Some(EffectPreview::Unavailable { reason }) => {
            lines.push(warning(&format!("no preview: {reason}")));
        }
        None => {}
    }
    let arguments = question.argument_lines.iter().cloned();
    lines.extend(arguments.map(QuestionLine::of_escaped));
    lines
}
