//! History events that are sent to producers.

use model::{
    messages::{
        self,
        body::{MessageBody, StepBody},
    },
    order::{EventReason, OrderStatus, OrderStep, state},
};

#[test]
fn step_names_are_equal_everywhere() {
    for step in OrderStep::ALL {
        assert_eq!(serde_json::to_value(step).unwrap(), step.as_str());
        let body = StepBody {
            event: step,
            version: messages::STEP_VERSION,
            seq: 7,
            order_id: "ORD-1".parse().unwrap(),
            status: OrderStatus::Dispatching,
            previous_status: None,
            reason: EventReason::OrderCreated,
            attempt_no: None,
            driver_id: None,
            changed: Vec::new(),
            has_contents: false,
            timestamp: "2030-01-01T08:00:00Z".parse().unwrap(),
        };
        let message = messages::order_step(vec!["producer:shop".to_owned()], body.clone());
        assert_eq!((message.kind(), message.dedupe_key.as_str()), (step.as_str(), "7"));
        assert_eq!(message.to_stored().read_body(), MessageBody::Step(body));
    }
}

#[test]
fn payment_never_cancels_an_order_again() {
    for from in OrderStatus::ALL {
        for to in OrderStatus::ALL.into_iter().filter(|to| *to != from && state::is_transition_allowed(Some(from), *to))
        {
            let step = OrderStep::of_event(from, to, EventReason::PaymentChanged);
            let is_end = to.is_closed() && to != OrderStatus::Completed && !from.is_closed();
            assert_eq!(step == Some(OrderStep::Cancelled), is_end, "{from} to {to}");
        }
        assert_eq!(OrderStep::of_event(from, from, EventReason::PaymentChanged), None);
        assert_eq!(OrderStep::of_event(from, from, EventReason::AttemptStarted), Some(OrderStep::Offered));
        assert_eq!(OrderStep::of_event(from, from, EventReason::HeldForReview), Some(OrderStep::Held));
        assert_eq!(OrderStep::of_event(from, from, EventReason::DriverChanged), Some(OrderStep::Assigned));
    }
}
