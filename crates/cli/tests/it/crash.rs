//! Runs on one store are killed with `kill -9` at random moments. Afterwards every session must contain exactly its
//! committed turns. The log must show each interruption, and no interrupted work may keep running.

use std::collections::BTreeSet;
use std::time::Duration;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::Value;

use crate::support::processes::{Process, is_alive};
use crate::support::random::{self, Random, number_from_environment};
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place, Signal, history};

/// Number of kills, unless `ALLSTOP_TEST_KILLS` sets another number.
const KILLS: u32 = 40;

/// Number of sessions on one store whose runs are killed concurrently.
const SESSIONS: u32 = 4;

/// Maximum time between the kill of a run and the end of its processes.
const OUTLIVES_MAX: Duration = Duration::from_secs(2);

/// Script of a turn with three calls: a slow command that creates a file at its end, a call of the tool `write`, and a
/// command in the background.
const SCRIPT: &str = "
turns:
  - when: go
    replies:
      - chunks: [{text: 'Let me '}, {text: see., after: 5ms}]
        calls:
          - {tool: shell, arguments: {command: 'sleep 0.1; echo ended >> trail'}}
          - {tool: write, arguments: {path: notes.txt, content: x}}
          - {tool: shell, arguments: {command: sleep 600, background: true}}
      - chunks: [{text: 'Done '}, {text: with it., after: 20ms}]
";

#[test]
fn a_killed_run_is_never_more_than_its_last_committed_turn() {
    let kills = number_from_environment("ALLSTOP_TEST_KILLS").map_or(KILLS, |kills| kills as u32);
    let seed = random::seed();
    println!("{kills} kills, ALLSTOP_TEST_SEED={seed}");
    let store = Place::new();
    let tallies: Vec<Tally> = std::thread::scope(|threads| {
        let start = |number| {
            let random = Random::new(seed.wrapping_add(u64::from(number)));
            let store = &store;
            threads
                .spawn(move || KilledSession::new(store, random).kill_repeatedly(kills / SESSIONS))
        };
        let running: Vec<_> = (0..SESSIONS).map(start).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("its assertions hold"))
            .collect()
    });
    println!("{tallies:#?}");
    let sum = |count: fn(&Tally) -> u32| tallies.iter().map(count).sum::<u32>();
    assert!(
        sum(|tally| tally.interrupted_turns) >= kills / 10,
        "the moments were badly chosen"
    );
}

/// Counts of observations, for the output of the test.
#[derive(Debug, Default)]
struct Tally {
    killed: u32,
    ended_before: u32,
    interrupted_turns: u32,
    unknown_calls: u32,
    kept_running: u32,
    committed_turns: usize,
}

/// One session whose runs are killed repeatedly. A separate [`Place`] marks its processes by an environment variable.
/// All sessions share one store.
struct KilledSession<'a> {
    store: &'a Place,
    place: Place,
    random: Random,
    model: String,
    session: String,
    /// Duration of a run without a kill.
    whole: Duration,
    /// Prompts of the committed turns.
    committed: Vec<String>,
    tally: Tally,
}

impl<'a> KilledSession<'a> {
    fn new(store: &'a Place, random: Random) -> Self {
        let place = Place::new();
        let model = place.script(SCRIPT);
        let mut session = Self {
            store,
            place,
            random,
            model,
            session: String::new(),
            whole: Duration::ZERO,
            committed: Vec::new(),
            tally: Tally::default(),
        };
        let first = session
            .run()
            .args("--json")
            .prompts(&["go 0.0", "go 0.1"])
            .end()
            .ok();
        session.session = first.session();
        session.whole = first.after;
        session.committed = vec!["go 0.0".into(), "go 0.1".into()];
        session
    }

