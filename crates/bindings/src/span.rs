//! The tracing span of a job or request for one binding. Its log lines name the binding, its server and its account.
//! The transaction, its cycle, the action and the result are added when they are known.

use model::binding::{Binding, BindingChange, ProviderCall, TransactionHeader};
use tracing::{
    Span,
    field::{Empty, display},
};

/// Returns a span for a binding. `settled` is the earlier transaction that the job settles.
pub fn open_span(binding: &Binding, settled: Option<&TransactionHeader>) -> Span {
    let (server, account) =
        settled.map_or((&binding.server_id, &binding.account_id), |header| (&header.server_id, &header.account_id));
    let span = tracing::error_span!(
        "binding",
        binding_id = %binding.id, server_id = %server, account_id = %account,
        trx_id = Empty, cycle = Empty, action = Empty, result = Empty
    );
    match (settled, &binding.trx_id) {
        (Some(header), _) => record_transaction(&span, header.trx_id.as_str(), header.cycle),
        (None, Some(trx_id)) => {
            let cycle = trx_id.parts().map_or(binding.cycle, |(_, cycle)| cycle);
            record_transaction(&span, trx_id.as_str(), cycle);
        }
        (None, None) => {}
    }
    span
}

/// Adds the claimed call to the current span.
pub(super) fn record_call(before: &Binding, call: &ProviderCall) {
    let span = Span::current();
    if before.trx_id.is_none() && call.cycle > before.cycle {
        record_transaction(&span, call.trx_id.as_str(), call.cycle);
    }
    span.record("action", display(call.action));
}

/// Adds the provider's answer to the current span.
pub(super) fn record_result(result: &str) {
    Span::current().record("result", display(result));
}

/// Adds a change to the current span. A provider's answer did not cause the change.
pub fn record_change(before: &Binding, change: &BindingChange, after: &Binding) {
    let span = Span::current();
    if before.trx_id.is_none() {
        span.record("cycle", after.cycle);
    }
    let action = change.events.first().map_or("update", |event| event.kind.as_str());
    span.record("action", display(action)).record("result", display(after.state));
}

fn record_transaction(span: &Span, trx_id: &str, cycle: i64) {
    span.record("trx_id", display(trx_id)).record("cycle", cycle);
}
