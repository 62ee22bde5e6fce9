//! Each message goes out, once, whatever its neighbours do; each alert reaches a desk.
//!
//! * `answers`: what a driver or producer is answered beside it.

mod answers;
