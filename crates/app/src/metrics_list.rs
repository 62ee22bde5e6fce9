//! Descriptions of all metrics at /metrics. docs/METRICS.md contains this list with the labels; a test compares both
//! with real processes.
//!
//! The requirement documents fix some of the names.

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, histogram};
use model::{
    binding::{StopReason, TransactionStatus},
    ids::{PartnerName, ServiceType},
    messages::{MessageKind, routes::LOG},
    order::OrderStatus,
    partner::{RetrievalFailure, answer::CallError, choice::ChoiceReason},
};

use foundation::traces::SPAN_RESULTS;
use orders::metrics::TRACKS;
use partner::client::http::PartnerCall;
use settings::Config;

type Words = &'static [(&'static str, &'static str)];

const COUNTERS: Words = &[
    ("dispatcher_attempt_total", "Ended attempts: assigned, or timeout for every end without a driver"),
    ("dispatcher_cancel_total", "Cancelled orders by reason; server_busy: refused checks and creations"),
    ("dispatcher_threshold_reached_total", "Checks and creations in a full area, refused or not"),
    ("dispatcher_retry_count_total", "Attempts started after the first of their order"),
    ("dispatchq_binding_calls_total", "Calls to providers by server, purpose and result"),
    (
        "dispatchq_binding_outcomes_total",
        "Transactions that ended or became UNRESOLVED, for the bindings in bindings.metrics_for",
    ),
    ("dispatchq_binding_stops_total", "Stopped bindings by reason"),
    (
        "dispatchq_binding_transactions_total",
        "Transactions that ended or became UNRESOLVED, by server and reason; other: a reason that only the provider uses",
    ),
    ("dispatchq_bypasses_total", "Checks and creations admitted above the threshold, by loyalty"),
    ("dispatchq_creations_refused_total", "Creations refused because the jobs of orders are late"),
    ("dispatchq_dead_letters_restored_total", "Dead letters restored in Redis from Postgres"),
    ("dispatchq_http_requests_total", "Requests to the API by route and response status"),
    (
        "dispatchq_job_id_questions_baseline_total",
        "Polls that the received job ids would have needed at one poll every 2 s from the booking on",
    ),
    ("dispatchq_job_id_questions_total", "Polls for the job ids that were received, by polling or by callback"),
    ("dispatchq_jobs_total", "Runs of jobs by outcome; lost: dead because its workers crashed while running it"),
    ("dispatchq_manual_interventions_total", "Alerts that require a person to act, by kind"),
    (
        "dispatchq_messages_parked_total",
        "Messages delayed because their channel had no free slot. Webhook endpoints that were created by API share the channel `endpoint`",
    ),
    (
        "dispatchq_order_updates_total",
        "Updates of order rows: written, or conflict if another change was written first",
    ),
    ("dispatchq_orders_with_job_id_total", "Partner orders that got a first job id, by callback or by polling"),
    ("dispatchq_partner_calls_total", "Calls to a partner by result"),
    ("dispatchq_partner_choices_total", "Attempts started at a partner, by the reason for choosing it"),
    (
        "dispatchq_proof_violations_total",
        "Violations that the proof of the history has found, by invariant; every process exports the same numbers",
    ),
    ("dispatchq_reconciler_repairs_total", "Timers that the reconciler enqueued again or moved"),
    ("dispatchq_redis_epoch_changes_total", "Comparisons of all timers because Redis lost its data or restarted"),
    ("dispatchq_refusals_total", "Refused checks and creations by cause"),
    (
        "dispatchq_reservations_total",
        "Accepts at the gate of an order: won, own (repeated), lost, late (already taken), unknown (Redis did not respond)",
    ),
    ("dispatchq_settles_refused_total", "Results of jobs that were refused because their lease was lost"),
    (
        "dispatchq_shadow_rejects_total",
        "Checks and creations that were admitted only because of shadow mode, by loyalty",
    ),
    (
        "dispatchq_status_updates_total",
        "Writes of final statuses of orders that the system ended: success, failed (refused by the database) or unreachable",
    ),
    (
        "dispatchq_trace_spans_total",
        "Trace spans: sent, queue_full (dropped), or failed (not accepted by the collector)",
    ),
    (
        "job_id_retrieval_attempts_total",
        "Partner orders that were polled for a first job id or failed without a poll; each order counts once",
    ),
    (
        "job_id_retrieval_failed_total",
        "Partner orders that ended without a job id: timeout, not_found, never_booked or not_polled",
    ),
    ("job_id_retrieval_max_retries_exceeded_total", "Failed retrievals with the reason timeout"),
    ("job_id_retrieval_success_total", "Partner orders whose first job id was received by polling"),
    ("job_id_total", "Job ids received, by callback or by polling"),
    ("job_id_via_callback_total", "Job ids received by callback"),
    ("job_id_via_proactive_total", "Job ids received by polling"),
    (
        "order_status_count",
        "Entries of orders into a status, by track; the first is counted with the order's first change",
    ),
    ("process_cpu_seconds_total", "Processor time of this process, in whole seconds"),
];

