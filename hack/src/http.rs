//! Plain HTTP to the daemons' own ports.

use std::sync::LazyLock;

/// Trusts no authority, since reading the machine's takes longer than any request here; keeps no connection, since those of
/// one test's runtime would be dead in the next.
static CLIENT: LazyLock<reqwest::Result<reqwest::Client>> = LazyLock::new(|| {
    // It fails only if there is one already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .pool_max_idle_per_host(0)
        .build()
});

/// The client for it.
///
/// # Errors
/// When there is no TLS provider.
pub fn client() -> anyhow::Result<&'static reqwest::Client> {
    CLIENT
        .as_ref()
        .map_err(|error| anyhow::anyhow!("no HTTP client: {error}"))
}

/// Asks for a page.
///
/// # Errors
/// When nobody answers.
pub async fn get(url: &str) -> anyhow::Result<reqwest::Response> {
    Ok(client()?.get(url).send().await?)
}
