//! The command lines of etcd, the API server, the controller manager and the scheduler, as functions of the plan.

use std::{fmt::Display, path::Path};

use super::{
    Level,
    pki::{CA, FRONT_PROXY_CA, SERVICE_ACCOUNT},
    site::Site,
};

/// etcd. Its data live as long as the cluster does, so it need not wait for the disk.
#[must_use]
pub(super) fn etcd(site: &Site) -> Vec<String> {
    let client = format!("https://127.0.0.1:{}", site.addresses.etcd);
    let peer = format!("https://127.0.0.1:{}", site.addresses.etcd_peer);
    let (authority, certificate, key) = (&file(site, CA), &file(site, "etcd"), &site.pki.key("etcd"));
    vec![
        flag("data-dir", site.folder.join("etcd").display()),
        flag("name", "etcd"),
        flag("listen-client-urls", &client),
        flag("advertise-client-urls", &client),
        flag("listen-peer-urls", &peer),
        flag("initial-advertise-peer-urls", &peer),
        flag("initial-cluster", format_args!("etcd={peer}")),
        path("cert-file", certificate),
        path("key-file", key),
        path("trusted-ca-file", authority),
        flag("client-cert-auth", true),
        path("peer-cert-file", certificate),
        path("peer-key-file", key),
        path("peer-trusted-ca-file", authority),
        flag("peer-client-cert-auth", true),
        flag("unsafe-no-fsync", true),
        flag("log-level", "warn"),
    ]
}

/// The API server, with the aggregation layer and RBAC as in any real cluster.
#[must_use]
pub(super) fn api_server(site: &Site) -> Vec<String> {
    let addresses = &site.addresses;
    let address = addresses.api_server.ip();
    let pki = &site.pki;
    let mut arguments = vec![
        flag(
            "etcd-servers",
            format_args!("https://127.0.0.1:{}", addresses.etcd),
        ),
        path("etcd-cafile", &file(site, CA)),
        path("etcd-certfile", &file(site, "api-server-etcd")),
        path("etcd-keyfile", &pki.key("api-server-etcd")),
        flag("bind-address", address),
        flag("secure-port", addresses.api_server.port()),
        flag("advertise-address", address),
        flag("endpoint-reconciler-type", "none"),
        path("tls-cert-file", &file(site, "api-server")),
        path("tls-private-key-file", &pki.key("api-server")),
        path("client-ca-file", &file(site, CA)),
        path("token-auth-file", &pki.tokens()),
        flag("service-account-issuer", "https://kubernetes.default.svc"),
        path("service-account-key-file", &pki.public_key(SERVICE_ACCOUNT)),
        path("service-account-signing-key-file", &pki.key(SERVICE_ACCOUNT)),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("service-cluster-ip-range", &addresses.services),
        flag("allow-privileged", true),
        flag("anonymous-auth", false),
        path("kubelet-client-certificate", &file(site, "api-server-kubelet")),
        path("kubelet-client-key", &pki.key("api-server-kubelet")),
        path("kubelet-certificate-authority", &file(site, CA)),
        flag("kubelet-preferred-address-types", "InternalIP"),
        path("requestheader-client-ca-file", &file(site, FRONT_PROXY_CA)),
        flag("requestheader-allowed-names", "front-proxy-client"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-username-headers", "X-Remote-User"),
        path("proxy-client-cert-file", &file(site, "front-proxy")),
        path("proxy-client-key-file", &pki.key("front-proxy")),
    ];
    if site.level == Level::Node {
        // Webhooks and aggregated servers are reached at their endpoints: no kube-proxy serves their Services.
        arguments.push(flag("enable-aggregator-routing", true));
    }
    arguments
}

/// The controller manager.
#[must_use]
pub(super) fn controller_manager(site: &Site) -> Vec<String> {
    let mut arguments = controller(site, "controller-manager", site.addresses.controller_manager);
    arguments.extend([
        path("service-account-private-key-file", &site.pki.key(SERVICE_ACCOUNT)),
        path("root-ca-file", &file(site, CA)),
        flag("use-service-account-credentials", true),
        path("cluster-signing-cert-file", &file(site, CA)),
        path("cluster-signing-key-file", &site.pki.key(CA)),
    ]);
    if site.level == Level::ControlPlane {
        // Nodes are objects that a test made by hand: no kubelet renews their leases, and they must stay ready.
        arguments.push(flag("node-monitor-grace-period", "24h"));
    }
    arguments
}

/// The scheduler.
#[must_use]
pub(super) fn scheduler(site: &Site) -> Vec<String> {
    controller(site, "scheduler", site.addresses.scheduler)
}

fn controller(site: &Site, name: &str, port: u16) -> Vec<String> {
    let kubeconfig = &site.kubeconfig(name);
    vec![
        path("kubeconfig", kubeconfig),
        path("authentication-kubeconfig", kubeconfig),
        path("authorization-kubeconfig", kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", port),
        path("tls-cert-file", &file(site, name)),
        path("tls-private-key-file", &site.pki.key(name)),
        flag("leader-elect", false),
    ]
}

/// A flag with a value.
pub(super) fn flag(name: &str, value: impl Display) -> String {
    format!("--{name}={value}")
}

/// A flag whose value is a file.
pub(super) fn path(name: &str, value: &Path) -> String {
    flag(name, value.display())
}

fn file(site: &Site, certificate: &str) -> std::path::PathBuf {
    site.pki.certificate(certificate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::site::site_for_test;

    fn has(arguments: &[String], argument: &str) -> bool {
        arguments.iter().any(|other| other == argument)
    }

    #[test]
    fn nodes_that_are_objects_stay_ready_and_real_ones_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        for (level, expected) in [(Level::ControlPlane, true), (Level::Node, false)] {
            let arguments = controller_manager(&site_for_test(folder.path(), level));
            assert_eq!(
                has(&arguments, "--node-monitor-grace-period=24h"),
                expected,
                "{level}"
            );
        }
    }

    #[test]
    fn the_api_server_listens_where_its_level_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let loopback = api_server(&site_for_test(folder.path(), Level::Api));
        assert!(has(&loopback, "--bind-address=127.0.0.1") && has(&loopback, "--secure-port=1"));
        assert!(!has(&loopback, "--enable-aggregator-routing=true"));
        let bridge = api_server(&site_for_test(folder.path(), Level::Node));
        assert!(has(&bridge, "--bind-address=10.97.7.1") && has(&bridge, "--secure-port=443"));
        assert!(has(&bridge, "--enable-aggregator-routing=true"));
    }

    #[test]
    fn every_command_line_names_the_folder_by_which_it_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let site = site_for_test(folder.path(), Level::Node);
        let place = format!("{}/", site.folder.path().display());
        for arguments in [
            etcd(&site),
            api_server(&site),
            controller_manager(&site),
            scheduler(&site),
        ] {
            assert!(
                arguments.iter().any(|argument| argument.contains(&place)),
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn the_scheduler_is_told_who_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let site = site_for_test(folder.path(), Level::ControlPlane);
        let dev = site.folder.path().display();
        let expected = [
            format!("--kubeconfig={dev}/scheduler.kubeconfig"),
            format!("--authentication-kubeconfig={dev}/scheduler.kubeconfig"),
            format!("--authorization-kubeconfig={dev}/scheduler.kubeconfig"),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=5".to_owned(),
            format!("--tls-cert-file={dev}/pki/scheduler.crt"),
            format!("--tls-private-key-file={dev}/pki/scheduler.key"),
            "--leader-elect=false".to_owned(),
        ];
        assert_eq!(scheduler(&site), expected);
    }
}
