//! `Location` in answers to creations (RFC 9110, section 15.3.2).

use axum::{
    extract::Request,
    http::{HeaderValue, header::LOCATION},
    middleware::Next,
    response::Response,
};
use serde_json::Value;

/// Path of the created resource. An answer carries it to [`add_location`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CreatedResource {
    /// Id below the path of the request.
    Member(String),
    /// Id of a plan. Plans have one path, regardless of where they are created.
    Plan(String),
}

impl CreatedResource {
    /// Returns the resource that an answer describes. Ids need no escaping in a path.
    pub(crate) fn of_body(body: &Value) -> Option<Self> {
        if let Some(plan) = body["plan"]["id"].as_str() {
            return Some(Self::Plan(plan.to_owned()));
        }
        body["order_id"].as_str().or_else(|| body["id"].as_str()).map(|id| Self::Member(id.to_owned()))
    }

    fn path(&self, collection: &str) -> String {
        match self {
            Self::Member(id) => format!("{}/{id}", collection.trim_end_matches('/')),
            Self::Plan(id) => format!("/api/v1/admin/plans/{id}"),
        }
    }
}

/// Middleware that adds the `Location` of a created resource.
pub(crate) async fn add_location(request: Request, next: Next) -> Response {
    let collection = request.uri().path().to_owned();
    let mut answer = next.run(request).await;
    if let Some(created) = answer.extensions_mut().remove::<CreatedResource>()
        && let Ok(path) = HeaderValue::from_str(&created.path(&collection))
    {
        answer.headers_mut().insert(LOCATION, path);
    }
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Rule U14: The answer to every creation names the path of the created resource.
    #[test]
    fn created_resource_names_its_path() {
        for (body, collection, path) in [
            (json!({ "order_id": "ORD-1", "status": "DISPATCHING" }), "/api/v1/orders", Some("/api/v1/orders/ORD-1")),
            (json!({ "id": "DRV-9" }), "/api/v1/drivers/", Some("/api/v1/drivers/DRV-9")),
            (json!({ "plan": { "id": "01" } }), "/api/v1/bindings/actions", Some("/api/v1/admin/plans/01")),
            (json!({ "name": "anna" }), "/api/v1/admin/keys", None),
        ] {
            let created = CreatedResource::of_body(&body).map(|created| created.path(collection));
            assert_eq!(created.as_deref(), path, "{body}");
        }
    }
}
