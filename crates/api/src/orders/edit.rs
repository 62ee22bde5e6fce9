//! Changes to the contents of an order.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{
    super::{
        auth::ApiCaller,
        body::{JsonBody, OrderPath},
        error::ApiError,
        etag::{etag_header, expected_version},
        openapi::{VersionErrors, example_order},
    },
    CANCELLERS, may_see,
};
use app::App;
use model::{order_patch::OrderPatch, view::OrderView};
use orders::contents::{self, ContentsEdit};

/// Changes the contents of an order before the pickup.
///
/// The body is a JSON Merge Patch (RFC 7396): a member that is omitted stays, and null removes its value. A driver who
/// has the order is notified. Drivers with an offer get it again. The order stays in the area that admitted it, and the
/// next search uses the new pickup. The event is `order.updated`.
#[utoipa::path(patch, path = "/{id}", operation_id = "change_order", tag = "orders", extensions(("x-roles" = json!(CANCELLERS))),
    params(OrderPath,
           ("If-Match" = Option<String>, Header, pattern = "^\"[0-9]{1,18}\"$",
            description = "the version of the contents (ETag of GET); a different current version is answered 412")),
    request_body(content = OrderPatch,
        example = json!({ "dropoff": { "latitude": -6.1754, "longitude": 106.8272, "address": "Jalan Merdeka 1" },
                          "notes": null, "metadata": { "crm_id": "8" } })),
    responses(
        (status = 200, description = "success", body = OrderView,
         headers(("ETag" = String, description = "the version of the contents")),
         example = json!(example_order())),
        VersionErrors,
    ))]
pub(super) async fn edit_order(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    JsonBody(patch): JsonBody<OrderPatch>,
) -> Result<Response, ApiError> {
    caller.require_role(&CANCELLERS)?;
    let expected = expected_version(&headers)?;
    if let Some(broken) = patch.find_problem() {
        return Err(broken.into());
    }
    let actor = caller.actor();
    let edit = ContentsEdit { patch: &patch, expected, actor: &actor };
    let edited = contents::edit_contents(&app.orders, &id, edit, |order| may_see(&app.config, &caller, order)).await?;
    let view = OrderView::from(&edited.snapshot).with_details(edited.stored.contents.details);
    Ok((etag_header(edited.stored.version), Json(view)).into_response())
}
