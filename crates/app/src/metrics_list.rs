//! Every metric that /metrics shows, in words. docs/METRICS.md is this list with its labels, and a test holds both to what
//! real processes show.
//!
//! Names of the requirement documents are kept to the letter.

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
    ("dispatcher_attempt_total", "Attempts that ended: assigned, or timeout for whatever ended without a driver"),
    ("dispatcher_cancel_total", "Orders cancelled, by reason; server_busy: checks and creations that were refused"),
    ("dispatcher_threshold_reached_total", "Checks and creations that met a full area, refused or not"),
    ("dispatcher_retry_count_total", "Attempts begun after the first of their order"),
    ("dispatchq_binding_calls_total", "Calls of providers by server, what they were to do, and the answer in one word"),
    (
        "dispatchq_binding_outcomes_total",
        "Transactions that ended or became UNRESOLVED, of the bindings that bindings.metrics_for names",
    ),
    ("dispatchq_binding_stops_total", "Bindings that stopped, by reason"),
    (
        "dispatchq_binding_transactions_total",
        "Transactions that ended or became UNRESOLVED, by server and reason; other: a word of the provider's own",
    ),
    ("dispatchq_bypasses_total", "Checks and creations past the threshold, by loyalty"),
    ("dispatchq_dead_letters_restored_total", "Dead letters put back into Redis from Postgres"),
    ("dispatchq_http_requests_total", "Requests to the API by route and status of the answer"),
    (
        "dispatchq_job_id_questions_baseline_total",
        "Questions for job ids that came, had partners been asked every 2 s from the booking on",
    ),
    ("dispatchq_job_id_questions_total", "Questions for job ids that came, by whatever way they came"),
    ("dispatchq_jobs_total", "Runs of jobs by outcome; lost: dead because its workers died of it"),
    ("dispatchq_manual_interventions_total", "Alerts that ask a person to act, by what they are about"),
    ("dispatchq_messages_parked_total", "Messages put off because their channel had no place for them"),
    ("dispatchq_order_updates_total", "Updates of orders' rows: written, or conflict, when another change was quicker"),
    ("dispatchq_orders_with_job_id_total", "Partner orders that got a first job id, by callback or by asking"),
    ("dispatchq_partner_calls_total", "Calls to a partner by what became of them"),
    ("dispatchq_partner_choices_total", "Attempts begun at a partner, by why it was chosen"),
    ("dispatchq_reconciler_repairs_total", "Timers the reconciler put back or moved"),
    ("dispatchq_redis_epoch_changes_total", "Times all timers were compared because Redis was lost or restarted"),
    ("dispatchq_refusals_total", "Checks and creations that were refused, by cause"),
    (
        "dispatchq_reservations_total",
        "Drivers at the gate of an order: won, own (again), lost, late (it was taken), unknown (Redis did not answer)",
    ),
    ("dispatchq_settles_refused_total", "Results of jobs that came after their lease was lost, and changed nothing"),
    ("dispatchq_shadow_rejects_total", "Checks and creations that only shadow mode let in, by loyalty"),
    (
        "dispatchq_status_updates_total",
        "Final statuses of orders the system ended: written, refused by the database, or it was away",
    ),
    (
        "dispatchq_trace_spans_total",
        "Spans of traces: sent, dropped because too many waited, or failed: the collector did not take them",
    ),
    (
        "job_id_retrieval_attempts_total",
        "Partner orders that were asked for a first job id, or failed without; each once however often it is asked",
    ),
    (
        "job_id_retrieval_failed_total",
        "Partner orders that ended without a job id: timeout, not_found, never_booked or not_polled",
    ),
    ("job_id_retrieval_max_retries_exceeded_total", "Of the failed ones, those with the reason timeout"),
    ("job_id_retrieval_success_total", "Partner orders whose first job id was learnt by asking"),
    ("job_id_total", "Job ids learnt, by callback or by asking"),
    ("job_id_via_callback_total", "Job ids learnt by callback"),
    ("job_id_via_proactive_total", "Job ids learnt by asking"),
    (
        "order_status_count",
        "Entries of orders into a status, by track; the first is counted with the order's first change",
    ),
    ("process_cpu_seconds_total", "Processor time of this process, in whole seconds"),
];

