//! Images: `run --image`, and `@shot.png` or a pasted path in a chat.

use std::path::PathBuf;

use allstop_core::image::IMAGE_BYTES_MAX;
use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::Value;

use crate::support::chat_user::{CTRL_D, ChatUser, assert_in_order};
use crate::support::terminal::Terminal;
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const DATA_URL: &str = "data:image/png;base64,iVBORw0KGgo=";

fn image(place: &Place, name: &str) -> PathBuf {
    let path = place.work().join(name);
    std::fs::write(&path, PNG).expect("a file");
    path
}

/// Texts and URLs of the images of the last message.
fn parts(server: &OpenAiServer, request: usize) -> (Vec<String>, Vec<String>) {
    let requests = server.requests();
    let message = requests[request].messages().last().expect("a message");
    let parts = message["content"].as_array().cloned().unwrap_or_default();
    let of = |pointer: &str| {
        let texts = parts.iter().filter_map(|part| part.pointer(pointer));
        let texts = texts.filter_map(Value::as_str).map(str::to_owned);
        texts.collect()
    };
    (of("/text"), of("/image_url/url"))
}

fn chat<'a>(place: &'a Place, server: &OpenAiServer) -> ChatUser<'a> {
    let chat = place.allstop().args("chat --model any --base-url");
    ChatUser::with_model(place, chat.arg(server.url()), Terminal::new())
}

#[test]
fn run_sends_the_images_with_the_first_prompt() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("A dot."));
    let (one, two) = (image(&place, "one.png"), image(&place, "two"));
    let run = place.run().args("--model any --base-url").arg(server.url());
    let run = run.arg("--image").arg(&one).arg("--image").arg(&two);
    run.arg("look").args("--then again").end().ok();
    let (texts, urls) = parts(&server, 0);
    assert_eq!(
        (texts, urls),
        (vec!["look".to_owned()], vec![DATA_URL.to_owned(); 2])
    );
    let requests = server.requests();
    let body = requests[1].body.to_string();
    assert_eq!(
        body.matches(DATA_URL).count(),
        2,
        "only in the first message"
    );
    let shown = place.sessions().args("show last").end().ok().stdout;
    assert!(shown.contains("[image, image/png, 1 kB]"), "{shown}");
    let exported = place.sessions().args("export last").end().ok().stdout;
    assert!(
        exported.contains("look\n[image, image/png, 1 kB]"),
        "{exported}"
    );
}

#[test]
fn image_needs_no_text_and_can_come_from_the_environment() {
    let place = Place::new();
    let server = OpenAiServer::start([ServerAnswer::text("A dot.")]);
    let run = place.run().args("--model any --base-url").arg(server.url());
    run.env("ALLSTOP_IMAGE", image(&place, "one.png"))
        .end()
        .ok();
    let (texts, urls) = parts(&server, 0);
    assert_eq!((texts, urls), (Vec::new(), vec![DATA_URL.to_owned()]));
}

#[test]
fn run_with_a_bad_image_sends_nothing() {
    let place = Place::new();
    let server = OpenAiServer::start([ServerAnswer::text("never")]);
    std::fs::write(place.work().join("text.png"), "hello").expect("a file");
    let mut large = PNG.to_vec();
    large.resize(IMAGE_BYTES_MAX + 1, 0);
    std::fs::write(place.work().join("large.png"), large).expect("a file");
    for (name, said) in [
        ("none.png", "error: `none.png` does not exist\n"),
        ("text.png", "error: `text.png`: not an image"),
        (
            "large.png",
            "error: `large.png`: the image is too large (4.0 MB, at most",
        ),
    ] {
        let run = place.run().args("--model any --base-url").arg(server.url());
        let ended = run.arg("--image").arg(name).arg("look").end();
        assert_eq!(ended.code, 2, "{ended:#?}");
        assert!(ended.stderr.contains(said), "{ended:#?}");
        assert!(ended.stderr.contains("hint: --image needs"), "{ended:#?}");
    }
    assert!(server.requests().is_empty());
    image(&place, "one.png");
    let run = place.run().args("--model o3-mini --image one.png look");
    let ended = run.env("OPENAI_API_KEY", "k").end();
    assert_eq!(ended.code, 2, "{ended:#?}");
    assert!(
        ended.stderr.contains("model `o3-mini` takes no images"),
        "{ended:#?}"
    );
}

