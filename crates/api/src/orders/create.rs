//! Creation of orders, by the requests of producers and staff and by the form of the console.

use axum::{
    extract::{FromRef, FromRequestParts, State},
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use metrics::counter;
use serde_json::{Value, json};

use super::{load_order, may_see, payments, tracking};
use crate::{
    auth::ApiCaller,
    body::RawBody,
    busy::BusyReply,
    dispatcher,
    error::ApiError,
    etag::etag_header,
    idempotency::{self, IdempotencyHeader, OnceAnswer, WorkContext},
    openapi::{CallErrors, example_busy, example_order},
};
use accounts::api_keys::AccountRole;
use app::App;
use model::{
    admission::answer::{AdmissionAnswer, ReplyLanguage},
    order::Snapshot,
    texts::LanguageTag,
    view::OrderView,
};
use orders::create::{self, CreateError, NewOrder};

/// Roles that create orders: producers, and staff for bookings by phone.
const CREATORS: [AccountRole; 3] = [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Support];

/// Creates an order.
#[utoipa::path(post, path = "/", tag = "orders", params(IdempotencyHeader), extensions(("x-roles" = json!(CREATORS))),
    request_body(content = NewOrder,
        example = json!({ "order_id": "ORD-1", "service_type": "RIDE", "payment_status": "PAID", "amount_minor": 150_000,
                          "pickup": { "latitude": -6.2088, "longitude": 106.8456 }, "currency": "IDR",
                          "customer_id": "CUS-1", "language": "id", "notes": "Ring twice.",
                          "dropoff": { "latitude": -6.1754, "longitude": 106.8272, "address": "Jalan Merdeka 1" },
                          "metadata": { "crm_id": "7" } })),
    responses(
        (status = 201, description = "success", body = OrderView,
         headers(("Warning" = Option<String>, description = "the payment status is unknown; support is notified"),
                 ("ETag" = String, description = "the version of the contents")),
         example = json!(example_order())),
        CallErrors,
        (status = 503, description = "no room, jobs are late, or admission cannot be checked; try again later", body = BusyReply,
         content_type = "application/problem+json",
         headers(("Retry-After" = u64, description = "seconds to wait")),
         example = json!(example_busy())),
    ))]
pub(super) async fn create_order(
    State(app): State<App>,
    OrderingCaller(caller): OrderingCaller,
    headers: HeaderMap,
    RawBody { bytes, value: new }: RawBody<NewOrder>,
) -> Result<Response, ApiError> {
    caller.require_role(&CREATORS)?;
    let key = idempotency::idempotency_key(&headers)?;
    // A refusal is shown to the customer, so it has the customer's language.
    let asked = new.language.as_ref().and_then(LanguageTag::known_language);
    let language = asked.unwrap_or_else(|| dispatcher::accepted_language(&headers, ReplyLanguage::default()));
    let creation = CreationRequest { key: key.as_deref(), new: &new, bytes: &bytes, language };
    let tracking_key = tracking::load_key(&app).await.map_err(|error| service_unavailable(error, language))?;
    let mut created = create_once(&app, &caller, creation).await?;
    if let Some(key) = tracking_key {
        tracking::add_link(&app, key, &mut created.answer.1);
    }
    // The contents of a new order have the version 0. An order that was created before may have later contents.
    let etag = (!created.is_replayed).then(|| etag_header(0));
    let answer = payments::with_warning(created.into_response(), &new.payment_status);
    Ok(match etag {
        Some(etag) => (etag, answer).into_response(),
        None => answer,
    })
}

/// A request to create an order.
#[derive(Debug, Clone, Copy)]
pub struct CreationRequest<'a> {
    /// Idempotency key.
    pub key: Option<&'a str>,
    pub new: &'a NewOrder,
    /// Body of the request. With one key, equal bytes are the same request.
    pub bytes: &'a [u8],
    /// Language of a refusal by admission.
    pub language: ReplyLanguage,
}