    fn run(&self) -> crate::support::Allstop<'_> {
        let run = self
            .place
            .allstop()
            .args("run --yes --store")
            .arg(self.store.store());
        run.arg("--model").arg(&self.model)
    }

    fn kill_repeatedly(mut self, kills: u32) -> Tally {
        for round in 1..=kills {
            self.kill_once(round);
        }
        self.tally.committed_turns = self.committed.len();
        self.tally
    }

    fn kill_once(&mut self, round: u32) {
        let keeps = self.random.below(3) == 0;
        let prompts: Vec<String> = (0..3).map(|turn| format!("go {round}.{turn}")).collect();
        let span = self.whole.as_micros() as u64 * 3 / 2;
        let moment = Duration::from_micros(self.random.below(span));
        let mut run = self
            .run()
            .args("--stream-json --session")
            .arg(&self.session);
        if keeps {
            run = run.arg("--keep-background");
        }
        let mut running = run.prompts(&prompts).start();
        if running.ends_within(moment) {
            self.tally.ended_before += 1;
        } else {
            self.tally.killed += 1;
            running.signal(Signal::KILL);
        }
        // The output pipes close when no process holds them any more. Detached work must not hold them after the end of
        // the killed process.
        let killed = running.end(FACT_MAX);
        let events: Vec<Value> = killed
            .stdout
            .lines()
            // The last line may be incomplete, because the process was killed.
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();

        let left = self.what_outlives();
        if !keeps {
            assert!(left.is_empty(), "round {round}: {left:#?}");
        }
        self.check_next_run(round, &prompts, &events, &left);
        self.end_what_was_kept(&left);
    }

    /// Processes of the session that still run after the time limit.
    fn what_outlives(&self) -> Vec<Process> {
        let gone = within(OUTLIVES_MAX, || {
            self.place.leftovers().is_empty().then_some(())
        });
        gone.map_or_else(|| self.place.leftovers(), |()| Vec::new())
    }

    /// Checks that the next run works, and that its request to the model contains only the committed turns. The output
    /// of this run must name the work that still runs.
    fn check_next_run(
        &mut self,
        round: u32,
        prompts: &[String],
        events: &[Value],
        left: &[Process],
    ) {
        let server = OpenAiServer::start([ServerAnswer::text("Yes.")]);
        let check = format!("check {round}");
        let run = self
            .place
            .allstop()
            .args("run --store")
            .arg(self.store.store());
        let run = run
            .args("--model any --base-url")
            .arg(server.url())
            .arg("--session")
            .arg(&self.session);
        let next = run.args("--keep-background").arg(&check).end().ok();
        assert_eq!(next.stdout, "Yes.\n");
        let requests = server.requests();
        let messages = requests[0].messages();
        history::assert_valid(messages);

        let completed = events
            .iter()
            .filter(|event| event["event"] == "turn_ended" && event["stop_reason"] == "completed");
        let seen = completed.count();
        let sent: Vec<String> = history::prompts(messages)
            .iter()
            .map(|prompt| own_words(prompt))
            .collect();
        let (last, before) = sent.split_last().expect("the message itself");
        assert_eq!(*last, check);
        assert!(
            before.starts_with(&self.committed),
            "round {round}: {before:?}"
        );
        let new = &before[self.committed.len()..];
        // The last turn may have been committed, although its event was not printed before the kill.
        assert!(
            new.len() == seen || new.len() == seen + 1,
            "round {round}: {new:?}, {seen} told"
        );
        assert_eq!(new, &prompts[..new.len()], "round {round}");
        for prompt in new {
            self.committed.push(prompt.clone());
        }
        assert_each_turn_is_whole(messages);
        self.committed.push(check);
        self.check_shown(round, events, new.len());

        for process in left {
            let said = next
                .stderr
                .contains("of an earlier process still runs: sleep 600");
            assert!(
                said,
                "round {round}: {process:?} runs on, and is not named: {}",
                next.stderr
            );
        }
    }

    /// Checks that the log contains the cause of the interrupted turn, and lists the calls of this turn as unknown.
    fn check_shown(&mut self, round: u32, events: &[Value], committed: usize) {
        let shown = self
            .place
            .allstop()
            .args("sessions --store")
            .arg(self.store.store());
        let shown = shown.args("show --json").arg(&self.session).end().ok();
        let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
        let turns = shown["turns"].as_array().expect("turns");
        let completed = turns
            .iter()
            .filter(|turn| turn["stop_reason"] == "completed");
        assert_eq!(completed.count(), self.committed.len(), "round {round}");
        // The last turn is the turn of the run for this check.
        let before = &turns[turns.len() - 2];
        // A turn whose first step has begun must be in the log. Earlier, a turn may be missing, because it has sent no
        // request and made no call.
        let begins = |event: &&Value| event["event"] == "step_started" && event["step"] == 1;
        let begun = events.iter().filter(begins).count();
        let interrupted = before["stop_reason"] == "error";
        assert!(
            interrupted || begun <= committed,
            "round {round}: {before:#}"
        );
        if !interrupted {
            return;
        }
        self.tally.interrupted_turns += 1;
        assert_eq!(
            before["cause"]["kind"], "failure",
            "round {round}: {before:#}"
        );
        assert_eq!(
            before["cause"]["detail"], "crash",
            "round {round}: {before:#}"
        );
        let unknown: BTreeSet<&str> = before["unknown_calls"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|call| call["id"].as_str().expect("an id"))
            .collect();
        self.tally.unknown_calls += unknown.len() as u32;
        let slow = slow_calls(events);
        let is_start = |event: &&Value| event["event"] == "tool_started";
        let started = events
            .iter()
            .filter(is_start)
            .filter(|event| slow.contains(&&event["call_id"]));
        let trail = std::fs::read_to_string(self.place.work().join("trail")).unwrap_or_default();
        if started.count() > trail.lines().count() {
            let id = slow.last().and_then(|id| id.as_str()).expect("an id");
            assert!(
                unknown.contains(id),
                "round {round}: {id} never ended: {before:#}"
            );
        }
    }

    /// Ends the detached work like a user, with the command that the run printed.
    fn end_what_was_kept(&mut self, left: &[Process]) {
        if left.is_empty() {
            return;
        }
        let shown = self
            .place
            .allstop()
            .args("sessions --store")
            .arg(self.store.store());
        let shown = shown.args("show --json").arg(&self.session).end().ok();
        let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
        let background = shown["background"].as_array().expect("a list");
        for work in background.iter().filter(|work| work["alive"] == true) {
            assert_eq!(work["attachment"], "detached", "{work:#}");
            self.tally.kept_running += 1;
            let pid = work["stop_pid"].as_i64().expect("a pid") as i32;
            assert!(is_alive(pid), "{work:#}");
            let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
            rustix::process::kill_process(pid, Signal::TERM).expect("it is there");
        }
        let left = self.what_outlives();
        assert!(
            left.is_empty(),
            "not ended by what the session names: {left:#?}"
        );
    }
}

