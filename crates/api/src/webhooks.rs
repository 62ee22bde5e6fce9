//! What producers are posted, for the document alone: no request of this form comes here.

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

/// An event as a webhook brings it.
#[derive(Debug, Serialize, ToSchema)]
pub struct StepWebhook {
    /// The same whenever the event is sent again; the header `webhook-id` has it, too.
    pub id: Uuid,
    #[serde(rename = "type")]
    pub step: OrderStep,
    /// When the step happened.
    pub timestamp: DateTime<Utc>,
    /// Of this form. Fields may be added to a version.
    pub version: u16,
    pub data: StepData,
}

/// The webhook of any step, as if it were a path.
#[derive(OpenApi)]
#[openapi(paths(take_step))]
struct StepDocument;

/// An order took a step.
///
/// Sent to the producer that the order belongs to, if it subscribes to this event (`[producers.NAME]`). It may come more than
/// once, and after later steps: `data.seq` orders the steps of one order. Check the signature before anything else.
#[utoipa::path(post, path = "/step", tag = "webhooks", security(()),
    params(
        ("webhook-id" = Uuid, Header, description = "the same whenever the event is sent again"),
        ("webhook-timestamp" = i64, Header, description = "when this try was made, in seconds since 1970"),
        ("webhook-signature" = String, Header,
         description = "`v1,` and base64 of the HMAC-SHA256 of `{webhook-id}.{webhook-timestamp}.{body}`; while a secret \
                        changes there are two, with a space between them"),
    ),
    request_body(content = StepWebhook),
    responses((status = "2XX", description = "received"), (status = "default", description = "it will be sent again")))]
pub fn take_step() {}

/// The id of a partner's job, as the webhook of a subscriber says it.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobIdData {
    pub order_id: String,
    pub job_id: String,
    /// Questions to the partner until then; 0 if a callback was quicker.
    pub attempts: u32,
    /// Time since the booking, such as `5.1s`.
    pub duration: String,
    /// `callback` or `proactive`.
    pub method: String,
}

/// The end of a paid order without a ride, as the webhook of a subscriber says it.
#[derive(Debug, Serialize, ToSchema)]
pub struct PaidCancelData {
    pub order_id: String,
    pub status: String,
    pub payment_status: String,
    /// Questions for the job id, over all bookings; 0 of the own fleet.
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

/// The webhooks that are no steps: name, summary, schema and example of the data.
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
            "A paid order ended without a ride; a refund is owed.",
            "PaidCancelWebhook",
            cancelled,
        ),
    ]
}

/// Adds the schemas of webhooks to a document. Returns what it lists under `webhooks`.
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
        OrderStep::Created => "An order is there.",
        OrderStep::Offered => "An attempt began: drivers are asked, or a partner is.",
        OrderStep::Assigned => "A driver has the order, or another driver than before.",
        OrderStep::PickedUp => "The passenger is aboard, or the work has begun.",
        OrderStep::Completed => "The order was carried out.",
        OrderStep::Cancelled => "The order ended without being carried out.",
        OrderStep::Held => "A person must decide: no timer of the order runs.",
        OrderStep::Refunded => "The money is back.",
    }
}

fn example_webhook(step: OrderStep) -> Value {
    let mut event = json!({ "id": "019ba1c0-0000-7000-8000-000000000002" });
    if let (Some(event), Value::Object(said)) = (event.as_object_mut(), example_step(step)) {
        event.extend(said);
    }
    event
}
