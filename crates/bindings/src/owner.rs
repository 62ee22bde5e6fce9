//! Unique name of one write of a binding.

use crate::capability::Bindings;
use std::sync::Arc;

/// Maximum bytes of the process name within an owner's name. The column for the owner has 200 bytes.
const MOST_OF_NAME: usize = 100;

/// Returns a unique name, by which a writer recognizes its write.
pub fn new_owner(bindings: &Bindings) -> Arc<str> {
    let process = if bindings.config.worker.name.is_empty() { "dispatchq" } else { &bindings.config.worker.name };
    let process = &process[..process.floor_char_boundary(MOST_OF_NAME)];
    format!("{process}:{}", uuid::Uuid::now_v7().simple()).into()
}
