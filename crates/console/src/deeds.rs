//! Labels of the actions on an order, and the texts that a page shows after an action.

use crate::language::{Words, both};

/// Buttons of an order's page. The advice for an order also names them.
pub(crate) const ASSIGN_DRIVER: Words = both("Assign a driver", "Tugaskan pengemudi");
pub(crate) const TAKE_BACK: Words = both("Take it from its driver", "Tarik dari pengemudinya");
pub(crate) const SEARCH_AGAIN: Words = both("Search again", "Cari lagi");
pub(crate) const CANCEL_ORDER: Words = both("Cancel for the customer", "Batalkan untuk pelanggan");

/// Returns the text for the `did` of an address that `page::go_back` writes. `None`: the word is unknown.
pub(crate) fn describe_deed(word: &str) -> Option<Words> {
    Some(match word {
        "take" => both(
            "You are on this order: the others see it for ten minutes.",
            "Anda menangani pesanan ini: orang lain melihatnya selama sepuluh menit.",
        ),
        "leave" => both("You are on this order no more.", "Anda tidak lagi menangani pesanan ini."),
        "assign" => both("The driver has the order.", "Pesanan sudah ada pada pengemudi."),
        "release" => both(
            "The order was taken back, and the search goes on.",
            "Pesanan ditarik kembali, dan pencarian berlanjut.",
        ),
        "redispatch" => both("The search starts again.", "Pencarian dimulai lagi."),
        "hold" => both(
            "The order is under review: its timers stand still.",
            "Pesanan sedang ditinjau: pengatur waktunya berhenti.",
        ),
        "resume" => both("The review is over: the order goes on.", "Peninjauan selesai: pesanan berlanjut."),
        "cancel" => both("The order is cancelled.", "Pesanan dibatalkan."),
        "refund-start" => both("The refund is started.", "Pengembalian dana dimulai."),
        "refund-done" => both("The refund is done.", "Pengembalian dana selesai."),
        "ack" => both("The alert is acknowledged.", "Peringatan sudah ditanggapi."),
        "override" => both("The override is set.", "Ketetapan manual berlaku."),
        "auto" => both(
            "The override is over: the area goes by its count again.",
            "Ketetapan manual berakhir: wilayah kembali mengikuti hitungannya.",
        ),
        "threshold" => both(
            "The threshold is set. Every process goes by it within a second.",
            "Ambang batas ditetapkan. Setiap proses mengikutinya dalam satu detik.",
        ),
        "flag" => both(
            "It is set for whom thresholds hold. Every process goes by it within a second.",
            "Sudah ditetapkan untuk siapa ambang batas berlaku. Setiap proses mengikutinya dalam satu detik.",
        ),
        "pause" => {
            both("The queue is stopped. What runs, finishes.", "Antrean dihentikan. Yang sedang berjalan diselesaikan.")
        }
        "queue-resume" => both("The queue runs again.", "Antrean berjalan lagi."),
        "requeue" => both("The job was requeued.", "Pekerjaan dijalankan lagi."),
        "discard" => both("The job is discarded.", "Pekerjaan dibuang."),
        "replay" => both("The message is sent again.", "Pesan dikirim lagi."),
        "driver-created" => both("The driver is added.", "Pengemudi ditambahkan."),
        "driver-changed" => both("The driver is changed.", "Data pengemudi diubah."),
        "driver-disabled" => both("The driver gets no more work.", "Pengemudi tidak diberi pekerjaan lagi."),
        "driver-enabled" => both("The driver may work again.", "Pengemudi boleh bekerja lagi."),
        "share" => both(
            "The share is set. It holds for bookings from now on.",
            "Bagian ditetapkan. Berlaku untuk pemesanan mulai sekarang.",
        ),
        "plan-made" => both(
            "The plan is stored. Nothing has been done yet: look at it, then run it.",
            "Rencana disimpan. Belum ada yang dilakukan: periksa dahulu, lalu jalankan.",
        ),
        "plan-run" => both("The plan runs.", "Rencana berjalan."),
        "plan-cancel" => both(
            "The plan is cancelled. What was done stays done.",
            "Rencana dibatalkan. Yang sudah dilakukan tetap berlaku.",
        ),
        "key-revoked" => both(
            "The key is revoked: within a second it opens nothing.",
            "Kunci dicabut: dalam satu detik ia tidak membuka apa pun.",
        ),
        "user-saved" => both("The user is saved.", "Pengguna disimpan."),
        "user-disabled" => both("The user is told nothing more.", "Pengguna tidak diberi tahu lagi."),
        "user-enabled" => both("The user is told again.", "Pengguna diberi tahu lagi."),
        "user-removed" => both(
            "The user is removed. Keys of this person are revoked on the page Keys.",
            "Pengguna dihapus. Kunci orang ini dicabut di halaman Kunci.",
        ),
        "session-ended" => both("The session has ended.", "Sesi sudah berakhir."),
        "binding" => both("The binding was told.", "Binding sudah diberi tahu."),
        "otp" => {
            both("The OTP is stored, and on its way to the provider.", "OTP disimpan, dan sedang dikirim ke penyedia.")
        }
        _ => return None,
    })
}
