//! The tool `exit_plan_mode`: the model asks the user to approve its plan, and an approval ends the mode `plan`.

use std::sync::Arc;

use allstop_core::Effect;
use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::attached_clients::AttachedClients;
use super::client_work::ClientWork;
use super::session_files::{PLAN, SessionFileStore};
use super::workspace_state::{ClientMode, WorkspaceState};
use crate::translate::HostEvent;

/// Parts of a session that an approval needs.
/// Maximum size of a plan in a question, in bytes. A person reads the plan before the answer.
const PLAN_BYTES_MAX: usize = 256 * 1024;

/// Reads the plan. Returns an empty text if the file does not exist, and the beginning of a long plan.
async fn plan_text(files: &dyn SessionFileStore) -> Result<String, ToolError> {
    let read = files.read(PLAN).await;
    let read = read.map_err(|error| ToolError::new(format!("the plan cannot be read: {error}")))?;
    let mut text = read.unwrap_or_default();
    text.truncate(text.floor_char_boundary(PLAN_BYTES_MAX));
    Ok(text)
}

#[derive(Debug, Clone)]
pub(crate) struct PlanExit {
    pub(crate) attached_clients: Arc<AttachedClients>,
    pub(crate) state: Arc<WorkspaceState>,
    pub(crate) files: Arc<dyn SessionFileStore>,
    pub(crate) host_events: broadcast::Sender<HostEvent>,
}

/// Next action of the agent after an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlanAction {
    /// Wait for the next message.
    ExitOnly,
    Interactive,
    Autopilot,
    /// The server has no fleet of agents, so one agent carries out the plan.
    AutopilotFleet,
}

impl PlanAction {
    const OFFERED: [Self; 3] = [Self::Autopilot, Self::Interactive, Self::ExitOnly];

    fn mode(self) -> ClientMode {
        match self {
            Self::ExitOnly | Self::Interactive => ClientMode::Interactive,
            Self::Autopilot | Self::AutopilotFleet => ClientMode::Autopilot,
        }
    }

    /// Instruction for the model.
    fn instruction(self) -> &'static str {
        match self {
            Self::ExitOnly => "Do not begin yet: wait for the next message.",
            Self::Interactive => "Begin to carry out the plan now.",
            Self::Autopilot | Self::AutopilotFleet => {
                "Carry out the whole plan now, without further questions about it."
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlanArguments {
    summary: String,
    actions: Option<Vec<PlanAction>>,
    recommended_action: Option<PlanAction>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlanApproval {
    approved: bool,
    selected_action: Option<PlanAction>,
    feedback: Option<String>,
}

#[derive(Debug)]
pub(super) struct ExitPlanTool {
    spec: ToolSpec,
    plan: PlanExit,
}

impl ExitPlanTool {
    pub(super) const NAME: &'static str = "exit_plan_mode";

    pub(super) fn new(plan: PlanExit) -> Self {
        let action = json!({ "type": "string", "enum": PlanAction::OFFERED });
        let schema = json!({
            "type": "object",
            "properties": {
                "summary": { "type": "string", "minLength": 1 },
                "actions": { "type": "array", "items": action },
                "recommendedAction": action,
            },
            "required": ["summary"],
        });
        let description = "Asks the user to approve the plan. An approval ends the plan mode. The summary describes the \
                           plan in a few sentences.";
        Self {
            // The question changes nothing, so the mode `plan` allows it.
            spec: ToolSpec::new(Self::NAME, description, Arc::new(schema)).effect(Effect::ReadOnly),
            plan,
        }
    }

    async fn ask(&self, invocation: &ToolInvocation) -> Result<ToolOutput, ToolError> {
        let arguments: PlanArguments = serde_json::from_value(Value::clone(&invocation.arguments))?;
        let client = self
            .plan
            .attached_clients
            .latest(|client_options| client_options.plan_exit);
        let client = client.ok_or_else(|| ToolError::new("no client can approve the plan"))?;
        let request_id = ulid::Ulid::generate().to_string();
        let question = json!({
            "summary": arguments.summary,
            "planContent": plan_text(&*self.plan.files).await?,
            "actions": arguments.actions.unwrap_or_else(|| PlanAction::OFFERED.to_vec()),
            "recommendedAction": arguments.recommended_action.unwrap_or(PlanAction::Interactive),
        });
        let work = WorkSpec::new(ItemKind::Remote, Self::NAME).effect(Effect::ReadOnly);
        let handler = ClientWork::register(&invocation.scope, work)
            .map_err(|refused| ToolError::not_started(refused.to_string()))?;
        let requested = with(&question, "requestId", &request_id);
        self.send("exit_plan_mode.requested", requested);
        let params = with(&question, "sessionId", invocation.session_id.as_str());
        let answer = client
            .request::<PlanApproval>("exitPlanMode.request", &params)
            .await;
        handler.answered();
        let approval = answer.map_err(|error| ToolError::new(error.to_string()))?;
        let mut completed = json!({ "approved": approval.approved });
        if let Some(action) = approval.selected_action {
            completed["selectedAction"] = json!(action);
        }
        if let Some(feedback) = &approval.feedback {
            completed["feedback"] = json!(feedback);
        }
        completed["requestId"] = request_id.into();
        self.send("exit_plan_mode.completed", completed);
        let mut text = if approval.approved {
            let action = approval.selected_action.unwrap_or(PlanAction::Interactive);
            self.change_mode(action.mode()).await;
            let instruction = action.instruction();
            format!("The user has approved the plan, and the plan mode has ended. {instruction}")
        } else {
            "The user has not approved the plan. The plan mode continues.".to_owned()
        };
        if let Some(feedback) = approval.feedback.filter(|feedback| !feedback.is_empty()) {
            text = format!("{text}\n\nThe user adds: {feedback}");
        }
        Ok(text.into())
    }

    /// Sets the mode of the session. The calls after this call run in the new mode.
    async fn change_mode(&self, mode: ClientMode) {
        let before = self.plan.state.mode();
        if let Err(error) = self.plan.state.set_mode(mode).await {
            // The open session has the mode.
            tracing::warn!(%error, "the mode of the session was not stored");
        }
        if before != mode {
            let data = json!({ "newMode": mode, "previousMode": before });
            self.send("session.mode_changed", data);
        }
    }

    fn send(&self, kind: &'static str, data: Value) {
        // If no client is attached, the event is not needed.
        drop(
            self.plan
                .host_events
                .send(HostEvent::Ephemeral { kind, data }),
        );
    }
}

/// Returns the object with another field.
fn with(object: &Value, key: &str, value: &str) -> Value {
    let mut object = object.clone();
    object[key] = value.into();
    object
}

impl Tool for ExitPlanTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let scope = &invocation.scope;
            tokio::select! {
                biased;
                () = scope.stopped() => {
                    scope.stopped_at(Self::NAME).await;
                    Err(ToolError::new("the question was withdrawn"))
                }
                answer = self.ask(&invocation) => answer,
            }
        })
    }
}
