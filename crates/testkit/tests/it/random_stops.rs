//! Stops real processes, sockets and a store at random moments.

/// In this test, receipts of stops must report that all work has ended in time. Tests that run in parallel could delay
/// that work.
mod alone {
    use allstop_testkit::drive::by_moment::RandomStops;

    /// This number of rounds takes about 10 s; `cargo xtask explore --real N` runs more.
    const ROUNDS: u32 = 40;

    #[test]
    fn random_stops_leave_nothing() {
        RandomStops::from_environment().run(ROUNDS).assert_clean();
    }
}
