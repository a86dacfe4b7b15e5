//! The addresses of one cluster. The lower levels live on the loopback interface; a cluster with nodes has a bridge
//! of its own, on which pods, kubelets and the API server reach each other without forwarding or packet filters.

use std::{collections::BTreeSet, net::Ipv4Addr, process::Command};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

/// The number of a cluster's subnets: pods are in 10.88.N.0/24, services in 10.97.N.0/24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Subnet(u8);

impl Subnet {
    #[cfg(test)]
    pub(super) fn numbered(number: u8) -> Self {
        Self(number)
    }

    /// The machine's address on the bridge; kubelets and metrics-server listen there.
    #[must_use]
    pub(super) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, self.0, 1)
    }

    /// The pods' addresses.
    #[must_use]
    pub(super) fn pods(self) -> String {
        format!("10.88.{}.0/24", self.0)
    }

    /// The first address that a pod gets.
    #[must_use]
    pub(super) fn first_pod(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, self.0, 10)
    }

    /// The services' addresses. No one forwards to them, but the first is the API server's own.
    #[must_use]
    pub(super) fn services(self) -> String {
        format!("10.97.{}.0/24", self.0)
    }

    /// The address of the Service `kubernetes`, which the bridge also has and the API server listens on: so a pod
    /// finds the API server where its environment says, although there is no kube-proxy.
    #[must_use]
    pub(super) fn api_server(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 97, self.0, 1)
    }

    /// The name of the bridge.
    #[must_use]
    pub(super) fn bridge(self) -> String {
        format!("outrigger{}", self.0)
    }

    /// The first subnet that no other cluster has and no interface of the machine is in.
    ///
    /// # Errors
    /// When all are taken, or `ip` does not run.
    pub(super) fn choose(taken: &BTreeSet<Self>) -> Result<Self> {
        first_free(taken, &ip(&["-4", "-o", "address", "show"])?)
    }

    /// Makes the bridge.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub(super) fn make(self) -> Result<()> {
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&[
            "address",
            "add",
            &format!("{}/24", self.gateway()),
            "dev",
            &bridge,
        ])?;
        ip(&[
            "address",
            "add",
            &format!("{}/32", self.api_server()),
            "dev",
            &bridge,
        ])?;
        ip(&["link", "set", &bridge, "up"])?;
        Ok(())
    }

    /// Removes the bridge, if it is there.
    ///
    /// # Errors
    /// When it is there and `ip` refuses.
    pub(super) fn remove(self) -> Result<()> {
        let bridge = self.bridge();
        if std::path::Path::new("/sys/class/net").join(&bridge).exists() {
            ip(&["link", "delete", &bridge])?;
        }
        Ok(())
    }
}

fn first_free(taken: &BTreeSet<Subnet>, addresses: &str) -> Result<Subnet> {
    (0..=u8::MAX)
        .map(Subnet)
        .find(|subnet| {
            let in_use = [subnet.gateway(), subnet.api_server()]
                .into_iter()
                .any(|address| {
                    let [a, b, c, _] = address.octets();
                    addresses.contains(&format!(" {a}.{b}.{c}."))
                });
            !taken.contains(subnet) && !in_use
        })
        .context("no free subnet 10.88.N.0/24: stop a cluster with `hack cluster down`")
}

fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("running ip (of iproute2)")?;
    if !output.status.success() {
        bail!(
            "ip {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_free_if_no_cluster_and_no_interface_has_it() {
        let addresses = "2: eth0    inet 192.168.1.2/24 brd 192.168.1.255 scope global eth0
3: outrigger0    inet 10.88.0.1/24 scope global outrigger0
4: vpn    inet 10.97.2.7/32 scope global vpn
5: other    inet 10.88.30.1/24 scope global other";
        assert_eq!(
            first_free(&BTreeSet::from([Subnet(1)]), addresses).unwrap(),
            Subnet(3)
        );
        assert_eq!(first_free(&BTreeSet::new(), "").unwrap(), Subnet(0));
        assert!(first_free(&(0..=u8::MAX).map(Subnet).collect(), "").is_err());
    }

    #[test]
    fn all_addresses_come_from_one_number() {
        let subnet = Subnet(7);
        assert_eq!(subnet.gateway().to_string(), "10.88.7.1");
        assert_eq!(subnet.pods(), "10.88.7.0/24");
        assert_eq!(subnet.api_server().to_string(), "10.97.7.1");
        assert_eq!(subnet.services(), "10.97.7.0/24");
        assert!(
            Subnet(u8::MAX).bridge().len() <= 15,
            "the kernel's limit for the name of an interface"
        );
    }
}
