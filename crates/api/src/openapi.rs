//! The OpenAPI 3.1 document, generated from the descriptions at the handlers. Routes are added with `routes!`, so that
//! each has a description. tests/baseline compares the document with that of the last release.

mod audience;
mod error_answers;
mod example;
mod service_types;

use std::sync::{Arc, LazyLock};

use axum::{
    Extension,
    http::{HeaderName, header::CONTENT_TYPE},
};
use serde_json::{Map, Value, json};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Components, Header, HeaderBuilder, ObjectBuilder, OpenApi as Document, PathItem, RefOr, Response, Schema, Type,
        path::{Operation, Parameter},
        schema::{OneOf, SchemaType},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::webhooks;
use settings::Config;

pub(crate) use self::{
    error_answers::{AreaErrors, CallErrors, PageErrors, ProbeErrors, VersionErrors},
    example::{
        example_alert, example_area, example_area_limits, example_area_report, example_busy, example_cancelled,
        example_collection, example_flag, example_location, example_order, example_place, example_status, example_step,
        example_ticket,
    },
};

/// The OpenAPI 3.1 document as text.
pub static OPENAPI: LazyLock<String> = LazyLock::new(|| {
    let mut document =
        super::sheddable_routes().merge(super::steady_routes()).merge(super::probe_routes()).into_openapi();
    let webhooks = webhooks::describe_webhooks(&mut document);
    DocumentFinish.modify(&mut document);
    let mut document = json!(document);
    document["webhooks"] = webhooks;
    audience::add_audiences(&mut document);
    service_types::name_service_types(&mut document, &Config::defaults());
    write_document(&document)
});

/// Head of the document: title, description, servers and security.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "dispatchq",
        description = "Order dispatch that survives its own crashes. Errors are application/problem+json (RFC 9457) with the \
                       additional members error_code and message; GET /errors/{code} describes a code. A refusal because an \
                       area has no room also has the members that the requirement prescribes. The configuration defines the \
                       service types. Every answer has an X-Request-Id, which log lines about the request show. It is that of \
                       the request if the request has one (1 to 64 letters, digits, '-', '_', '.' or ':'), otherwise a new one. \
                       `x-roles` lists the roles whose keys may call an operation, and `x-audience` names the callers for whom it is \
                       made. Unless an operation states otherwise, it ignores unknown members; the header X-Ignored-Fields of \
                       the answer names them."
    ),
    servers((url = "/")),
    security(("key" = []))
)]
struct DocumentHead;

/// Returns the document without paths.
pub(crate) fn document_head() -> Document {
    DocumentHead::openapi()
}

/// The document with the service types of this configuration.
#[derive(Debug, Clone)]
pub(crate) struct ServedDocument(Arc<str>);

impl ServedDocument {
    pub(crate) fn new(config: &Config) -> Self {
        let mut document: Value = serde_json::from_str(&OPENAPI).unwrap_or_default();
        service_types::name_service_types(&mut document, config);
        Self(write_document(&document).into())
    }
}

fn write_document(document: &Value) -> String {
    // The document consists of strings, numbers, lists and maps with string keys.
    serde_json::to_string_pretty(document).expect("a document of plain values is JSON") + "\n"
}

/// Returns this document.
#[utoipa::path(get, path = "/openapi.json", tag = "document", security(()),
    extensions(("x-audience" = json!("everyone"))),
    responses((status = 200, description = "success", body = Object), ProbeErrors))]
pub(crate) async fn serve_document(
    Extension(document): Extension<ServedDocument>,
) -> ([(HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, "application/json")], document.0.as_ref().to_owned())
}

/// Adds the parts that all operations share.
struct DocumentFinish;

impl Modify for DocumentFinish {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("dispatchq apikey create NAME --role ROLE"))
            .build();
        components.add_security_scheme("key", SecurityScheme::Http(bearer));
        error_answers::add_error_answers(components);
        for answer in components.responses.values_mut() {
            add_common_headers(answer);
        }
        drop_defaults(components);
        for operation in document.paths.paths.values_mut().flat_map(list_operations) {
            add_admin_role(operation);
            add_replay_header(operation);
            for parameter in operation.parameters.iter_mut().flatten() {
                forbid_null(parameter);
            }
            operation.responses.responses.values_mut().for_each(add_common_headers);
            let body = operation.request_body.iter_mut().flat_map(|body| body.content.values_mut());
            for schema in body.filter_map(|content| content.schema.as_mut()) {
                leave_out_null(schema);
            }
        }
    }
}

fn operations_of(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut)
}

fn list_operations(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut path.get, &mut path.put, &mut path.post, &mut path.delete, &mut path.patch].into_iter().flatten()
}

/// Adds admin to the roles of an operation. The description names the roles for readers, `x-roles` for programs.
fn add_admin_role(operation: &mut Operation) {
    let listed = operation.extensions.as_mut().and_then(|extensions| extensions.get_mut("x-roles"));
    let Some(Value::Array(roles)) = listed else { return };
    roles.push(json!("admin"));
    let names: Vec<_> = roles.iter().filter_map(Value::as_str).collect();
    let said = format!("Roles: {}.", names.join(", "));
    operation.description = Some(match operation.description.take() {
        Some(text) => format!("{text}\n\n{said}"),
        None => said,
    });
}

/// Adds the headers of successful answers to an operation that takes an Idempotency-Key.
fn add_replay_header(operation: &mut Operation) {
    let takes_key = operation.parameters.iter().flatten().any(|parameter| parameter.name == "Idempotency-Key");
    let successes = operation.responses.responses.iter_mut().filter(|(status, _)| takes_key && status.starts_with('2'));
    for (_, answer) in successes {
        add_header(answer, "Idempotency-Replayed", "true if this is the stored answer of an earlier request");
    }
    if takes_key && let Some(created) = operation.responses.responses.get_mut("201") {
        add_header(created, "Location", "the path of the created resource");
    }
}

fn add_common_headers(answer: &mut RefOr<Response>) {
    add_header(answer, "X-Request-Id", "the id of the request in the logs");
    add_header(answer, "dispatchq-version", "the version of the API, as in this document");
}

fn add_header(answer: &mut RefOr<Response>, name: &str, meaning: &str) {
    if let RefOr::T(answer) = answer {
        answer.headers.insert(name.to_owned(), text_header(meaning));
    }
}

pub(crate) fn text_header(description: &str) -> Header {
    let text = ObjectBuilder::new().schema_type(Type::String).build();
    HeaderBuilder::new().schema(text).description(Some(description)).build()
}

/// Removes null from the schema of an optional body. It is described as an `Option`, but JSON null is refused.
fn leave_out_null(schema: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::OneOf(OneOf { items, .. })) = schema
        && let Some(at) = items.iter().position(|item| matches!(item, RefOr::Ref(_)))
    {
        *schema = items.swap_remove(at);
    }
}

/// Removes null from the schema of an optional header or parameter, which is always text.
fn forbid_null(parameter: &mut Parameter) {
    if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &object.schema_type
        && let Some(one) = types.iter().find(|one| **one != Type::Null)
    {
        object.schema_type = SchemaType::Type(one.clone());
    }
}

/// Removes the defaults of limits. They are the defaults of Rust types and mean that a limit is not set.
fn drop_defaults(components: &mut Components) {
    for limits in ["AreaLimits", "LimitsChange"] {
        let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(limits) else { continue };
        for property in object.properties.values_mut() {
            match property {
                RefOr::T(Schema::Object(object)) => object.default = None,
                RefOr::T(Schema::Array(array)) => array.default = None,
                _ => {}
            }
        }
    }
}
