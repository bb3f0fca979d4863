//! Random choice of a run, and of the signals that stop it.

use std::time::Duration;

use crate::support::Signal;
use crate::support::random::Random;

/// Grace of all runs.
pub(super) const GRACE: Duration = Duration::from_millis(200);

/// Latest time of the first signal. Most runs have ended by this time.
const MOMENT_MAX: Duration = Duration::from_millis(700);

/// Latest time of a second signal after the first signal.
const SECOND_MAX: Duration = Duration::from_millis(400);

/// Script with one turn for each word of `WORDS`. A prompt runs the turn of its first word.
pub(super) const SCRIPT: &str = r#"
turns:
  - when: quick
    replies:
      - chunks: [{text: 'Let me '}, {text: see., after: 5ms}]
        calls: [{tool: shell, arguments: {command: echo x >> trail}}]
        usage: {input_tokens: 20, output_tokens: 7}
      - {text: Done., usage: {input_tokens: 30, output_tokens: 3}}
  - when: slow
    replies:
      - calls:
          - {tool: shell, arguments: {command: sleep 0.1; echo x >> trail}}
          - {tool: write, arguments: {path: notes.txt, content: x}}
          - {tool: list, arguments: {}}
      - calls: [{tool: shell, arguments: {command: sleep 0.1}}]
        text: Half of it.
      - chunks: [{text: 'Done '}, {text: 'with ', after: 30ms}, {text: it., after: 30ms}]
  - when: deaf
    replies:
      - calls: [{tool: shell, arguments: {command: "trap '' TERM INT HUP; setsid sleep 600 & sleep 600; wait"}}]
  - when: behind
    replies:
      - calls: [{tool: shell, arguments: {command: sleep 600, background: true}}]
      - calls: [{tool: shell, arguments: {command: sleep 0.05}}]
      - {text: It runs.}
  - when: stubborn
    replies:
      - calls:
          - {tool: shell, arguments: {command: "trap '' TERM; while :; do sleep 0.05; done", background: true}}
          - {tool: shell, arguments: {command: "trap 'sleep 0.05; exit 3' TERM; while :; do sleep 0.01; done"}}
  - when: brief
    replies:
      - calls: [{tool: shell, arguments: {command: sleep 0.1, background: true}}]
      - {text: It runs for a while.}
  - when: long
    replies:
      - calls: [{tool: shell, arguments: {command: "head -c 200000 /dev/zero | tr '\\0' x; sleep 0.1"}}]
      - {text: That was long.}
  - when: edit
    replies:
      - calls: [{tool: write, arguments: {path: file.txt, content: one}}]
      - calls: [{tool: edit, arguments: {path: file.txt, old: one, new: two}}]
      - {text: Edited.}
  - when: other
    replies:
      - calls: [{tool: agent, arguments: {prompt: quick}}, {tool: agent, arguments: {prompt: slow}}]
      - {text: That is that.}
  - when: flaky
    replies:
      - {error: {status: 503, times: 1, retry_after: 50ms}, text: At the second attempt.}
  - when: endless
    replies:
      - {text: This sentence has no end at all., stall: mid_stream}
"#;

/// Possible first words of the prompts.
const WORDS: [&str; 11] = [
    "quick", "slow", "deaf", "behind", "stubborn", "brief", "long", "edit", "other", "flaky",
    "endless",
];

/// A random run, and the signals that stop it.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) prompts: Vec<String>,
    pub(super) flags: Vec<&'static str>,
    /// Deadline of the run, in milliseconds.
    pub(super) timeout_ms: Option<u64>,
    /// The signals, each with the wait before it.
    pub(super) stops: Vec<(Duration, Signal)>,
    /// Rules of the library that injects faults.
    pub(super) faults: String,
    /// True if standard error has no reader.
    pub(super) is_unread: bool,
    /// True if the model is a provider whose answers stall.
    pub(super) is_remote: bool,
}

impl Case {
    pub(super) fn random(random: &mut Random, round: u64) -> Self {
        let prompts = (0..=random.below(3))
            .map(|number| format!("{} {round}.{number}", pick(random, &WORDS)))
            .collect();
        let mut flags = vec![pick(random, &["--json", "--json", "--stream-json"])];
        flags.extend(pick(
            random,
            &[
                None,
                None,
                Some("--keep-background"),
                Some("--wait-background"),
            ],
        ));
        flags.extend(pick(random, &[None, Some("--on-stop=keep")]));
        let timeout_ms = (random.below(4) == 0).then(|| 20 + random.below(800));
        let any = [
            Signal::INT,
            Signal::INT,
            Signal::TERM,
            Signal::HUP,
            Signal::KILL,
        ];
        let mut stops = vec![(random.before(MOMENT_MAX), pick(random, &any))];
        if random.below(2) == 0 {
            stops.push((random.before(SECOND_MAX), pick(random, &any)));
        }
        if timeout_ms.is_some() && random.below(2) == 0 {
            stops.clear();
        }
        Self {
            prompts,
            flags,
            timeout_ms,
            stops,
            faults: String::new(),
            is_unread: false,
            is_remote: false,
        }
    }
}

pub(super) fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}
