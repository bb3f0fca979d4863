//! Detachment of all background work of a session at once.

use std::path::PathBuf;
use std::sync::Arc;

use allstop_agent::{Agent, SubAgentBackground, SubAgents, TurnError, TurnErrorKind};
use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason};
use allstop_core::record::SessionRecord;
use allstop_log::session::decode;
use allstop_log::{MemoryLog, RecordBytes};
use allstop_model::ScriptedModel;
use allstop_process::ContainmentChoice;
use allstop_scope::Scope;
use allstop_session::{
    AgentRequest, AgentSource, BackgroundDetachError, SessionAgent, SessionOptions, Sessions,
    StopTarget,
};
use allstop_testkit::{FaultyLog, LogFault};
use allstop_tools::{
    BackgroundHost, OutputFolder, ShellConfig, ToolRegistry, Workspace, builtin_tools,
};
use futures::future::BoxFuture;

use crate::{Place, sleepers, token, user, wait_until, within};

/// Id of the work that a record marks as detached.
fn detached_id(bytes: &RecordBytes) -> String {
    match decode(bytes).expect("readable") {
        Some(SessionRecord::BackgroundDetached { id }) => id.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Source of agents with a shell and with background sub-agents.
#[derive(Debug)]
struct Workers {
    model: Arc<ScriptedModel>,
    folder: PathBuf,
    containment: ContainmentChoice,
}

impl AgentSource for Workers {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            let workspace = Arc::new(Workspace::new(&self.folder).expect("the folder is there"));
            let output = Arc::new(OutputFolder::new(&self.folder));
            let mut shell = ShellConfig::new(&self.folder, Arc::clone(&output));
            shell.containment = self.containment.clone();
            let host: Arc<dyn BackgroundHost> = Arc::clone(&request.background) as _;
            let mut tools = ToolRegistry::new();
            for tool in builtin_tools(&workspace, shell, &host) {
                tools.register(tool).expect("names differ");
            }
            let sub_agents = SubAgents {
                background: Some(SubAgentBackground {
                    host: request.background,
                    output_folder: output,
                }),
                ..SubAgents::default()
            };
            let agent = Agent::new(Arc::clone(&self.model)).tools(tools);
            let agent = agent.build().with_sub_agents(sub_agents);
            let agent = agent.map_err(|error| TurnError {
                kind: TurnErrorKind::Bug,
                message: error.to_string(),
                hint: None,
            })?;
            Ok(SessionAgent {
                agent,
                resources: None,
            })
        })
    }
}

const SCRIPT: &str = "
turns:
  - when: go
    replies:
      - calls:
          - {tool: shell, arguments: {command: sleep FIRST, background: true}}
          - {tool: agent, arguments: {prompt: research, background: true}}
          - {tool: shell, arguments: {command: sleep SECOND, background: true}}
      - {text: started}
  - when: research
    replies:
      - {calls: [{tool: shell, arguments: {command: sleep THIRD}}]}
replies: []
";

#[tokio::test(flavor = "multi_thread")]
async fn one_append_detaches_all_possible_work() {
    let place = Place::new();
    let (first, second, third) = (token(), token(), token());
    let script = SCRIPT
        .replace("FIRST", &first)
        .replace("SECOND", &second)
        .replace("THIRD", &third);
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let scopes = place.options("", None).scopes;
    let containment = scopes.containment.clone();
    let root = Scope::root("test", scopes);
    let source = Workers {
        model: Arc::new(ScriptedModel::parse("workers", &script).expect("a script")),
        folder: place.path().to_owned(),
        containment,
    };
    let options = SessionOptions::default();
    let sessions = Sessions::new(
        Arc::clone(&log) as _,
        root.clone(),
        Arc::new(source),
        options,
    );
    let session = sessions.create(None, "/tmp").await.expect("a session");
    let outcome = within(session.send("go").unwrap().outcome()).await;
    assert_eq!(&*outcome.output, "started", "{outcome:?}");
    let all_sleep = || [&first, &second, &third].map(|token| sleepers(token)) == [1; 3];
    wait_until("all three sleep", all_sleep).await;
    let works = session.background();
    let agent = works.iter().find(|work| work.process().is_none());
    let agent = &agent.expect("the sub-agent").id;

    log.fail_at("background_detached", LogFault::Hold);
    let detaching = async {
        log.reached().await;
        let held = log.held();
        log.release().await;
        held
    };
    let both = futures::future::join(session.detach_background(), detaching);
    let (answers, appended) = within(both).await;
    let answers = answers.unwrap();
    assert_eq!(answers.len(), 3, "each is named: {answers:?}");
    let (refused, kept): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.refused.is_some());
    let [refused] = refused.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!(refused.work.id, *agent);
    assert!(!refused.work.detached);
    let Some(BackgroundDetachError::NotPossible(why)) = &refused.refused else {
        panic!("{refused:?}")
    };
    assert_eq!(why, "a sub-agent runs in this process");
    let mut named: Vec<_> = kept.iter().map(|kept| kept.work.id.to_string()).collect();
    named.sort();
    assert_eq!(appended.len(), 1, "one append for all: {appended:?}");
    let mut detached: Vec<_> = appended[0].iter().map(detached_id).collect();
    detached.sort();
    assert_eq!(detached, named);
    assert!(
        kept.iter()
            .all(|kept| kept.work.detached && kept.work.alive)
    );

    let stopping = session.stop(&StopTarget::Session, user());
    let receipt = within(stopping.receipt()).await;
    assert!(receipt.quiet(), "{receipt:?}");
    let background = receipt.items().iter();
    let background = background.filter(|item| item.kind == ItemKind::Background);
    // The receipt lists detached work as still running, because it is outside the extent of the stop.
    let outside = ItemState::StillRunning {
        why: NotStoppedReason::OutsideExtent,
    };
    let (outside, covered): (Vec<_>, Vec<_>) = background.partition(|item| item.state == outside);
    let ids: Vec<&str> = covered.iter().map(|item| &*item.id).collect();
    assert_eq!(ids, [agent.as_str()], "{receipt:?}");
    assert_eq!(outside.len(), 2, "{receipt:?}");
    assert_eq!(
        [&first, &second, &third].map(|token| sleepers(token)),
        [1, 1, 0]
    );
    within(session.close()).await;
    assert!(root.is_quiet());

    // A process that opens the session can stop all of the work at once.
    let session = sessions.resume(session.id().clone()).await.unwrap();
    let preview = session.preview(&StopTarget::TurnAndBackground);
    assert_eq!(preview.items().len(), 2, "{preview:?}");
    let receipt = within(
        session
            .stop(&StopTarget::TurnAndBackground, user())
            .receipt(),
    )
    .await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(sleepers(&first) + sleepers(&second), 0);
    within(session.close()).await;
}
