//! Real processes, sockets and a store, stopped at random moments.

/// Receipts claim here that everything has ended in time: what other tests do beside it takes that time away.
mod alone {
    use allstop_testkit::drive::by_moment::RandomStops;

    /// About 10 s of them; `cargo xtask explore --real N` has more.
    const ROUNDS: u32 = 40;

    #[test]
    fn what_is_stopped_at_random_moments_leaves_nothing_and_says_so() {
        RandomStops::from_environment().run(ROUNDS).assert_clean();
    }
}
