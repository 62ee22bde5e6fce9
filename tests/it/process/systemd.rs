//! Notifications to systemd from the processes that it starts.

use std::path::PathBuf;

use tokio::{
    net::{TcpStream, UnixDatagram},
    time::timeout,
};

use crate::support::{Child, Fleet, PATIENCE};

const LIVES: &str = "WATCHDOG=1";

/// A notification socket like the one systemd gives to a process.
struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl NotifySocket {
    fn bind(path: PathBuf) -> Self {
        Self { socket: UnixDatagram::bind(&path).unwrap(), path }
    }

    /// Returns the next message.
    async fn receive(&self) -> String {
        let mut bytes = [0; 1024];
        let length =
            timeout(PATIENCE, self.socket.recv(&mut bytes)).await.expect("the process says something").unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    }
}

#[tokio::test]
async fn systemd_gets_ready_watchdog_and_stopping() {
    let fleet = Fleet::start().await;
    for command in ["serve", "work", "run"] {
        let socket = NotifySocket::bind(fleet.dir().join(format!("{command}.sock")));
        let settings = [("NOTIFY_SOCKET", socket.path.to_str().unwrap()), ("WATCHDOG_USEC", "500000")];
        let mut child = Child::spawn(fleet.dir(), command, &[command], &settings);
        assert_eq!(socket.receive().await, "READY=1", "{command}");
        if command != "work" {
            TcpStream::connect(child.said("Serving the API", "address").unwrap()).await.unwrap();
        }
        for _ in 0..3 {
            assert_eq!(socket.receive().await, LIVES, "{command}");
        }
        child.terminate();
        let mut said = LIVES.to_owned();
        while said == LIVES {
            said = socket.receive().await;
        }
        assert_eq!(said, "STOPPING=1", "{command}");
        assert_eq!(child.ended().await.code(), Some(0), "{command}");
    }
}

/// Without a watchdog the process sends no message between start and stop.
#[tokio::test]
async fn systemd_without_a_watchdog_is_told_of_beginning_and_end() {
    let fleet = Fleet::start().await;
    let socket = NotifySocket::bind(fleet.dir().join("notify.sock"));
    let settings = [("NOTIFY_SOCKET", socket.path.to_str().unwrap())];
    let mut child = Child::spawn(fleet.dir(), "w1", &["work"], &settings);
    assert_eq!(socket.receive().await, "READY=1");
    child.terminate();
    assert_eq!(socket.receive().await, "STOPPING=1");
    assert_eq!(child.ended().await.code(), Some(0));
}
