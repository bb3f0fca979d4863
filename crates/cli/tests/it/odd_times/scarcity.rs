//! A system that has nothing more to give.

use crate::support::fault::Fault;
use crate::support::{FACT_MAX, Place};

const SCRIPT: &str = "replies: [{calls: [{tool: shell, arguments: {command: echo x}}, {tool: list, arguments: {}}]}, {text: Hello.}]";

/// However many threads it gets, the process ends, and has either done its work or said that it has not.
#[test]
fn no_more_threads() {
    for after in 0..24 {
        let place = Place::new();
        let fault = Fault::new(&place, &format!("thread * EAGAIN skip={after}"));
        let run = fault.below(place.run_script(SCRIPT).arg("hello"));
        let ended = run.start().end(FACT_MAX);
        place.assert_nothing_runs();
        assert!(
            ended.code != 0 || ended.stdout == "Hello.\n",
            "{after}: {ended:#?}"
        );
        assert!(
            ended.code == 0 || !ended.stderr.is_empty(),
            "{after}: {ended:#?}"
        );
    }
}

#[test]
fn no_more_descriptors() {
    for limit in (6..64).step_by(3) {
        let place = Place::new();
        let run = place.run_script(SCRIPT).arg("hello");
        let limited = run.by_shell(&format!("ulimit -n {limit}"));
        let ended = limited.start().end(FACT_MAX);
        place.assert_nothing_runs();
        assert!(
            ended.code != 0 || ended.stdout == "Hello.\n",
            "{limit}: {ended:#?}"
        );
        assert!(
            ended.code == 0 || !ended.stderr.is_empty(),
            "{limit}: {ended:#?}"
        );
    }
}

/// Beyond the limit of a file's size a write fails as on a full disk.
#[test]
fn no_larger_files() {
    for limit in [0, 10, 40] {
        let place = Place::new();
        let run = place.run_script(SCRIPT).args("--json hello");
        let ended = run.by_shell(&format!("ulimit -f {limit}")).end();
        place.assert_nothing_runs();
        assert_eq!(ended.code, 1, "{limit}: {ended:#?}");
        let envelope = ended.envelope();
        assert_eq!(envelope["error"]["kind"], "store", "{limit}: {envelope:#}");
    }
}

/// What the model runs is killed beyond that limit, as anywhere else.
#[test]
fn the_limit_of_files_is_not_lifted_for_commands() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: 'head -c 1000000 /dev/zero > large; test $? = 153 && touch killed'}}]}, {text: Hello.}]";
    let run = place.run_script(script).arg("hello");
    run.by_shell("ulimit -f 400").end().ok();
    assert!(place.work().join("killed").exists());
}
