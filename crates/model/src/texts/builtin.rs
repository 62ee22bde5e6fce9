//! All built-in texts, in every language.
//!
//! Customers and drivers learn what happened and what follows for them, in words that need no knowledge of this system.

use serde::{Deserialize, Serialize};

use super::{language::Language, template::Placeholder};

macro_rules! define_texts {
    ($($(#[$doc:meta])* $key:ident = $name:literal [$($placeholder:ident),*] {
        id: $id:literal,
        en: $en:literal,
        vi: $vi:literal,
    })*) => {
        /// A text for customers or drivers. Its name is its key in the settings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum TextKey {
            $($(#[$doc])* $key,)*
        }

        impl TextKey {
            pub const ALL: &'static [Self] = &[$(Self::$key),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)*
                }
            }

            /// Returns the placeholders that the text supports.
            pub const fn placeholders(self) -> &'static [Placeholder] {
                match self {
                    $(Self::$key => &[$(Placeholder::$placeholder),*],)*
                }
            }

            /// Returns the text used unless the settings replace it.
            pub const fn builtin_text(self, language: Language) -> &'static str {
                match (self, language) {
                    $((Self::$key, Language::Indonesian) => $id,
                      (Self::$key, Language::English) => $en,
                      (Self::$key, Language::Vietnamese) => $vi,)*
                }
            }
        }
    };
}

