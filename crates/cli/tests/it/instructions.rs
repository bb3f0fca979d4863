//! The system prompt that the model receives: the default prompt, a prompt from a file, and the project's instructions.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use crate::support::{Ended, FACT_MAX, Place};

/// Runs one prompt with these flags. Returns the result of the run, and the text of the system message, if the server
/// received one.
fn system_message(place: &Place, flags: &str) -> (Ended, Option<String>) {
    let server = OpenAiServer::start([ServerAnswer::text("Done.")]);
    let run = place.run().with_default_prompt().args(flags);
    let run = run.args("--model any --base-url").arg(server.url());
    let ended = run.arg("hello").end().ok();
    let seen = server.wait_until_blocking(FACT_MAX, |seen| seen.requests.len() == 1);
    let seen = seen.expect("one request");
    let first = &seen.requests[0].messages()[0];
    let is_system = first["role"] == "system";
    let text = first["content"].as_str().filter(|_| is_system);
    (ended, text.map(str::to_owned))
}

fn shown_prompt(place: &Place, flags: &str) -> String {
    let show = place.allstop().with_default_prompt();
    let shown = show.args("config show --prompt").args(flags).end().ok();
    shown.stdout
}

#[test]
fn model_receives_the_default_prompt_and_the_instructions() {
    let place = Place::new();
    std::fs::write(place.work().join("AGENTS.md"), "Use tabs.").unwrap();
    let (ended, system) = system_message(&place, "");
    let system = system.expect("a system message");
    let folder = format!("Working directory: {}", place.work().display());
    for part in [
        "You are Allstop",
        &folder,
        "Git: no repository",
        "Use tabs.",
    ] {
        assert!(system.contains(part), "{part:?} is not in:\n{system}");
    }
    assert!(
        ended.stderr.contains("instructions: AGENTS.md\n"),
        "{}",
        ended.stderr
    );
    assert_eq!(shown_prompt(&place, ""), format!("{system}\n"));
}

#[test]
fn file_replaces_the_prompt_and_a_flag_omits_instructions() {
    let place = Place::new();
    std::fs::write(place.work().join("AGENTS.md"), "Use tabs.").unwrap();
    let file = place.file("mine.md", "Be brief.");
    let flags = format!("--system {}", file.display());
    let (_, system) = system_message(&place, &flags);
    let system = system.expect("a system message");
    assert!(system.starts_with("Be brief.\n\n"), "{system}");
    assert!(system.ends_with("Use tabs."), "{system}");
    let flags = format!("{flags} --no-project-instructions");
    let (ended, system) = system_message(&place, &flags);
    assert_eq!(system.as_deref(), Some("Be brief."));
    assert!(!ended.stderr.contains("AGENTS.md"), "{}", ended.stderr);
    assert_eq!(shown_prompt(&place, &flags), "Be brief.\n");
}

#[test]
fn sub_agent_and_continued_session_have_the_prompt_too() {
    let place = Place::new();
    let server = OpenAiServer::start([
        ServerAnswer::stream().tool_call("call_a", "agent", r#"{"prompt":"look"}"#),
        ServerAnswer::text("Looked."),
        ServerAnswer::text("Done."),
        ServerAnswer::text("Again."),
    ]);
    for flags in ["", "--continue"] {
        let run = place.run().with_default_prompt().args(flags);
        let run = run.args("--model any --base-url").arg(server.url());
        run.arg("hello").end().ok();
    }
    let seen = server.wait_until_blocking(FACT_MAX, |seen| seen.requests.len() == 4);
    for request in seen.expect("four requests").requests {
        let text = request.messages()[0]["content"].to_string();
        assert!(text.contains("You are Allstop"), "{text}");
    }
}
