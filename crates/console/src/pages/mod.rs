//! One file per page, with its actions.
//!
//! * [`sign_in`]: sign-in and sign-out. [`oidc`]: sign-in at a provider of OpenID Connect. [`language`]: switch between
//!   languages.
//! * [`now`]: the overview page, with [`now_figures`] and [`now_system`]. [`charts`]: curves of an hour, a day or a week.
//! * [`search`]: search from the frame of every page. [`orders`]: list of orders, with
//!   [`order_filter`] and [`saved_filters`]. [`scheduled`]: scheduled orders by hour. [`order`]: one order. [`desk`]: orders that
//!   wait for a person. [`order_map`]: map of an order. [`ranking`]: drivers considered for an order. [`new_order`]:
//!   creation of an order by hand. [`change_order`]: change of its contents. [`order_form`]: the fields of both forms.
//! * [`refunds`], [`alerts`]: work of support. [`areas`], [`area`]: areas. [`admission`]: the flag of admission.
//!   [`drivers`], [`driver`]: drivers. [`driver_link`]: one-time link of a driver. [`fleet_map`]: map of the fleet. [`phone`]: a driver's phone number.
//!   [`contact`]: the contact of an order. [`partners`]: partners.
//! * [`roles`]: roles that pages admit. [`rows`]: rows, forms and queries that pages share.
//! * [`changes`]: stream that reports changed rows.
//! * [`engine`]: queues, dead jobs. [`workers`]: workers and their drains. [`living_jobs`]: jobs of a queue. [`job_actions`]: actions on one
//!   job. [`outbox`]: messages. [`message`]: one message. [`control`]: plans
//!   and sessions. [`plan`]: one plan. [`keys`]: keys. [`users`]: staff who receive messages.
//!   [`webhooks`]: webhook endpoints of producers. [`bindings`]: bindings.
//!   [`audit`]: audit trail. [`proof`]: proof of the history, with its violations.

mod admission;
mod alerts;
mod area;
mod areas;
mod audit;
mod bindings;
mod change_order;
mod changes;
mod charts;
mod contact;
mod control;
mod desk;
mod driver;
mod driver_link;
mod drivers;
mod engine;
mod fleet_map;
mod job_actions;
mod keys;
pub(crate) mod language;
mod living_jobs;
mod message;
pub(crate) mod new_order;
mod now;
mod now_figures;
mod now_system;
mod oidc;
mod order;
mod order_filter;
mod order_form;
mod order_map;
mod orders;
mod outbox;
mod partners;
mod phone;
mod plan;
mod proof;
mod ranking;
mod refunds;
mod roles;
pub(crate) mod rows;
mod saved_filters;
mod scheduled;
mod scope_form;
pub(crate) mod search;
mod sign_in;
mod users;
mod webhooks;
mod workers;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{get, post},
};

use crate::assets;
use app::App;

