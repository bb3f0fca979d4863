//! Metrics about the tasks of the server, in the text format of `OpenMetrics`, which Prometheus reads.

use std::sync::Arc;

use allstop_core::{Cause, Receipt};
use allstop_task::{ExecutionObserver, Task, TaskState};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Buckets for execution times in seconds: from the shortest tasks to a working day.
const EXECUTION_BUCKETS: [f64; 9] = [
    0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0,
];

/// Buckets for stop times in seconds: the usual grace is 2 s, and force follows within 1 s.
const STOP_BUCKETS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 3.0, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    /// State of the task after the execution.
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StopLabels {
    /// Kind of the cause of the stop.
    cause: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReceiptLabels {
    /// `true` if the receipt (the report of the stop) proves that no work of the task still runs.
    quiet: &'static str,
}

/// Counters of the server. All clones share the same counters.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskMetrics {
    messages: Counter,
    messages_ended: Family<EndLabels, Counter>,
    accepted: Counter,
    waiting: Gauge,
    running: Gauge,
    ending: Gauge,
    unconfirmed: Counter,
    ended: Family<EndLabels, Counter>,
    stops: Family<StopLabels, Counter>,
    receipts: Family<ReceiptLabels, Counter>,
    removed: Counter,
    times: TaskTimes,
}

#[derive(Debug, Clone)]
struct TaskTimes {
    execution: Histogram,
    quiet: Histogram,
}

impl Default for TaskTimes {
    fn default() -> Self {
        Self {
            execution: Histogram::new(EXECUTION_BUCKETS),
            quiet: Histogram::new(STOP_BUCKETS),
        }
    }
}

impl TaskMetrics {
    /// Router with the route `GET /metrics`.
    pub(super) fn router(&self) -> Router {
        Self::router_of(self.registry())
    }

    /// Like [`router`](Self::router), but for a process that accepts messages of a cluster. The process also counts the ends
    /// of their executions, which run in any process.
    pub(super) fn router_of_front_end(&self) -> Router {
        let mut all = self.registry();
        all.register(
            "messages_ended",
            "Ends of the executions of the accepted messages, by the state of the task",
            self.messages_ended.clone(),
        );
        Self::router_of(all)
    }

    fn router_of(registry: Registry) -> Router {
        let registry = Arc::new(registry);
        let answer = async move || {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _written = encode(&mut text, &registry);
            ([(CONTENT_TYPE, OPEN_METRICS)], text)
        };
        Router::new().route("/metrics", get(answer))
    }

    fn registry(&self) -> Registry {
        let mut all = Registry::with_prefix("allstop");
        all.register(
            "messages_accepted",
            "Messages that this process accepted from clients; in a cluster, workers run their executions",
            self.messages.clone(),
        );
        all.register(
            "executions_accepted",
            "Executions of this process: messages that it runs, and stops of tasks that do not run",
            self.accepted.clone(),
        );
        all.register(
            "executions_waiting",
            "Executions of this process whose executor has not started",
            self.waiting.clone(),
        );
        all.register(
            "executions_running",
            "Executors that run in this process",
            self.running.clone(),
        );
        all.register(
            "executions_ending",
            "Executions whose executor has ended and whose end is not stored yet",
            self.ending.clone(),
        );
        all.register(
            "executions_ended",
            "Executions of this process whose end is stored, by the state of the task",
            self.ended.clone(),
        );
        all.register(
            "executions_unconfirmed",
            "Executions whose end the store has not confirmed",
            self.unconfirmed.clone(),
        );
        all.register(
            "stops",
            "Stops of executions and of left work of this process, by cause",
            self.stops.clone(),
        );
        all.register(
            "stop_receipts",
            "Receipts of stops; quiet: nothing of the task runs, and that was verified",
            self.receipts.clone(),
        );
        all.register(
            "tasks_removed",
            "Ended tasks that were removed because of --keep-tasks or --keep-tasks-max",
            self.removed.clone(),
        );
        all.register_with_unit(
            "execution",
            "Time from the start of an executor to the stored end",
            Unit::Seconds,
            self.times.execution.clone(),
        );
        all.register_with_unit(
            "stop_to_quiet",
            "Time from a stop to its quiet",
            Unit::Seconds,
            self.times.quiet.clone(),
        );
        all
    }

