//! Encryption of a message for one browser (RFC 8291): one record of the content encoding `aes128gcm` (RFC 8188).

use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    error::Unspecified,
    hkdf,
    rand::{SecureRandom, SystemRandom},
};

use super::subscriptions::BrowserKeys;

const SALT_BYTES: usize = 16;
/// Size of a record. The messages are much shorter.
const RECORD_BYTES: u32 = 4096;
/// Byte after the text of the last record.
const LAST_RECORD: u8 = 2;

/// Encrypts a text with a new key pair and salt. Returns the body of the request to the push service.
pub(super) fn encrypt_text(keys: &BrowserKeys, text: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let random = SystemRandom::new();
    let own = EphemeralPrivateKey::generate(&ECDH_P256, &random)?;
    let own_public = own.compute_public_key()?;
    let mut salt = [0; SALT_BYTES];
    random.fill(&mut salt)?;
    let browser = UnparsedPublicKey::new(&ECDH_P256, &keys.p256dh);
    agree_ephemeral(own, &browser, |secret| seal_record(keys, own_public.as_ref(), secret, salt, text))?
}

/// Returns the header and the encrypted record. `secret`: the secret that both key pairs agree on.
fn seal_record(
    keys: &BrowserKeys,
    own_public: &[u8],
    secret: &[u8],
    salt: [u8; SALT_BYTES],
    text: &[u8],
) -> Result<Vec<u8>, Unspecified> {
    let (key, nonce) = derive_key(keys, own_public, secret, salt)?;
    let mut record = [text, &[LAST_RECORD]].concat();
    key.seal_in_place_append_tag(nonce, Aad::empty(), &mut record)?;
    let id_bytes = u8::try_from(own_public.len()).map_err(|_| Unspecified)?;
    Ok([salt.as_slice(), &RECORD_BYTES.to_be_bytes(), &[id_bytes], own_public, &record].concat())
}

fn derive_key(
    keys: &BrowserKeys,
    own_public: &[u8],
    secret: &[u8],
    salt: [u8; SALT_BYTES],
) -> Result<(LessSafeKey, Nonce), Unspecified> {
    let mut input = [0; 32];
    let info = [b"WebPush: info\0".as_slice(), keys.p256dh.as_slice(), own_public];
    let of_browser = hkdf::Salt::new(hkdf::HKDF_SHA256, &keys.auth).extract(secret);
    of_browser.expand(&info, hkdf::HKDF_SHA256)?.fill(&mut input)?;
    let of_message = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(&input);
    let key = UnboundKey::from(of_message.expand(&[b"Content-Encoding: aes128gcm\0"], &AES_128_GCM)?);
    let mut nonce = [0; NONCE_LEN];
    of_message.expand(&[b"Content-Encoding: nonce\0"], NonceLength)?.fill(&mut nonce)?;
    Ok((LessSafeKey::new(key), Nonce::assume_unique_for_key(nonce)))
}

/// Length of the derived nonce.
struct NonceLength;

impl hkdf::KeyType for NonceLength {
    fn len(&self) -> usize {
        NONCE_LEN
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// Keys of the browser in the example of RFC 8291.
    fn example_keys() -> BrowserKeys {
        let p256dh = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
        BrowserKeys { p256dh: bytes(p256dh), auth: bytes("BTBZMqHH6r4Tts7J_aSIgg") }
    }

    #[test]
    fn record_is_that_of_the_standard() {
        let own = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";
        let secret = bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let salt = bytes("DGv6ra1nlYgDCS1FRnbzlw").try_into().unwrap();
        let text = b"When I grow up, I want to be a watermelon";
        let record = seal_record(&example_keys(), &bytes(own), &secret, salt, text).unwrap();
        let expected = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6\
                        TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-\
                        fN";
        assert_eq!(URL_SAFE_NO_PAD.encode(record), expected);
    }

    #[test]
    fn each_message_has_its_own_keys() {
        let keys = example_keys();
        let [one, other] = [(); 2].map(|()| encrypt_text(&keys, b"new offer").unwrap());
        assert_eq!((one.len(), one[16..21].to_vec()), (16 + 4 + 1 + 65 + 9 + 1 + 16, vec![0, 0, 16, 0, 65]));
        assert!(one[..16] != other[..16] && one[21..86] != other[21..86]);
    }

    #[test]
    fn impossible_public_key_is_refused() {
        let keys = BrowserKeys { p256dh: vec![4; 65], auth: vec![0; 16] };
        assert!(encrypt_text(&keys, b"new offer").is_err());
    }
}
