//! Calls that wait for a permission: they read as waiting everywhere, and the log has the end of their model call.

use serde_json::Value;

use crate::support::chat_user::ChatUser;
use crate::support::{Ended, FACT_MAX, Place, Signal};

fn json(ended: Ended) -> Value {
    let ended = ended.ok();
    serde_json::from_str(ended.stdout.trim()).unwrap_or_else(|_| panic!("{ended:#?}"))
}

/// The item of the call among these items.
fn call(items: &Value) -> &Value {
    let mut items = items.as_array().expect("a list").iter();
    let call = items.find(|item| item["kind"] == "tool_call");
    call.unwrap_or_else(|| panic!("no call"))
}

#[test]
fn call_that_waits_for_permission_reads_so_everywhere() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("touch it").waits_for("[y]es, once");
    let ps = json(place.allstop().args("ps --json").end());
    assert_eq!(
        call(&ps["sessions"][0]["work"])["waits_for"],
        "permission",
        "{ps:#}"
    );
    let ps = place.allstop().args("ps").end().ok().stdout;
    assert!(
        ps.contains("shell: echo x > touched  waits for permission"),
        "{ps}"
    );
    let session = place.only_session();
    let show = |flag: &str| {
        let show = place.sessions().arg("show").arg(&session).args(flag);
        show.arg("--store").arg(place.store()).end()
    };
    let shown = json(show("--json"));
    assert_eq!(
        call(&shown["running"])["waits_for"],
        "permission",
        "{shown:#}"
    );
    let shown = show("").ok().stdout;
    assert!(
        shown.contains("shell: echo x > touched: waits for permission"),
        "{shown}"
    );
    let waits = "shell: echo x > touched · waits for permission";
    user.types("/preview").waits_for(waits);
    user.types("/output").waits_for(", waits for permission]");
    user.types("n").waits_for("It is done.").presses("\x04");
    user.leaves_chat();
}

#[test]
fn model_call_is_in_the_log_while_its_questions_are_open() {
    let place = Place::new();
    let mut user = ChatUser::start_chat(&place, "");
    user.types("touch it").waits_for("[y]es, once");
    user.chat.signal(Signal::KILL);
    let ChatUser { chat, .. } = user;
    assert_eq!(chat.end(FACT_MAX).code, 137);
    let receipt = place.allstop().args("receipt last --json --store");
    let receipt = json(receipt.arg(place.store()).end());
    assert_eq!(receipt["items"], serde_json::json!([]), "{receipt:#}");
    assert!(
        receipt["usage"]["output_tokens"].as_u64() > Some(0),
        "{receipt:#}"
    );
}
