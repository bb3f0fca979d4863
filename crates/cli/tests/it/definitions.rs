//! Commands, skills and agents in Markdown files, of the user and of a project.

use std::fs;

use allstop_testkit::openai_server::{OpenAiServer, Received, ServerAnswer};

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
use crate::support::terminal::Terminal;
use crate::support::{Allstop, FACT_MAX, Place, history};

const REVIEW: &str = "---\ndescription: Reviews one file\nargument-hint: FILE [FOCUS]\n---\n\
                      Review $1 with a focus on $2.\nEach finding names its line.";
const SKILL: &str = "---\nname: release\ndescription: Use when: a version is released\n---\n\
                     First read checklist.md. SKILL BODY.";
const READER: &str = "---\ndescription: Reads and reports\ntools: read, list\nmodel: small-model\n---\n\
                      You only read. AGENT BODY.";

fn user_file(place: &Place, path: &str, text: &str) {
    write(&place.path("home").join(path), text);
}

fn project_file(place: &Place, path: &str, text: &str) {
    write(&place.work().join(path), text);
}

fn write(path: &std::path::Path, text: &str) {
    let folder = path.parent().expect("a file is in a folder");
    fs::create_dir_all(folder).expect("a folder");
    fs::write(path, text).expect("a file");
}

fn on<'a>(command: Allstop<'a>, server: &OpenAiServer) -> Allstop<'a> {
    command.args("--model any --base-url").arg(server.url())
}

fn prompts(request: &Received) -> Vec<String> {
    history::prompts(request.messages())
}

/// Description of a tool in a request.
fn tool(request: &Received, name: &str) -> Option<String> {
    let tools = request.body["tools"].as_array()?;
    let tool = tools.iter().find(|tool| tool["function"]["name"] == name)?;
    Some(tool["function"].to_string())
}

#[test]
fn run_sends_the_prompt_of_a_command() {
    let place = Place::new();
    user_file(&place, ".config/allstop/commands/review.md", REVIEW);
    for (prompt, sent) in [
        (
            "/review src/a.rs \"speed and size\"",
            "Review src/a.rs with a focus on speed and size.\nEach finding names its line.",
        ),
        ("//review it", "/review it"),
        ("/etc/hosts is wrong", "/etc/hosts is wrong"),
        ("/reviewed x", "/reviewed x"),
    ] {
        let server = OpenAiServer::start([ServerAnswer::text("Done.")]);
        let ended = on(place.run(), &server).arg(prompt).end().ok();
        assert_eq!(prompts(&server.requests()[0]), [sent], "{prompt}");
        let notes = ended.stderr.contains("/review is a command from a file");
        assert_eq!(notes, sent.starts_with("Review"), "{}", ended.stderr);
        let warns = ended
            .stderr
            .contains("/reviewed is sent as text: no such command; known commands: /review");
        assert_eq!(warns, prompt == "/reviewed x", "{}", ended.stderr);
    }
    // Without `run`, and as several words.
    let server = OpenAiServer::start([ServerAnswer::text("Done."), ServerAnswer::text("Done.")]);
    on(place.allstop().arg("/review a.rs b"), &server)
        .end()
        .ok();
    on(place.run().args("/review a.rs b"), &server).end().ok();
    for request in server.requests() {
        assert!(prompts(&request)[0].starts_with("Review a.rs with a focus on b."));
    }
}

