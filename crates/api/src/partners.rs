//! Administration of partners: `/api/v1/partners`.

use axum::{
    Json,
    extract::{FromRequestParts, Path, State},
    http::{StatusCode, request::Parts},
    response::Response,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    error::{ApiError, StaffError},
    idempotency::IdempotencyHeader,
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
    orders::STAFF,
    reason::StaffReason,
};
use accounts::api_keys::AccountRole;
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::ids::PartnerName;
use partner::client::{
    overview::{self, PartnerOverview},
    settings,
};

const WRITERS: [AccountRole; 1] = [AccountRole::Operator];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_partners)).routes(routes!(change_partner))
}

/// The partner that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("partner"), parameter_in = Path)]
pub(crate) struct PartnerPath(
    /// Name of the partner in the configuration: `[partners.NAME]`.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_.-]{1,64}$", example = "bbd")]
    String,
);

impl<S: Send + Sync> FromRequestParts<S> for PartnerPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name)).map_err(|rejection| ApiError::Malformed(rejection.body_text()))
    }
}

/// A partner and its current state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Partner)]
struct PartnerView {
    partner: String,
    /// Address without its password.
    url: String,
    /// `normal`, `stopped` (the partner is not called for `open_for_ms`) or `trying`.
    calls: &'static str,
    open_for_ms: u64,
    failures_in_a_row: u32,
    /// Cause of the last failure; empty if none is known.
    last_failure: String,
    /// Percentage of orders whose job id is polled from the partner.
    polling_percent: u8,
    /// False if the percentage is that of the configuration.
    polling_percent_set_at_run_time: bool,
    /// Number of orders without a driver.
    searching: i64,
    /// Number of bookings whose cancellation the partner has not confirmed.
    cancels_open: i64,
}

impl From<PartnerOverview> for PartnerView {
    fn from(row: PartnerOverview) -> Self {
        Self {
            partner: row.partner.to_string(),
            url: row.url,
            calls: row.calls,
            open_for_ms: row.open_for_ms,
            failures_in_a_row: row.failures_in_a_row,
            last_failure: row.last_failure,
            polling_percent: row.polling_percent,
            polling_percent_set_at_run_time: row.polling_percent_set_at_run_time,
            searching: row.searching,
            cancels_open: row.cancels_open,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct PartnerList {
    partners: Vec<PartnerView>,
}

/// Lists the configured partners with the state of their calls and their open work.
#[utoipa::path(get, path = "/", tag = "partners", extensions(("x-roles" = json!(STAFF))),
    responses(
        (status = 200, description = "success", body = PartnerList, example = json!({ "partners": [example_partner()] })),
        CallErrors,
    ))]
async fn list_partners(State(app): State<App>, caller: ApiCaller) -> Result<Json<PartnerList>, ApiError> {
    caller.require_role(&STAFF)?;
    let app = caller.reading(app);
    let partners = overview::list_partners(&app.partners).await?;
    Ok(Json(PartnerList { partners: partners.into_iter().map(PartnerView::from).collect() }))
}

/// Change of a partner at run time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PartnerChange {
    /// Percentage of orders whose job id is polled from the partner; null restores the configured value.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required, minimum = 0, maximum = 100)]
    polling_percent: Option<u8>,
    /// Reason, kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Sets the percentage of a partner's orders whose job id is polled.
///
/// It applies to every later booking, on all replicas.
#[utoipa::path(patch, path = "/{partner}", tag = "partners", params(PartnerPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = PartnerChange, example = json!({ "polling_percent": 50, "reason": "the next stage" })),
    responses((status = 200, description = "success", body = PartnerView, example = json!(example_partner())), CallErrors))]
async fn change_partner(call: KeyedCall<PartnerPath, PartnerChange>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: PartnerPath(name), value: PartnerChange { polling_percent, reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let reason = reason.check(caller)?;
    if polling_percent.is_some_and(|percent| percent > 100) {
        return Err(ApiError::invalid_member("polling_percent", "polling_percent must be 0 to 100"));
    }
    let known = app.partners.registry.get(&PartnerName::from(name.as_str()));
    let unknown = || StaffError::NoSuchPartner(name.chars().take(64).collect());
    let partner = known.ok_or_else(unknown)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        settings::set_percent(&app.core.db, &partner.name, polling_percent, by).await?;
        let changed = overview::describe_partner(&app.core, partner).await?;
        Ok::<_, ApiError>((StatusCode::OK, json!(PartnerView::from(changed))))
    };
    request.run_once("change partner", partner.name.as_bytes(), work).await
}

fn example_partner() -> Value {
    json!({
        "partner": "bbd", "url": "https://dispatch.example.com/api", "calls": "normal", "open_for_ms": 0,
        "failures_in_a_row": 0, "last_failure": "", "polling_percent": 50, "polling_percent_set_at_run_time": true,
        "searching": 3, "cancels_open": 0,
    })
}
