//! The plan of one cluster: its folder, its addresses, its keys. Everything that is decided before the first process
//! starts is decided here; the parts read it.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Result, ensure};

use super::{
    Level,
    cache::write,
    kubeconfig,
    network::Subnet,
    pki::{self, Pki},
    state::Folder,
};

/// The plan.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The cluster's name.
    pub name: String,
    /// How much of a cluster it is.
    pub level: Level,
    /// Its folder.
    pub folder: Folder,
    /// Its addresses.
    pub addresses: Addresses,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its keys and certificates.
    pub pki: Pki,
}

/// Who listens where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// The API server.
    pub api_server: SocketAddrV4,
    /// The range of Service addresses.
    pub services: String,
    /// The first of them, which is that of the API server's Service.
    pub first_service: Ipv4Addr,
    /// The bridge, if there are nodes.
    pub subnet: Option<Subnet>,
    /// etcd, for clients.
    pub etcd: u16,
    /// etcd, for its peers, of which there are none.
    pub etcd_peer: u16,
    /// The controller manager.
    pub controller_manager: u16,
    /// The scheduler.
    pub scheduler: u16,
    /// metrics-server.
    pub metrics_server: u16,
}

/// One node and its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Its name.
    pub name: String,
    /// The kubelet.
    pub kubelet: u16,
    /// The kubelet's health.
    pub health: u16,
    /// containerd's streams (exec, attach).
    pub stream: u16,
}

const OWN: usize = 6;
const PER_NODE: usize = 3;
/// Where the Service of the API server is, so where pods look for it.
const HTTPS: u16 = 443;

/// How many ports a cluster with so many nodes takes.
#[must_use]
pub(super) fn ports_needed(nodes: usize) -> usize {
    OWN + PER_NODE * nodes
}

/// Gives the ports and the subnet to those who listen.
///
/// # Errors
/// When there are fewer ports than [`ports_needed`].
pub(super) fn assign(ports: &[u16], nodes: usize, subnet: Option<Subnet>) -> Result<(Addresses, Vec<Node>)> {
    ensure!(
        ports.len() == ports_needed(nodes),
        "{} ports for {nodes} nodes",
        ports.len()
    );
    let addresses = Addresses {
        api_server: subnet.map_or(SocketAddrV4::new(Ipv4Addr::LOCALHOST, ports[0]), |subnet| {
            SocketAddrV4::new(subnet.api_server(), HTTPS)
        }),
        services: subnet.map_or_else(|| "10.96.0.0/16".to_owned(), Subnet::services),
        first_service: subnet.map_or(Ipv4Addr::new(10, 96, 0, 1), Subnet::api_server),
        subnet,
        etcd: ports[1],
        etcd_peer: ports[2],
        controller_manager: ports[3],
        scheduler: ports[4],
        metrics_server: ports[5],
    };
    let nodes = ports[OWN..]
        .chunks_exact(PER_NODE)
        .enumerate()
        .map(|(i, ports)| Node {
            name: format!("node-{i}"),
            kubelet: ports[0],
            health: ports[1],
            stream: ports[2],
        })
        .collect();
    Ok((addresses, nodes))
}

impl Addresses {
    /// The API server's URL.
    #[must_use]
    pub(super) fn server(&self) -> String {
        format!("https://{}", self.api_server)
    }

    /// The machine's address that pods reach; without nodes, the loopback address.
    #[must_use]
    pub(super) fn gateway(&self) -> Ipv4Addr {
        self.subnet.map_or(Ipv4Addr::LOCALHOST, Subnet::gateway)
    }
}

impl Site {
    /// Makes the keys, the certificates and the kubeconfigs of all who need one.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn make(
        name: &str,
        level: Level,
        folder: Folder,
        addresses: Addresses,
        nodes: Vec<Node>,
        token: &str,
    ) -> Result<Self> {
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        let leaves = pki::leaves(
            *addresses.api_server.ip(),
            addresses.first_service,
            addresses.gateway(),
            &names,
        );
        let pki = Pki::make(folder.join("pki"), &leaves, token)?;
        let site = Self {
            name: name.to_owned(),
            level,
            folder,
            addresses,
            nodes,
            pki,
        };
        write(&site.folder.kubeconfig(), site.render("admin"))?;
        let clients = ["controller-manager", "scheduler", "metrics-server"];
        for client in clients.into_iter().chain(names.iter().map(String::as_str)) {
            write(&site.kubeconfig(client), site.render(client))?;
        }
        Ok(site)
    }

    /// The kubeconfig of a part of the cluster.
    #[must_use]
    pub(super) fn kubeconfig(&self, client: &str) -> std::path::PathBuf {
        self.folder.join(&format!("{client}.kubeconfig"))
    }

    fn render(&self, client: &str) -> String {
        kubeconfig::render(
            &self.name,
            &self.addresses.server(),
            &self.pki.certificate(pki::CA),
            &self.pki.certificate(client),
            &self.pki.key(client),
        )
    }
}

/// A plan in a folder, with nothing made yet.
#[cfg(test)]
pub(super) fn site_for_test(root: &std::path::Path, level: Level) -> Site {
    use crate::cluster::Cache;
    let subnet = (level == Level::Node).then(|| Subnet::numbered(7));
    let nodes = usize::from(level == Level::Node);
    let ports: Vec<u16> = (1..).take(ports_needed(nodes)).collect();
    let (addresses, nodes) = assign(&ports, nodes, subnet).unwrap();
    let folder = Folder::of(&Cache::at(root.to_owned()), "dev").unwrap();
    let pki = Pki::at(folder.join("pki"));
    Site {
        name: "dev".into(),
        level,
        folder,
        addresses,
        nodes,
        pki,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_nodes_all_is_on_the_loopback_interface() {
        let (addresses, nodes) = assign(&[1, 2, 3, 4, 5, 6], 0, None).unwrap();
        let expected = Addresses {
            api_server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1),
            services: "10.96.0.0/16".into(),
            first_service: Ipv4Addr::new(10, 96, 0, 1),
            subnet: None,
            etcd: 2,
            etcd_peer: 3,
            controller_manager: 4,
            scheduler: 5,
            metrics_server: 6,
        };
        assert_eq!((&addresses, &nodes[..]), (&expected, &[][..]));
        assert_eq!(addresses.server(), "https://127.0.0.1:1");
    }

    #[test]
    fn with_nodes_the_api_server_is_where_its_service_is() {
        let ports: Vec<u16> = (1..=12).collect();
        let (addresses, nodes) = assign(&ports, 2, Some(Subnet::numbered(7))).unwrap();
        assert_eq!(addresses.server(), "https://10.97.7.1:443");
        assert_eq!(addresses.first_service, Ipv4Addr::new(10, 97, 7, 1));
        assert_eq!(addresses.gateway(), Ipv4Addr::new(10, 88, 7, 1));
        let expected = [
            Node {
                name: "node-0".into(),
                kubelet: 7,
                health: 8,
                stream: 9,
            },
            Node {
                name: "node-1".into(),
                kubelet: 10,
                health: 11,
                stream: 12,
            },
        ];
        assert_eq!(nodes, expected);
    }

    #[test]
    fn the_number_of_ports_must_fit() {
        assert!(assign(&[1, 2], 0, None).is_err());
    }
}
