//! Answers of a provider contain only text that rows can store.

use model::binding::ProviderAnswer;

fn read(status: u16, body: &str) -> ProviderAnswer {
    ProviderAnswer::from_response(status, None, body.as_bytes())
}

#[test]
fn answers_never_store_nul() {
    for word in ["SUKSES", "PROCESSING", "WAITING_OTP", "GAGAL"] {
        let with_ref = |id: &str| read(200, &format!(r#"{{"status":"{word}","provider_ref":"{id}"}}"#));
        let kept = |answer: ProviderAnswer| match answer {
            ProviderAnswer::Success { provider_ref }
            | ProviderAnswer::Processing { provider_ref }
            | ProviderAnswer::OtpWanted { provider_ref }
            | ProviderAnswer::Failed { provider_ref, .. } => provider_ref,
            other => panic!("{other:?}"),
        };
        assert_eq!(kept(with_ref(r"P\u0000-1\u0000")).as_deref(), Some("P-1"), "{word}");
        assert_eq!(kept(with_ref(r"\u0000 \u0000")), None, "{word}");
        assert_eq!(kept(with_ref(&format!("{}x", r"\u0000".repeat(300)))).as_deref(), Some("x"), "{word}");
    }
    let failed = read(200, r#"{"status":"GAGAL","reason":"account\u0000locked"}"#);
    let ProviderAnswer::Failed { reason, .. } = &failed else { panic!("{failed:?}") };
    assert_eq!(reason.as_str(), "unspecified", "the contract does not allow this word");

    let error = r#"{"error_code":"BAD\u0000CODE","message":"no\u0000thing"}"#;
    for (status, body) in [
        (200, r#"{"status":"MENUNGGU\u0000"}"#),
        (200, "\0"),
        (200, "{\"status\":\"SUKSES\0\"}"),
        (409, error),
        (422, error),
        (500, error),
    ] {
        let answer = read(status, body);
        let (ProviderAnswer::Unreadable(text)
        | ProviderAnswer::LateRefused(text)
        | ProviderAnswer::Rejected(text)
        | ProviderAnswer::Unavailable(text)) = &answer
        else {
            panic!("{status} {body:?}: {answer:?}")
        };
        assert!(!text.is_empty() && !text.contains('\0'), "{status} {body:?}: {text:?}");
    }
}