#[test]
fn project_files_count_only_after_trust_in_each_version() {
    let place = Place::new();
    project_file(&place, ".allstop/commands/review.md", REVIEW);
    project_file(&place, ".claude/skills/release/SKILL.md", SKILL);
    project_file(&place, ".allstop/agents/reader.md", READER);
    let sent = |answer: Option<&str>| {
        let server = OpenAiServer::start([ServerAnswer::text("Done.")]);
        let run = on(place.run(), &server).arg("/review a b");
        let shown = match answer {
            None => run.end().ok().stderr,
            Some(keys) => {
                let terminal = Terminal::new();
                let run = run
                    .env("TERM", "xterm")
                    .on_terminal(terminal.line())
                    .start();
                terminal.wait("[y]es");
                terminal.type_keys(keys);
                run.end(FACT_MAX).ok();
                terminal.all_shown()
            }
        };
        let request = server.requests().remove(0);
        let agent = tool(&request, "agent").unwrap();
        let used = [
            prompts(&request)[0].starts_with("Review a"),
            tool(&request, "skill")
                .is_some_and(|skill| skill.contains("Use when: a version is released")),
            agent.contains("reader: Reads and reports"),
        ];
        assert!(used == [true; 3] || used == [false; 3], "{used:?}");
        (used[0], shown)
    };
    let (used, shown) = sent(None);
    assert!(!used);
    let unused = "1 command, 1 skill, 1 agent of this folder are ignored: not trusted yet";
    assert!(shown.contains(unused), "{shown}");
    let (used, shown) = sent(Some("y\n"));
    assert!(used);
    let shown: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "? Do you trust the settings of this folder (1 command, 1 skill, 1 agent)?",
        "adds the command /review (.allstop/commands/review.md): Reviews one file",
        "offers the model the skill release (.claude/skills/release/SKILL.md): Use when: a version",
        "the agent reader with the tools read, list on the model small-model (.allstop/agents/reader.md)",
    ] {
        assert!(shown.contains(line), "{line:?} is not in:\n{shown}");
    }
    assert!(sent(None).0);
    for path in [
        ".allstop/commands/review.md",
        ".claude/skills/release/SKILL.md",
        ".allstop/agents/reader.md",
    ] {
        let file = place.work().join(path);
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{before} More.")).unwrap();
        assert!(!sent(None).0, "{path} has changed");
        fs::write(&file, before).unwrap();
        assert!(sent(None).0, "{path} is as it was");
    }
    project_file(&place, ".agents/skills/other/SKILL.md", SKILL);
    assert!(!sent(None).0, "a file was added");
    project_file(&place, ".allstop/commands/stop.md", "x");
    let trusted = place.allstop().args("config trust").end().ok();
    let told = &trusted.stdout;
    assert!(told.contains("the skill release"), "{told}");
    // Regression: the question named a command that no chat runs.
    assert!(!told.contains("/stop"), "{told}");
    assert!(sent(None).0);
    place.allstop().args("config untrust").end().ok();
    assert!(!sent(None).0);
    // A change of the definitions keeps the trust in the settings, and the other way round.
    project_file(&place, ".allstop.toml", "on_stop = 'keep'");
    place.allstop().args("config trust").end().ok();
    project_file(&place, ".allstop.toml", "on_stop = 'rollback'");
    assert!(sent(None).0);
}

