//! The job contracts: one file per job type, with its id, queue and retry policy. Producers link this crate.
//!
//! The handler of each job is in the crate `workers`, in a file of the same name. Nearly every job is a *timer*: it has
//! only its id, and a row decides the action when it fires.
//!
//! | file | queue | job | fires |
//! |---|---|---|---|
//! | [`dispatch`] | dispatch-queue | `dispatch:{order}:{n}` | when attempt n must start |
//! | [`timeout`] | dispatch-timeout-queue | `timeout:{order}:{n}` | when attempt n's deadline has passed |
//! | [`wave`] | dispatch-timeout-queue | `wave:{order}:{n}:{k}` | when wave k of attempt n must start |
//! | [`poll`] | jobid-poll-queue | `poll:{order}:{k}` | when a partner must be asked for the job id |
//! | [`details`] | jobid-poll-queue | `details:{order}:{n}` | when attempt n's booking has a new contact or places |
//! | [`callback`] | jobid-poll-queue | `callback:{order}:{inbox id}` | when a partner's callback must be processed |
//! | [`lifetime`] | lifetime-cancel-queue | `lifetime:{order}` | when the order's lifetime has passed |
//! | [`trip`] | lifetime-cancel-queue | `trip:{order}` | when a trip's next step is overdue |
//! | [`warn`] | lifetime-cancel-queue | `warn:{order}` | when an order has no driver shortly before its pickup |
//! | [`compensate`] | compensation-queue | `compensate:{order}` | as soon as an order is COMPENSATING |
//! | [`cancel_booking`] | compensation-queue | `cancel-booking:{order}:{n}` | when attempt n's booking is no longer wanted |
//! | [`refund`] | compensation-queue | `refund:{order}` | when the payment service must be asked for a refund |
//! | [`notify`] | notify-queue | `notify:{order or binding}:{outbox id}` | when a message must be sent (again) |
//! | [`escalate`] | notify-queue | `escalate:{order}:{alert id}` | when an alert was not acknowledged in time |
//! | [`remind`] | notify-queue | `remind:{order}:{alert id}` | when an order has waited for a dispatcher too long |
//! | [`alarm`] | notify-queue | `alarm:{order}:{channel}` | when an order's end could not be written; has a payload |
//! | [`tick`] | periodic-queue | `tick:{schedule}:{slot}` | when a schedule's next run is due |
//! | [`run_plan`] | periodic-queue | `plan:{plan}` | when the next items of a plan may run |
//! | [`cycle`] | binding-queue | `cycle:{binding}:{n}` | when cycle n must start or be checked, or a call of it was lost |
//! | [`otp`] | binding-queue | `otp:{binding}:{n}` | when cycle n has its OTP, or has waited for one too long |
//! | [`settle`] | binding-queue | `settle:{binding}:{n}` | when the provider is asked again how cycle n ended |
//!
//! The crate's README follows.
#![doc = include_str!("../README.md")]

pub mod alarm;
pub mod binding_id;
pub mod callback;
pub mod cancel_booking;
pub mod compensate;
pub mod cycle;
pub mod details;
pub mod dispatch;
pub mod escalate;
pub mod lifetime;
pub mod notify;
pub mod order_id;
pub mod otp;
pub mod poll;
pub mod queues;
pub mod refund;
pub mod remind;
pub mod run_plan;
pub mod settle;
pub mod subject_id;
pub mod tick;
pub mod timeout;
pub mod trip;
pub mod warn;
pub mod wave;

pub use alarm::SendAlarm;
pub use binding_id::{BindingId, InvalidBindingId};
pub use callback::ApplyCallback;
pub use cancel_booking::CancelBooking;
pub use compensate::CompensateOrder;
pub use cycle::RunCycle;
pub use details::SendDetails;
pub use dispatch::DispatchOrder;
pub use escalate::EscalateAlert;
pub use job_contract::{Job, JobId, NewJob};
pub use lifetime::ExpireOrder;
pub use notify::SendNotification;
pub use order_id::{InvalidOrderId, OrderId};
pub use otp::SubmitOtp;
pub use poll::PollPartner;
pub use refund::RefundOrder;
pub use remind::RemindDispatchers;
pub use run_plan::RunPlan;
pub use settle::SettleTransaction;
pub use subject_id::SubjectId;
pub use tick::PeriodicTick;
pub use timeout::ExpireAttempt;
pub use trip::ReportStaleTrip;
pub use warn::WarnOfPickup;
pub use wave::StartWave;
