//! The audience of each operation: the callers for whom it is made. The page `/docs` groups operations by it.

use serde_json::{Value, json};

use super::operations_of;

/// Audiences with their roles. The first one with a role of the operation is its audience, because later ones have more
/// rights.
const AUDIENCES: [(&str, &[&str]); 5] = [
    ("producer", &["producer"]),
    ("driver", &["driver"]),
    ("staff", &["viewer", "dispatcher", "support"]),
    ("operator", &["operator"]),
    ("admin", &["admin"]),
];

/// Adds `x-audience` to operations with roles. Operations without roles name their audience at the handler.
pub(super) fn add_audiences(document: &mut Value) {
    for operation in operations_of(document) {
        let roles: Vec<_> = operation["x-roles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let may_call = |members: &&[&str]| members.iter().any(|role| roles.contains(role));
        let audience = AUDIENCES.iter().find(|(_, members)| may_call(members));
        if let Some((audience, _)) = audience {
            operation["x-audience"] = json!(audience);
        }
    }
}
