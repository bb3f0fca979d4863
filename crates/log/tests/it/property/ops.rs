//! Random operations on a log.

use proptest::prelude::*;

/// An operation on a log.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Append {
        stream: usize,
        expected: Expected,
        records: Vec<u8>,
        fate: Fate,
    },
    /// Repeats an earlier append with its id.
    Repeat(usize),
    Read {
        stream: usize,
        from: u64,
        limit: usize,
        fate: Fate,
    },
    Tail {
        stream: usize,
        from: u64,
    },
    List {
        prefix: usize,
    },
    Lock {
        stream: usize,
        fate: Fate,
    },
    Unlock {
        stream: usize,
    },
    Delete {
        stream: usize,
        fate: Fate,
    },
    DeleteUnchanged {
        streams: Vec<(usize, Expected)>,
        fate: Fate,
    },
    /// Closes the store and opens it again. For logs in memory, nothing happens.
    Reopen,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    Right,
    TooLow(u64),
    TooHigh(u64),
}

/// The test's treatment of the operation's future.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Awaited,
    DroppedAfterAPoll,
    NeverPolled,
}

pub(super) const STREAMS: [&str; 4] = ["session/a", "session/ab", "session/b", "task/a"];
pub(super) const PREFIXES: [&str; 5] = ["", "session/", "session/a", "task/a", "u"];

pub(super) fn ops() -> impl Strategy<Value = Vec<(usize, Op)>> {
    // Most operations use the same stream and the same handle, so that they depend on earlier operations.
    let stream = || prop_oneof![3 => Just(0), 1 => 0..STREAMS.len()];
    let fate = || {
        prop_oneof![
            6 => Just(Fate::Awaited),
            1 => Just(Fate::DroppedAfterAPoll),
            1 => Just(Fate::NeverPolled),
        ]
    };
    let expected = || {
        prop_oneof![
            6 => Just(Expected::Right),
            1 => (1..4_u64).prop_map(Expected::TooLow),
            1 => prop_oneof![1..3_u64, Just(u64::MAX)].prop_map(Expected::TooHigh),
        ]
    };
    let from = || prop_oneof![8 => 0..12_u64, 1 => Just(u64::MAX)];
    let limit = prop_oneof![4 => 0..6_usize, 1 => Just(usize::MAX)];
    let records = prop::collection::vec(any::<u8>(), 0..4);
    let op = prop_oneof![
        8 => (stream(), expected(), records, fate()).prop_map(|(stream, expected, records, fate)| {
            Op::Append { stream, expected, records, fate }
        }),
        3 => any::<usize>().prop_map(Op::Repeat),
        4 => (stream(), from(), limit, fate())
            .prop_map(|(stream, from, limit, fate)| Op::Read { stream, from, limit, fate }),
        1 => (stream(), from()).prop_map(|(stream, from)| Op::Tail { stream, from }),
        1 => (0..PREFIXES.len()).prop_map(|prefix| Op::List { prefix }),
        2 => (stream(), fate()).prop_map(|(stream, fate)| Op::Lock { stream, fate }),
        1 => stream().prop_map(|stream| Op::Unlock { stream }),
        2 => (stream(), fate()).prop_map(|(stream, fate)| Op::Delete { stream, fate }),
        1 => (prop::collection::vec((0..STREAMS.len(), expected()), 1..4), fate())
            .prop_map(|(streams, fate)| Op::DeleteUnchanged { streams, fate }),
        1 => Just(Op::Reopen),
    ];
    // Each operation uses one of two handles.
    let handle = prop_oneof![3 => Just(0_usize), 1 => Just(1)];
    prop::collection::vec((handle, op), 1..60)
}
