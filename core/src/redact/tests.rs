use proptest::prelude::*;
use serde_json::json;

use super::*;

fn redactor(secrets: &[(&str, &str)]) -> Redactor {
    let mut all = Secrets::default();
    for (name, value) in secrets {
        assert!(all.declare(name, value.as_bytes()), "{name} is long enough");
    }
    all.redactor().expect("prepared")
}

fn in_pieces(redactor: &Redactor, pieces: &[&[u8]]) -> String {
    let mut redaction = redactor.start();
    let mut out = Vec::new();
    for piece in pieces {
        redaction.push(piece, &mut out);
    }
    redaction.finish(&mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn a_secret_split_over_pieces_is_found_and_nothing_else_waits() {
    let r = redactor(&[("TOKEN", "s3cr3t-value")]);
    let mut redaction = r.start();
    let mut out = Vec::new();
    redaction.push(b"before s3cr", &mut out);
    assert_eq!(out, b"before ");
    redaction.push(b"3t-val", &mut out);
    assert_eq!(out, b"before ");
    redaction.push(b"ue after s3", &mut out);
    assert_eq!(out, b"before [redacted:TOKEN] after ");
    redaction.push(b"! s", &mut out);
    assert_eq!(out, b"before [redacted:TOKEN] after s3! ");
    redaction.finish(&mut out);
    assert_eq!(out, b"before [redacted:TOKEN] after s3! s");
}

#[test]
fn the_longest_of_overlapping_secrets_is_taken_and_the_first_name_of_equal_ones() {
    let r = redactor(&[("SHORT", "abcdef"), ("LONG", "abcdefghij"), ("AGAIN", "abcdef")]);
    assert_eq!(
        in_pieces(&r, &[b"x abcdefghij abcdefgh y"]),
        "x [redacted:LONG] [redacted:SHORT]gh y"
    );
    assert_eq!(in_pieces(&r, &[b"abcdef", b"ghij", b"abcdef"]), "[redacted:LONG][redacted:SHORT]");
}

#[test]
fn encoded_forms_are_found() {
    let r = redactor(&[("PW", "p@ss/w0rd\"longer")]);
    for text in [
        "url p%40ss%2Fw0rd%22longer",
        "url p%40ss%2fw0rd%22longer",
        r#"{"pw":"p@ss/w0rd\"longer"}"#,
        "cEBzcy93MHJkImxvbmdlcg==",
        "Basic dXNlcjpwQHNzL3cwcmQibG9uZ2Vy", // user:…
        "eDpwQHNzL3cwcmQibG9uZ2VyCg",         // x:…, a newline behind
    ] {
        assert!(r.text(text).contains("[redacted:PW]"), "{text} became {}", r.text(text));
    }
}

#[test]
fn short_values_and_plain_names_are_let_through() {
    let mut all = Secrets::default();
    assert!(!all.declare("PIN", b"123"));
    assert!(all.declare("PIN4", b"1234"));
    let env: [(&str, &[u8]); 3] =
        [("A_TOKEN", b"seven77"), ("B_TOKEN", b"eight888"), ("PLAIN", b"visible-value")];
    all.guess(env);
    let r = all.redactor().expect("prepared");
    assert_eq!(
        r.text("123 1234 seven77 eight888 visible-value"),
        "123 [redacted:PIN4] seven77 [redacted:B_TOKEN] visible-value"
    );
}

#[test]
fn json_is_redacted_at_every_depth_keys_and_numbers_too() {
    let r = redactor(&[("N", "12345678"), ("S", "secret-text")]);
    let value = json!({ "a": ["x secret-text", { "secret-text": 12345678, "n": 1 }], "b": null });
    let clear =
        json!({ "a": ["x [redacted:S]", { "[redacted:S]": "[redacted:N]", "n": 1 }], "b": null });
    assert_eq!(r.json(value), clear);
}

#[test]
fn lines_of_a_long_secret_are_found_alone() {
    let r =
        redactor(&[("PEM", "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END KEY-----\n")]);
    assert_eq!(r.text("> MIIEvQIBADANBgkqhkiG9w0B\r\n"), "> [redacted:PEM]\r\n");
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        text in "[ab]{0,60}",
        secrets in prop::collection::vec("[ab]{4,9}", 1..4),
        cuts in prop::collection::vec(0usize..61, 0..8),
    ) {
        let named: Vec<(String, String)> =
            secrets.into_iter().enumerate().map(|(i, s)| (format!("N{i}"), s)).collect();
        let r = redactor(&named.iter().map(|(n, s)| (&n[..], &s[..])).collect::<Vec<_>>());
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| *c <= text.len()).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &text.as_bytes()[w[0]..w[1]]).collect();
        let whole = in_pieces(&r, &[text.as_bytes()]);
        prop_assert_eq!(in_pieces(&r, &pieces), whole.clone());
        for (_, secret) in &named {
            prop_assert!(!whole.contains(&secret[..]));
        }
    }
}