const GAUGES: Words = &[
    (
        "dispatcher_threshold_utilization_ratio",
        "Waiting orders divided by the threshold, for the area's fullest service type",
    ),
    ("dispatcher_waiting_orders_total", "Orders that wait for a driver in an area"),
    ("dispatchq_alert_route_log_only", "1 if alerts of this route are only logged and reach no person"),
    ("dispatchq_alerts_given_up", "Open alerts that are no longer repeated because their job is dead"),
    ("dispatchq_alerts_open", "Alerts that are not acknowledged"),
    (
        "dispatchq_area_refuses",
        "1 while an area accepts no orders of a service type, by cause: disabled, forced, threshold, cooling",
    ),
    ("dispatchq_areas_unreadable", "Areas ignored because their geometry cannot be read"),
    ("dispatchq_bindings", "Bindings by state"),
    ("dispatchq_bindings_longest_wait_seconds", "Longest current wait of a binding for a call"),
    (
        "dispatchq_bindings_most_overdue_seconds",
        "Lateness of the most overdue binding, except at servers that are paused; 0 if none is overdue",
    ),
    ("dispatchq_bindings_otp_oldest_seconds", "Longest current wait of a binding for an OTP; 0 if none waits"),
    ("dispatchq_bindings_parked", "Bindings that wait for a call because the limit of open calls is reached"),
    ("dispatchq_bindings_waiting_otp", "Bindings that wait for a person to submit an OTP"),
    (
        "dispatchq_build_info",
        "Always 1; the labels are the version, the commit and the newest migration of this process",
    ),
    (
        "dispatchq_degraded",
        "1 while this process accepts requests without Redis, otherwise 0; workers do not export it",
    ),
    ("dispatchq_dependency_up", "1 if this process reaches the server, and Postgres accepts writes; otherwise 0"),
    ("dispatchq_due_next_minute", "Jobs that become due within the next 60 s"),
    (
        "dispatchq_feed_held_seconds",
        "Age of the oldest step that /api/v1/events delays because an older transaction is open",
    ),
    ("dispatchq_history_days_ahead", "Future history days that exist; without one no order can change"),
    ("dispatchq_job_id_retrievals_active", "Orders that are being polled for a job id"),
    (
        "dispatchq_loop_idle_seconds",
        "Time since the last progress of a background loop of this process; above 60 it is stuck",
    ),
    ("dispatchq_manual_refund_oldest_seconds", "Age of the oldest refund that is due and not started"),
    ("dispatchq_manual_refund_queue", "Orders whose refund is due and not started"),
    ("dispatchq_orders_held", "Orders held for review"),
    ("dispatchq_orders_open", "Open orders by status"),
    ("dispatchq_orders_retrying", "Orders that still wait for a driver after their first attempt failed"),
    ("dispatchq_outbox_oldest_seconds", "Age of the oldest undelivered message"),
    ("dispatchq_partner_breaker_open", "1 while calls are limited: the breaker is open, or half open with probes"),
    ("dispatchq_proof_lag_events", "Steps of orders that are not proven yet; at most 10,000 are counted"),
    ("dispatchq_proof_lag_seconds", "Time since which steps of orders are not proven"),
    ("dispatchq_provider_calls_limit", "Maximum open calls to providers, for all servers together"),
    ("dispatchq_provider_calls_open", "Calls to providers that are open or about to start"),
    (
        "dispatchq_provider_server_breaker_open",
        "1 while calls to a provider's server are paused after failures or at its request",
    ),
    ("dispatchq_provider_server_calls_limit", "Maximum open calls to a provider's server"),
    ("dispatchq_provider_server_calls_open", "Calls to a provider's server that are open or about to start"),
    ("dispatchq_provider_server_longest_wait_seconds", "Wait of the first binding in the queue of a provider's server"),
    ("dispatchq_provider_server_parked", "Bindings in the queue of a provider's server"),
    (
        "dispatchq_provider_server_paused",
        "1 while a provider's server is not called: disabled, or paused after failures",
    ),
    ("dispatchq_queue_dead", "Dead jobs without a decision"),
    ("dispatchq_queue_depth", "Waiting jobs, due now or later"),
    ("dispatchq_queue_due", "Jobs that are due and wait for a worker"),
    ("dispatchq_queue_leased", "Jobs that are running"),
    ("dispatchq_queue_oldest_due_seconds", "Time since the oldest due job became due; 0 if none is due"),
    ("dispatchq_queue_suspects", "Jobs that lost two deliveries and wait to run alone"),
    ("dispatchq_redis_clock_ahead_seconds", "Clock of Redis minus clock of Postgres; below 0: Redis is behind"),
    ("dispatchq_transactions_unresolved", "Transactions that took too long; their providers are still queried"),
    ("dispatchq_waiting_drift", "Waiting orders that the latest comparison of Redis with Postgres corrected"),
    ("dispatchq_workers", "Worker processes with a heartbeat within 10 s"),
    ("process_max_fds", "Maximum files and sockets that this process may open"),
    ("process_open_fds", "Files and sockets that this process has open"),
    ("process_resident_memory_bytes", "Memory of this process in RAM"),
    ("process_start_time_seconds", "When this process started, in seconds since 1970"),
    ("process_threads", "Threads of this process"),
    ("process_virtual_memory_bytes", "Virtual memory of this process"),
    ("process_virtual_memory_max_bytes", "Maximum virtual memory of this process"),
];

