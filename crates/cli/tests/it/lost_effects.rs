//! A run is killed with `kill -9` at random moments around a payment. The next request to the model names each payment
//! that was made, so that the model does not pay again.

use std::time::Duration;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use crate::support::fault::Fault;
use crate::support::random::{self, Random, number_from_environment};
use crate::support::wait::eventually;
use crate::support::{FACT_MAX, Place, Signal, history};

/// Number of kills for each policy, unless `ALLSTOP_TEST_KILLS` sets another number.
const KILLS: u64 = 20;

/// A run without a kill reaches its second step earlier.
const LAST_MOMENT_MS: u64 = 250;

const PAYMENT: &str = "echo paid >> ledger";

/// The turn pays, and hangs in its next step.
const PAYS: &str = "{when: pay, replies: [PAYMENT_CALL, {text: Paid., stall: mid_stream}]}";

/// A sub-agent of the turn pays, and hangs in its next step.
const LETS_PAY: &str = "{when: pay, replies: [{calls: [{tool: agent, arguments: {prompt: shop}}]}]}, {when: shop, \
                        replies: [PAYMENT_CALL, {text: Paid., stall: mid_stream}]}";

/// Information about the payment in the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    Nothing,
    Uncertain,
    Completed,
}

#[test]
fn payment_before_a_kill_is_known_to_the_next_turn() {
    let kills = number_from_environment("ALLSTOP_TEST_KILLS").unwrap_or(KILLS);
    let seed = random::seed();
    println!("{kills} kills for each case, ALLSTOP_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    for (policy, turns) in [("rollback", PAYS), ("keep", PAYS), ("rollback", LETS_PAY)] {
        let mut paid = 0;
        for round in 0..kills {
            let moment = Duration::from_millis(random.below(LAST_MOMENT_MS));
            paid += u64::from(killed_at(moment, policy, turns, round));
        }
        println!("{policy}: {paid} of {kills} had paid");
        assert!(paid > 0, "the moments were badly chosen");
    }
}

/// Kills a run after this time, and checks the next request. Returns true if the run had paid.
fn killed_at(moment: Duration, policy: &str, turns: &str, round: u64) -> bool {
    let place = Place::new();
    let call = format!("{{calls: [{{tool: shell, arguments: {{command: '{PAYMENT}'}}}}]}}");
    let script = format!("turns: [{}]", turns.replace("PAYMENT_CALL", &call));
    let run = place.run_script(&script).args("--on-stop").arg(policy);
    let mut running = run.arg("pay").start();
    assert!(
        !running.ends_within(moment),
        "{policy}, round {round}: its second step never ends"
    );
    running.signal(Signal::KILL);
    let _killed = running.end(FACT_MAX);
    // The command may pay until its keeper has killed it.
    eventually("its command is gone", || {
        place.leftovers().is_empty().then_some(())
    });
    let ledger = std::fs::read_to_string(place.work().join("ledger")).unwrap_or_default();
    let listed = place.allstop().args("sessions list --json --store");
    let listed = listed.arg(place.store()).end();
    if !listed.stdout.contains("session_id") {
        assert_eq!(
            ledger, "",
            "{policy}, round {round}: paid without a session"
        );
        return false;
    }
    let server = OpenAiServer::start([
        ServerAnswer::stream().tool_call(
            "again",
            "shell",
            &serde_json::json!({"command": PAYMENT}).to_string(),
        ),
        ServerAnswer::text("Done."),
    ]);
    let next = place.allstop().args("run --yes --continue --store");
    let next = next.arg(place.store()).args("--model any --base-url");
    let next = next.arg(server.url()).arg("and now?").end().ok();
    let requests = server.requests();
    let messages = requests[0].messages();
    history::assert_valid(messages);
    let known = knowledge(messages);
    let at = format!("{policy}, round {round}, after {moment:?}: {known:?}, {messages:#?}");
    if ledger == "paid\n" {
        assert_ne!(known, Knowledge::Nothing, "the payment is forgotten: {at}");
    } else {
        assert_ne!(
            known,
            Knowledge::Completed,
            "the payment was never made: {at}"
        );
    }
    // A payment with an unknown outcome is not repeated without a person, even under `--yes`.
    let after = std::fs::read_to_string(place.work().join("ledger")).unwrap_or_default();
    if known == Knowledge::Uncertain {
        assert_eq!(after, ledger, "{at}: {next:#?}");
    }
    ledger == "paid\n"
}