/// Creates the order, unless the caller's earlier request with the same key created it. The caller checks the role.
pub async fn create_once(app: &App, caller: &ApiCaller, creation: CreationRequest<'_>) -> Result<OnceAnswer, ApiError> {
    let CreationRequest { key, new, bytes, language } = creation;
    let request: [&[u8]; 2] = [b"create", bytes];
    if app.orders.refuses_creation() {
        let answer = idempotency::find_answer(&app.accounts.idempotency, caller, key, &request).await;
        return answer.map_err(|error| service_unavailable(error, language))?.ok_or_else(refuse_creation);
    }
    let actor = caller.actor();
    if let (Some(key), Some(holder)) = (key, caller.holder_id())
        && create::keeps_keys(&app.orders, new)
    {
        let key = idempotency::key_of_creation(holder, key, &request);
        let id = new.order_id.clone().unwrap_or_else(|| NewOrder::id_of(&app.config.ids.prefix, key.work_id));
        match create::create_order_once(&app.orders, id, new, &actor, key).await {
            Ok(snapshot) => return Ok(OnceAnswer::new((StatusCode::CREATED, created_json(new, &snapshot)))),
            // The order may exist because of an earlier request with this key. The code below decides.
            Err(CreateError::Exists(_) | CreateError::Refused(_)) => {}
            Err(error) => {
                let error = ApiError::from(error);
                if error.is_unavailable() {
                    create::record_undecided(&app.orders, new);
                }
                return Err(service_unavailable(error, language));
            }
        }
    }
    let work = async |work: WorkContext| {
        let id = new.order_id.clone().unwrap_or_else(|| NewOrder::id_of(&work.id_prefix, work.id));
        let snapshot = match create::create_order(&app.orders, id, new, &actor).await {
            // An earlier request with this Idempotency-Key created the order, and its answer was lost.
            Err(CreateError::Exists(id)) if work.resumed => {
                let made = load_order(&app.core, &id).await?;
                if !new.matches_order(&made.order) || !may_see(&app.config, caller, &made.order) {
                    return Err(CreateError::Exists(id).into());
                }
                made
            }
            Err(CreateError::Refused(answer)) => return Err(ApiError::NoRoom(answer, language)),
            other => other?,
        };
        Ok((StatusCode::CREATED, created_json(new, &snapshot)))
    };
    let created = idempotency::answer_once(&app.accounts.idempotency, caller, key, &request, work).await;
    // The error is converted only here. Inside the work it would count as final and release the key, although the
    // result is unknown.
    created.map_err(|error| {
        if error.is_unavailable() {
            create::record_undecided(&app.orders, new);
        }
        service_unavailable(error, language)
    })
}

fn refuse_creation() -> ApiError {
    counter!("dispatchq_creations_refused_total").increment(1);
    ApiError::LateWork
}

/// The caller who creates an order. If the caller cannot be looked up, the answer follows the server-busy requirement.
pub(super) struct OrderingCaller(ApiCaller);

impl<S> FromRequestParts<S> for OrderingCaller
where
    App: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let language = dispatcher::accepted_language(&parts.headers, ReplyLanguage::default());
        let caller = ApiCaller::from_request_parts(parts, state).await;
        caller.map(Self).map_err(|error| service_unavailable(error, language))
    }
}

/// Replaces an error of Postgres by DISPATCHER_SERVICE_UNAVAILABLE. Source: the server-busy requirement, appendix B.
fn service_unavailable(error: ApiError, language: ReplyLanguage) -> ApiError {
    if !error.is_unavailable() {
        return error;
    }
    tracing::error!(error = error.log_reason(), "An order could not be created because of an error of Postgres.");
    ApiError::NoRoom(Box::new(AdmissionAnswer::Unavailable), language)
}

fn created_json(new: &NewOrder, snapshot: &Snapshot) -> Value {
    json!(OrderView::from(snapshot).with_details(new.details()))
}
