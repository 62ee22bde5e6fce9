//! The API as OpenAPI 3.1, made from the description next to each handler. Routes are added with `routes!`, so none can lack its
//! description. tests/baseline compares what the document means with the last release.

mod error_answers;
mod example;
mod service_types;

use std::sync::{Arc, LazyLock};

use axum::{
    Extension,
    http::{HeaderName, header::CONTENT_TYPE},
};
use serde_json::{Value, json};
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
    error_answers::{AreaErrors, CallErrors, PageErrors, ProbeErrors},
    example::{
        example_alert, example_area, example_area_limits, example_area_report, example_busy, example_cancelled,
        example_collection, example_flag, example_location, example_order, example_place, example_status, example_step,
        example_ticket,
    },
};

/// What is served where, as OpenAPI 3.1.
pub static OPENAPI: LazyLock<String> = LazyLock::new(|| {
    let mut document =
        super::sheddable_routes().merge(super::steady_routes()).merge(super::probe_routes()).into_openapi();
    let webhooks = webhooks::describe_webhooks(&mut document);
    DocumentFinish.modify(&mut document);
    let mut document = json!(document);
    document["webhooks"] = webhooks;
    service_types::name_service_types(&mut document, &Config::defaults());
    write_document(&document)
});

/// What the document says of the API as a whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "dispatchq",
        description = "Order dispatch that survives its own crashes. Errors are application/problem+json (RFC 9457) with \
                       {error_code, message} beside; GET /errors/{code} says what a code means. A refusal for want of room has \
                       the fields of the requirement beside them. Service types are those of \
                       the configuration. Every answer has an X-Request-Id: the one of the request if it \
                       brought one (1 to 64 letters, digits, '-', '_', '.' or ':'), or a new one; log lines about the request \
                       show it. `x-roles` names the roles whose keys may call an operation. Fields that an operation \
                       does not know are not read, but where it says otherwise; X-Ignored-Fields of the answer names them."
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
    // Schemas and paths are texts, numbers, lists and maps by name.
    serde_json::to_string_pretty(document).expect("a document of plain values is JSON") + "\n"
}

/// Returns this document.
#[utoipa::path(get, path = "/openapi.json", tag = "document", security(()),
    responses((status = 200, description = "done", body = Object), ProbeErrors))]
pub(crate) async fn serve_document(
    Extension(document): Extension<ServedDocument>,
) -> ([(HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, "application/json")], document.0.as_ref().to_owned())
}

/// Adds what all operations have in common.
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
            add_request_id(answer);
        }
        drop_defaults(components);
        for operation in document.paths.paths.values_mut().flat_map(list_operations) {
            add_admin_role(operation);
            add_replay_header(operation);
            for parameter in operation.parameters.iter_mut().flatten() {
                forbid_null(parameter);
            }
            operation.responses.responses.values_mut().for_each(add_request_id);
            let body = operation.request_body.iter_mut().flat_map(|body| body.content.values_mut());
            for schema in body.filter_map(|content| content.schema.as_mut()) {
                leave_out_null(schema);
            }
        }
    }
}

fn list_operations(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut path.get, &mut path.put, &mut path.post, &mut path.delete, &mut path.patch].into_iter().flatten()
}

/// Admin may do what any role may. The description says the roles to readers, `x-roles` to programs.
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

/// What takes an Idempotency-Key says of a success whether it is the answer of an earlier request.
fn add_replay_header(operation: &mut Operation) {
    let takes_key = operation.parameters.iter().flatten().any(|parameter| parameter.name == "Idempotency-Key");
    let successes = operation.responses.responses.iter_mut().filter(|(status, _)| takes_key && status.starts_with('2'));
    for (_, answer) in successes {
        add_header(answer, "Idempotency-Replayed", "true: the answer of the first request");
    }
    if takes_key && let Some(created) = operation.responses.responses.get_mut("201") {
        add_header(created, "Location", "the path of what was created");
    }
}

fn add_request_id(answer: &mut RefOr<Response>) {
    add_header(answer, "X-Request-Id", "the id of the request in the logs");
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

/// A body that may be left out is described as an `Option`; JSON null is refused all the same.
fn leave_out_null(schema: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::OneOf(OneOf { items, .. })) = schema
        && let Some(at) = items.iter().position(|item| matches!(item, RefOr::Ref(_)))
    {
        *schema = items.swap_remove(at);
    }
}

/// A header or a part of the path that may be left out is an `Option`, too. It is a text, never null.
fn forbid_null(parameter: &mut Parameter) {
    if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &object.schema_type
        && let Some(one) = types.iter().find(|one| **one != Type::Null)
    {
        object.schema_type = SchemaType::Type(one.clone());
    }
}

/// Limits are read with the defaults of their types, which mean that nothing was said.
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
