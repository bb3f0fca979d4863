//! The rule for the JSON of all commands: one object on one line, with a `schema` that `allstop schema` prints, and an
//! error object after a failure.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::subcommands::{help, leaves};
use crate::support::{Ended, FACT_MAX, Place, Signal, eventually, schema};

const SCRIPT: &str = "turns:\n- when: sleep\n  replies: [{calls: [{tool: shell, arguments: {command: touch ready; sleep 600}}]}]\n\
                      replies: [{text: Hello.}]\n";

/// Checks the objects of commands, and remembers the checked commands.
struct Rule<'a> {
    place: &'a Place,
    /// Names of the printed schemas by the value of `schema`.
    names: HashMap<String, String>,
    checked: HashSet<String>,
}

impl<'a> Rule<'a> {
    fn new(place: &'a Place) -> Self {
        let listed = place.allstop().arg("schema").end().ok().stdout;
        let names = listed.lines().filter_map(|line| line.split(' ').next());
        let by_id = names.map(|name| {
            let printed = place.allstop().args("schema").arg(name).end().ok().stdout;
            let printed: Value = serde_json::from_str(&printed).expect("a schema");
            (id_of(&printed), name.to_owned())
        });
        Self {
            place,
            names: by_id.collect(),
            checked: HashSet::new(),
        }
    }

    /// Runs a command on the place's store. `words` are the words of the command, and `args` its flags and values.
    #[track_caller]
    fn run(&mut self, words: &str, args: &str) -> Ended {
        self.checked.insert(words.to_owned());
        let command = self.place.allstop().args(words).args(args).arg("--json");
        let command = command.env("ALLSTOP_STORE", self.place.store());
        command
            .env("ALLSTOP_MODEL", self.place.script(SCRIPT))
            .end()
    }

    /// Runs a command that prints one object with this schema.
    #[track_caller]
    fn one(&mut self, words: &str, args: &str, code: i32, name: &str) -> Value {
        let ended = self.run(words, args);
        assert_eq!(ended.code, code, "{words} {args}: {ended:#?}");
        let objects = self.objects(&ended);
        let [object] = objects.as_slice() else {
            panic!("{words} {args}: not one object: {ended:#?}");
        };
        self.assert_schema(object, name);
        object.clone()
    }

    /// Runs a command that fails, and whose last line is the error object.
    #[track_caller]
    fn fails(&mut self, words: &str, args: &str, code: i32, kind: &str) {
        let ended = self.run(words, args);
        assert_eq!(ended.code, code, "{words} {args}: {ended:#?}");
        let objects = self.objects(&ended);
        let object = objects.last().expect("an object");
        self.assert_schema(object, "error");
        assert_eq!(object["error"]["kind"], kind, "{words} {args}: {ended:#?}");
        assert_eq!(object["exit_code"], code, "{words} {args}: {ended:#?}");
        // People read the same message on standard error.
        let message = object["error"]["message"].as_str().expect("a message");
        let first = message.split(' ').next().unwrap_or_default();
        assert!(ended.stderr.contains(first), "{words} {args}: {ended:#?}");
    }

    /// The objects on standard output. Each is valid under the schema that it names.
    #[track_caller]
    fn objects(&self, ended: &Ended) -> Vec<Value> {
        let parse = |line: &str| {
            let object: Value = serde_json::from_str(line).unwrap_or_else(|error| {
                panic!("{error} in {line:?}: {ended:#?}");
            });
            let name = &self.names[object["schema"].as_str().expect("a schema")];
            schema::assert_valid(name, &object);
            object
        };
        ended.stdout.lines().map(parse).collect()
    }

    #[track_caller]
    fn assert_schema(&self, object: &Value, name: &str) {
        let id = object["schema"].as_str().expect("a schema");
        assert_eq!(self.names[id], name, "{object:#}");
    }
}

/// Value of `schema` in the objects of a schema. Files that people write, such as the configuration, have none.
fn id_of(schema: &Value) -> String {
    let own = &schema["properties"]["schema"];
    let referred = own["$ref"].as_str();
    let definition = referred.and_then(|place| schema.pointer(place.trim_start_matches('#')));
    let own = definition.unwrap_or(own);
    let id = [&own["const"], &own["oneOf"][0]["const"]];
    let id = id.into_iter().find_map(Value::as_str);
    let id = id.or_else(|| own["enum"][0].as_str());
    match (id, schema["title"].as_str()) {
        (Some(id), _) => id.to_owned(),
        // A line of events is one of two objects.
        (None, Some("A line of allstop --stream-json")) => "allstop.event/1".to_owned(),
        (None, title) => title.unwrap_or_default().to_owned(),
    }
}

