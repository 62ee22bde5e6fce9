//! A way to a server on which everything can be slow or get stuck, as in a network that swallows packets. For tests and
//! benchmarks.

use std::{io, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// A server learns within this time that the other end of a connection is gone, by the keepalives that dispatchq asks of
/// Postgres: ten seconds without a packet and three probes. Redis by its own settings takes longer, and loses nothing by it: it
/// holds no lock for a connection. The client learns nothing.
const NOTICED_AFTER: Duration = Duration::from_secs(25);

/// Needs a tokio runtime, and ends with it.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    flow: watch::Sender<ProxyFlow>,
}

/// What passes. Connections are numbered from 1 in the order in which they are made.
#[derive(Debug, Clone, Copy, Default)]
struct ProxyFlow {
    /// The port that new connections lead to.
    to: u16,
    frozen: bool,
    made: u64,
    /// Nothing passes ever again on this one and those before it; their servers notice after [`NOTICED_AFTER`].
    lost: u64,
    /// This one and those before it are closed at both ends.
    cut: u64,
    /// Everything takes so much longer, each way.
    delay: Duration,
}

impl TcpProxy {
    /// To this port.
    pub async fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let flow = watch::Sender::new(ProxyFlow { to, ..ProxyFlow::default() });
        let state = flow.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to = state.borrow().to;
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { continue };
                // What is written passes at once, as without a way between.
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

    /// Nothing passes any more; connections stay, and new ones are accepted.
    pub fn freeze(&self) {
        self.flow.send_modify(|flow| flow.frozen = true);
    }

    /// What got stuck passes.
    pub fn thaw(&self) {
        self.flow.send_modify(|flow| flow.frozen = false);
    }

    /// From now on everything takes so much longer, each way.
    pub fn set_delay(&self, delay: Duration) {
        self.flow.send_modify(|flow| flow.delay = delay);
    }

    /// New connections lead to this port, as after a failover. Those there are stay with the server they have.
    pub fn redirect_to(&self, to: u16) {
        self.flow.send_modify(|flow| flow.to = to);
    }

    /// The other end moved away without a word: nothing passes on connections there are, new ones are well.
    pub fn forget_connections(&self) {
        self.flow.send_modify(|flow| flow.lost = flow.made);
    }

    /// Closes the connections there are, at both ends; new ones are well.
    pub fn cut_connections(&self) {
        self.flow.send_modify(|flow| flow.cut = flow.made);
    }
}

/// Returns when one end has closed and the other was told.
async fn carry_bytes(
    number: u64,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    flow: &mut watch::Receiver<ProxyFlow>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await;
        // Also that the other end has closed does not pass.
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

/// Returns when this connection is cut.
async fn until_cut(number: u64, flow: &mut watch::Receiver<ProxyFlow>) {
    let _ = flow.wait_for(|flow| flow.cut >= number).await;
}

/// Returns when the server closes this connection: it is cut, or was lost so long ago that the server has noticed.
async fn until_noticed(number: u64, flow: &mut watch::Receiver<ProxyFlow>) {
    let _ = flow.wait_for(|flow| flow.lost >= number || flow.cut >= number).await;
    let _ = tokio::time::timeout(NOTICED_AFTER, until_cut(number, flow)).await;
}