#[test]
fn chat_attaches_an_image_after_an_at_sign() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("A dot."));
    image(&place, "shot.png");
    let user = chat(&place, &server);
    user.types("look at @shot.png, please").waits_for("A dot.");
    let screen = user.screen();
    assert_in_order(
        &screen,
        &[
            "› look at @shot.png, please",
            "[image shot.png, 1 kB]",
            "A dot.",
        ],
    );
    let (texts, urls) = parts(&server, 0);
    assert_eq!(texts, ["look at @shot.png, please"]);
    assert_eq!(urls, [DATA_URL]);
    user.types("/history").waits_for("[image, image/png, 1 kB]");
    // A missing image is only text.
    user.types("npm i @types/node.png")
        .waits_for("no image @types/node.png: the file does not exist");
    let sent = within(FACT_MAX, || (server.requests().len() == 2).then_some(()));
    assert!(sent.is_some(), "{}", user.screen());
    assert_eq!(text_alone(&server, 1), "npm i @types/node.png");
    // An image that has vanished after its completion: the text returns, and nothing is sent.
    let path = image(&place, "my shot.png");
    user.presses("see @my\t")
        .waits_for("› see @\"my shot.png\" ");
    std::fs::remove_file(path).expect("a file");
    user.presses("\r")
        .waits_for("not sent: `")
        .waits_for("my shot.png` does not exist")
        .waits_for("› see @\"my shot.png\"")
        .presses("\x15")
        .presses(CTRL_D);
    drop(user.leaves_chat());
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn chat_attaches_an_image_whose_path_is_pasted() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("A dot."));
    let path = image(&place, "my shot.png");
    let user = chat(&place, &server);
    let escaped = path.to_str().expect("UTF-8").replace(' ', "\\ ");
    // The keys after the paste keep their place.
    user.presses(&format!("see \x1b[200~{escaped}\x1b[201~now\r"))
        .waits_for("› see @\"my shot.png\" now")
        .waits_for("[image my shot.png, 1 kB]")
        .waits_for("A dot.");
    let (texts, urls) = parts(&server, 0);
    assert_eq!(texts, ["see @\"my shot.png\" now"]);
    assert_eq!(urls, [DATA_URL]);
    // Two files at once, of which the first one follows a typed `@`.
    let two = image(&place, "two.png");
    let paths = format!("{} {escaped}", two.display());
    user.presses(&format!("@\x1b[200~{paths}\x1b[201~\r"))
        .waits_for("› @two.png @\"my shot.png\"")
        .waits_for("[image two.png, 1 kB]")
        .waits_for_twice("A dot.");
    assert_eq!(parts(&server, 1).1, [DATA_URL; 2]);
    // Another text is pasted unchanged.
    user.presses("\x1b[200~/tmp/none.png\x1b[201~")
        .waits_for("› /tmp/none.png")
        .presses("\x15")
        .presses(CTRL_D);
    drop(user.leaves_chat());
}

#[test]
fn names_attach_no_image_without_a_terminal() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("A dot."));
    image(&place, "shot.png");
    let chat = place.allstop().args("chat --model any --base-url");
    let chat = chat.arg(server.url());
    let chat = chat.by_script("echo 'see @shot.png' | \"$0\" \"$@\"");
    let run = place.run().args("--model any --base-url").arg(server.url());
    let run = run.arg("see @shot.png");
    for (number, command) in [chat, run].into_iter().enumerate() {
        let ended = command.end().ok();
        assert_eq!(text_alone(&server, number), "see @shot.png");
        let note = "@shot.png is sent as text; `allstop run --image FILE` sends an image";
        assert!(ended.stderr.contains(note), "{ended:#?}");
    }
    let run = place.run().args("--model any --base-url").arg(server.url());
    let run = run.args("--image shot.png").arg("see @shot.png");
    assert!(!run.end().ok().stderr.contains("sent as text"));
}

/// The text of the last message of a request without images.
fn text_alone(server: &OpenAiServer, request: usize) -> String {
    let requests = server.requests();
    let message = requests[request].messages().last().expect("a message");
    let text = message["content"].as_str();
    text.unwrap_or_else(|| panic!("{message}")).to_owned()
}

#[test]
fn pasted_text_attaches_no_file() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("A dot."));
    image(&place, "../out.png");
    image(&place, "shot.png");
    let user = chat(&place, &server);
    let long = format!("{}@../out.png", "line\n".repeat(20));
    let short = "see: @../out.png\n@shot.png me@x.de npm i @types/node.png";
    for (number, pasted) in [short, "@shot.png", &long].into_iter().enumerate() {
        let count = number + 1;
        user.presses(&format!("{count}: \x1b[200~{pasted}\x1b[201~"))
            .presses("\r");
        let sent = within(FACT_MAX, || {
            (server.requests().len() == count).then_some(())
        });
        assert!(sent.is_some(), "{}", user.screen());
        assert_eq!(text_alone(&server, number), format!("{count}: {pasted}"));
    }
    // The history keeps the mark of the pasted text.
    user.presses("\x1b[A\x1b[A").waits_for("› 2: @shot.png");
    user.presses(" or @shot.png\r")
        .waits_for("[image shot.png, 1 kB]");
    user.waits_for_twice("› 2: @shot.png");
    let (texts, urls) = parts(&server, 3);
    assert_eq!(texts, ["2: @shot.png or @shot.png"]);
    assert_eq!(urls, [DATA_URL], "the typed name attaches the image");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}

#[test]
fn path_pasted_into_a_question_becomes_a_name() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|number, _| match number {
        0 => ServerAnswer::stream().tool_call("call_a", "shell", r#"{"command":"touch x"}"#),
        _ => ServerAnswer::text("A dot."),
    });
    let path = image(&place, "shot.png");
    let user = chat(&place, &server);
    user.types("begin").waits_for_choices();
    user.presses(&format!("\x1b[200~{}\x1b[201~", path.display()))
        .waits_for("@shot.png")
        .presses("\r")
        .waits_for("the text is back in your message");
    user.answers("n no @x: \x1b[200~me@x.de @y\x1b[201~")
        .waits_for("A dot.");
    let requests = server.requests();
    let denied = requests[1].body.to_string();
    assert!(denied.contains("no @x: me@x.de @y"), "{denied}");
    user.waits_for("› @shot.png").presses("\r");
    user.waits_for("[image shot.png, 1 kB]");
    user.waits_for_twice("A dot.");
    assert_eq!(parts(&server, 2).1, [DATA_URL]);
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}
