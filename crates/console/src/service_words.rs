//! Texts of services in the language of the page. Each text is selected by a code. Free text of people, partners and
//! histories is not translated.

use chrono::{DateTime, SecondsFormat, Utc};
use jobs::{
    ApplyCallback, CancelBooking, CompensateOrder, DispatchOrder, EscalateAlert, ExpireAttempt, ExpireOrder,
    PollPartner, RefundOrder, RemindDispatchers, SendNotification,
};
use model::{
    admission::decide::AreaRefusal,
    binding::{Binding, BindingPhase, BindingState, CallAction, StopReason},
    order::HoldCause,
    ranking::ExclusionReason,
};

use crate::{
    deeds::{ASSIGN_DRIVER, CANCEL_ORDER, TAKE_BACK},
    language::{Language, both, say},
    shown::{sentence, spaced},
};
use desk::explain::reason::OrderReason;
use model::{
    decide::OrderRefusal,
    ids::{DriverId, PartnerName},
};
use queue::Job;

fn is_english() -> bool {
    Language::current() == Language::English
}

/// Describes the action of an order's job. `english` is the text of the service.
pub(crate) fn describe_job(job: &str, english: &'static str) -> &'static str {
    if is_english() {
        return english;
    }
    match job.split(':').next().unwrap_or_default() {
        DispatchOrder::KIND => "memulai percobaan: menawarkan atau memesan",
        ExpireAttempt::KIND => "mengakhiri percobaan jika belum ada pengemudi",
        PollPartner::KIND => "menanyakan keadaan pemesanan kepada mitra",
        ApplyCallback::KIND => "menindaklanjuti pemberitahuan mitra",
        ExpireOrder::KIND => "mengakhiri pesanan jika belum ada pengemudi",
        CompensateOrder::KIND => "menyelesaikan arti akhirnya bagi pembayaran",
        CancelBooking::KIND => "membatalkan pemesanan di mitra",
        RefundOrder::KIND => "meminta layanan pembayaran mengembalikan dana",
        SendNotification::KIND => "mengirim pesan",
        EscalateAlert::KIND => "meneruskan peringatan yang belum ditanggapi",
        RemindDispatchers::KIND => "mengingatkan para dispatcher",
        _ => english,
    }
}

/// Describes the next automatic action of an order by its code, such as `NEXT_ATTEMPT`.
pub(crate) fn describe_step(action: &str) -> String {
    let word = match action {
        "OFFER_TIMEOUT" => both("offer timeout", "tawaran berakhir"),
        "NEXT_ATTEMPT" => both("next attempt", "percobaan berikutnya"),
        "JOB_ID_POLL" => both("job id poll", "id pekerjaan ditanyakan"),
        "LIFETIME_TIMEOUT" => both("lifetime timeout", "masa hidup berakhir"),
        "ATTEMPT_TIMEOUT" => both("attempt timeout", "percobaan berakhir"),
        "COMPENSATION" => both("compensation", "kompensasi"),
        other => return spaced(other),
    };
    word.into()
}

/// Returns the reason why a nearby driver got no offer.
pub(crate) fn describe_exclusion(why: ExclusionReason) -> &'static str {
    if is_english() {
        return why.reason_text();
    }
    match why {
        ExclusionReason::Busy => "memegang pesanan",
        ExclusionReason::EnoughOffers => "sudah memegang tawaran sebanyak yang boleh dipegang satu pengemudi",
        ExclusionReason::HadIt => "pernah memegang pesanan ini",
        ExclusionReason::Declined => "menolak pesanan ini",
        ExclusionReason::Asked => "sudah ditanya pada putaran ini",
        ExclusionReason::CoolingDown => "baru saja menolak atau mengabaikan tawaran",
    }
}

/// Returns the reason why an order is under review. `reason` is the text of the service or a person, with details that
/// the cause lacks.
pub(crate) fn describe_hold(cause: Option<&HoldCause>, reason: &str) -> String {
    if is_english() {
        return reason.to_owned();
    }
    match cause {
        Some(HoldCause::DeadTimer(job)) => {
            format!("pengatur waktunya {job} mati; lihat: dispatchq dead show {job}")
        }
        Some(HoldCause::UnknownPayment) => format!("aturan tidak mengenal status pembayarannya ({reason})"),
        Some(HoldCause::UnwantedTrip) => {
            format!("mitra menjalankan percobaan yang sudah dilepas ({reason})")
        }
        Some(HoldCause::BrokenTrip) => format!("mitra menghentikan perjalanan di tengah jalan ({reason})"),
        Some(HoldCause::ByHand | HoldCause::Other) | None => reason.to_owned(),
    }
}

