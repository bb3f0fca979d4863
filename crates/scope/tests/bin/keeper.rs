//! The program that runs as the keeper of the process trees that the tests start. A keeper adopts and kills all
//! descendants of a command.

fn main() -> std::process::ExitCode {
    allstop_process::keeper_main()
}
