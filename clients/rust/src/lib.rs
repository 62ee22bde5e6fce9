//! Client of dispatchq: creates orders, follows and cancels them. README.md has a first order.

mod client;
mod error;
mod events;
mod orders;
mod webhooks;

pub use client::{Client, Request, Retries};
pub use error::{ApiError, Error, FieldProblem};
pub use events::{EventPage, EventPages, StepData, StepEvent, StepPickup};
pub use orders::{
    CancelledOrder, Contact, NewOrder, NextStep, Order, OrderFilter, OrderRefund, Orders, PaymentEventRequest, Place,
    TimelineEvent,
};
pub use reqwest::Method;
pub use webhooks::{Verifier, WebhookError, WebhookEvent, verify_webhook};