    /// Counts removed tasks.
    pub(super) fn removed(&self, tasks: usize) {
        self.removed.inc_by(tasks as u64);
    }

    /// Counts a message that this process accepted from a client.
    pub(super) fn message_accepted(&self) {
        self.messages.inc();
    }

    /// Counts the end of an execution whose message this process accepted.
    pub(super) fn message_ended(&self, state: TaskState) {
        let state = state.to_string();
        let ended = &self.messages_ended;
        ended.get_or_create(&EndLabels { state }).inc();
    }

    /// Counts a stop of work that still ran after the end of its task.
    pub(super) fn left_work_stopped(&self, receipt: &Receipt) {
        self.count_stop(receipt.cause());
        self.count_receipt(receipt);
    }

    fn count_stop(&self, cause: &Cause) {
        let cause = cause.kind.as_str().to_owned();
        self.stops.get_or_create(&StopLabels { cause }).inc();
    }

    fn count_receipt(&self, receipt: &Receipt) {
        let quiet = if receipt.quiet() { "true" } else { "false" };
        let labels = ReceiptLabels { quiet };
        self.receipts.get_or_create(&labels).inc();
        if let Some(ms) = receipt.quiet_after_ms() {
            self.times.quiet.observe(ms.as_f64() / 1e3);
        }
    }

    /// Counts an accepted execution: a run of a task, which first may have to wait.
    pub(super) fn accepted(&self) -> ExecutionMetrics {
        self.accepted.inc();
        self.waiting.inc();
        ExecutionMetrics {
            metrics: self.clone(),
            started: None,
            counted_by: Some(self.waiting.clone()),
            is_stop_counted: false,
            is_settled: false,
        }
    }
}

/// Metrics of one execution. One gauge at a time counts the execution, until its end is stored or this value is dropped.
#[derive(Debug)]
pub(super) struct ExecutionMetrics {
    metrics: TaskMetrics,
    started: Option<Instant>,
    /// The gauge that counts the execution now.
    counted_by: Option<Gauge>,
    is_stop_counted: bool,
    /// True if the end is stored, or if the execution has no end here because the next server starts it.
    is_settled: bool,
}

impl ExecutionObserver for ExecutionMetrics {
    fn started(&mut self) {
        self.count_by(Some(self.metrics.running.clone()));
        self.started = Some(Instant::now());
    }

    fn stopping(&mut self, cause: &Cause) {
        self.count_stop(cause);
    }

    fn kept_waiting(&mut self) {
        self.is_settled = true;
    }

    fn handed_over(&mut self) {
        self.is_settled = true;
    }

    fn finished(&mut self) {
        self.count_by(Some(self.metrics.ending.clone()));
    }

    fn ended(&mut self, task: &Task) {
        self.is_settled = true;
        self.count_by(None);
        let metrics = &self.metrics;
        let state = task.status.state.to_string();
        metrics.ended.get_or_create(&EndLabels { state }).inc();
        if let Some(started) = self.started {
            let time = started.elapsed().as_secs_f64();
            metrics.times.execution.observe(time);
        }
        if let Some(receipt) = &task.ending.receipt {
            // A stop of the session, for example by `allstop stop`, ends the task without a stop of its execution.
            self.count_stop(receipt.cause());
            self.metrics.count_receipt(receipt);
        }
    }
}

impl ExecutionMetrics {
    /// Counts the first stop of the execution.
    fn count_stop(&mut self, cause: &Cause) {
        if !std::mem::replace(&mut self.is_stop_counted, true) {
            self.metrics.count_stop(cause);
        }
    }

    /// Moves the execution to this gauge. `None` removes it from all gauges.
    fn count_by(&mut self, gauge: Option<Gauge>) {
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        if let Some(before) = std::mem::replace(&mut self.counted_by, gauge) {
            before.dec();
        }
    }
}

impl Drop for ExecutionMetrics {
    fn drop(&mut self) {
        self.count_by(None);
        if !self.is_settled {
            self.metrics.unconfirmed.inc();
        }
    }
}
