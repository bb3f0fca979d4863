//! [`assert_stop_safe!`](crate::assert_stop_safe): stops one call of a tool at every point with every method.

mod observed;
mod real_time_limit;

use std::fmt;
use std::sync::Arc;

use allstop_agent::Agent;
use allstop_log::MemoryLog;
use allstop_model::Reply;
use allstop_tools::{Tool, ToolRegistry};
use serde_json::Value;

use crate::check;
use crate::drive::by_point::{explore, undisturbed};
use crate::report::{CheckReport, is_asked_for};
use crate::stage::{RunStage, Scenario, clockwork};
use observed::{Observed, ObservedOutcome};

/// Maximum number of characters of the input that the name of a scenario contains.
const INPUT_IN_NAME_MAX: usize = 60;

/// Explores one call of a tool. If a stop at any point breaks a promise, panics with a report.
///
/// ```
/// use allstop_testkit::{ToolFn, assert_stop_safe};
/// # use std::time::Duration;
/// # fn look_up() -> ToolFn {
/// #     ToolFn::new("look_up", |call| async move {
/// #         tokio::select! {
/// #             cause = call.scope.stopped_at("waiting for the answer") => format!("stopped: {cause}"),
/// #             () = tokio::time::sleep(Duration::from_secs(10)) => "found".to_owned(),
/// #         }
/// #     })
/// # }
///
/// assert_stop_safe!(look_up(), {"word": "stop"});
/// ```
///
/// The first argument is an expression that creates the tool. The macro evaluates the expression for each run. If a run
/// needs more than the tool, write a closure that takes the [`RunStage`] of the run and returns the tool. Examples are
/// a separate folder, a check of the effects in this folder, or simulated processes:
///
/// ```
/// # use allstop_testkit::{ToolFn, assert_stop_safe};
/// # use std::sync::{Arc, Mutex};
/// assert_stop_safe!(
///     |stage| {
///         let ledger = Arc::new(Mutex::new(Vec::new()));
///         let seen = Arc::clone(&ledger);
///         stage.check("ledger", move || match seen.lock().unwrap().len() {
///             0 | 2 => Ok(()),
///             lines => Err(format!("a booking has two lines, and there are {lines}")),
///         });
///         ToolFn::new("book", move |_| {
///             let ledger = Arc::clone(&ledger);
///             async move {
///                 ledger.lock().unwrap().extend(["debit", "credit"]);
///                 "booked".to_owned()
///             }
///         })
///     },
///     {"amount": 12},
/// );
/// ```
///
/// The second argument is the input of the call, in the syntax of `serde_json::json!`.
///
/// With `may_be_dropped` as a third argument, the tool may ignore a stop, and is dropped when the grace (the time to
/// end by itself) is over. Use this argument only for tools that wait and do nothing else. Each stop of such a tool
/// takes the whole grace. If it is not safe to repeat the effect of the tool, the user sees that the outcome is
/// unknown.
///
/// If you want only the report and no panic, use [`StopSafe`]. [The guide](crate::guide) describes the checks, and the
/// limits of the exploration.
#[macro_export]
macro_rules! assert_stop_safe {
    ($(move)? |$stage:ident| $tool:expr, $input:tt $(, $option:ident)? $(,)?) => {
        $crate::StopSafe::new(
            move |$stage: &$crate::explore::RunStage| $tool,
            $crate::__json!($input),
        )
        $(.$option())?
        .explore()
        .assert_clean()
    };
    ($tool:expr, $input:tt $(, $option:ident)? $(,)?) => {
        $crate::StopSafe::new(
            move |_: &$crate::explore::RunStage| $tool,
            $crate::__json!($input),
        )
        $(.$option())?
        .explore()
        .assert_clean()
    };
}

/// Creates the tool for each run.
type Make = Arc<dyn Fn(&RunStage) -> Arc<dyn Tool> + Send + Sync>;

