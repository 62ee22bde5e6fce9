//! Whether another worker process of this machine lives, beyond doubt.
//!
//! A process binds a datagram socket under a name of its own, in the abstract namespace of its network, and keeps it until it ends. The
//! kernel closes that socket with all others of the process, and never before: one that stands still has it, too. So of a
//! process that was seen here, a name that has ceased to be bound proves that it is gone, and its connections with it. A sign of life that is missing proves nothing.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// What a process is called, and where that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLife {
    /// The boot of the kernel, and the network namespace: where names are bound. Another process must be there to ask.
    place: String,
    /// Unique per process.
    name: String,
}

static NAME: LazyLock<String> = LazyLock::new(|| format!("{:016x}", rand::random::<u64>()));

/// The name of this process. Slots that it asks for are held in it.
pub(crate) fn own_name() -> &'static str {
    &NAME
}

/// The life of this process, from the first call until it ends; `None` where the system has no such names.
pub(crate) fn own_life() -> Option<&'static ProcessLife> {
    #[cfg(target_os = "linux")]
    return linux::own_life();
    #[cfg(not(target_os = "linux"))]
    None
}

impl ProcessLife {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this process, another one, cannot be where it says it is: it has ended, if it was there before.
    pub(crate) fn is_over(&self) -> bool {
        self.look() == Some(false)
    }

    /// Returns whether this process, another one, lives here.
    pub(crate) fn is_seen(&self) -> bool {
        self.look() == Some(true)
    }

    /// `None`: it says that it is elsewhere, or the system does not tell.
    fn look(&self) -> Option<bool> {
        let own = own_life()?;
        if self.place != own.place || self.name == own.name {
            return None;
        }
        #[cfg(target_os = "linux")]
        return linux::is_bound(&self.name);
        #[cfg(not(target_os = "linux"))]
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        fs, io,
        os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixDatagram},
        },
        sync::LazyLock,
    };

    use super::{ProcessLife, own_name};

    /// The socket is never closed: it ends with the process.
    static OWN: LazyLock<Option<(ProcessLife, UnixDatagram)>> = LazyLock::new(|| {
        let bound = bind_own_name();
        bound.inspect_err(|error| tracing::info!(%error, "No process of this machine can see when this one ends.")).ok()
    });

    pub(super) fn own_life() -> Option<&'static ProcessLife> {
        OWN.as_ref().map(|(life, _)| life)
    }

    fn bind_own_name() -> io::Result<(ProcessLife, UnixDatagram)> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let network = fs::read_link("/proc/self/ns/net")?;
        let place = format!("{}/{}", boot.trim(), network.display());
        let socket = UnixDatagram::bind_addr(&address_of(own_name())?)?;
        Ok((ProcessLife { place, name: own_name().to_owned() }, socket))
    }

    fn address_of(name: &str) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("dispatchq-worker-{name}"))
    }

    /// A datagram socket has no queue of connections: the kernel answers at once.
    pub(super) fn is_bound(name: &str) -> Option<bool> {
        match address_of(name).and_then(|address| UnixDatagram::unbound()?.connect_addr(&address)) {
            Ok(()) => Some(true),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Some(false),
            Err(_) => None,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn process_has_ended_when_its_name_is_unbound() {
        let own = own_life().unwrap();
        assert!(!own.is_over() && own.name() == own_name());
        let gone = ProcessLife { name: "gone".to_owned(), ..own.clone() };
        assert!(gone.is_over());
        let elsewhere = ProcessLife { place: "another machine".to_owned(), ..gone };
        assert!(!elsewhere.is_over());
    }
}
