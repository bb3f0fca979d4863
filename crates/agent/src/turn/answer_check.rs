//! Check of the final answer against its format. After the first wrong answer, the model answers once more in the same turn.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;

use super::{RunningTurn, TurnInterrupt};
use crate::error::{TurnError, TurnErrorKind};
use crate::user_code::{self, UserCodeResult};

impl RunningTurn<'_> {
    /// Checks a final answer. Returns its JSON, or `None` if the model has to answer once more. Without a format, every
    /// answer passes.
    pub(super) async fn check_answer(
        &mut self,
        answer: Arc<str>,
    ) -> Result<Option<Arc<str>>, TurnInterrupt> {
        let Some(format) = self.parts().settings.answer.clone() else {
            return Ok(Some(answer));
        };
        let checking = async move { format.check(&answer) };
        // The check of a large answer takes long, and the type of the answer is code of the program.
        let name = "answer check";
        let checked = user_code::run(&self.work, ItemKind::Future, name, "answer_check", checking);
        let problem = match Box::pin(checked).await {
            UserCodeResult::Answered(Ok(json)) => {
                self.is_repairing = false;
                return Ok(Some(json));
            }
            UserCodeResult::Answered(Err(problem)) => problem,
            UserCodeResult::Panicked => {
                return Err(wrong("the check of the answer panicked", None));
            }
            UserCodeResult::Stopped => {
                self.engine.acknowledge();
                return Err(TurnInterrupt::Stopped);
            }
        };
        if self.is_repairing {
            let hint = self
                .finish
                .cut_words()
                .map(|cut| format!("the answer {cut}"));
            return Err(wrong(&problem, hint));
        }
        self.is_repairing = true;
        self.draft.add_note(format!(
            "This answer does not match the required JSON schema: {problem}. Answer again with the corrected JSON value \
             and nothing else."
        ))?;
        Ok(None)
    }
}

fn wrong(problem: &str, hint: Option<String>) -> TurnInterrupt {
    TurnInterrupt::Failed(TurnError {
        kind: TurnErrorKind::AnswerMismatch,
        message: format!(
            "the model did not give the required JSON, also after a second request: {problem}"
        ),
        hint,
    })
}