const GAUGES: Words = &[
    ("dispatcher_threshold_utilization_ratio", "Waiting orders by threshold, of the area's fullest service type"),
    ("dispatcher_waiting_orders_total", "Orders that look for a driver in an area"),
    ("dispatchq_alert_route_log_only", "1 while alerts of this route end in the log, so that they reach no person"),
    ("dispatchq_alerts_given_up", "Open alerts that are not told again because the job that would do it is dead"),
    ("dispatchq_alerts_open", "Alerts that wait to be acknowledged"),
    (
        "dispatchq_area_refuses",
        "1 while an area takes no orders of a service type, by cause: disabled, forced, threshold, cooling",
    ),
    ("dispatchq_areas_unreadable", "Areas left out because their geometry cannot be read"),
    ("dispatchq_bindings", "Bindings by state"),
    ("dispatchq_bindings_longest_wait_seconds", "How long the binding that waits longest for a call has waited"),
    (
        "dispatchq_bindings_most_overdue_seconds",
        "How late the binding is whose next step is most overdue, but for servers that are left alone; 0 when none is",
    ),
    (
        "dispatchq_bindings_otp_oldest_seconds",
        "How long the binding that waits longest for an OTP has waited; 0 when none does",
    ),
    ("dispatchq_bindings_parked", "Bindings that wait for a call because all that may be open are"),
    ("dispatchq_bindings_waiting_otp", "Bindings that wait for a person to hand an OTP in"),
    ("dispatchq_degraded", "1 while this process takes requests without Redis, 0 when not; workers show none"),
    ("dispatchq_dependency_up", "1 when this process reaches the server and Postgres takes writes, 0 when not"),
    ("dispatchq_due_next_minute", "Jobs that fall due within the next 60 s"),
    (
        "dispatchq_feed_held_seconds",
        "Age of the oldest step that /api/v1/events holds back, for an older transaction is open",
    ),
    ("dispatchq_history_days_ahead", "Days of the history that are ready after today; without one no order can change"),
    ("dispatchq_job_id_retrievals_active", "Orders whose job id is being asked for"),
    ("dispatchq_loop_idle_seconds", "Time since a background loop of this process last got on; above 60 it is stuck"),
    ("dispatchq_manual_refund_oldest_seconds", "Age of the oldest refund that is due and not begun"),
    ("dispatchq_manual_refund_queue", "Orders whose refund is due and not begun"),
    ("dispatchq_orders_held", "Orders held for review"),
    ("dispatchq_orders_open", "Orders that have not ended, by status"),
    ("dispatchq_orders_retrying", "Orders that look for a driver after their first attempt found none"),
    ("dispatchq_outbox_oldest_seconds", "Age of the oldest undelivered message"),
    ("dispatchq_partner_breaker_open", "1 while calls are held back: breaker open, or half open and trying"),
    ("dispatchq_provider_calls_limit", "Calls of providers that may be open, of all servers together"),
    ("dispatchq_provider_calls_open", "Calls of providers that are open, or given away and about to begin"),
    (
        "dispatchq_provider_server_breaker_open",
        "1 while a provider's server is left alone after failures, or because it asked for that",
    ),
    ("dispatchq_provider_server_calls_limit", "Calls that may be open at a provider's server"),
    ("dispatchq_provider_server_calls_open", "Calls that are open at a provider's server, or about to begin"),
    (
        "dispatchq_provider_server_longest_wait_seconds",
        "How long the first binding in the line of a provider's server has waited",
    ),
    ("dispatchq_provider_server_parked", "Bindings in the line of a provider's server"),
    (
        "dispatchq_provider_server_paused",
        "1 while a provider's server is not called: disabled, or left alone after failures",
    ),
    ("dispatchq_queue_dead", "Dead jobs not yet decided on"),
    ("dispatchq_queue_depth", "Jobs that wait, due now or later"),
    ("dispatchq_queue_due", "Jobs that are due and wait for a worker"),
    ("dispatchq_queue_leased", "Jobs being performed"),
    ("dispatchq_queue_oldest_due_seconds", "How long the job that is due longest has waited; 0 when none is due"),
    ("dispatchq_queue_suspects", "Jobs that lost two deliveries, waiting to run with nothing beside them"),
    ("dispatchq_redis_clock_ahead_seconds", "Clock of Redis minus clock of Postgres; below 0: Redis is behind"),
    ("dispatchq_transactions_unresolved", "Transactions that took too long; their providers are asked on"),
    ("dispatchq_waiting_drift", "Places of orders that the latest comparison of Redis with Postgres mended"),
    ("dispatchq_workers", "Worker processes that gave a sign of life within 10 s"),
    ("process_max_fds", "Files and sockets that this process may have open"),
    ("process_open_fds", "Files and sockets that this process has open"),
    ("process_resident_memory_bytes", "Memory of this process in RAM"),
    ("process_start_time_seconds", "When this process started, in seconds since 1970"),
    ("process_threads", "Threads of this process"),
    ("process_virtual_memory_bytes", "Addresses that this process has asked for"),
    ("process_virtual_memory_max_bytes", "Addresses that this process may ask for"),
];

