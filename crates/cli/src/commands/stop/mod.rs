//! `allstop stop`: stops sessions in the processes that have them open, and orphaned work: background work that still
//! runs although no process owns it.

mod ended;
mod open;
mod orphaned_work;
mod results;

use allstop_core::receipt::NothingToStop;
use allstop_core::{CallId, SessionId};
use allstop_session::StopTarget;
use allstop_terminal::{OutputPriority, Styled, TextRole};
use futures::future::join_all;

use super::dying::dying_processes_gone;
use super::open_session::{
    ask_for_session, ask_processes, find_open_session, nats_servers, no_session,
    resolve_list_number, used_store,
};
use super::sessions;
use crate::args::StopArgs;
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_full_receipt, render_receipt};
use crate::error::{CliError, CliErrorKind};
use crate::host::ProcessHost;
use crate::short_id::{LAST, short};
use allstop_remote::{RemoteExtent, RemoteStopParams};
use orphaned_work::OrphanedSessions;
use results::{SessionStopLine, StopResults};

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// Dropping the future does not cancel the stop.
pub(crate) async fn stop(args: &StopArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let by = format!("allstop stop in process {}", std::process::id());
    let answers = match args.id.as_deref() {
        Some(given) => stop_one(given, &by, args, host).await?,
        None if args.all => stop_all(&by, args, host).await?,
        None => {
            let hint = "name a session: `allstop stop last`, or an id from `allstop ps`; --all stops all open sessions";
            return Err(CliError::usage("no session is named").hint(hint));
        }
    };
    if args.shown.json {
        let Some(line) = answers.json(args.all) else {
            let problem = answers.problems.into_iter().next();
            return Err(problem.unwrap_or_else(|| no_session(&[])));
        };
        host.output.stdout().json(&line, OutputPriority::Last);
    }
    Ok(print_results(args, host, &answers))
}

fn params(session_id: &SessionId, by: &str, args: &StopArgs) -> RemoteStopParams {
    RemoteStopParams {
        session_id: session_id.clone(),
        extent: args.extent,
        call: args.call.as_deref().map(CallId::new),
        now: args.now,
        preview: args.preview,
        by: by.to_owned(),
        reason: args.reason.clone(),
    }
}

/// Stops all sessions. The request to one process does not wait for other processes. Nor does it wait for the store,
/// which may be slow or damaged.
async fn stop_all(by: &str, args: &StopArgs, host: &ProcessHost) -> Result<StopResults, CliError> {
    let stop = |session: &SessionId| params(session, by, args);
    let (mut all, asked) = open::stop_all(stop, &args.store, &host.sockets).await?;
    // A stop of turns does not cover orphaned work, because this work belongs to no running turn.
    if args.extent == RemoteExtent::Turn {
        return Ok(all);
    }
    if args.store.store.as_deref().and_then(nats_servers).is_some() {
        all.notes.push(
            "work that was left running is not searched: this search needs a store on this machine"
                .to_owned(),
        );
        return Ok(all);
    }
    let log = match sessions::open(&args.store, host).await {
        Ok(opened) => opened,
        Err(problem) => {
            let why = &problem.message;
            let said = format!("the search for work that was left running failed: {why}");
            all.problems.push(CliError {
                message: said,
                ..problem
            });
            return Ok(all);
        }
    };
    let left = OrphanedSessions::of_store(log, host.scopes(), &asked.known, &asked.processes).await;
    match left {
        Ok((found, left)) => {
            found.problems.iter().for_each(|why| all.problem(why));
            let target = StopTarget::TurnAndBackground;
            all.answers.extend(left.stop(&target, args, by).await);
            if !args.preview
                && let Err(problem) = dying_processes_gone(&found.dying, Vec::new(), host).await
            {
                all.problems.push(problem);
            }
            // Another `allstop stop` may have these sessions open to stop the same work. It releases the sessions soon.
            let waiting = found
                .held
                .iter()
                .map(|id| ended::answer(id.as_str(), None, by, args, &args.store, host));
            for answered in join_all(waiting).await {
                match answered {
                    Ok(found) => {
                        let mut answers = found.answers;
                        answers.retain(|answer| answer.receipt.outcome().is_none());
                        all.answers.extend(answers);
                        all.problems.extend(found.problems);
                    }
                    Err(problem) => all.problems.push(problem),
                }
            }
        }
        Err(problem) => all.problems.push(problem),
    }
    Ok(all)
}