/// Ids of the calls of the slow command.
fn slow_calls(events: &[Value]) -> Vec<&Value> {
    let is_slow = |event: &&Value| {
        let command = event["arguments"]["json"]["command"].as_str();
        event["event"] == "tool_requested" && command.is_some_and(|it| it.starts_with("sleep 0.1"))
    };
    let requests = events.iter().filter(is_slow);
    requests.map(|event| &event["call_id"]).collect()
}

/// Asserts that each turn of the script in these messages is complete, from its prompt to its answer.
#[track_caller]
fn assert_each_turn_is_whole(messages: &[Value]) {
    let starts = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| history::text_of(message).starts_with("go "));
    for (at, _) in starts {
        let roles: Vec<&str> = messages[at..]
            .iter()
            .take(6)
            .map(|message| message["role"].as_str().expect("a role"))
            .collect();
        assert_eq!(
            roles,
            ["user", "assistant", "tool", "tool", "tool", "assistant"],
            "{messages:#?}"
        );
        assert_eq!(
            history::text_of(&messages[at + 5]),
            "Done with it.",
            "{messages:#?}"
        );
    }
}

/// Text of a user message without the note about finished background work, which may precede the prompt.
fn own_words(prompt: &str) -> String {
    let words = prompt.rsplit("\n\n").next();
    words.unwrap_or_default().to_owned()
}
