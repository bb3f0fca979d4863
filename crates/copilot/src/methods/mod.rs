//! The requests of the protocol, by name.
//!
//! Methods begin in the order in which their requests arrive. The beginning of a method performs all immediate steps.
//! The remaining work is a future, which the connection runs.

mod absent;
mod agents;
mod answers;
mod auto_mode;
mod canvases;
mod carried;
mod commands;
mod compaction_params;
mod context;
mod discovery;
mod elicitation;
mod endings;
mod event_log;
mod fleet;
mod foreground;
mod forms;
mod handover;
mod ids;
mod info;
mod instructions;
mod lifecycle;
mod marketplaces;
mod mcp;
mod mcp_apps;
mod mcp_config;
mod mcp_tokens;
mod messages;
mod method;
mod model_capabilities;
mod models;
mod names;
mod open;
mod open_checks;
mod open_params;
mod pending;
mod permissions;
mod plugins;
mod queue;
mod rewind;
mod secrets;
mod server_sessions;
mod server_tools;
mod session_fs;
mod session_plugins;
mod settings;
mod shell;
mod side_question;
mod skills;
mod stops;
mod stored_sessions;
mod surrogates;
mod tasks;
mod user_settings;
mod workspace;
mod workspace_diff;

use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_scope::WorkSpec;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use method::{MethodAnswer, MethodCx, MethodResult};

