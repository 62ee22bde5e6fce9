//! Times of orders that run faster: for `dispatchq dev --speed`, and for benchmarks. Pure.
//!
//! Leases, timeouts of calls, retention and schedules keep their times, because they belong to the machine.

use std::time::Duration;

use model::partner::PollConfig;

use super::{BreakerConfig, Config, DispatchConfig, DispatchOverrides, PartnerConfig};

/// Divides a time by the speed. The result is in whole milliseconds, like deadlines. Zero stays zero, because it often
/// means "never"; other times are at least one millisecond.
pub fn divide_time(time: Duration, speed: f64) -> Duration {
    if time.is_zero() {
        return time;
    }
    Duration::from_millis(u64::try_from(time.div_f64(speed).as_millis()).unwrap_or(u64::MAX).max(1))
}

impl Config {
    /// Divides the times of orders and of messages about them by the speed.
    pub fn divide_order_times(&mut self, speed: f64) {
        self.dispatch.divide_times(speed);
        self.service_types.values_mut().for_each(|own| own.divide_times(speed));
        self.partners.values_mut().for_each(|partner| partner.divide_times(speed));
        let (admission, messages) = (&mut self.admission, &mut self.notifications);
        let times = [
            &mut admission.cooldown,
            &mut admission.busy_retry,
            &mut messages.escalate.after,
            &mut messages.escalate.every,
            &mut messages.remind.after,
            &mut messages.remind.every,
            &mut messages.sla_warning,
        ];
        divide_all(times, speed);
    }
}

impl DispatchConfig {
    fn divide_times(&mut self, speed: f64) {
        divide_all(&mut self.retry, speed);
        let times = [
            &mut self.attempt,
            &mut self.lifetime,
            &mut self.cool_down,
            &mut self.pickup_within,
            &mut self.completion_within,
            &mut self.lead,
            &mut self.warn_before,
        ];
        divide_all(times, speed);
    }
}

impl DispatchOverrides {
    fn divide_times(&mut self, speed: f64) {
        divide_all(self.retry.iter_mut().flatten(), speed);
        divide_all(self.waves.iter_mut().flatten().filter_map(|wave| wave.lasts.as_mut()), speed);
        let times = [
            &mut self.attempt,
            &mut self.lifetime,
            &mut self.cool_down,
            &mut self.pickup_within,
            &mut self.completion_within,
            &mut self.lead,
        ];
        divide_all(times.into_iter().flatten(), speed);
    }
}

impl PartnerConfig {
    /// Divides the partner's durations that concern orders by the speed. The timeout of a call is not divided.
    pub fn divide_times(&mut self, speed: f64) {
        divide_all(&mut self.lead, speed);
        let PollConfig { percent: _, first, initial, multiplier: _, max, jitter: _, budget, not_found_grace, follow } =
            &mut self.poll;
        let BreakerConfig { failures: _, open, max_open, ramp_up } = &mut self.breaker;
        divide_all([first, initial, max, budget, not_found_grace, follow, open, max_open, ramp_up], speed);
    }
}

fn divide_all<'a>(times: impl IntoIterator<Item = &'a mut Duration>, speed: f64) {
    for time in times {
        *time = divide_time(*time, speed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WaveConfig;

    #[test]
    fn speed_divides_the_times_of_orders() {
        let (mut fast, usual) = (Config::defaults(), Config::defaults());
        fast.divide_order_times(60.0);
        assert_eq!(fast.dispatch.attempt, Duration::from_secs(2));
        assert_eq!(fast.dispatch.lifetime, Duration::from_secs(30));
        assert_eq!((fast.dispatch.lead, fast.dispatch.cool_down), (Duration::from_secs(20), Duration::ZERO));
        assert_eq!(fast.notifications.remind.after, Duration::from_secs(5));
        assert_eq!(fast.retention.orders, usual.retention.orders);
        assert_eq!(fast.worker.drain, usual.worker.drain);
    }

    #[test]
    fn waves_still_fit_into_their_attempt() {
        let mut fast = Config::defaults();
        let wave = WaveConfig { ask: 1, within: 1000.0, lasts: Some(Duration::from_secs(20)) };
        let own = fast.service_types.values_mut().next().unwrap();
        own.attempt = Some(Duration::from_secs(50));
        own.waves = Some(vec![wave.clone(), wave.clone(), WaveConfig { lasts: None, ..wave }]);
        fast.divide_order_times(1000.0);
        let own = fast.service_types.values().next().unwrap();
        let waves: Duration = own.waves.iter().flatten().filter_map(|wave| wave.lasts).sum();
        assert_eq!((waves, own.attempt), (Duration::from_millis(40), Some(Duration::from_millis(50))));
    }
}