const HISTOGRAMS: Words = &[
    ("dispatcher_attempt_duration_seconds", "From an attempt's offer or booking to its end, whatever the result"),
    (
        "dispatcher_order_lifetime_seconds",
        "From an order's creation, or its start if it is scheduled, to the end of a search for a driver",
    ),
    (
        "dispatchq_alert_response_seconds",
        "From an alert to its acknowledgement, by a person or by the event that settled it",
    ),
    ("dispatchq_attempts_per_order", "Attempts of an order until its search for a driver ended, whatever the result"),
    ("dispatchq_binding_call_seconds", "Duration of calls to providers, by purpose and server"),
    ("dispatchq_binding_claim_seconds", "From the decision to call a provider until the claim is durable"),
    (
        "dispatchq_binding_lateness_seconds",
        "Start of a binding's step minus the time in its row, without the wait for a call",
    ),
    (
        "dispatchq_http_request_duration_seconds",
        "From a request's head to its response, by route; includes the wait for offers",
    ),
    ("dispatchq_job_duration_seconds", "Duration of job runs, by kind"),
    ("dispatchq_job_lateness_seconds", "Start of a run minus its due time"),
    (
        "dispatchq_timer_lateness_seconds",
        "Start of an order's timer minus the deadline in its row, on the clock of Postgres",
    ),
    ("job_id_retrieval_attempts", "Polls until the partner returned the job id; _sum divided by _count is the average"),
    ("job_id_retrieval_duration_seconds", "From the booking to the job id"),
];

const ALERTS: [MessageKind; 10] = [
    MessageKind::DispatchFailed,
    MessageKind::ManualRefundRequired,
    MessageKind::UnexpectedState,
    MessageKind::TimerDead,
    MessageKind::StaleTrip,
    MessageKind::ScheduledWithoutDriver,
    MessageKind::PartnerRefusesKey,
    MessageKind::FailedToGetOrder,
    MessageKind::StatusUpdateFailed,
    MessageKind::TransactionUnresolved,
];

