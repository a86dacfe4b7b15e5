//! Certificates from files, as VPA has them mounted.

use anyhow::Context as _;

use super::Material;
use crate::config::CertificateFiles;

/// What the files say now, if they can be read and belong together.
pub(super) async fn read(files: &CertificateFiles) -> anyhow::Result<Material> {
    let read = async |path: &std::path::Path| {
        tokio::fs::read(path)
            .await
            .with_context(|| format!("cannot read {}", path.display()))
    };
    let ca = read(&files.ca).await?;
    let certificate = read(&files.certificate).await?;
    let key = read(&files.key).await?;
    Ok(Material::parse(&ca, &certificate, &key)?)
}
