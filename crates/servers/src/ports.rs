//! Picks a free loopback port.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Below the ports that systems hand to outgoing connections (from 32768 on Linux, 49152 on macOS). `bind(0)` would
/// choose among those, and while a server is down between `kill` and `restart` an outgoing connection could take its
/// port; a client that reconnects in a loop can even get the server's port as its own and connect to itself.
const FIRST: u16 = 10_240;
const LAST: u16 = 32_767;

/// A port without a listener. It may have one by the time a server binds it, so a caller that starts one must be ready to ask
/// again.
pub(crate) fn free_port() -> u16 {
    loop {
        let random = RandomState::new().hash_one(()) % u64::from(LAST - FIRST + 1);
        let port = FIRST + u16::try_from(random).expect("a remainder below 22528 fits");
        if is_free(port) {
            return port;
        }
    }
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
