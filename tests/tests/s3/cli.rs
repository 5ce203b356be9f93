//! The command against a bucket.

use backtrail_tests::suite::s3;
use std::process::Command;

const KEY: &str = "AKIDSECRETSECRET";
const SECRET: &str = "wrongwrongwrongsecret";

fn command(url: &str, secret: Option<&str>) -> (Option<i32>, String) {
    let temp = tempfile::tempdir().expect("a directory");
    let home = temp.path();
    std::fs::create_dir(home.join("w")).expect("makes");
    let mut command = Command::new(env!("CARGO_BIN_EXE_backtrail-under-test"));
    command.args(["list", "--store", url, "-w"]).arg(home.join("w")).env_clear();
    command.env("HOME", home).env("PATH", "/usr/bin:/bin").env("RUST_LOG", "trace");
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"] {
        command.env(name, std::env::var(name).unwrap_or_default());
    }
    if let Some(secret) = secret {
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", secret);
    }
    let out = command.output().expect("runs");
    let text = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// CLD-S3-14, K83: what is wrong with credentials or bucket is said, and no secret is.
#[test]
fn cld_s3_14_credentials_are_refused_and_never_shown() {
    let Some(place) = s3::fresh() else { return };
    let rest =
        format!("?endpoint={}&allow_http=true", place.endpoint.clone().expect("an endpoint"));
    let (code, text) = command(&format!("{}{rest}", place.url()), Some(SECRET));
    assert_eq!(code, Some(8), "{text}");
    assert!(text.contains("403") && text.contains("AWS_ACCESS_KEY_ID"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
    let (code, text) = command(&format!("s3://no-such-bucket-here/x{rest}"), None);
    assert_eq!(code, Some(8), "{text}");
    assert!(text.contains("NoSuchBucket"), "{text}");
    let (code, text) = command(&format!("s3://{KEY}:{SECRET}@bucket/x{rest}"), None);
    assert_eq!(code, Some(2), "{text}");
    assert!(!text.contains(SECRET) && !text.contains(KEY), "{text}");
    let (code, text) = command(&format!("{}{rest}&surprise=1", place.url()), None);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("surprise"), "{text}");
}
