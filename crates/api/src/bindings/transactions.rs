//! Transactions of a binding.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use model::binding::TransactionStatus;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    READERS, next_cursor, numbered_cursor, page_size,
    paths::{BindingPath, TransactionPath},
    views::{CallView, TransactionView, example_call, example_transaction, status_schema},
};
use crate::{auth::ApiCaller, error::ApiError, openapi::CallErrors};
use app::App;
use bindings::list;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TransactionQuery {
    /// Only transactions with this status.
    #[param(schema_with = status_schema)]
    status: Option<TransactionStatus>,
    /// The `next_cursor` of the previous page. Only earlier cycles are listed.
    #[param(minimum = 0)]
    cursor: Option<i64>,
    /// Maximum number of transactions per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TransactionPage {
    transactions: Vec<TransactionView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<i64>,
}

/// Lists the transactions of a binding, newest first, page by page.
#[utoipa::path(get, path = "/{id}/transactions", tag = "bindings", params(BindingPath, TransactionQuery),
    extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = TransactionPage,
         example = json!({ "transactions": [example_transaction()], "next_cursor": null })),
        CallErrors,
    ))]
pub(super) async fn list_transactions(
    State(app): State<App>,
    caller: ApiCaller,
    BindingPath(id): BindingPath,
    wanted: Result<Query<TransactionQuery>, QueryRejection>,
) -> Result<Json<TransactionPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(TransactionQuery { status, cursor, limit }) = wanted?;
    let cursor = numbered_cursor("cursor", cursor)?;
    let limit = page_size(limit)?;
    // A deleted binding still has transactions.
    app.bindings.rows.load_binding(&id).await?.ok_or(ApiError::NoSuchBinding)?;
    let headers = list::list_transactions(&app.core, &id, status, cursor, i64::from(limit)).await?;
    let next_cursor = next_cursor(&headers, limit, |header| header.cycle);
    Ok(Json(TransactionPage { transactions: headers.into_iter().map(TransactionView::from).collect(), next_cursor }))
}

/// A transaction with the records of its calls.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TransactionAnswer {
    transaction: TransactionView,
    /// The first calls of the transaction, at most 200.
    calls: Vec<CallView>,
}

/// Returns a transaction and the requests and responses of its calls.
///
/// The answer contains no keys or OTPs.
#[utoipa::path(get, path = "/{trx_id}", tag = "bindings", params(TransactionPath), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = TransactionAnswer,
         example = json!({ "transaction": example_transaction(), "calls": [example_call()] })),
        CallErrors,
    ))]
pub(super) async fn show_transaction(
    State(app): State<App>,
    caller: ApiCaller,
    TransactionPath(trx_id): TransactionPath,
) -> Result<Json<TransactionAnswer>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let found = list::find_transaction(&app.core, &trx_id).await?.ok_or(ApiError::NoSuchTransaction)?;
    let calls = found.calls.into_iter().map(CallView::from).collect();
    Ok(Json(TransactionAnswer { transaction: TransactionView::from(found.header), calls }))
}
