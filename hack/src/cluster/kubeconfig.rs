//! Kubeconfig files: how a person, a daemon or a part of the cluster finds the API server and says who it is.

use std::path::Path;

/// A kubeconfig that reads its certificates from files.
#[must_use]
pub(super) fn render(name: &str, server: &str, authority: &Path, certificate: &Path, key: &Path) -> String {
    let quoted = |text: &dyn std::fmt::Display| serde_json::Value::String(text.to_string()).to_string();
    let name = quoted(&format_args!("outrigger-{name}"));
    let (server, authority) = (quoted(&server), quoted(&authority.display()));
    let (certificate, key) = (quoted(&certificate.display()), quoted(&key.display()));
    format!(
        "apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority: {authority}
users:
- name: {name}
  user:
    client-certificate: {certificate}
    client-key: {key}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
"
    )
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_client_reads_back_what_was_said() {
        let text = render(
            "dev",
            "https://127.0.0.1:20443",
            Path::new("/a folder/ca.crt"),
            Path::new("/c/\"odd\".crt"),
            Path::new("/c/admin.key"),
        );
        let config = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("outrigger-dev"));
        let cluster = config.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:20443"));
        assert_eq!(cluster.certificate_authority.as_deref(), Some("/a folder/ca.crt"));
        let user = config.auth_infos[0].auth_info.clone().unwrap();
        assert_eq!(user.client_certificate.as_deref(), Some("/c/\"odd\".crt"));
        assert_eq!(user.client_key.as_deref(), Some("/c/admin.key"));
        let context = config.contexts[0].context.clone().unwrap();
        assert_eq!(
            (context.cluster.as_str(), context.user.as_deref()),
            ("outrigger-dev", Some("outrigger-dev"))
        );
    }
}