/// Exploration of one call of a tool: [`assert_stop_safe!`](crate::assert_stop_safe) without the panic.
#[derive(Clone)]
#[must_use = "call explore"]
pub struct StopSafe {
    make: Make,
    input: Value,
    may_be_dropped: bool,
}

impl StopSafe {
    /// Explores a tool that is created for each run and called once with this input.
    pub fn new<T: Tool + 'static>(
        make: impl Fn(&RunStage) -> T + Send + Sync + 'static,
        input: Value,
    ) -> Self {
        Self {
            make: Arc::new(move |stage| Arc::new(make(stage))),
            input,
            may_be_dropped: false,
        }
    }

    /// Allows the tool to ignore a stop: see [`assert_stop_safe!`](crate::assert_stop_safe).
    pub fn may_be_dropped(mut self) -> Self {
        self.may_be_dropped = true;
        self
    }

    /// Runs the exploration.
    ///
    /// # Panics
    /// Panics in three cases: the input does not match the tool's schema; a run does not end in real time, because the
    /// tool blocks its thread; two runs of the call differ.
    #[track_caller]
    pub fn explore(self) -> CheckReport {
        real_time_limit::run_within_limit(move |run_begins| {
            let scenario = self.scenario(run_begins);
            if is_asked_for(scenario.name()) {
                // If a tool is broken even without a stop, the report contains only the failures without a stop,
                // because these failures do not come from stops.
                let undisturbed = undisturbed(&scenario);
                let mut violations = check::check(&undisturbed);
                if violations
                    .first()
                    .is_some_and(|first| first.checker == observed::ENDS)
                {
                    // All other violations are consequences of this violation.
                    violations.truncate(1);
                }
                if !violations.is_empty() {
                    return CheckReport::of_undisturbed(scenario.name(), &undisturbed, violations);
                }
            }
            explore(&scenario)
        })
    }

    fn scenario(self, run_begins: impl Fn() + Send + Sync + 'static) -> Scenario {
        let name = self.name();
        Scenario::new(name, move |stage| {
            run_begins();
            // This check comes first, because it explains the violations that the other checks of the tool find.
            let seen = ObservedOutcome::checked(stage, self.may_be_dropped);
            let tool = (self.make)(stage);
            let call = Reply::text("").call(&*tool.spec().name, self.input.clone());
            let model = stage.model(vec![call, Reply::text("Done.")]);
            let tools = stage.tools([stage.tool(Observed::new(tool, seen))]);
            stage.agent(Agent::new(model).tools(tools), "Call the tool.")
        })
    }

    /// Name such as `save({"text":"hello"})`. The name is the same in each run of the tests, and does not depend on the
    /// place of the test.
    ///
    /// # Panics
    /// Panics if the input does not match the tool's schema, because the agent would not call the tool.
    fn name(&self) -> String {
        let tool =
            clockwork::run(|_| async { (self.make)(&RunStage::new(Arc::new(MemoryLog::new()))) });
        let name = Arc::clone(&tool.spec().name);
        let mut registry = ToolRegistry::new();
        let fits = registry
            .register(tool)
            .map_err(|error| error.to_string())
            .and_then(|()| {
                let tool = registry.find(&name).map_err(|error| error.message)?;
                tool.check_arguments(&self.input)
                    .map_err(|error| error.message)
            });
        if let Err(wrong) = fits {
            panic!(
                "assert_stop_safe!: {name} cannot be called with {}: {wrong}",
                self.input
            );
        }
        let mut input = self.input.to_string();
        if let Some((cut, _)) = input.char_indices().nth(INPUT_IN_NAME_MAX) {
            input.truncate(cut);
            input.push('…');
        }
        format!("{name}({input})")
    }
}

impl fmt::Debug for StopSafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopSafe")
            .field("input", &self.input)
            .field("may_be_dropped", &self.may_be_dropped)
            .finish_non_exhaustive()
    }
}