async fn stop_one(
    given: &str,
    by: &str,
    args: &StopArgs,
    host: &ProcessHost,
) -> Result<StopResults, CliError> {
    let asked = match given {
        LAST => ask_for_session(&host.sockets, &args.store).await?,
        _ => ask_processes(&host.sockets).await?.in_store(&args.store),
    };
    let id = resolve_list_number(given, &asked.open, &args.store, host).await?;
    let mut found = StopResults::default();
    if given != LAST
        && let Some(command) = find_open_session(asked.commands, &id)?
    {
        let request = params(&command.session, by, args);
        match command.process.stop(&request).await {
            Ok(answer) => {
                let line = SessionStopLine::of_command(command.session, answer);
                found.answers.push(line);
            }
            Err(unanswered) => found.problem(&unanswered.error),
        }
        return Ok(found);
    }
    let Some(target) = find_open_session(asked.open, &id)? else {
        if given == LAST && !asked.silent.is_empty() {
            return Err(no_session(&asked.silent));
        }
        if let (LAST, Some(starting)) = (given, asked.starting.first()) {
            return Err(starting.not_stopped());
        }
        return match ended::answer(&id, None, by, args, &args.store, host).await {
            Ok(answer) => Ok(answer),
            // If a process did not answer, it may have this session open. So its error is reported.
            Err(error) => Err(match asked.silent.first() {
                Some(silent) => CliError::failure(silent.to_string()),
                None if given == LAST && error.is_not_found() => no_session(&[]),
                None => error,
            }),
        };
    };
    if given == LAST {
        // If a process did not answer, it may have the session that was active most recently. So its error is reported,
        // too.
        asked.silent.iter().for_each(|silent| found.problem(silent));
    }
    let store = used_store(&args.store, target.store.as_deref());
    let stopped = target
        .process
        .stop(&params(&target.session, by, args))
        .await;
    match stopped {
        Ok(answer) => {
            found.answered(SessionStopLine::answered(target.session, answer), &store);
        }
        Err(unanswered) if unanswered.error.is_of_ended_session() => {
            let accepted = unanswered.accepted.as_ref();
            let id = target.session.as_str();
            let ended = ended::answer(id, accepted, by, args, &store, host).await;
            match ended {
                Ok(ended) => found.extend(ended),
                Err(error) => found.problems.push(error),
            }
        }
        Err(unanswered) => found.problem(&unanswered.error),
    }
    Ok(found)
}

/// Shows the receipts of the stops, and the problems. Returns the exit code.
fn print_results(args: &StopArgs, host: &ProcessHost, found: &StopResults) -> u8 {
    let StopResults {
        answers,
        problems,
        notes,
    } = found;
    let stdout = host.output.stdout();
    let style = host.terminal.style(stdout.is_terminal());
    let width = stdout.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
    for answer in answers {
        if args.shown.json {
            break;
        }
        let mut text = Styled::default();
        if args.all || args.preview {
            let kind = if answer.is_command {
                "command"
            } else {
                "session"
            };
            let title = format!("{kind} {}", short(answer.session_id.as_str()));
            text.push_line(&style.paint(TextRole::Dim, title));
        }
        text.push(&if args.shown.full {
            render_full_receipt(&answer.receipt, style, width)
        } else {
            render_receipt(&answer.receipt, style, width)
        });
        stdout.lines(text, OutputPriority::Last);
    }
    if answers.is_empty() && problems.is_empty() && !args.shown.json {
        let said = match args.extent {
            _ if !notes.is_empty() => "nothing to stop: no session is open",
            RemoteExtent::Turn => "nothing to stop: no session is open",
            _ => {
                "nothing to stop: no session is open, and the store has no work that was left running"
            }
        };
        stdout.sentences(Styled::from(said), OutputPriority::Last);
    }
    let stderr = host.output.stderr();
    let style = host.terminal.style(stderr.is_terminal());
    for problem in problems {
        let said = style.failure(&problem.message, problem.hint.as_deref());
        stderr.sentences(said, OutputPriority::Required);
    }
    for note in notes {
        host.note(note);
    }
    let code = |answer: &SessionStopLine| match answer.receipt.outcome() {
        Some(NothingToStop::NotFound) => CliErrorKind::NotFound.exit_code(),
        Some(NothingToStop::Ending) => 1,
        Some(NothingToStop::AlreadyEnded) => 0,
        None => u8::from(!answer.receipt.quiet() && !args.preview),
    };
    let of_problems = problems.iter().map(CliError::code);
    let codes = of_problems.chain(answers.iter().map(code));
    // Work that is left running is the worst result, so its code has precedence over the code of a missing id.
    let codes: Vec<_> = codes.collect();
    let worst = codes.contains(&1).then_some(1);
    worst.or(codes.into_iter().max()).unwrap_or(0)
}
