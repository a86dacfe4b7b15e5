//! The updater.

use common::daemon::exit;
use updater::Asked;

#[tokio::main]
async fn main() {
    // The one TLS provider; it fails only if there is one already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    match Asked::parse() {
        Asked::Run(args) => exit(args.run().await),
        Asked::Explain(question) => updater::answer(*question).await,
    }
}