/// Returns the reason why an area takes no orders.
pub(crate) fn describe_area_refusal(cause: AreaRefusal) -> &'static str {
    let words = match cause {
        AreaRefusal::Disabled => both("disabled", "dinonaktifkan"),
        AreaRefusal::Forced => both("forced busy", "dipaksa sibuk"),
        AreaRefusal::Threshold => both("full", "penuh"),
        AreaRefusal::Cooling => both("cooling down", "mendingin"),
    };
    words.get()
}

/// Returns the reason why an action on an order was refused, and the button that helps.
pub(crate) fn describe_refusal(refusal: &OrderRefusal) -> String {
    let (assign, take_back, cancel) = (ASSIGN_DRIVER, TAKE_BACK, CANCEL_ORDER);
    match refusal {
        OrderRefusal::OrderFinished(status) => {
            let status = spaced(status.as_str());
            say!(
                "The order is {status}: nothing more can be done with it.",
                "Pesanan sudah {status}: tidak ada lagi yang dapat dilakukan dengannya."
            )
        }
        OrderRefusal::WrongState { status, .. } => {
            let status = spaced(status.as_str());
            say!(
                "The order is {status}, which does not allow this. Its page has a button for each action that is allowed now.",
                "Pesanan berstatus {status}, yang tidak mengizinkan ini. Halamannya memuat tombol untuk setiap tindakan yang diizinkan sekarang."
            )
        }
        OrderRefusal::AlreadyAssigned => say!(
            "Another driver has this order. To give it to this driver, use \u{201c}{take_back}\u{201d} on its page first.",
            "Pengemudi lain memegang pesanan ini. Untuk memberikannya kepada pengemudi ini, gunakan \u{201c}{take_back}\u{201d} di halamannya dahulu."
        ),
        OrderRefusal::ReservationInProgress => both(
            "Another driver is taking this order. Press the button again in a second: the order may be free then.",
            "Pengemudi lain sedang mengambil pesanan ini. Tekan tombolnya lagi sedetik lagi: mungkin pesanan sudah bebas.",
        )
        .into(),
        OrderRefusal::NoSuchDriver => both(
            "There is no driver of this id. Correct the id, or use \u{201c}Add a driver\u{201d} on the page Drivers.",
            "Tidak ada pengemudi dengan id ini. Perbaiki id-nya, atau gunakan \u{201c}Tambahkan pengemudi\u{201d} di halaman Pengemudi.",
        )
        .into(),
        OrderRefusal::DriverBusy => say!(
            "This driver already has an active order. Choose another driver, or use \u{201c}{take_back}\u{201d} on the page of that order first.",
            "Pengemudi ini sudah memegang pesanan lain. Pilih pengemudi lain, atau gunakan \u{201c}{take_back}\u{201d} di halaman pesanan itu dahulu."
        ),
        OrderRefusal::NothingPaid => both(
            "Nothing was paid for this order, so there is nothing to refund.",
            "Pesanan ini belum dibayar, jadi tidak ada yang dikembalikan.",
        )
        .into(),
        OrderRefusal::LifetimeOver => say!(
            "The lifetime of this order is over. Use \u{201c}{assign}\u{201d} or \u{201c}{cancel}\u{201d}.",
            "Masa hidup pesanan ini sudah berakhir. Gunakan \u{201c}{assign}\u{201d} atau \u{201c}{cancel}\u{201d}."
        ),
        OrderRefusal::ServedByPartner => say!(
            "The partner chooses the driver of this order. Use \u{201c}{cancel}\u{201d}, or ask the partner.",
            "Mitra yang memilih pengemudi pesanan ini. Gunakan \u{201c}{cancel}\u{201d}, atau tanyakan kepada mitra."
        ),
        other => sentence(&other.to_string()),
    }
}

