//! What producers are posted, for the document alone: no request of this form comes here.

use chrono::{DateTime, Utc};
use dispatch::order_feed::StepData;
use model::order::OrderStep;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema, openapi::OpenApi as Document};
use uuid::Uuid;

use super::openapi::example_step;

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
/// Sent to the producer that the order belongs to, if it subscribes to this step (`[producers.NAME]`). It may come more than
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
    Value::Object(webhooks.into_iter().collect())
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