/// The process ends while a sub-agent works in the background. The next process reports what the sub-agent has done.
#[test]
fn payment_of_a_background_sub_agent_is_known_to_the_next_process() {
    let obstinate = "trap true TERM; touch paid; while true; do sleep 1; done";
    let hangs = "touch paid; sleep 600";
    // Regression: a sub-agent that was stopped by force had no answer, and the payment was forgotten. If it was stopped
    // without force, its answer did not name the calls of the sub-agents below it.
    for (ends_by_itself, hangs, payer) in [
        (true, hangs, "shop"),
        (true, hangs, "buy"),
        (false, hangs, "shop"),
        (false, hangs, "buy"),
        (false, obstinate, "shop"),
    ] {
        let place = Place::new();
        // The first sub-agent pays, or starts another one that pays.
        let delegates = match payer {
            "shop" => "",
            _ => "{when: shop, replies: [{calls: [{tool: agent, arguments: {prompt: buy}}]}]},",
        };
        let last = if ends_by_itself {
            "Done."
        } else {
            "Done., stall: mid_stream"
        };
        let script = format!(
            "turns: [{{when: pay, replies: [{{calls: [{{tool: agent, arguments: {{prompt: shop, background: true}}}}]}}, \
             {{calls: [{{tool: shell, arguments: {{command: 'until test -e paid; do sleep 0.01; done'}}}}]}}, \
             {{text: {last}}}]}}, \
             {delegates} {{when: {payer}, replies: [{{calls: [{{tool: shell, arguments: {{command: '{PAYMENT}'}}}}]}}, \
             {{calls: [{{tool: shell, arguments: {{command: {hangs}}}}}]}}]}}]"
        );
        let running = place.run_script(&script).arg("pay").start();
        // The second command shows that the payment has returned.
        let paid = place.work().join("paid");
        eventually("the payment", || paid.exists().then_some(()));
        if ends_by_itself {
            running.end(FACT_MAX).ok();
        } else {
            assert_eq!(running.end_by(Signal::INT).code, 130);
        }
        let server = OpenAiServer::start([ServerAnswer::text("Done.")]);
        let next = place.allstop().args("run --yes --continue --store");
        let next = next.arg(place.store()).args("--model any --base-url");
        next.arg(server.url()).arg("and now?").end().ok();
        let request = server.requests()[0].messages().to_vec();
        let line = format!("shell `{PAYMENT}`: completed");
        let texts: Vec<String> = request.iter().map(history::text_of).collect();
        assert!(
            texts.iter().any(|text| text.contains(&line)),
            "{ends_by_itself}, {hangs}, {payer}: {texts:#?}"
        );
        let shown = place.sessions().args("show last").end().ok().stdout;
        assert!(shown.contains(&line), "{shown}");
    }
}

/// A command in the background pays and hangs. The next message repeats it.
const PAYS_IN_BACKGROUND: &str = "turns: [{when: pay, replies: [PAYMENT_CALL, \
    {calls: [{tool: shell, arguments: {command: 'until test -e paid; do sleep 0.01; done; touch both'}}]}, \
    {text: Paid., stall: mid_stream}]}, {when: again, replies: [PAYMENT_CALL, {text: Done.}]}]";

fn pays_in_background() -> String {
    let pays = format!("{PAYMENT}; touch paid; sleep 600");
    let call =
        format!("{{calls: [{{tool: shell, arguments: {{command: '{pays}', background: true}}}}]}}");
    PAYS_IN_BACKGROUND.replace("PAYMENT_CALL", &call)
}

/// Ends the process by this signal after the payment. Returns its envelope.
fn paid_in_background(policy: &str, signal: Signal) -> (Place, serde_json::Value) {
    let place = Place::new();
    let run = place.run_script(&pays_in_background());
    let run = run.args("--json --on-stop").arg(policy);
    let mut running = run.arg("pay").start();
    let both = place.work().join("both");
    eventually("the payment", || both.exists().then_some(()));
    let envelope = if signal == Signal::KILL {
        running.signal(signal);
        let _killed = running.end(FACT_MAX);
        serde_json::Value::Null
    } else {
        running.end_by(signal).envelope()
    };
    eventually("its command is gone", || {
        place.leftovers().is_empty().then_some(())
    });
    (place, envelope)
}

/// The next turn repeats the payment. Returns its envelope.
fn pay_again(place: &Place) -> serde_json::Value {
    let next = place.run_script(&pays_in_background());
    let next = next.args("--json --continue again");
    next.end().ok().envelope()
}

/// Regression: under `keep`, the call was repeated silently, because its result is in the conversation.
#[test]
fn background_command_that_a_crash_has_ended_is_not_repeated_silently() {
    for policy in ["rollback", "keep"] {
        let (place, _) = paid_in_background(policy, Signal::KILL);
        let envelope = pay_again(&place);
        let denials = envelope["denials"].as_array().map(Vec::len);
        assert_eq!(denials, Some(1), "{policy}: {envelope:#}");
        if policy == "rollback" {
            let reported = &envelope["reported_calls"][0];
            assert_eq!(reported["outcome"], "unknown", "{envelope:#}");
        }
        let ledger = std::fs::read_to_string(place.work().join("ledger"));
        assert_eq!(ledger.expect("paid once"), "paid\n", "{policy}");
    }
}

