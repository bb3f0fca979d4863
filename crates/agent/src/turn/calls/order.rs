//! Order of the calls of a step, without a runtime: the calls that may start now.
//!
//! A call starts as soon as it is admitted, except that a call that must run alone keeps its place: it starts after the
//! end of all calls before it, and the calls after it start after its end. A call that does not run has ended, too.

/// Calls of a step, in the order of the requests.
#[derive(Debug)]
pub(super) struct CallOrder<T> {
    calls: Vec<OrderedCall<T>>,
}

#[derive(Debug)]
struct OrderedCall<T> {
    /// True if the call may run in parallel.
    parallel: bool,
    state: OrderState<T>,
}

#[derive(Debug)]
enum OrderState<T> {
    /// The admission of the call has not ended.
    Undecided,
    Admitted(T),
    Running,
    Ended,
}

impl<T> CallOrder<T> {
    /// Creates the order of undecided calls. A call is marked with `true` if it may run in parallel.
    pub(super) fn new(parallel: impl IntoIterator<Item = bool>) -> Self {
        let calls = parallel.into_iter().map(|parallel| OrderedCall {
            parallel,
            state: OrderState::Undecided,
        });
        Self {
            calls: calls.collect(),
        }
    }

    /// Records that the call at this position may run.
    pub(super) fn admit(&mut self, position: usize, admitted: T) {
        if let Some(call) = self.calls.get_mut(position) {
            call.state = OrderState::Admitted(admitted);
        }
    }

    /// Records that the call at this position has ended, or does not run.
    pub(super) fn end(&mut self, position: usize) {
        if let Some(call) = self.calls.get_mut(position) {
            call.state = OrderState::Ended;
        }
    }

    /// Takes the calls that may start now, which then count as running.
    pub(super) fn take_startable(&mut self) -> Vec<T> {
        let mut startable = Vec::new();
        let mut all_ended = true;
        for call in &mut self.calls {
            if matches!(call.state, OrderState::Ended) {
                continue;
            }
            if call.parallel || all_ended {
                call.state = match std::mem::replace(&mut call.state, OrderState::Running) {
                    OrderState::Admitted(admitted) => {
                        startable.push(admitted);
                        OrderState::Running
                    }
                    state => state,
                };
            }
            if !call.parallel {
                break;
            }
            all_ended = false;
        }
        startable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BESIDE: bool = true;
    const ALONE: bool = false;

    fn order(parallel: &[bool]) -> CallOrder<usize> {
        CallOrder::new(parallel.iter().copied())
    }

    #[test]
    fn parallel_calls_start_in_any_order() {
        let mut order = order(&[BESIDE, BESIDE, BESIDE]);
        assert!(order.take_startable().is_empty());
        order.admit(2, 2);
        assert_eq!(order.take_startable(), [2]);
        order.admit(0, 0);
        order.admit(1, 1);
        assert_eq!(order.take_startable(), [0, 1]);
        assert!(order.take_startable().is_empty());
    }

    #[test]
    fn call_that_runs_alone_waits_for_the_end_of_earlier_calls() {
        let mut order = order(&[BESIDE, ALONE, BESIDE, BESIDE]);
        (1..4).for_each(|position| order.admit(position, position));
        assert!(order.take_startable().is_empty());
        order.admit(0, 0);
        assert_eq!(order.take_startable(), [0]);
        assert!(order.take_startable().is_empty());
        order.end(0);
        assert_eq!(order.take_startable(), [1]);
        assert!(order.take_startable().is_empty());
        order.end(1);
        assert_eq!(order.take_startable(), [2, 3]);
    }

    #[test]
    fn undecided_call_that_runs_alone_holds_the_calls_after_it() {
        let mut order = order(&[ALONE, BESIDE]);
        order.admit(1, 1);
        assert!(order.take_startable().is_empty());
        // It was denied.
        order.end(0);
        assert_eq!(order.take_startable(), [1]);
    }
}