#[test]
fn model_loads_a_skill_and_reads_its_files() {
    let place = Place::new();
    let folder = ".agents/skills/release";
    user_file(&place, &format!("{folder}/SKILL.md"), SKILL);
    user_file(&place, &format!("{folder}/checklist.md"), "CHECKLIST BODY");
    let file = place.path("home").join(folder).join("checklist.md");
    let read = serde_json::json!({ "path": file }).to_string();
    let answers = || {
        [
            ServerAnswer::stream().tool_call("call_a", "skill", r#"{"skill":"release"}"#),
            ServerAnswer::stream().tool_call("call_b", "read", &read),
            ServerAnswer::stream().tool_call("call_c", "skill", r#"{"skill":"nosuch"}"#),
            ServerAnswer::text("Done."),
        ]
    };
    let server = OpenAiServer::start(answers());
    on(place.run_unasked(), &server).arg("go").end().ok();
    let requests = server.requests();
    let result = |at: usize| history::text_of(requests[at].messages().last().unwrap());
    assert!(
        !requests[0].body.to_string().contains("SKILL BODY"),
        "loaded only when needed"
    );
    assert!(result(1).contains("SKILL BODY"), "{}", result(1));
    assert!(result(2).contains("CHECKLIST BODY"), "{}", result(2));
    assert!(result(3).contains("known skills: release"), "{}", result(3));

    let denied = place.file("denied.toml", "[permissions]\ndeny = ['skill']");
    let server = OpenAiServer::start(answers());
    let run = on(place.run_unasked(), &server).arg("--config").arg(denied);
    run.arg("go").end().ok();
    let body = server.requests()[1].body.to_string();
    assert!(body.contains("denied by the permission rule") && !body.contains("SKILL BODY"));
}

#[test]
fn agent_of_a_file_has_its_instructions_tools_and_model() {
    let place = Place::new();
    user_file(&place, ".config/allstop/agents/reader.md", READER);
    let call = |arguments: &str| ServerAnswer::stream().tool_call("call_a", "agent", arguments);
    let server = OpenAiServer::start([
        call(r#"{"prompt":"look","agent":"reader"}"#),
        ServerAnswer::text("Looked."),
        call(r#"{"prompt":"look","agent":"nosuch"}"#),
        ServerAnswer::text("Done."),
    ]);
    on(place.run(), &server).arg("go").end().ok();
    let requests = server.requests();
    let sub = &requests[1];
    assert_eq!(sub.body["model"], "small-model");
    assert!(history::text_of(&sub.messages()[0]).contains("AGENT BODY"));
    let tools = sub.body["tools"].as_array().unwrap().iter();
    let tools: Vec<_> = tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(tools, ["read", "list"]);
    assert_eq!(requests[2].body["model"], "any");
    let refused = history::text_of(requests[3].messages().last().unwrap());
    assert!(refused.contains("value must be 'reader'"), "{refused}");
}

#[test]
fn chat_lists_completes_and_sends_commands() {
    let place = Place::new();
    user_file(&place, ".config/allstop/commands/review.md", REVIEW);
    user_file(&place, ".config/allstop/commands/stop.md", "x");
    let hostile = "---\ndescription: \"pretty\\e[2J\\e]0;title\\aplease\"\n---\nx";
    user_file(&place, ".config/allstop/commands/hostile.md", hostile);
    user_file(&place, ".claude/skills/release/SKILL.md", SKILL);
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("Fine."));
    let chat = on(place.allstop().arg("chat"), &server);
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.waits_for("/stop is a command of the chat; rename the file");
    user.types("/help")
        .waits_for("Skills, which the model loads");
    user.waits_for("/review FILE [FOCUS] Reviews one file")
        .waits_for("pretty\\u{1b}[2J");
    user.presses("/rev\t")
        .waits_for("› /review")
        .types("a.rs speed")
        .waits_for("Fine.");
    user.types("/nosuch").waits_for("unknown command /nosuch");
    user.types("/reviews").waits_for("did you mean /review?");
    user.presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert!(screen.contains("› /review a.rs speed"), "{screen}");
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert!(prompts(&requests[0])[0].starts_with("Review a.rs with a focus on speed."));
}

/// The typed line returns to the person, and not the prompt of the file.
#[test]
fn stopped_command_returns_as_it_was_typed() {
    let place = Place::new();
    user_file(&place, ".config/allstop/commands/review.md", REVIEW);
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::stream().chunk("Endless").stall());
    let chat = on(place.allstop().args("chat --policy enqueue"), &server);
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.types("first").waits_for("Endless");
    user.types("/review a b").waits_for("waits: /review a b");
    user.presses(CTRL_C)
        .waits_for("the waiting message is back on the input line");
    user.waits_for("› /review a b")
        .waits_for("Nothing is left running");
    user.presses("\x15").presses(CTRL_D);
    drop(user.leaves_chat());
}

#[test]
fn stop_ends_the_agent_of_a_file() {
    let place = Place::new();
    user_file(
        &place,
        ".config/allstop/agents/worker.md",
        "---\ndescription: Works\n---\nWork.",
    );
    let script = "
turns:
  - {when: begin, replies: [{calls: [{tool: agent, arguments: {prompt: inner, agent: worker}}]}]}
  - {when: inner, replies: [{calls: [{tool: shell, arguments: {command: \"echo x > begun; sleep 600\"}}]}]}
replies: []";
    let mut running = place.run_script(script).arg("--json").arg("begin").start();
    let begun = || place.work().join("begun").exists().then_some(());
    crate::support::wait::within(FACT_MAX, begun).expect("the command runs");
    running.signal(rustix::process::Signal::INT);
    let ended = running.end(FACT_MAX);
    assert_eq!(ended.code, 130);
    let receipt = &ended.envelope()["receipt"];
    assert_eq!(receipt["quiet"], true, "{receipt:#}");
    assert!(
        receipt.to_string().contains("worker: inner") || receipt.to_string().contains("agent"),
        "{receipt:#}"
    );
    place.assert_nothing_runs();
}

#[test]
fn thousand_hostile_files_end_nothing() {
    let place = Place::new();
    for number in 0..1_000 {
        project_file(
            &place,
            &format!(".allstop/commands/c{number}.md"),
            "---\nx: [\n---\ny",
        );
    }
    let name = "\u{1b}[2J\u{202e}evil.md";
    project_file(&place, &format!(".allstop/commands/{name}"), "x");
    let server = OpenAiServer::start([ServerAnswer::text("Done.")]);
    let run = on(place.run(), &server).args("--project-config trust");
    let ended = run.arg("hello").end().ok();
    assert!(!ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
    assert!(ended.stderr.lines().count() < 15, "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("more files are ignored: `allstop doctor` lists them")
    );
}
