//! Completion of session ids on a command line in bash.

use crate::support::Place;

/// Completions that bash offers after these words.
fn offered(place: &Place, words: &str) -> Vec<String> {
    // In the script, `$0` is the command `allstop`. The last word is completed.
    let script = format!(
        r#"exec bash -c 'source <("$0" completions bash); COMP_WORDS=("$0" {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _allstop_sessions "$0" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"; printf "%s\n" "${{COMPREPLY[@]}}"' "$0""#
    );
    let bash = place.allstop().env("ALLSTOP_STORE", place.store());
    let ended = bash.by_script(&script).end().ok();
    ended.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn ids_of_sessions_are_completed() {
    let place = Place::new();
    place
        .run_script("replies: [{text: Done.}]")
        .args("a : prompt")
        .end()
        .ok();
    let id = place.only_session();
    let short = &id[id.len() - 8..];
    let printed = place
        .allstop()
        .args("completions --sessions --store")
        .arg(place.store());
    assert_eq!(printed.end().ok().stdout, format!("{short}\ta : prompt\n"));
    for words in [
        "stop \"\"",
        "watch \"\"",
        "receipt \"\"",
        "sessions show \"\"",
        "sessions rm \"\"",
        "run --session \"\"",
    ] {
        assert_eq!(offered(&place, words), [short], "{words}");
    }
    assert_eq!(offered(&place, &format!("stop {}", &short[..3])), [short]);
    assert!(offered(&place, "sessions \"\"").contains(&"show".to_owned()));
    assert!(offered(&place, "stop --").contains(&"--all".to_owned()));
}

#[test]
fn without_a_store_there_is_nothing_to_complete() {
    let place = Place::new();
    let printed = place.allstop().args("completions --sessions").end().ok();
    assert_eq!(printed.stdout, "");
}