define_texts! {
    /// To a customer: title of the message that the order ended.
    OrderCancelledTitle = "order_cancelled_title" [OrderId] {
        id: "Pesanan dibatalkan",
        en: "Order cancelled",
        vi: "Đơn hàng đã bị hủy",
    }
    /// To a customer: the message that the order ended. The reason is one of the texts below.
    OrderCancelled = "order_cancelled" [OrderId, Reason] {
        id: "Pesanan Anda {order_id} dibatalkan. {reason}",
        en: "Your order {order_id} was cancelled. {reason}",
        vi: "Đơn hàng {order_id} của bạn đã bị hủy. {reason}",
    }
    /// To a customer who has paid: follows the message that the order ended.
    RefundFollows = "refund_follows" [OrderId] {
        id: "Uang Anda akan dikembalikan; tim kami sedang mengurusnya.",
        en: "You will get your money back; our support team takes care of it.",
        vi: "Bạn sẽ được hoàn tiền; đội hỗ trợ của chúng tôi đang xử lý.",
    }
    /// Reason: no driver accepted the order in time.
    CancelledNoDriver = "cancelled_no_driver" [OrderId] {
        id: "Maaf, kami tidak berhasil menemukan pengemudi untuk Anda.",
        en: "Sorry, we could not find a driver for you in time.",
        vi: "Rất tiếc, chúng tôi không tìm được tài xế cho bạn kịp thời.",
    }
    /// Reason: the partner did not confirm the order.
    CancelledNotConfirmed = "cancelled_not_confirmed" [OrderId] {
        id: "Maaf, mitra kami tidak dapat memastikan pengemudi untuk Anda.",
        en: "Sorry, our partner could not confirm a driver for you.",
        vi: "Rất tiếc, đối tác của chúng tôi không thể xác nhận tài xế cho bạn.",
    }
    /// Reason: the driver returned the order too late to find another.
    CancelledDriverLeft = "cancelled_driver_left" [OrderId] {
        id: "Maaf, pengemudi Anda berhalangan dan kami tidak sempat menemukan penggantinya.",
        en: "Sorry, your driver could not come and there was no time left to find another.",
        vi: "Rất tiếc, tài xế của bạn không thể đến và không còn đủ thời gian để tìm tài xế khác.",
    }
    /// Reason: staff ended the order.
    CancelledByStaff = "cancelled_by_staff" [OrderId] {
        id: "Maaf, tim kami harus mengakhiri pesanan ini.",
        en: "Sorry, our team had to end this order.",
        vi: "Rất tiếc, đội ngũ của chúng tôi phải kết thúc đơn hàng này.",
    }
    /// Reason: the payment arrived after the order had ended.
    CancelledPaidLate = "cancelled_paid_late" [OrderId] {
        id: "Pembayaran Anda kami terima setelah pesanan berakhir.",
        en: "Your payment reached us after the order had ended.",
        vi: "Chúng tôi nhận được thanh toán của bạn sau khi đơn hàng đã kết thúc.",
    }
    /// To a driver who accepts an order that another driver has taken or is taking. The Vietnamese text comes from the
    /// requirement document.
    TripTaken = "trip_taken" [] {
        id: "Perjalanan ini sudah diambil pengemudi lain",
        en: "Another driver has taken this trip",
        vi: "Chuyến đi đã có người nhận",
    }
    VoiceOffer = "voice_offer" [ServiceType, DistanceKm] {
        id: "Pesanan {service_type} baru, {distance_km} kilometer dari Anda. Tekan 1 untuk mengambil, 2 untuk menolak.",
        en: "New {service_type} job, {distance_km} kilometres from you. Press 1 to take it, 2 to decline.",
        vi: "Chuyến {service_type} mới, cách bạn {distance_km} ki lô mét. Bấm 1 để nhận, 2 để từ chối.",
    }
    /// On the phone: an offer whose details this version cannot parse.
    VoiceOfferPlain = "voice_offer_plain" [] {
        id: "Pesanan baru. Tekan 1 untuk mengambil, 2 untuk menolak.",
        en: "New job. Press 1 to take it, 2 to decline.",
        vi: "Chuyến mới. Bấm 1 để nhận, 2 để từ chối.",
    }
    VoiceNoKey = "voice_no_key" [] {
        id: "Tidak ada tombol yang ditekan. Sampai jumpa.",
        en: "No key was pressed. Goodbye.",
        vi: "Bạn chưa bấm phím nào. Tạm biệt.",
    }
    /// On the phone: a key other than 1 and 2 was pressed.
    VoiceWrongKey = "voice_wrong_key" [] {
        id: "Itu bukan 1 atau 2. Sampai jumpa.",
        en: "That is neither 1 nor 2. Goodbye.",
        vi: "Đó không phải phím 1 hoặc 2. Tạm biệt.",
    }
    /// On the phone: the driver has the job.
    VoiceAccepted = "voice_accepted" [] {
        id: "Pesanan ini milik Anda.",
        en: "The job is yours.",
        vi: "Chuyến này là của bạn.",
    }
    VoiceDeclined = "voice_declined" [] {
        id: "Anda telah menolak.",
        en: "You have declined.",
        vi: "Bạn đã từ chối.",
    }
    VoiceOfferExpired = "voice_offer_expired" [] {
        id: "Tawaran ini sudah kedaluwarsa.",
        en: "This offer has expired.",
        vi: "Lời mời này đã hết hạn.",
    }
    VoiceDriverBusy = "voice_driver_busy" [] {
        id: "Anda masih memiliki pesanan lain.",
        en: "You have another job.",
        vi: "Bạn đang có chuyến khác.",
    }
    /// On the phone: the offer ended for another reason.
    VoiceOfferClosed = "voice_offer_closed" [] {
        id: "Tawaran ini sudah ditutup.",
        en: "This offer is no longer open.",
        vi: "Lời mời này không còn hiệu lực.",
    }
    /// On the phone: a key was pressed in a call that is not about an offer.
    VoiceNoOffer = "voice_no_offer" [] {
        id: "Panggilan ini bukan tentang tawaran.",
        en: "This call is not about an offer.",
        vi: "Cuộc gọi này không phải về lời mời nào.",
    }
    /// On the phone: a dispatcher assigned an order to the driver.
    VoiceAssigned = "voice_assigned" [ServiceType] {
        id: "Petugas telah memberi Anda pesanan {service_type}.",
        en: "A dispatcher has given you a {service_type} job.",
        vi: "Điều phối viên đã giao cho bạn một chuyến {service_type}.",
    }
    /// On the phone: an order was assigned whose details this version cannot parse.
    VoiceAssignedPlain = "voice_assigned_plain" [] {
        id: "Petugas telah memberi Anda pesanan.",
        en: "A dispatcher has given you a job.",
        vi: "Điều phối viên đã giao cho bạn một chuyến.",
    }
    /// On the phone: the driver lost the order.
    VoiceUnassigned = "voice_unassigned" [ServiceType] {
        id: "Pesanan {service_type} Anda sudah bukan milik Anda.",
        en: "Your {service_type} job is no longer yours.",
        vi: "Chuyến {service_type} không còn là của bạn.",
    }
    /// On the phone: an order was lost whose details this version cannot parse.
    VoiceUnassignedPlain = "voice_unassigned_plain" [] {
        id: "Pesanan Anda sudah bukan milik Anda.",
        en: "Your job is no longer yours.",
        vi: "Chuyến đó không còn là của bạn.",
    }
    /// On the phone: the contents of the driver's order changed.
    VoiceUpdated = "voice_updated" [ServiceType] {
        id: "Pesanan {service_type} Anda berubah. Lihat aplikasi Anda.",
        en: "Your {service_type} job has changed. Look at your app.",
        vi: "Chuyến {service_type} của bạn đã thay đổi. Hãy xem ứng dụng của bạn.",
    }
    /// On the phone: any other message to a driver.
    VoiceNews = "voice_news" [] {
        id: "Ada kabar tentang pesanan Anda.",
        en: "There is news about your job.",
        vi: "Có tin mới về chuyến của bạn.",
    }
    /// On the phone, to a dispatcher: an order waits for a dispatcher.
    VoiceDispatcherNeeded = "voice_dispatcher_needed" [OrderId] {
        id: "Pesanan {order_id} menunggu petugas.",
        en: "Order {order_id} waits for a dispatcher.",
        vi: "Đơn hàng {order_id} đang chờ điều phối viên.",
    }
}
