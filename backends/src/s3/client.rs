//! The driver's client: one try a request, no time limit of its own, plain HTTP only when
//! that is allowed.

use std::time::Duration;

use backtrail_core::error::{Error, Result};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientConfigKey, ClientOptions, RetryConfig};

use super::url::S3Options;
use super::wire::Tap;

/// Builds the driver's client. Chooses the one TLS provider of the process.
pub(super) fn client(options: &S3Options, tap: Tap) -> Result<(AmazonS3, String)> {
    // Whoever was first chose; both choices are the same here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(5))
        .with_allow_http(options.allow_http);
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&options.bucket)
        .with_retry(retry)
        .with_virtual_hosted_style_request(options.virtual_hosted)
        .with_http_connector(tap);
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &options.endpoint {
        let (scheme, host) = endpoint.split_once("://").unwrap_or(("https", endpoint));
        builder = builder.with_endpoint(match options.virtual_hosted {
            true => format!("{scheme}://{}.{host}", options.bucket),
            false => endpoint.clone(),
        });
    }
    // The environment may allow http as well; it stays allowed then.
    let allowed = builder
        .get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp))
        .is_some_and(|v| v == "true");
    builder = builder.with_client_options(http.with_allow_http(options.allow_http || allowed));
    let server = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let server = server.or(builder.get_config_value(&AmazonS3ConfigKey::Region));
    let s3 = builder.build().map_err(|e| {
        Error::invalid(format!("{} cannot be opened: {e}", options.url()))
            .with_hint("set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION")
    })?;
    Ok((s3, server.unwrap_or_default()))
}