/// Explains the state of an order.
pub(crate) fn describe_reason(reason: &OrderReason) -> String {
    if is_english() {
        return reason.to_string();
    }
    match reason {
        OrderReason::Held { cause, reason } => {
            format!("Orang harus memutuskan: {}.", describe_hold(cause.as_ref(), reason))
        }
        OrderReason::Asked { attempt_no, drivers, since, until } => {
            let drivers: Vec<_> = drivers.iter().map(DriverId::as_str).collect();
            let (drivers, since, until) = (drivers.join(", "), clock_time(*since), clock_time(*until));
            format!(
                "Percobaan {attempt_no}: pengemudi {drivers} ditanya pada {since}, dan boleh menjawab sampai {until}."
            )
        }
        OrderReason::New { at } => format!("Baru: pencarian pengemudi dimulai pada {}.", clock_time(*at)),
        OrderReason::SearchRestarts { attempts, round, at } => format!(
            "Tidak ada lagi pengemudi yang dapat ditanya; setelah {attempts} percobaan pencarian diulang (putaran {round}) pada {}.",
            clock_time(*at)
        ),
        OrderReason::Answered { attempt_no } => {
            format!("Percobaan {attempt_no} sudah dijawab; yang berikutnya segera dimulai.")
        }
        OrderReason::ToBeBooked { attempt_no, partners, at } => {
            let names: Vec<_> = partners.iter().map(PartnerName::as_str).collect();
            let partner = if names.is_empty() { "mitra".to_owned() } else { names.join(" atau ") };
            let when =
                at.map_or_else(|| "begitu pekerjaannya berjalan".to_owned(), |at| format!("pada {}", clock_time(at)));
            format!("Percobaan {attempt_no} akan dipesan di {partner} {when}.")
        }
        OrderReason::BeingBooked { attempt_no, partner, choice } => {
            format!(
                "Percobaan {attempt_no} sedang dipesan di {}.{}",
                partner_name(partner.as_ref()),
                chosen(choice.as_deref())
            )
        }
        OrderReason::Unanswered { attempt_no, partner, tries, error, choice } => {
            let error = error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
            let (partner, choice) = (partner_name(partner.as_ref()), chosen(choice.as_deref()));
            format!(
                "Percobaan {attempt_no} sudah {tries} kali diminta kepada {partner} tanpa jawaban{error}: \
                 diminta lagi dengan kunci yang sama.{choice}"
            )
        }
        OrderReason::WithoutJobId { partner, booking_id, polls, next_poll_at, choice } => {
            let asked = match next_poll_at {
                Some(at) => format!("sudah {polls} kali ditanyakan, dan lagi pada {}", clock_time(*at)),
                None => format!("dan setelah {polls} kali tidak ditanyakan lagi: pemberitahuan mitra harus membawanya"),
            };
            let (partner, booking) = (partner_name(partner.as_ref()), known(booking_id.as_deref()));
            let choice = chosen(choice.as_deref());
            format!("Dipesan di {partner} sebagai {booking}; id pekerjaannya belum diketahui, {asked}.{choice}")
        }
        OrderReason::AtPartner { attempt_no, partner, job_id, until, choice } => format!(
            "{} memegangnya sebagai pekerjaan {} dan mencari pengemudi sampai {} (percobaan {attempt_no}).{}",
            partner.as_deref().unwrap_or("Mitra"),
            known(job_id.as_deref()),
            until.map_or_else(|| "?".to_owned(), clock_time),
            chosen(choice.as_deref())
        ),
        OrderReason::GaveUp { attempts } => {
            format!("Pencarian otomatis berhenti setelah {attempts} percobaan: dispatcher harus bertindak.")
        }
        OrderReason::OnTheWay { driver } => format!("Pengemudi {} dalam perjalanan.", known(driver.as_deref())),
        OrderReason::Aboard { driver } => {
            format!("Penumpang sudah naik bersama pengemudi {}.", known(driver.as_deref()))
        }
        OrderReason::Settling => "Sistem mengakhirinya, dan segera menyelesaikan artinya bagi pembayaran.".to_owned(),
        OrderReason::Ended { status, at, actor, reason, detail } => {
            let detail = detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
            format!("{status} pada {} oleh {actor} ({reason}{detail}).", clock_time(*at))
        }
        OrderReason::Untold { status } => format!("Statusnya {status}."),
    }
}

