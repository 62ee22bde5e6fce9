//! TCP proxy that can delay or block everything, like a network that drops packets. For tests and benchmarks.

use std::{io, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// Time after which a server notices that the other end of a connection is gone. dispatchq asks Postgres for these
/// keepalives: ten seconds without a packet, then three probes. Redis takes longer with its own settings. This loses
/// nothing, because Redis holds no lock for a connection. The client notices nothing.
const NOTICED_AFTER: Duration = Duration::from_secs(25);

/// A proxy on a free port. It needs a tokio runtime and ends with it.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    flow: watch::Sender<ProxyFlow>,
}

/// State of the proxy. Connections are numbered from 1 in the order of their creation.
#[derive(Debug, Clone, Copy, Default)]
struct ProxyFlow {
    /// Port that new connections go to.
    to: u16,
    frozen: bool,
    made: u64,
    /// Number of the last lost connection. It and earlier ones carry no data; their servers notice that after
    /// [`NOTICED_AFTER`].
    lost: u64,
    /// Number of the last cut connection. It and earlier ones are closed at both ends.
    cut: u64,
    /// Additional delay in each direction.
    delay: Duration,
}

impl TcpProxy {
    /// Starts a proxy to this port.
    pub async fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let flow = watch::Sender::new(ProxyFlow { to, ..ProxyFlow::default() });
        let state = flow.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to = state.borrow().to;
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { continue };
                // Writes are forwarded immediately, as on a direct connection.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                state.send_modify(|flow| flow.made += 1);
                let number = state.borrow().made;
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                let (mut to_serve, mut to_answer) = (state.subscribe(), state.subscribe());
                let (mut of_server, mut of_client) = (state.subscribe(), state.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = carry_bytes(number, from_client, to_server, &mut to_serve) => {}
                        () = until_noticed(number, &mut of_server) => {}
                    }
                });
                tokio::spawn(async move {
                    tokio::select! {
                        () = carry_bytes(number, from_server, to_client, &mut to_answer) => {}
                        () = until_cut(number, &mut of_client) => {}
                    }
                });
            }
        });
        Ok(Self { port, flow })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops forwarding. Connections stay open, and new ones are accepted.
    pub fn freeze(&self) {
        self.flow.send_modify(|flow| flow.frozen = true);
    }

    /// Resumes forwarding, including the data that was held back.
    pub fn thaw(&self) {
        self.flow.send_modify(|flow| flow.frozen = false);
    }

    /// Sets an additional delay for each direction.
    pub fn set_delay(&self, delay: Duration) {
        self.flow.send_modify(|flow| flow.delay = delay);
    }

    /// Sends new connections to this port, like a failover. Existing connections keep their server.
    pub fn redirect_to(&self, to: u16) {
        self.flow.send_modify(|flow| flow.to = to);
    }

    /// Simulates a peer that disappears silently: existing connections pass nothing more, and new ones work.
    pub fn forget_connections(&self) {
        self.flow.send_modify(|flow| flow.lost = flow.made);
    }

    /// Closes all existing connections at both ends. New ones work.
    pub fn cut_connections(&self) {
        self.flow.send_modify(|flow| flow.cut = flow.made);
    }
}

/// Copies bytes until one end closes, and then closes the other.
async fn carry_bytes(
    number: u64,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    flow: &mut watch::Receiver<ProxyFlow>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await;
        // The end of a connection is not forwarded either.
        let Ok(passing) = flow.wait_for(|flow| !flow.frozen && flow.lost < number).await.map(|flow| *flow) else {
            return;
        };
        tokio::time::sleep(passing.delay).await;
        let Ok(count @ 1..) = read else { return };
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Waits until this connection is cut.
async fn until_cut(number: u64, flow: &mut watch::Receiver<ProxyFlow>) {
    let _ = flow.wait_for(|flow| flow.cut >= number).await;
}

/// Waits until the server closes this connection: it is cut, or the server has noticed its loss.
async fn until_noticed(number: u64, flow: &mut watch::Receiver<ProxyFlow>) {
    let _ = flow.wait_for(|flow| flow.lost >= number || flow.cut >= number).await;
    let _ = tokio::time::timeout(NOTICED_AFTER, until_cut(number, flow)).await;
}
