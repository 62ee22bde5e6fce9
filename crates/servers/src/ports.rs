//! Picks free loopback ports, and keeps them.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener, UdpSocket},
};

/// Below the ports that systems hand to outgoing connections (from 32768 on Linux, 49152 on macOS). `bind(0)` would
/// choose among those, and while a server is down between `kill` and `restart` an outgoing connection could take its
/// port; a client that reconnects in a loop can even get the server's port as its own and connect to itself.
const FIRST: u16 = 10_240;
const LAST: u16 = 32_767;

/// A TCP port without a listener that is picked for no other server of this machine while this lives, be its own server up or down.
///
/// The UDP port of the same number says so to other processes: none of our servers uses one, and it is free when its process ends,
/// however it ends.
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

/// A port without a listener. Until this process ends no server of ours picks it, so a process may bind it late, and again.
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
