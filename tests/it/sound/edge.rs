//! Floods, slow clients and forged requests cost other clients nothing.
//!
//! * `keys`: wrong keys by the hundred, and keys that ask too often.
//! * `connections`: sockets that say nothing, and drivers' apps that wait many times.
//! * `seen`: each request has an id and is counted; who was refused is written down.
//! * `texts`: characters no database keeps, bodies that are too large, names strangers try.

mod connections;
mod keys;
mod seen;
mod texts;
