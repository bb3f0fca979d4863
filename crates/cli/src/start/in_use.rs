//! Hint for a session that cannot be continued here, because another process has the session open.

use allstop_core::SessionId;
use allstop_remote::{ProcessReport, RemoteError, SocketFolder, processes};
use allstop_runtime::StartError;

use crate::short_id::short;

/// Remedy for a session in use, by the process that has the session open.
#[derive(Debug, PartialEq, Eq)]
enum InUseRemedy {
    /// A command at a terminal, such as `chat`.
    Terminal,
    /// `serve`, which gives up sessions without work.
    TaskServer,
    /// `copilot`, whose clients close the sessions.
    CopilotServer(u32),
    /// Some process did not answer.
    Silent(u32),
    /// No process reports the session.
    Unknown,
}

/// Replaces the hint of this error by a remedy that the holder of the session supports.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn with_remedy(
    mut error: StartError,
    session: &SessionId,
    folder: &SocketFolder,
) -> StartError {
    let found = processes(folder).await.unwrap_or_default();
    let reports = found.iter().map(|(_, report)| report.as_ref());
    error.hint = Some(InUseRemedy::find(session, reports).hint(session));
    error
}

impl InUseRemedy {
    fn find<'a>(
        session: &SessionId,
        reports: impl Iterator<Item = Result<&'a ProcessReport, &'a RemoteError>>,
    ) -> Self {
        let mut holder = Self::Unknown;
        for report in reports {
            match report {
                Ok(process)
                    if process
                        .sessions
                        .iter()
                        .any(|open| open.session_id == *session) =>
                {
                    return match process.command.as_str() {
                        "serve" | "worker" => Self::TaskServer,
                        "copilot" => Self::CopilotServer(process.pid),
                        _ => Self::Terminal,
                    };
                }
                Err(RemoteError::Silent(pid)) => holder = Self::Silent(*pid),
                Ok(_) | Err(_) => {}
            }
        }
        holder
    }

    fn hint(&self, session: &SessionId) -> String {
        let id = short(session.as_str());
        let remedy = match self {
            Self::Terminal => {
                format!(
                    "`allstop watch {id}` shows it, `allstop stop {id} --extent session` ends it"
                )
            }
            Self::TaskServer => format!(
                "send the message to the server, or stop the work with `allstop stop {id}`: a minute after its last \
                 work the server gives the session up"
            ),
            Self::CopilotServer(pid) => format!(
                "`allstop watch {id}` shows it; its program closes it, or `kill {pid}` ends the server"
            ),
            Self::Silent(pid) => format!(
                "process {pid} does not answer and may have it open: if it is suspended, `kill -CONT {pid}` continues it"
            ),
            Self::Unknown => {
                "its process may be ending: try again; or `allstop ps` names it".to_owned()
            }
        };
        format!("{remedy}; or start a new session")
    }
}
