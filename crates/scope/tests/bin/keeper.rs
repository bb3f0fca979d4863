//! The program that runs as the keeper of the trees that the tests start.

fn main() -> std::process::ExitCode {
    allstop_process::keeper_main()
}