/// Describes all metrics. Initializes the counters that alert rules divide by or watch for an increase to 0. The first
/// failure must be an increase and not a new series. Requires an installed recorder.
pub fn register_metrics(config: &Config) {
    for &(name, words) in COUNTERS {
        describe_counter!(name, words);
    }
    for &(name, words) in GAUGES {
        describe_gauge!(name, words);
    }
    for &(name, words) in HISTOGRAMS {
        describe_histogram!(name, words);
    }
    register_unlabelled();
    for reason in StopReason::ALL {
        register_counter(counter!("dispatchq_binding_stops_total", "reason" => reason.as_str()));
    }
    for binding in &config.bindings.metrics_for {
        for status in [TransactionStatus::Sukses, TransactionStatus::Gagal, TransactionStatus::Unresolved] {
            let labels = [("binding", binding.to_string()), ("status", status.to_string())];
            register_counter(counter!("dispatchq_binding_outcomes_total", &labels));
        }
    }
    for alert in ALERTS {
        register_counter(counter!("dispatchq_manual_interventions_total", "alert" => alert.as_str()));
        register_histogram(histogram!("dispatchq_alert_response_seconds", "alert" => alert.as_str()));
    }
    for status in OrderStatus::ALL {
        for track in TRACKS {
            register_counter(counter!("order_status_count", "status" => status.as_str(), "track" => track));
        }
    }
    for failure in RetrievalFailure::ALL {
        register_counter(counter!("job_id_retrieval_failed_total", "reason" => failure.as_str()));
    }
    for result in ["success", "failed", "unreachable"] {
        register_counter(counter!("dispatchq_status_updates_total", "result" => result));
    }
    for result in ["written", "conflict"] {
        register_counter(counter!("dispatchq_order_updates_total", "result" => result));
    }
    for result in ["won", "own", "lost", "late", "unknown"] {
        register_counter(counter!("dispatchq_reservations_total", "result" => result));
    }
    for result in SPAN_RESULTS {
        register_counter(counter!("dispatchq_trace_spans_total", "result" => result));
    }
    for channel in config.channels.keys().map(String::as_str).chain([LOG, "endpoint"]) {
        register_counter(counter!("dispatchq_messages_parked_total", "channel" => channel.to_owned()));
    }
    for (producer, _) in config.producers.iter().filter(|(_, producer)| producer.has_webhook()) {
        let channel = Config::producer_channel(producer);
        register_counter(counter!("dispatchq_messages_parked_total", "channel" => channel));
    }
    config.service_types.keys().for_each(register_service_type);
    config.partners.keys().for_each(register_partner);
}

fn register_unlabelled() {
    for name in [
        "dispatchq_creations_refused_total",
        "dispatchq_dead_letters_restored_total",
        "dispatchq_job_id_questions_baseline_total",
        "dispatchq_job_id_questions_total",
        "dispatchq_orders_with_job_id_total",
        "dispatchq_reconciler_repairs_total",
        "dispatchq_redis_epoch_changes_total",
        "job_id_retrieval_attempts_total",
        "job_id_retrieval_max_retries_exceeded_total",
        "job_id_retrieval_success_total",
        "job_id_total",
        "job_id_via_callback_total",
        "job_id_via_proactive_total",
    ] {
        register_counter(counter!(name));
    }
    for name in ["job_id_retrieval_attempts", "job_id_retrieval_duration_seconds"] {
        register_histogram(histogram!(name));
    }
}

/// Registers the counters for orders without an area. Those of other areas appear with their first orders.
fn register_service_type(service: &ServiceType) {
    let labels = [("area_id", String::new()), ("service_type", service.to_string())];
    let with = |name, value: &str| {
        let [area, service] = labels.clone();
        [area, service, (name, value.to_owned())]
    };
    register_counter(counter!("dispatcher_retry_count_total", &labels));
    for result in ["assigned", "timeout"] {
        register_counter(counter!("dispatcher_attempt_total", &with("result", result)));
    }
    for reason in ["user", "lifetime_timeout"] {
        register_counter(counter!("dispatcher_cancel_total", &with("reason", reason)));
    }
}

fn register_partner(partner: &PartnerName) {
    for call in PartnerCall::ALL {
        for result in CallError::LABELS {
            let labels = [("partner", partner.to_string()), ("call", call.as_str().into()), ("result", result.into())];
            register_counter(counter!("dispatchq_partner_calls_total", &labels));
        }
    }
    for reason in ChoiceReason::ALL {
        let labels = [("partner", partner.to_string()), ("reason", reason.as_str().to_owned())];
        register_counter(counter!("dispatchq_partner_choices_total", &labels));
    }
}

fn register_counter(counter: metrics::Counter) {
    counter.increment(0);
}

/// Registers a histogram by its creation. Its empty buckets are shown from then on.
fn register_histogram(_: metrics::Histogram) {}
