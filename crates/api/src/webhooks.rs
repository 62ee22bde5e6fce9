//! Webhooks that producers receive, only for the OpenAPI document. The server accepts no such requests.

use chrono::{DateTime, Utc};
use model::{
    messages::{CANCELLED_AFTER_PAYMENT, JOB_ID_RETRIEVED, MANUAL_REFUND_REQUIRED},
    order::OrderStep,
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema, openapi::OpenApi as Document};
use uuid::Uuid;

use super::openapi::example_step;
use orders::feed::StepData;

/// An event in a webhook.
#[derive(Debug, Serialize, ToSchema)]
pub struct StepWebhook {
    /// Id of the event. It is the same when the event is sent again, and also in the header `webhook-id`.
    pub id: Uuid,
    #[serde(rename = "type")]
    pub step: OrderStep,
    /// Time of the event.
    pub timestamp: DateTime<Utc>,
    /// Version of this format. A version may get additional members.
    pub version: u16,
    pub data: StepData,
}

/// The webhook of any order event, in the form of a path.
#[derive(OpenApi)]
#[openapi(paths(take_step))]
struct StepDocument;

/// Reports an event of an order.
///
/// The webhook is sent to the producer that owns the order, if the producer subscribes to this event
/// (`[producers.NAME]`). An event may arrive more than once, and after later events: `data.seq` orders the events of
/// one order. Check the signature before using the body.
#[utoipa::path(post, path = "/step", tag = "webhooks", security(()),
    extensions(("x-audience" = json!("producer"))),
    params(
        ("webhook-id" = Uuid, Header, description = "id of the event; the same when the event is sent again"),
        ("webhook-timestamp" = i64, Header, description = "time of this attempt, in seconds since 1970"),
        ("webhook-signature" = String, Header,
         description = "`v1,` and base64 of the HMAC-SHA256 of `{webhook-id}.{webhook-timestamp}.{body}`; while a secret \
                        changes there are two, separated by a space"),
    ),
    request_body(content = StepWebhook),
    responses((status = "2XX", description = "received"), (status = "default", description = "the webhook is sent again")))]
pub fn take_step() {}

/// Data of the webhook about a partner's job id.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobIdData {
    pub order_id: String,
    pub job_id: String,
    /// Number of requests for the job id; 0 if a callback was faster.
    pub attempts: u32,
    /// Time since the booking, such as `5.1s`.
    pub duration: String,
    /// `callback` or `proactive`.
    pub method: String,
}

/// Data of the webhook about a paid order that ended without a ride.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaidCancelData {
    pub order_id: String,
    pub status: String,
    pub payment_status: String,
    /// Number of requests for the job id over all bookings; 0 for own drivers.
    pub total_attempts: i32,
    /// `MANUAL_REFUND_REQUIRED`.
    pub action: String,
}

/// The webhook about a job id.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobIdWebhook {
    pub id: Uuid,
    #[serde(rename = "type")]
    #[schema(pattern = "^order\\.job_id_retrieved$")]
    pub event: String,
    pub timestamp: DateTime<Utc>,
    pub version: u16,
    pub data: JobIdData,
}

/// The webhook about a paid order that ended without a ride.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaidCancelWebhook {
    pub id: Uuid,
    #[serde(rename = "type")]
    #[schema(pattern = "^order\\.cancelled_after_payment_no_job_id$")]
    pub event: String,
    pub timestamp: DateTime<Utc>,
    pub version: u16,
    pub data: PaidCancelData,
}

#[derive(OpenApi)]
#[openapi(components(schemas(JobIdWebhook, PaidCancelWebhook)))]
struct NoticeDocument;

/// Returns the webhooks that are not order events: name, summary, schema and example data.
fn notices() -> [(&'static str, &'static str, &'static str, Value); 2] {
    let retrieved =
        json!({ "order_id": "ORD-1", "job_id": "JOB-1", "attempts": 1, "duration": "5.1s", "method": "proactive" });
    let cancelled = json!({
        "order_id": "ORD-1", "status": "CANCELLED_BY_SYSTEM_AFTER_PAYMENT", "payment_status": "PAID", "total_attempts": 9,
        "action": MANUAL_REFUND_REQUIRED,
    });
    [
        (JOB_ID_RETRIEVED, "A partner's job id is known.", "JobIdWebhook", retrieved),
        (
            CANCELLED_AFTER_PAYMENT,
            "A paid order ended without a ride; a refund is due.",
            "PaidCancelWebhook",
            cancelled,
        ),
    ]
}

/// Adds the schemas of webhooks to a document. Returns the value of its member `webhooks`.
pub(crate) fn describe_webhooks(document: &mut Document) -> Value {
    let mut described = StepDocument::openapi();
    let paths = std::mem::take(&mut described.paths);
    document.merge(described);
    let operation = paths.paths.into_values().find_map(|path| path.post);
    let webhooks = OrderStep::ALL.map(|step| {
        let mut said = json!(operation);
        said["operationId"] = json!(format!("webhook_{}", step.as_str().replace('.', "_")));
        said["summary"] = json!(summary_of(step));
        said["requestBody"]["content"]["application/json"]["example"] = example_webhook(step);
        (step.to_string(), json!({ "post": said }))
    });
    document.merge(NoticeDocument::openapi());
    let notices = notices().map(|(event, summary, schema, data)| {
        let mut said = json!(operation);
        said["operationId"] = json!(format!("webhook_{}", event.replace('.', "_")));
        said["summary"] = json!(summary);
        let example = json!({
            "id": "019ba1c0-0000-7000-8000-000000000003", "type": event, "timestamp": "2026-01-09T08:00:05.250Z", "version": 1,
            "data": data,
        });
        said["requestBody"]["content"]["application/json"] =
            json!({ "schema": { "$ref": format!("#/components/schemas/{schema}") }, "example": example });
        (event.to_owned(), json!({ "post": said }))
    });
    Value::Object(webhooks.into_iter().chain(notices).collect())
}

fn summary_of(step: OrderStep) -> &'static str {
    match step {
        OrderStep::Created => "An order was created.",
        OrderStep::Updated => "The contents of the order were changed.",
        OrderStep::Scheduled => "The order waits for the start of its dispatch, before its pickup time.",
        OrderStep::Offered => "An attempt started: drivers or a partner get an offer.",
        OrderStep::Assigned => "A driver, or a different driver, has the order.",
        OrderStep::PickedUp => "The passenger was picked up, or the work has started.",
        OrderStep::Completed => "The order was carried out.",
        OrderStep::Cancelled => "The order ended without a completed trip.",
        OrderStep::Held => "A person must decide; the timers of the order are stopped.",
        OrderStep::Refunded => "The refund was paid.",
    }
}

fn example_webhook(step: OrderStep) -> Value {
    let mut event = json!({ "id": "019ba1c0-0000-7000-8000-000000000002" });
    if let (Some(event), Value::Object(said)) = (event.as_object_mut(), example_step(step)) {
        event.extend(said);
    }
    event
}
