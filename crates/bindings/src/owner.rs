//! The name of one write of a binding.

use crate::capability::Bindings;
use std::sync::Arc;

/// Bytes of a process' name that are part of an owner's name. Its column holds 200.
const MOST_OF_NAME: usize = 100;

/// Returns a name for one write, by which its maker recognizes it.
pub fn new_owner(bindings: &Bindings) -> Arc<str> {
    let process = if bindings.config.worker.name.is_empty() { "dispatchq" } else { &bindings.config.worker.name };
    let process = &process[..process.floor_char_boundary(MOST_OF_NAME)];
    format!("{process}:{}", uuid::Uuid::now_v7().simple()).into()
}