#[test]
fn each_command_prints_objects_of_a_published_schema() {
    let place = Place::new();
    let mut rule = Rule::new(&place);
    for (name, id) in [
        ("envelope", "allstop.run/1"),
        ("receipt", "allstop.receipt/1"),
        ("events", "allstop.event/1"),
    ] {
        assert_eq!(rule.names.get(id).map(String::as_str), Some(name));
    }

    // Nothing exists yet: each command still prints an object.
    rule.one("ps", "", 0, "ps");
    rule.one("run", "hello", 0, "envelope");
    rule.one("sessions list", "", 0, "sessions");
    rule.one("sessions show", "last --full", 0, "session");
    rule.one("sessions export", "last", 0, "transcript");
    rule.one("store check", "", 0, "store-check");
    rule.one("doctor", "", 0, "doctor");
    rule.one("stop", "--all", 0, "stop-all");
    rule.one("stop", "last", 0, "stop");
    rule.one("demo", "", 0, "demo");

    let run = place.run_script(SCRIPT).args("sleep");
    let running = run.start();
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
    let listed = rule.one("ps", "", 0, "ps");
    assert_eq!(listed["sessions"][0]["pid"], running.pid(), "{listed:#}");
    let mut looks = place.allstop().args("ps --watch --json").start();
    // The second object proves that the command repeats its look.
    looks.wait_stdout("}\n{\"schema\":\"allstop.ps/1\"");
    looks.signal(Signal::INT);
    for object in rule.objects(&looks.end(FACT_MAX)) {
        rule.assert_schema(&object, "ps");
    }
    let watching = place.allstop().args("watch last --json").start();
    watching.wait_stdout("allstop.event/1");
    rule.one("stop", "last --preview", 0, "stop");
    rule.one("stop", "last", 0, "stop");
    assert_eq!(running.end(FACT_MAX).code, 130);
    for object in rule.objects(&watching.end(FACT_MAX).ok()) {
        rule.assert_schema(&object, "events");
    }
    rule.one("receipt", "last", 0, "receipt");

    let missing = "no-such-id";
    for words in ["sessions show", "receipt", "stop", "watch"] {
        rule.fails(words, missing, 2, "not_found");
    }
    rule.fails("run", &format!("--session {missing} hello"), 2, "not_found");
    for words in [
        "ps",
        "doctor",
        "demo",
        "sessions list",
        "store check",
        "run",
    ] {
        rule.fails(words, "--no-such-flag x", 2, "usage");
    }
    rule.fails("chat", "", 2, "usage");
    for words in ["list", "drain x", "dead", "redrive x"] {
        rule.fails(&format!("workers {words}"), "", 2, "usage");
    }
    tasks_print_objects(&mut rule);

    let has_json = |words: &String| {
        let help = help(&place, words);
        let mut flags = help.lines().map(str::trim_start);
        flags.any(|flag| flag.starts_with("--json"))
    };
    let with_json: Vec<_> = leaves(&place).into_iter().filter(has_json).collect();
    assert!(with_json.len() > 10, "{with_json:?}");
    for words in with_json {
        let is_checked = |checked: &String| checked.starts_with(&words);
        assert!(rule.checked.iter().any(is_checked), "not checked: {words}");
    }
}

fn tasks_print_objects(rule: &mut Rule<'_>) {
    let store = rule.place.path("tasks.db");
    let flags = format!(
        "--store {} --model {}",
        store.display(),
        rule.place.script(SCRIPT)
    );
    let server = Server::start_by(rule.place, "", |_| {
        rule.place
            .allstop()
            .args("serve --yes --listen 127.0.0.1:0")
            .args(&flags)
    });
    let send = |text: &str| {
        let body = json!({
            "configuration": {"returnImmediately": true},
            "message": {
                "messageId": text, "role": "ROLE_USER", "contextId": text, "parts": [{"text": text}],
            },
        });
        let sent = server.request("POST /message:send", &body.to_string());
        let (_, body) = sent.expect("an answer");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        answer["task"]["id"].as_str().expect("an id").to_owned()
    };
    let url = format!("--server http://{}", server.address);
    let id = send("hello");
    let watched = rule.run("tasks watch", &format!("{id} {url}")).ok();
    for object in rule.objects(&watched) {
        rule.assert_schema(&object, "task-event");
    }
    rule.one("tasks list", &url, 0, "tasks");
    rule.one("tasks show", &format!("{id} {url}"), 0, "task");
    let ended = rule.run("tasks watch", &format!("{id} {url}")).ok();
    let ended = rule.objects(&ended);
    assert_eq!(ended[0]["task"]["id"], id, "{ended:#?}");
    let id = send("sleep");
    rule.one("tasks preview", &format!("{id} {url}"), 0, "receipt");
    rule.one("tasks stop", &format!("{id} {url}"), 0, "task-stop");
    rule.fails("tasks show", &format!("no-such-id {url}"), 2, "not_found");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    rule.fails("tasks list", &url, 1, "failed");
}
