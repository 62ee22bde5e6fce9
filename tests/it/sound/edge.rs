//! Floods, slow clients and forged requests cost other clients nothing.
//!
//! * `connections`: sockets that say nothing, and drivers' apps that wait many times.
//! * `seen`: each request has an id and is counted; who was refused is written down.
//! * `texts`: characters no database keeps, bodies that are too large, names strangers try.

mod connections;
mod seen;
mod texts;
