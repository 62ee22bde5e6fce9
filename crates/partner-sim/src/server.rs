//! Start and end of a simulated partner.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    api,
    control::{self, SimulationReport},
    core::SimulationCore,
    delivery, fate,
    knobs::PartnerKnobs,
    lines::CuttableListener,
    options::PartnerSimOptions,
    serving::serve_lines,
    timers::{DueAction, timer_channel},
};

/// A running partner. Dropping it ends the simulation.
#[derive(Debug)]
pub struct PartnerSim {
    address: SocketAddr,
    control: SocketAddr,
    core: Arc<SimulationCore>,
    /// Tasks that are aborted on drop.
    _tasks: JoinSet<()>,
}

impl PartnerSim {
    pub async fn start(options: &PartnerSimOptions) -> anyhow::Result<Self> {
        // Callbacks may go to an https address. Installing the provider a second time does nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        anyhow::ensure!(options.control.ip().is_loopback(), "--control must be a loopback address such as 127.0.0.1:0");
        let stop = CancellationToken::new();
        let (add, pending) = timer_channel();
        let core = Arc::new(SimulationCore::new(options, add, stop.clone())?);
        let (refuse, refused) = watch::channel(core.refuses_connections());
        let (never_refuse, never_refused) = watch::channel(false);
        let bind = |address, refused| {
            CuttableListener::bind_address(address, refused, stop.clone())
                .with_context(|| format!("cannot listen on {address}: is the port taken?"))
        };
        let lines = bind(options.bind, refused)?;
        let control_lines = bind(options.control, never_refused)?;
        let (address, control) = (lines.local_address(), control_lines.local_address());

        let mut tasks = JoinSet::new();
        let watched = core.clone();
        tasks.spawn(async move {
            let _never_refuse = never_refuse;
            watched.watch_outages(&refuse).await;
        });
        // A weak reference: the timer task ends when all senders are dropped, and the core owns a sender.
        let timed = Arc::downgrade(&core);
        tasks.spawn(pending.run(move |due| {
            if let Some(core) = timed.upgrade() {
                handle_due(&core, due);
            }
        }));
        let routes = api::booking_routes(&core).merge(control::control_routes(&core));
        tasks.spawn(serve_lines(lines, routes, "partner"));
        tasks.spawn(serve_lines(control_lines, control::control_routes(&core), "partner"));
        Ok(Self { address, control, core, _tasks: tasks })
    }

    /// Returns the base URL of the partner's API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the base URL of `/_sim`, which answers during outages.
    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    pub fn read_report(&self) -> SimulationReport {
        control::simulation_report(&self.core)
    }

    /// Performs the next step of a booking now, with its callback, whatever its planned time. Returns whether there was
    /// a step. For tests that control time themselves; their delays should be longer than the test.
    pub fn take_step(&self, booking_id: &str) -> bool {
        fate::parse_booking_id(booking_id).is_some_and(|number| self.core.do_step(number))
    }

    /// Changes knobs for later decisions.
    pub fn change_knobs(&self, change: impl FnOnce(&mut PartnerKnobs)) -> anyhow::Result<()> {
        let changed = self.core.change_knobs(|knobs| {
            let mut knobs = knobs.clone();
            change(&mut knobs);
            knobs.check_values()?;
            Ok(knobs)
        });
        changed.map_err(anyhow::Error::msg)
    }
}

impl Drop for PartnerSim {
    fn drop(&mut self) {
        // Cuts all connections, and stops callbacks in flight.
        self.core.stop.cancel();
    }
}

fn handle_due(core: &Arc<SimulationCore>, due: DueAction) {
    match due {
        DueAction::Step(number) => core.continue_booking(number),
        DueAction::Forget(number) => core.forget_booking(number),
        DueAction::Send(callbacks) => delivery::send_callbacks(core, callbacks),
    }
}
