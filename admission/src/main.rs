//! The admission component.

use std::process::ExitCode;

use common::daemon::{exit, pflag};

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(formula) = admission::formula_cli::asked(std::env::args_os()) {
        return formula.run();
    }
    // The one TLS provider; it fails only if there is one already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let args: admission::Args = pflag::parse();
    exit(args.run().await)
}
