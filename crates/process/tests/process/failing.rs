//! Launches that cannot succeed: the error names the missing item.

use std::sync::Arc;

use allstop_core::receipt::Containment;
use allstop_process::{
    ContainmentChoice, KeeperProgram, Keepers, LaunchError, ProcessSpec, ProcessWaitError, launch,
};
use libtest_mimic::Trial;

use crate::support::{assert_nothing_runs, on_both_levels, proof, run, shell, token, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("failing::no_such_keeper", no_such_keeper),
        trial("failing::not_a_keeper", not_a_keeper),
    ];
    trials.extend(on_both_levels("failing::no_such_program", no_such_program));
    trials.extend(on_both_levels(
        "failing::no_such_directory",
        no_such_directory,
    ));
    trials.extend(on_both_levels("failing::not_executable", not_executable));
    trials.extend(on_both_levels(
        "failing::cannot_be_passed_on",
        cannot_be_passed_on,
    ));
    trials
}

/// The error of a launch. The launch returns the error at once, or the keeper reports it later.
async fn launch_error(spec: ProcessSpec, level: Containment) -> Arc<LaunchError> {
    let (handle, driver, mut output) = match launch(spec) {
        Ok(launched) => launched,
        Err(error) => return Arc::new(error),
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(driver);
    let error = handle.wait_started().await.expect_err("it cannot start");
    // All other waits return a result too.
    assert!(matches!(
        handle.wait_exited().await,
        Err(ProcessWaitError::NeverStarted(_))
    ));
    assert_eq!(handle.wait_empty().await.expect("watched"), proof(level));
    assert_eq!(output.read(&mut [0; 16]).await.expect("no error"), 0);
    error
}

fn chain(error: &LaunchError) -> String {
    format!(
        "{error}: {}",
        std::error::Error::source(error)
            .map(ToString::to_string)
            .unwrap_or_default()
    )
}

async fn no_such_program(level: Containment) {
    let token = token();
    let mut spec = shell("TOKEN", &token, level);
    spec.program = "no-such-program".into();
    let error = launch_error(spec, level).await;
    assert!(
        matches!(&*error, LaunchError::Program { program, .. } if program == "no-such-program"),
        "{error}"
    );
    assert!(
        chain(&error).contains("No such file or directory"),
        "{}",
        chain(&error)
    );
    assert_nothing_runs(&token);
}

async fn not_executable(level: Containment) {
    let token = token();
    let mut spec = shell("TOKEN", &token, level);
    spec.program = "/etc/passwd".into();
    let error = launch_error(spec, level).await;
    assert!(
        chain(&error).contains("Permission denied"),
        "{}",
        chain(&error)
    );
}

async fn no_such_directory(level: Containment) {
    let token = token();
    for (cwd, why) in [("/no/such", "No such file"), ("/etc/passwd", "directory")] {
        let spec = shell("TOKEN", &token, level).cwd(cwd);
        let error = launch_error(spec, level).await;
        assert!(matches!(&*error, LaunchError::Directory { .. }), "{error}");
        assert!(chain(&error).contains(why), "{}", chain(&error));
    }
    assert_nothing_runs(&token);
}

fn with_keeper(executable: &str, token: &str) -> ProcessSpec {
    let keeper = KeeperProgram {
        executable: executable.into(),
        args: Vec::new(),
    };
    let containment = ContainmentChoice::Keeper(Keepers::new(keeper));
    shell("sleep TOKEN", token, Containment::Keeper).containment(containment)
}

async fn no_such_keeper() {
    let token = token();
    let error = launch(with_keeper("/no/such/keeper", &token)).expect_err("it cannot start");
    assert!(matches!(error, LaunchError::Keeper { .. }), "{error}");
    assert!(chain(&error).contains("No such file"), "{}", chain(&error));
}

async fn not_a_keeper() {
    let token = token();
    let call = run(with_keeper("/bin/true", &token));
    let error = call
        .handle
        .wait_started()
        .await
        .expect_err("it keeps nothing");
    assert!(matches!(&*error, LaunchError::KeeperLost), "{error}");
    let _empty = call.handle.wait_empty().await.expect("watched");
    assert_nothing_runs(&token);
}

async fn cannot_be_passed_on(level: Containment) {
    let token = token();
    for (script, why) in [
        ("x".repeat(200_000), "Argument list too long"),
        ("a\0b".to_owned(), "nul byte"),
    ] {
        let error = launch_error(shell(&script, &token, level), level).await;
        assert!(
            matches!(&*error, LaunchError::Program { program, .. } if program == "sh"),
            "{error}"
        );
        assert!(chain(&error).contains(why), "{}", chain(&error));
    }
}