/// Begins one method.
type BeginMethod = fn(&MethodCx<'_>, Option<&RawValue>) -> Result<MethodAnswer, RpcError>;

/// Begins a method of a family. The text is the whole name of the method.
type BeginFamily = fn(&MethodCx<'_>, &str, Option<&RawValue>) -> Result<MethodAnswer, RpcError>;

/// Method that stops the server.
const SHUTDOWN: &str = "runtime.shutdown";

const METHODS: &[(&str, BeginMethod)] = &[
    (SHUTDOWN, shutdown),
    ("tools.list", server_tools::list),
    ("session.fleet.start", fleet::start),
    (
        "session.tools.updateSubagentSettings",
        agents::update_sub_agents,
    ),
    ("secrets.addFilterValues", secrets::add),
    ("sessionFs.setProvider", session_fs::set_provider),
    ("session.create", open::create),
    ("session.resume", open::resume),
    ("session.detach", lifecycle::detach),
    ("session.destroy", lifecycle::detach),
    ("session.delete", lifecycle::delete),
    ("session.getMessages", lifecycle::messages),
    ("session.send", messages::send),
    ("session.sendAndWait", messages::send_and_wait),
    ("session.abort", stops::abort),
    ("session.interruptMainTurn", stops::interrupt),
    ("session.cancelAllBackgroundAgents", stops::cancel_agents),
    ("allstop.cancelToolCall", stops::cancel_call),
    ("allstop.stop", stops::stop),
    ("allstop.preview", stops::preview),
    ("session.getForeground", foreground::get),
    ("session.setForeground", foreground::set),
    ("session.tools.handlePendingToolCall", answers::tool),
    ("session.log", endings::log),
    ("session.suspend", endings::suspend),
    ("session.shutdown", endings::shutdown),
    ("session.ui.elicitation", forms::ask),
    ("session.ui.ephemeralQuery", side_question::ask),
    ("session.ui.handlePendingElicitation", elicitation::answer),
    ("session.mcp.oauth.handlePendingRequest", mcp_tokens::answer),
    ("session.workspaces.diff", workspace_diff::begin),
    ("sessions.fork", rewind::fork),
    ("sessions.open", server_sessions::open),
    ("llmInference.setProvider", carried::set_provider),
    ("llmInference.httpResponseStart", carried::start),
    ("llmInference.httpResponseChunk", carried::chunk),
    ("agentRegistry.spawn", pending::no_agents),
    ("session.ui.handlePendingUserInput", pending::late),
    ("session.ui.handlePendingSampling", pending::late),
    ("session.ui.handlePendingAutoModeSwitch", auto_mode::answer),
    (
        "session.ui.registerDirectAutoModeSwitchHandler",
        auto_mode::register,
    ),
    (
        "session.ui.unregisterDirectAutoModeSwitchHandler",
        auto_mode::unregister,
    ),
    ("session.ui.handlePendingExitPlanMode", pending::late),
    (
        "session.ui.handlePendingSessionLimitsExhausted",
        pending::late,
    ),
    (
        "session.mcp.headers.handlePendingHeadersRefreshRequest",
        pending::late,
    ),
    (
        "session.permissions.handlePendingPermissionRequest",
        answers::permission,
    ),
];

/// Families of methods, by the beginning of their names. The first family that matches decides. It answers a name that it
/// does not know with [`RpcError::method_not_found`].
const FAMILIES: &[(&str, BeginFamily)] = &[
    ("connect", info::begin),
    ("ping", info::begin),
    ("status.", info::begin),
    ("auth.", info::begin),
    ("models.", info::begin),
    ("mcp.config.", mcp_config::begin),
    ("plugins.marketplaces.", marketplaces::begin),
    ("plugins.", plugins::begin),
    ("mcp.discover", discovery::begin),
    ("skills.", discovery::begin),
    ("agents.", discovery::begin),
    ("instructions.", discovery::begin),
    ("user.settings.", user_settings::begin),
    ("session.list", lifecycle::look),
    ("session.getLastId", lifecycle::look),
    ("session.getMetadata", lifecycle::look),
    ("session.tasks.", tasks::begin),
    ("session.options.", settings::begin),
    ("session.eventLog.", event_log::begin),
    ("session.permissions.", permissions::begin),
    ("session.schedule.", absent::begin),
    ("session.plugins.", session_plugins::begin),
    ("session.extensions.", absent::begin),
    ("session.completions.", absent::begin),
    ("session.visibility.", absent::begin),
    ("session.lsp.", absent::begin),
    ("session.telemetry.", settings::begin),
    ("sessions.getSizes", stored_sessions::begin),
    ("sessions.pruneOld", stored_sessions::begin),
    ("sessions.bulkDelete", stored_sessions::begin),
    ("sessions.enrichMetadata", stored_sessions::begin),
    ("sessions.", server_sessions::begin),
    ("session.mode.", names::begin),
    ("session.name.", names::begin),
    ("session.model.", models::begin),
    ("session.provider.", models::begin),
    ("session.metadata.", context::begin),
    ("session.usage.", context::begin),
    ("session.instructions.", context::begin),
    ("session.tools.", context::begin),
    ("session.plan.", workspace::begin),
    ("session.workspaces.", workspace::begin),
    ("session.agent.", agents::begin),
    ("session.shell.", shell::begin),
    ("session.skills.", skills::begin),
    ("session.mcp.apps.", mcp_apps::begin),
    ("session.mcp.", mcp::begin),
    ("session.history.", rewind::begin),
    ("session.commands.", commands::begin),
    ("session.canvas.", canvases::begin),
    ("session.queue.", queue::begin),
];

#[expect(
    clippy::unnecessary_wraps,
    reason = "the table of methods has this type"
)]
fn shutdown(cx: &MethodCx<'_>, _params: Option<&RawValue>) -> Result<MethodAnswer, RpcError> {
    let answer = Value::Object(Map::new());
    let server = cx.server.clone();
    let Some(work) = server.options().before_shutdown.clone() else {
        server.request_shutdown();
        return Ok(MethodAnswer::Now(Ok(answer)));
    };
    let spec = WorkSpec::new(ItemKind::Thread, "last work of the server");
    let scope = server.connections().clone();
    // The thread requests the shutdown, also if the client does not wait for the answer.
    let working = scope.spawn_blocking(spec, move |_cx| {
        work.run();
        server.request_shutdown();
    });
    Ok(method::later(async move {
        if let Ok(working) = working {
            let _ended_or_lost = working.await;
        }
        Ok(answer)
    }))
}

/// Begins the method of a request.
pub(crate) fn begin(cx: &MethodCx<'_>, method: &str, params: Option<&RawValue>) -> MethodAnswer {
    if cx.server.is_shutting_down() && method != SHUTDOWN {
        let refused = RpcError::overloaded("the server is being stopped");
        return MethodAnswer::Now(Err(refused));
    }
    let one = METHODS.iter().find(|(name, _)| *name == method);
    let family = FAMILIES.iter().find(|(name, _)| method.starts_with(name));
    let begun = match (one, family) {
        (Some((_, begin)), _) => begin(cx, params),
        (None, Some((_, begin))) => begin(cx, method, params),
        (None, None) => Err(RpcError::method_not_found(method)),
    };
    begun.unwrap_or_else(|error| MethodAnswer::Now(Err(error)))
}