/// Regression: the outcome was unknown although the receipt proves the stop, and a repetition was denied.
#[test]
fn background_command_that_was_verifiably_stopped_has_a_known_outcome() {
    for policy in ["rollback", "keep"] {
        let (place, stopped) = paid_in_background(policy, Signal::INT);
        if policy == "rollback" {
            let lost = &stopped["lost_calls"][0];
            assert_eq!(lost["outcome"], "stopped", "{stopped:#}");
        }
        let envelope = pay_again(&place);
        let denials = &envelope["denials"];
        assert_eq!(*denials, serde_json::json!([]), "{policy}: {envelope:#}");
        if policy == "rollback" {
            let reported = &envelope["reported_calls"][0];
            assert_eq!(reported["outcome"], "stopped", "{envelope:#}");
        }
    }
}

fn knowledge(messages: &[serde_json::Value]) -> Knowledge {
    let texts: Vec<String> = messages.iter().map(history::text_of).collect();
    let names = |state: &str| {
        let line = format!("shell `{PAYMENT}`: {state}");
        texts.iter().any(|text| text.contains(&line))
    };
    let is_in_conversation = messages.iter().any(|message| message["role"] == "tool");
    if names("completed") || is_in_conversation {
        Knowledge::Completed
    } else if names("outcome unknown") {
        Knowledge::Uncertain
    } else {
        Knowledge::Nothing
    }
}

/// The store takes no record after the call. Regression: the envelope of the failed run listed no call.
#[test]
fn run_that_its_store_fails_names_its_own_calls() {
    for (policy, format) in [("rollback", "--json"), ("keep", "--json"), ("rollback", "")] {
        let place = Place::new();
        let ready = place.path("ready");
        let fault = Fault::new(
            &place,
            &format!("sync store.db EIO when={}", ready.display()),
        );
        let command = format!("{PAYMENT}; touch {}", ready.display());
        let script = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{command: '{command}'}}}}]}}, {{text: Paid.}}]"
        );
        let run = place
            .run_script(&script)
            .args(format)
            .arg("--on-stop")
            .arg(policy);
        let ended = fault.below(run.arg("pay")).end();
        assert_eq!(ended.code, 1, "{policy}: {ended:#?}");
        if format.is_empty() {
            let named = format!("shell `{command}`: completed");
            assert!(ended.stderr.contains(&named), "{ended:#?}");
            continue;
        }
        let envelope = ended.envelope();
        assert_eq!(envelope["error"]["kind"], "store", "{policy}: {envelope:#}");
        let lost = &envelope["lost_calls"][0];
        assert_eq!(lost["tool"], "shell", "{policy}: {envelope:#}");
        assert_eq!(lost["outcome"], "succeeded", "{policy}: {envelope:#}");
    }
}

/// The disk hangs when the ending is written. Regression: the envelope listed no call, and no one warned that the store
/// does not contain the receipt.
#[test]
fn second_ctrl_c_during_the_write_of_the_ending_names_the_calls() {
    for policy in ["rollback", "keep"] {
        let place = Place::new();
        let fault = Fault::new(&place, "");
        let script = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{command: '{PAYMENT}'}}}}]}}, \
             {{calls: [{{tool: shell, arguments: {{command: touch second; sleep 600}}}}]}}]"
        );
        let run = place
            .run_script(&script)
            .args("--json --on-stop")
            .arg(policy);
        let mut running = fault.below(run.arg("pay")).start();
        let second = place.work().join("second");
        eventually("the second call", || second.exists().then_some(()));
        fault.set("sync store.db hang");
        running.signal(Signal::INT);
        eventually("the write", || {
            fault.seen().contains("sync hang").then_some(())
        });
        // Two signals within a tenth of a second count as one.
        assert!(!running.ends_within(Duration::from_millis(150)));
        let ended = running.end_by(Signal::INT);
        assert_eq!(ended.code, 130, "{policy}: {ended:#?}");
        let envelope = ended.envelope();
        assert_eq!(envelope["error"]["kind"], "store", "{policy}: {envelope:#}");
        let lost: Vec<_> = envelope["lost_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|call| (call["label"].as_str(), call["outcome"].as_str()))
            .collect();
        let hung = (Some("touch second; sleep 600"), Some("stopped"));
        if policy == "rollback" {
            assert_eq!(lost, [(Some(PAYMENT), Some("succeeded")), hung]);
        } else {
            // The completed step is durable.
            assert_eq!(lost, [hung]);
        }
        assert!(
            ended
                .stderr
                .contains("the store may not contain the receipt"),
            "{ended:#?}"
        );
    }
}
