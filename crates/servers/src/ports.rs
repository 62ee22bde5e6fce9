//! Picks free loopback ports and reserves them.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener, UdpSocket},
};

/// First port to pick. The range is below the ports that systems use for outgoing connections (from 32768 on Linux,
/// 49152 on macOS). `bind(0)` would choose among those. While a server is down between `kill` and `restart`, an
/// outgoing connection could then take its port. A client that reconnects in a loop could even get the server's port as
/// its own and connect to itself.
const FIRST: u16 = 10_240;
const LAST: u16 = 32_767;

/// A reserved TCP port without a listener. While this value lives, no other server of this crate on this machine picks
/// the port, whether its own server is up or down.
///
/// The reservation is a bound UDP port of the same number. No server of this crate uses UDP, and the system frees the
/// port however the process ends.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    port: u16,
    _reservation: UdpSocket,
}

impl ReservedPort {
    pub(crate) fn find() -> Self {
        loop {
            let random = RandomState::new().hash_one(()) % u64::from(LAST - FIRST + 1);
            let port = FIRST + u16::try_from(random).expect("a remainder below 22528 fits");
            if let Ok(reservation) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))
                && is_free(port)
            {
                return Self { port, _reservation: reservation };
            }
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Returns a port without a listener. It stays reserved until this process ends, so a process may bind it late and more
/// than once.
pub fn free_port() -> u16 {
    let reserved: &ReservedPort = Box::leak(Box::new(ReservedPort::find()));
    reserved.port()
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_port_is_kept_until_dropped() {
        let reserved = ReservedPort::find();
        let port = reserved.port();
        assert!(is_free(port), "its server binds it");
        let reserve = || UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        assert!(reserve().is_err());
        drop(reserved);
        assert!(reserve().is_ok());
    }
}