/// Describes the next action of a binding's job. `english` is the text of the service.
pub(crate) fn describe_binding_step(binding: &Binding, english: &'static str) -> &'static str {
    if is_english() {
        return english;
    }
    match (binding.phase, binding.call_action) {
        (BindingPhase::Idle, _) => "memulai siklus berikutnya",
        (BindingPhase::Calling, Some(CallAction::Settle)) => "melanjutkan setelah panggilan yang terbuka berakhir",
        (BindingPhase::Calling, _) => "mengulang panggilan jika sampai saat itu belum ada jawaban",
        (BindingPhase::Processing, _) => "menanyakan keadaan transaksi kepada penyedia",
        (BindingPhase::WaitingOtp, _) if binding.otp_value.is_some() => "menyerahkan OTP",
        (BindingPhase::WaitingOtp, _) => "berhenti menunggu OTP",
    }
}

/// Explains the current state of a binding. `english` is the text of the service.
pub(crate) fn describe_binding(binding: &Binding, now: DateTime<Utc>, english: String) -> String {
    if is_english() {
        return english;
    }
    if let Some(at) = binding.deleted_at {
        return format!("Dihapus pada {}.", clock_time(at));
    }
    format!("{} {}", describe_state(binding), describe_phase(binding, now))
}

fn describe_state(b: &Binding) -> String {
    let text = match (b.state, b.reason) {
        (BindingState::Running, _) => "Berjalan: siklus demi siklus.",
        (BindingState::Paused, _) => "Dijeda: tidak ada siklus yang dimulai sebelum dilanjutkan.",
        (BindingState::Stopping, _) => "Berhenti begitu panggilannya yang terbuka berakhir.",
        (BindingState::Stopped, None) => "Belum pernah dimulai.",
        (BindingState::Stopped, Some(StopReason::ManualStop)) => "Dihentikan oleh orang atau program.",
        (BindingState::Stopped, Some(StopReason::OtpTimeout)) => "Berhenti, karena OTP tidak diserahkan tepat waktu.",
        (BindingState::Stopped, Some(StopReason::ProcessingTimeout)) => {
            "Berhenti, karena sebuah transaksi terbuka terlalu lama."
        }
        (BindingState::Stopped, Some(StopReason::InsufficientBalanceBeforeStart)) => {
            return format!("Penyedia menolak memulai: saldo akun {} kurang.", b.account_id);
        }
        (BindingState::Stopped, Some(StopReason::ServerDisabled)) => {
            return format!("Berhenti, karena server {} dinonaktifkan.", b.server_id);
        }
        (BindingState::Stopped, Some(StopReason::ServerNotAllowed)) => {
            return format!("Berhenti, karena konfigurasi tidak mengizinkan alamat server {}.", b.server_id);
        }
        (BindingState::Stopped, Some(StopReason::TooManyFailures)) => {
            return format!("Berhenti setelah {} transaksi gagal berturut-turut.", b.failures);
        }
    };
    text.to_owned()
}

fn describe_phase(b: &Binding, now: DateTime<Utc>) -> String {
    let trx = b.trx_id.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    let next_cycle = b.cycle + 1;
    match b.phase {
        BindingPhase::Idle => match b.next_at.filter(|_| b.state == BindingState::Running) {
            Some(at) if at <= now => format!("Siklus {next_cycle} jatuh tempo sejak {}.", clock_time(at)),
            Some(at) => format!("Siklus {next_cycle} dimulai pada {}.", clock_time(at)),
            None => format!("Tidak ada transaksi terbuka; siklus sejauh ini: {}.", b.cycle),
        },
        BindingPhase::Calling => {
            let action = b.call_action.map_or("?", CallAction::as_str);
            let until = b.call_until.unwrap_or(now);
            let (call, end) = (b.call_no, clock_time(until));
            if until > now {
                format!("Panggilan {call} ({action} untuk {trx}) terbuka, paling lama sampai {end}.")
            } else {
                format!("Panggilan {call} ({action} untuk {trx}) diberi waktu sampai {end} dan belum dijawab.")
            }
        }
        BindingPhase::Processing => format!(
            "{trx} berstatus PROCESSING dan sudah {} kali ditanyakan; menjadi UNRESOLVED pada {}.",
            b.asks,
            b.processing_deadline.map_or_else(|| "?".to_owned(), clock_time)
        ),
        BindingPhase::WaitingOtp if b.otp_value.is_some() => {
            format!("OTP untuk {trx} sudah diserahkan dan akan dikirim.")
        }
        BindingPhase::WaitingOtp => format!(
            "{trx} menunggu OTP sampai {} ({} dari {} dicoba).",
            b.otp_deadline.map_or_else(|| "?".to_owned(), clock_time),
            b.otp_tries,
            b.config.otp_attempts
        ),
    }
}

fn partner_name(partner: Option<&PartnerName>) -> &str {
    partner.map_or("mitra", PartnerName::as_str)
}

fn known(text: Option<&str>) -> &str {
    text.unwrap_or("?")
}

fn chosen(choice: Option<&str>) -> String {
    choice.map(|choice| format!(" Dipilih: {choice}.")).unwrap_or_default()
}

fn clock_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests;