const HISTOGRAMS: Words = &[
    ("dispatcher_attempt_duration_seconds", "From an attempt's offer or booking to its end, however it ended"),
    ("dispatcher_order_lifetime_seconds", "From an order's creation to the end of a search for a driver"),
    ("dispatchq_alert_response_seconds", "From an alert to its acknowledgement, by a person or by what settled it"),
    ("dispatchq_attempts_per_order", "Attempts of an order until its search for a driver ended, however it ended"),
    ("dispatchq_binding_call_seconds", "How long calls of providers take, by what they are to do and by server"),
    ("dispatchq_binding_claim_seconds", "From the decision to call a provider until the claim is durable"),
    (
        "dispatchq_binding_lateness_seconds",
        "Start of a binding's step minus the time in its row; waiting for a call not included",
    ),
    (
        "dispatchq_http_request_duration_seconds",
        "From a request's head to its answer, by route; waiting for offers included",
    ),
    ("dispatchq_job_duration_seconds", "How long runs of jobs take, by kind"),
    ("dispatchq_job_lateness_seconds", "Start of a run minus its due time"),
    (
        "dispatchq_timer_lateness_seconds",
        "Start of an order's timer minus the deadline in its row, by the clock of Postgres",
    ),
    ("job_id_retrieval_attempts", "Questions until the partner named the job id; its _sum over _count is the average"),
    ("job_id_retrieval_duration_seconds", "From booking to job id"),
];

/// What alerts are about.
const ALERTS: [MessageKind; 9] = [
    MessageKind::DispatchFailed,
    MessageKind::ManualRefundRequired,
    MessageKind::UnexpectedState,
    MessageKind::TimerDead,
    MessageKind::StaleTrip,
    MessageKind::PartnerRefusesKey,
    MessageKind::FailedToGetOrder,
    MessageKind::StatusUpdateFailed,
    MessageKind::TransactionUnresolved,
];

/// Describes all metrics, and lets those that rules divide by or watch for an increase begin at 0: the first failure must
/// be an increase and not a new series. Needs an installed recorder.
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
    for channel in config.channels.keys().map(String::as_str).chain([LOG]) {
        register_counter(counter!("dispatchq_messages_parked_total", "channel" => channel.to_owned()));
    }
    for producer in config.producers.keys() {
        let channel = Config::producer_channel(producer);
        register_counter(counter!("dispatchq_messages_parked_total", "channel" => channel));
    }
    config.service_types.keys().for_each(register_service_type);
    config.partners.keys().for_each(register_partner);
}

fn register_unlabelled() {
    for name in [
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

/// Of orders without an area; what areas there are shows only with their orders.
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

/// Its buckets are shown empty from then on.
fn register_histogram(_: metrics::Histogram) {}
