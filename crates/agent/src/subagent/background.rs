//! Sub-agents in the background.

use std::sync::Arc;

use allstop_tools::{
    AnswerIfLost, BackgroundHost, BackgroundWork, BoundedOutput, CallLink, OutputFolder,
    OutputLimits, TaskSpec, ToolInvocation,
};

use super::background_calls::BackgroundCalls;
use super::level::conversation_before;

/// Support for sub-agents in the background.
#[derive(Debug, Clone)]
pub struct SubAgentBackground {
    /// Host of the session's background work.
    pub host: Arc<dyn BackgroundHost>,
    /// Folder for the output of the sub-agents.
    pub output_folder: Arc<OutputFolder>,
}

impl SubAgentBackground {
    /// Describes a sub-agent as background work. Also returns the list of its calls.
    pub(super) fn task_spec(
        &self,
        invocation: &ToolInvocation,
        name: String,
    ) -> (TaskSpec, BackgroundCalls) {
        let calls = BackgroundCalls::new(conversation_before(&invocation.link));
        let link = CallLink::new(invocation.call_id.clone(), Arc::new(calls.clone()));
        let folder = Arc::clone(&self.output_folder);
        let if_lost = calls.clone();
        let spec = TaskSpec::new(
            invocation.call_id.clone(),
            invocation.scope.clone(),
            name,
            BoundedOutput::new(OutputLimits::default(), folder),
            link,
        )
        .answer_if_lost(AnswerIfLost::new(move || if_lost.answer()));
        (spec, calls)
    }
}

/// Result for the model when a sub-agent runs in the background.
pub(super) fn runs_in_background(work: &BackgroundWork) -> String {
    let file = work.output_file.as_ref();
    let file = file.map(|file| format!("; its output goes to {}", file.display()));
    format!(
        "{} runs in the background{}",
        work.id,
        file.unwrap_or_default()
    )
}
