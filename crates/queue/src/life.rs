//! Whether another worker process on this machine is alive, as proven by the kernel.
//!
//! Each process binds a datagram socket in the abstract namespace of its network, under a unique name. The kernel
//! closes that socket together with all other sockets of the process, and never before; a stopped process keeps it,
//! too. So if a process was seen here and its name is no longer bound, the process has ended and its connections are
//! closed. A missing heartbeat proves nothing.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Name of a process, and the place in which that name can be checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLife {
    /// Boot id of the kernel, and the network namespace in which the name is bound. Only a process in the same place
    /// can check the name.
    place: String,
    /// Unique per process.
    name: String,
}

static NAME: LazyLock<String> = LazyLock::new(|| format!("{:016x}", rand::random::<u64>()));

/// Returns the name of this process. It is the holder of the slots that this process acquires.
pub(crate) fn own_name() -> &'static str {
    &NAME
}

/// Returns the life of this process. The first call binds its name, which stays bound until the process ends. Returns
/// `None` if the system has no abstract sockets.
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

    /// Returns whether the process is missing from its place. If it was seen there before, it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.look() == Some(false)
    }

    /// Returns whether the process, which is not this one, is alive in its place.
    pub(crate) fn is_seen(&self) -> bool {
        self.look() == Some(true)
    }

    /// Checks whether the name is bound. Returns `None` if the process is in another place, if it is this process, or
    /// if the check fails.
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

    /// This process' life and its socket. The socket stays open until the process ends.
    static OWN: LazyLock<Option<(ProcessLife, UnixDatagram)>> = LazyLock::new(|| {
        let bound = bind_own_name();
        bound.inspect_err(|error| tracing::info!(%error, "Cannot bind the name of this process; other processes on this machine cannot see when it ends.")).ok()
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

    /// Returns whether a process has bound this name. A datagram socket has no connection backlog, so the kernel
    /// answers at once.
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
