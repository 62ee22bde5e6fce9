//! Each figure by its name, with its goal.

use super::{
    super::{memory::QueueMemory, spread::RoundSpread},
    QueueReport,
};

/// What a figure is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FigureGoal {
    AtLeast(f64),
    AtMost(f64),
    /// Told for the record.
    None,
}

impl FigureGoal {
    pub(super) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::None => true,
        }
    }

    pub(super) fn to_text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {}", format_figure(least)),
            Self::AtMost(most) => format!("<= {}", format_figure(most)),
            Self::None => String::new(),
        }
    }
}

/// One line of the table, and one entry under `rounds` in the JSON.
pub(super) struct ReportFigure {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) goal: FigureGoal,
    pub(super) spread: RoundSpread,
}

impl QueueReport {
    pub(super) fn list_figures(&self) -> Vec<ReportFigure> {
        let figure = |name: &str, text: &str, goal: FigureGoal, spread: RoundSpread| ReportFigure {
            name: name.to_owned(),
            text: text.to_owned(),
            goal,
            spread,
        };
        let memory = |bytes: fn(&QueueMemory) -> f64| RoundSpread::over_rounds(self.memory.iter().map(bytes));
        let mut figures = vec![
            figure(
                "process_per_s",
                "process: take, run, settle; jobs/s",
                FigureGoal::AtLeast(130_000.0),
                self.of_throughput(|round| round.process_per_s),
            ),
            figure(
                "process_cpu_us_worker",
                "process: processor time of the worker; us/job",
                FigureGoal::None,
                self.of_throughput(|round| round.worker_cpu_us.unwrap_or_default()),
            ),
            figure(
                "process_cpu_us_redis",
                "process: processor time of Redis; us/job",
                FigureGoal::None,
                self.of_throughput(|round| round.redis_cpu_us),
            ),
            figure(
                "metered_per_s",
                "process, metrics recorded; jobs/s",
                FigureGoal::None,
                self.of_throughput(|round| round.metered_per_s),
            ),
            figure(
                "metered_cpu_us_worker",
                "process, metrics recorded: processor time of the worker; us/job",
                FigureGoal::None,
                self.of_throughput(|round| round.metered_cpu_us.unwrap_or_default()),
            ),
            figure(
                "enqueue_per_s",
                "enqueue in batches of 500; jobs/s",
                FigureGoal::AtLeast(120_000.0),
                self.of_throughput(|round| round.enqueue_per_s),
            ),
            figure(
                "through_per_s",
                "both at once; jobs/s",
                FigureGoal::None,
                self.of_throughput(|round| round.through_per_s),
            ),
            figure("lateness_p50_ms", "lateness p50; ms", FigureGoal::AtMost(2.0), self.late_ms(|late| late.p50)),
            figure("lateness_p99_ms", "lateness p99; ms", FigureGoal::AtMost(5.0), self.late_ms(|late| late.p99)),
            figure("lateness_max_ms", "lateness max; ms", FigureGoal::None, self.late_ms(|late| late.max)),
            figure(
                "early",
                "jobs run early",
                FigureGoal::AtMost(0.0),
                RoundSpread::over_rounds(self.lateness.iter().map(|round| f64::from(round.observed.early))),
            ),
            figure(
                "pickup_p50_ms",
                "pickup by an idle worker p50; ms",
                FigureGoal::AtMost(1.0),
                self.pickup_ms(|p| p.p50),
            ),
            figure(
                "pickup_p99_ms",
                "pickup by an idle worker p99; ms",
                FigureGoal::AtMost(5.0),
                self.pickup_ms(|p| p.p99),
            ),
            figure("herd_drain_per_s", "herd: drained; jobs/s", FigureGoal::None, self.drain_per_s()),
            figure(
                "herd_lost",
                "herd: lost",
                FigureGoal::AtMost(0.0),
                RoundSpread::over_rounds(self.herd.iter().map(|round| f64::from(round.lost))),
            ),
            figure(
                "herd_doubled",
                "herd: run twice",
                FigureGoal::AtMost(0.0),
                RoundSpread::over_rounds(self.herd.iter().map(|round| f64::from(round.doubled))),
            ),
            figure(
                "bytes_per_timer",
                "bytes per order timer",
                FigureGoal::AtMost(160.0),
                memory(|m| m.bytes_per_timer),
            ),
            figure(
                "bytes_per_job",
                "bytes per job with payload",
                FigureGoal::AtMost(350.0),
                memory(|m| m.bytes_per_job),
            ),
            figure(
                "idle_commands_per_s",
                "8 idle workers: commands/s",
                FigureGoal::AtMost(50.0),
                RoundSpread::over_rounds(self.idle.iter().copied()),
            ),
        ];
        for (name, peer) in &self.peers {
            figures.push(figure(
                &format!("{name} process_per_s"),
                &format!("{name} {}: process; jobs/s", peer.version),
                FigureGoal::None,
                RoundSpread::over_rounds(peer.process_per_s.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} process_cpu_us"),
                &format!("{name}: processor time with Redis; us/job"),
                FigureGoal::None,
                RoundSpread::over_rounds(peer.cpu_us.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} ratio"),
                &format!("process, times {name}"),
                FigureGoal::AtLeast(4.0),
                self.process_ratio(peer),
            ));
            figures.push(figure(
                &format!("{name} through_per_s"),
                &format!("{name}: both at once; jobs/s"),
                FigureGoal::None,
                RoundSpread::over_rounds(peer.through_per_s.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} through_ratio"),
                &format!("both at once, times {name}"),
                FigureGoal::None,
                self.through_ratio(peer),
            ));
            if !peer.with_leases_per_s.is_empty() {
                figures.push(figure(
                    &format!("{name} with_leases_per_s"),
                    &format!("{name} with leases: both at once; jobs/s"),
                    FigureGoal::None,
                    RoundSpread::over_rounds(peer.with_leases_per_s.iter().copied()),
                ));
                figures.push(figure(
                    &format!("{name} with_leases_ratio"),
                    &format!("both at once, times {name} with leases"),
                    FigureGoal::None,
                    self.with_leases_ratio(peer),
                ));
            }
        }
        figures
    }
}

/// With no more digits than mean something.
pub(super) fn round_figure(figure: f64) -> f64 {
    if figure.abs() >= 100.0 { figure.round() } else { (figure * 100.0).round() / 100.0 }
}

pub(super) fn format_figure(figure: f64) -> String {
    round_figure(figure).to_string()
}
