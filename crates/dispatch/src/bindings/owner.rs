//! The name of one write of a binding.

use std::sync::Arc;

use crate::app::App;

/// Bytes of a process' name that are part of an owner's name. Its column holds 200.
const MOST_OF_NAME: usize = 100;

/// Returns a name for one write, by which its maker recognizes it.
pub(super) fn new_owner(app: &App) -> Arc<str> {
    let process = if app.config.worker.name.is_empty() { "dispatchq" } else { &app.config.worker.name };
    let process = &process[..process.floor_char_boundary(MOST_OF_NAME)];
    format!("{process}:{}", uuid::Uuid::now_v7().simple()).into()
}
