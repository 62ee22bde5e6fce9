//! Records the verdict of each admission request, to help with tuning the thresholds. Updates metrics and hourly
//! counts. Also writes one log line and one row for each request that only shadow mode admitted.
//!
//! A client that checks before it creates an order sends two requests, so checks and creations are counted separately.

use jobs::OrderId;
use metrics::counter;
use model::{
    admission::{
        decide::AdmissionCaller,
        limits::LoyaltyLevel,
        verdicts::{self, AdmissionSource, RefusalCause, RequestVerdict},
    },
    ids::{AreaId, ServiceType},
    plain_text,
};

use crate::{
    capability::Areas,
    label,
    tally::{CountedRequest, ShadowCheck},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceRequest<'a> {
    pub(super) source: AdmissionSource,
    /// `None`: outside all areas.
    pub(super) area: Option<&'a AreaId>,
    pub(super) service_type: &'a ServiceType,
    pub(super) caller: AdmissionCaller<'a>,
    /// Order that needs the place; `None` for a check.
    pub(super) order: Option<&'a OrderId>,
}

/// Load of the area at the time of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AreaCount {
    /// Number of waiting orders; `None`: unknown.
    pub waiting: Option<i64>,
    pub threshold: i64,
}

/// Counts a request with its final verdict.
pub(super) fn record_verdict(areas: &Areas, request: PlaceRequest<'_>, verdict: RequestVerdict, met: AreaCount) {
    count_metrics(request, verdict);
    let now = areas.core.database_clock.now();
    areas.tally.record_request(
        now,
        CountedRequest {
            area: request.area.cloned(),
            service_type: request.service_type.clone(),
            source: request.source,
            verdict,
            loyalty: request.caller.loyalty,
            waiting: met.waiting.map(verdicts::waiting_level),
        },
    );
    let (RequestVerdict::WouldRefuse, Some(area)) = (verdict, request.area) else { return };
    let channel = request.caller.channel.filter(|name| is_kept(name));
    tracing::info!(
        order.id = request.order.map(OrderId::as_str),
        area.id = area.as_str(),
        service_type = request.service_type.as_str(),
        source = request.source.as_str(),
        waiting = met.waiting,
        threshold = met.threshold,
        channel,
        loyalty = request.caller.loyalty.map(LoyaltyLevel::as_str),
        "Shadow mode let in a request that would have been refused."
    );
    // For a creation, this row was already written with the order.
    if request.source == AdmissionSource::Check {
        areas.tally.record_shadow(ShadowCheck {
            at: now,
            area: area.clone(),
            service_type: request.service_type.clone(),
            waiting: met.waiting,
            threshold: met.threshold,
            channel: channel.map(str::to_owned),
            loyalty: request.caller.loyalty,
        });
    }
}

/// Returns whether the channel's name can be stored. A check accepts any text as its channel.
fn is_kept(channel: &str) -> bool {
    (1..=64).contains(&channel.len()) && plain_text::is_plain(channel)
}

fn count_metrics(request: PlaceRequest<'_>, verdict: RequestVerdict) {
    let area = ("area_id", label::label_of(request.area));
    let service = ("service_type", request.service_type.to_string());
    let source = ("source", request.source.as_str().to_owned());
    let loyalty = ("loyalty", request.caller.loyalty.map_or("none", LoyaltyLevel::as_str).to_owned());
    if verdict.cause() == Some(RefusalCause::Threshold) {
        counter!("dispatcher_threshold_reached_total", &[area.clone(), service.clone()]).increment(1);
    }
    match verdict {
        RequestVerdict::Taken => {}
        RequestVerdict::Bypassed => {
            counter!("dispatchq_bypasses_total", &[area, service, source, loyalty]).increment(1);
        }
        RequestVerdict::WouldRefuse => {
            counter!("dispatchq_shadow_rejects_total", &[area, service, source, loyalty]).increment(1);
        }
        RequestVerdict::Refused(cause) => {
            if cause.is_server_busy() {
                let reason = ("reason", "server_busy".to_owned());
                counter!("dispatcher_cancel_total", &[area.clone(), service.clone(), reason]).increment(1);
            }
            let cause = ("cause", cause.as_str().to_owned());
            counter!("dispatchq_refusals_total", &[area, service, source, cause]).increment(1);
        }
    }
}
