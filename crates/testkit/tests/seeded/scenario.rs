//! Settings of the sloppy engine, which was written for these tests. The settings are small, because the test explores
//! each setting again for each bug.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::Settings;
use allstop_core::receipt::ItemKind;
use allstop_core::turn::{Budget, BudgetLimits, StopPolicy};
use allstop_model::Reply;
use allstop_scope::WorkSpec;
use allstop_testkit::ToolFn;
use allstop_testkit::explore::{RunStage, Scenario, Setup};
use allstop_tools::{BackgroundHost as _, Tool};
use serde_json::json;
use tokio::time::sleep;

use crate::bug::Bug;
use crate::engine::Engine;

/// Run time of the tool that ignores a stop. This time is longer than any grace (time to end by itself), and longer
/// than the time in which remaining work must end.
const DEAF_FOR: Duration = Duration::from_hours(1);

/// Number of calls in the budget of [`Setting::Budget`]: one model call and two tool calls.
const CALLS_MAX: u64 = 3;

/// Number of tokens in the budget of [`Setting::Tokens`]. One call reserves all these tokens, and the first answer uses
/// all of them.
const TOKENS_MAX: u64 = 100;

/// Setting in which a bug has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// An answer in two pieces.
    Answer,
    /// Two parallel tools and then an answer. One of the tools reacts to a stop.
    Tools,
    /// Like `Tools`, but the messages of a stopped turn are kept.
    Kept,
    /// A tool that starts background work.
    Background,
    /// Like `Tools`, but the budget of calls is used up before the answer.
    Budget,
    /// Like `Tools`, but the budget has so few tokens that the first answer uses all of them.
    Tokens,
}

pub(crate) const SETTINGS: [Setting; 6] = [
    Setting::Answer,
    Setting::Tools,
    Setting::Kept,
    Setting::Background,
    Setting::Budget,
    Setting::Tokens,
];

impl Setting {
    pub(crate) fn scenario(self, bug: Option<Bug>) -> Scenario {
        let name = match bug {
            Some(bug) => format!("sloppy/{self:?}/{bug:?}"),
            None => format!("sloppy/{self:?}"),
        };
        Scenario::new(name, move |stage| self.build(stage, bug))
    }

    fn build(self, stage: &RunStage, bug: Option<Bug>) -> Setup {
        let answer = Reply::text("That is").and_text(" all.").usage(40, 7);
        let asks = |tools: &[&'static str]| {
            let said = Reply::text("I look.");
            let calls = tools.iter();
            calls
                .fold(said, |said, tool| said.call(*tool, json!({})))
                .usage(10, if self == Self::Tokens { 90 } else { 20 })
        };
        let (replies, tools): (Vec<_>, Vec<Arc<dyn Tool>>) = match self {
            Self::Answer => (vec![answer], Vec::new()),
            Self::Background => (vec![asks(&["serve"]), answer], vec![serve(stage)]),
            Self::Tools | Self::Kept | Self::Budget | Self::Tokens => (
                vec![asks(&["listens", "deaf"]), answer],
                vec![listens(stage), deaf(stage)],
            ),
        };
        let limits = BudgetLimits::default()
            .tokens_max(match self {
                Self::Tokens => TOKENS_MAX,
                _ => 1_000,
            })
            .calls_max((self == Self::Budget).then_some(CALLS_MAX));
        let settings = Settings::default()
            .budget(Budget::new(limits))
            .stop_policy(match self {
                Self::Kept => StopPolicy::Keep,
                _ => StopPolicy::Rollback,
            });
        let engine = Engine::new(stage.model(replies), stage.tools(tools), settings, bug);
        let setup = Setup::new(engine, "Look.");
        match self {
            Self::Budget | Self::Tokens => setup.next_may_be_refused(),
            _ => setup,
        }
    }
}

fn listens(stage: &RunStage) -> Arc<dyn Tool> {
    stage.tool(ToolFn::new("listens", |call| async move {
        tokio::select! {
            biased;
            cause = call.scope.stopped_at("looking") => format!("stopped: {cause}"),
            () = sleep(Duration::from_millis(20)) => "looked".to_owned(),
        }
    }))
}

fn deaf(stage: &RunStage) -> Arc<dyn Tool> {
    stage.tool(ToolFn::new("deaf", |_| async {
        sleep(DEAF_FOR).await;
        "done".to_owned()
    }))
}

fn serve(stage: &RunStage) -> Arc<dyn Tool> {
    let (scope, world) = (stage.background().scope(), stage.witness().clone());
    stage.tool(ToolFn::new("serve", move |_| {
        let spec = WorkSpec::new(ItemKind::Background, "server").id("server");
        let world = world.clone();
        let started = scope.spawn(spec, |cx| async move {
            let _alive = world.begin(ItemKind::Background, "server");
            cx.stopped_at("serving").await;
        });
        async move {
            sleep(Duration::from_millis(5)).await;
            format!("serves: {}", started.is_ok())
        }
    }))
}
