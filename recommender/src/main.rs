//! The recommender.

use common::daemon::{exit, pflag};

#[tokio::main]
async fn main() {
    // The one TLS provider; it fails only if there is one already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let args: recommender::Args = pflag::parse();
    exit(args.run().await)
}