/// Returns all routes. The path of a form starts with the path of the page that shows it. Each handler checks its
/// roles.
pub(crate) fn routes(base: &str) -> Router<App> {
    let at = |path: &str| format!("{base}{path}");
    let order_form_limit = DefaultBodyLimit::max(order_form::MOST_BYTES);
    Router::new()
        .route(base, get(now::show_page))
        .route(&at("/"), get(sign_in::to_first_page))
        .route(&at("/assets/{name}"), get(assets::serve_asset))
        .route(&at("/login"), get(sign_in::show_page).post(sign_in::sign_in))
        .route(&at("/oidc/start"), get(oidc::begin_sign_in))
        .route(&at(oidc::CALLBACK), get(oidc::finish_sign_in))
        .route(&at("/logout"), post(sign_in::sign_out))
        .route(&at("/language"), post(language::choose_language))
        .route(&at("/changes"), get(changes::stream_changes))
        .route(&at("/orders"), get(orders::show_page))
        .route(&at("/orders/filters/save"), post(saved_filters::save_filter))
        .route(&at("/orders/filters/delete"), post(saved_filters::delete_filter))
        .route(&at("/orders/{id}"), get(order::show_page))
        .route(&at("/orders/{id}/refund-start"), post(refunds::start_refund))
        .route(&at("/orders/{id}/refund-done"), post(refunds::finish_refund))
        .route(&at("/orders/{id}/cancel"), post(order::cancel_order))
        .route(&at("/orders/{id}/take"), post(desk::take_order))
        .route(&at("/orders/{id}/leave"), post(desk::leave_order))
        .route(&at("/orders/{id}/contents"), get(change_order::show_page))
        .route(
            &at("/orders/{id}/contents/change"),
            get(change_order::to_form).post(change_order::change_order).layer(order_form_limit),
        )
        .route(
            &at("/orders/{id}/contents/rows"),
            get(change_order::to_form).post(change_order::add_rows).layer(order_form_limit),
        )
        .route(&at("/orders/{id}/{action}"), post(order::act_on_order))
        .route(&at(search::PATH), get(search::show_page))
        .route(&at("/new-order"), get(new_order::show_page))
        .route(&at("/new-order/create"), get(new_order::to_form).post(new_order::create_order).layer(order_form_limit))
        .route(&at("/new-order/rows"), get(new_order::to_form).post(new_order::add_rows).layer(order_form_limit))
        .route(&at("/scheduled"), get(scheduled::show_page))
        .route(&at("/desk"), get(desk::show_page))
        .route(&at("/refunds"), get(refunds::show_page))
        .route(&at("/refunds.csv"), get(refunds::export_csv))
        .route(&at("/alerts"), get(alerts::show_page))
        .route(&at("/alerts/ack"), post(alerts::acknowledge_several))
        .route(&at("/alerts/{id}/ack"), post(alerts::acknowledge_alert))
        .route(&at("/areas"), get(areas::show_areas))
        .route(&at("/orders/{id}/contact"), get(contact::to_order).post(contact::show_contact))
        .route(&at("/areas/{id}"), get(area::show_page))
        .route(&at("/areas/{id}/override"), post(areas::set_override))
        .route(&at("/areas/{id}/threshold"), post(areas::set_threshold))
        .route(&at("/admission/flag"), post(admission::set_flag))
        .route(&at("/map"), get(fleet_map::show_page))
        .route(&at("/drivers"), get(drivers::show_drivers))
        .route(&at("/drivers/{id}"), get(driver::show_page))
        .route(&at("/fleet/create"), post(drivers::create_driver))
        .route(&at("/drivers/{id}/change"), post(drivers::change_driver))
        .route(&at("/drivers/{id}/phone"), get(phone::to_driver).post(phone::show_phone))
        .route(&at("/drivers/{id}/sign-in-link"), get(phone::to_driver).post(driver_link::create_link))
        .route(&at("/drivers/{id}/{action}"), post(drivers::set_driver))
        .route(&at("/partners"), get(partners::show_page))
        .route(&at("/partners/{name}/share"), post(partners::set_share))
        .route(&at("/charts"), get(charts::show_page))
        .route(&at("/queues"), get(engine::show_queues))
        .route(&at("/queues/{queue}/{action}"), post(engine::set_queue))
        .route(&at("/workers"), get(workers::show_page))
        .route(&at("/workers/{id}/{action}"), post(workers::set_worker))
        .route(&at("/jobs"), get(living_jobs::show_page))
        .route(&at("/jobs/{id}/{action}"), post(job_actions::act_on_job))
        .route(&at("/dead"), get(engine::show_dead))
        .route(&at("/dead/plan"), post(engine::plan_dead))
        .route(&at("/dead/{id}/{action}"), post(engine::decide_dead))
        .route(&at("/outbox"), get(outbox::show_outbox))
        .route(&at("/outbox/{id}"), get(message::show_page))
        .route(&at("/outbox/{id}/replay"), post(outbox::replay_message))
        .route(&at("/bindings"), get(bindings::show_bindings))
        .route(&at("/bindings/{id}"), get(bindings::show_page))
        .route(&at("/bindings/{id}/otp"), post(bindings::submit_otp))
        .route(&at("/bindings/{id}/{action}"), post(bindings::command_binding))
        .route(&at("/plans"), get(control::show_plans))
        .route(&at("/plans/{id}"), get(plan::show_page))
        .route(&at("/plans/{id}/{action}"), post(control::change_plan))
        .route(&at("/audit"), get(audit::show_page))
        .route(&at("/proof"), get(proof::show_list))
        .route(&at("/proof/{id}"), get(proof::show_violation))
        .route(&at("/sessions"), get(control::show_sessions))
        .route(&at("/sessions/{id}/end"), post(control::end_session))
        .route(&at("/users"), get(users::show_page))
        .route(&at("/users/save"), post(users::save_user))
        .route(&at("/users/{id}/{action}"), post(users::change_user))
        .route(&at("/webhooks"), get(webhooks::show_endpoints))
        .route(&at("/webhooks/create"), get(webhooks::to_endpoints).post(webhooks::create_endpoint))
        .route(&at("/webhooks/{id}"), get(webhooks::show_deliveries))
        .route(&at("/webhooks/{id}/rotate"), get(webhooks::to_endpoints).post(webhooks::rotate_secret))
        .route(&at("/webhooks/{id}/{action}"), post(webhooks::change_endpoint))
        .route(&at("/keys"), get(keys::show_keys))
        .route(&at("/keys/create"), get(keys::to_keys).post(keys::create_key))
        .route(&at("/keys/{id}/revoke"), post(keys::revoke_key))
        .route(&at("/keys/{id}/scope"), post(keys::set_scope))
}
