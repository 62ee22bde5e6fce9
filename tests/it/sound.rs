//! Faults that once lost, doubled or leaked something, each with the test that keeps it from coming back. The name of a test
//! begins with the number of its row in docs/FAILURES.md.
//!
//! * `changes`: what a client was answered is kept, and a short outage of Postgres needs no person.
//! * `messages`: each message goes out, once, whatever its neighbours do; each alert reaches a desk.
//! * `history`: the history grows, is read and is thinned out without standing in the way of orders.
//! * `timers`: no timer waits longer than promised, in whatever state Redis and the clocks are.
//! * `edge`: floods, slow clients and forged requests cost other clients nothing.
//! * `identity`: who may do what, who did it, and what is forgotten about people.
//! * `settings`: settings, secrets and the environment fail early and give nothing away.

mod changes;
mod edge;
mod history;
mod identity;
mod messages;
mod settings;
mod timers;
