//! The Go modules that the programs of a cluster are built from, with all that goes into building them.
//! They are part of this binary, so that a build needs neither the checkout nor a version named twice.

use ring::digest;

use super::{Level, versions};

/// One Go module and what is built from it.
#[derive(Debug)]
pub(super) struct Module {
    /// What it is called in messages and in the cache.
    pub name: &'static str,
    /// Its pinned version.
    pub version: &'static str,
    /// The files of a small module of ours that names it as a dependency, `go.mod` and `go.sum` among them.
    pub files: &'static [(&'static str, &'static str)],
    /// Packages whose variables are told the version; without, a Kubernetes server calls itself v0.0.0 and
    /// clients misjudge it.
    pub version_package: Option<&'static str>,
    /// Build tags.
    pub tags: &'static str,
    /// The programs.
    pub programs: &'static [Program],
}

/// One program.
#[derive(Debug)]
pub(super) struct Program {
    /// The name of the executable.
    pub name: &'static str,
    /// The Go package with its `main`.
    pub package: &'static str,
    /// The lowest level that needs it.
    pub level: Level,
}

impl Module {
    /// What names this build in the cache: the version, and a digest of everything else that decides the result.
    #[must_use]
    pub(super) fn key(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        for (name, content) in self.files {
            context.update(name.as_bytes());
            context.update(content.as_bytes());
        }
        context.update(self.link_flags().as_bytes());
        context.update(self.tags.as_bytes());
        let digest = hex(context.finish().as_ref());
        format!("{}-{}-{}", self.name, self.version, &digest[..8])
    }

    /// What is passed to `go build -ldflags`.
    #[must_use]
    pub(super) fn link_flags(&self) -> String {
        let stripped = "-s -w".to_owned();
        let Some(package) = self.version_package else {
            return stripped;
        };
        let mut numbers = self.version.trim_start_matches('v').split('.');
        let major = numbers.next().unwrap_or_default();
        let minor = numbers.next().unwrap_or_default();
        format!(
            "{stripped} -X {package}.gitVersion={} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}",
            self.version
        )
    }
}

/// Lower-case hexadecimal.
#[must_use]
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

macro_rules! module_files {
    ($name:literal) => {
        &[
            (
                "go.mod",
                include_str!(concat!("../../cluster/build/", $name, "/go.mod")),
            ),
            (
                "go.sum",
                include_str!(concat!("../../cluster/build/", $name, "/go.sum")),
            ),
        ]
    };
}

/// All of them, in the order in which they are built: what the lowest level needs comes first.
pub(super) const MODULES: &[Module] = &[
    Module {
        name: "etcd",
        version: versions::ETCD,
        files: module_files!("etcd"),
        version_package: None,
        tags: "",
        programs: &[Program {
            name: "etcd",
            package: "go.etcd.io/etcd/server/v3",
            level: Level::Api,
        }],
    },
    Module {
        name: "kubernetes",
        version: versions::KUBERNETES,
        files: module_files!("kubernetes"),
        version_package: Some("k8s.io/component-base/version"),
        tags: "",
        programs: &[
            Program {
                name: "kube-apiserver",
                package: "k8s.io/kubernetes/cmd/kube-apiserver",
                level: Level::Api,
            },
            Program {
                name: "kubectl",
                package: "k8s.io/kubernetes/cmd/kubectl",
                level: Level::Api,
            },
            Program {
                name: "kube-controller-manager",
                package: "k8s.io/kubernetes/cmd/kube-controller-manager",
                level: Level::ControlPlane,
            },
            Program {
                name: "kube-scheduler",
                package: "k8s.io/kubernetes/cmd/kube-scheduler",
                level: Level::ControlPlane,
            },
            Program {
                name: "kubelet",
                package: "k8s.io/kubernetes/cmd/kubelet",
                level: Level::Node,
            },
        ],
    },
    Module {
        name: "metrics-server",
        version: versions::METRICS_SERVER,
        files: module_files!("metrics-server"),
        version_package: Some("k8s.io/component-base/version"),
        tags: "",
        programs: &[Program {
            name: "metrics-server",
            package: "sigs.k8s.io/metrics-server/cmd/metrics-server",
            level: Level::Node,
        }],
    },
    Module {
        name: "containerd",
        version: versions::CONTAINERD,
        files: module_files!("containerd"),
        version_package: None,
        // Snapshotters that are not used here.
        tags: "no_btrfs,no_devmapper,no_zfs",
        programs: &[
            Program {
                name: "containerd",
                package: "github.com/containerd/containerd/v2/cmd/containerd",
                level: Level::Node,
            },
            Program {
                name: "containerd-shim-runc-v2",
                package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                level: Level::Node,
            },
            Program {
                name: "ctr",
                package: "github.com/containerd/containerd/v2/cmd/ctr",
                level: Level::Node,
            },
        ],
    },
    Module {
        name: "cni",
        version: versions::CNI,
        files: module_files!("cni"),
        version_package: None,
        tags: "",
        programs: &[
            Program {
                name: "bridge",
                package: "github.com/containernetworking/plugins/plugins/main/bridge",
                level: Level::Node,
            },
            Program {
                name: "loopback",
                package: "github.com/containernetworking/plugins/plugins/main/loopback",
                level: Level::Node,
            },
            Program {
                name: "host-local",
                package: "github.com/containernetworking/plugins/plugins/ipam/host-local",
                level: Level::Node,
            },
        ],
    },
    Module {
        name: "workload",
        version: versions::WORKLOAD,
        files: &[
            ("go.mod", include_str!("../../cluster/workload/go.mod")),
            ("main.go", include_str!("../../cluster/workload/main.go")),
            ("load.go", include_str!("../../cluster/workload/load.go")),
        ],
        version_package: None,
        tags: "",
        programs: &[Program {
            name: "workload",
            package: "outrigger.example/hack/workload",
            level: Level::Node,
        }],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn go_mod(module: &Module) -> &'static str {
        module.files.iter().find(|(name, _)| *name == "go.mod").unwrap().1
    }

    #[test]
    fn the_go_modules_name_the_pinned_versions() {
        for module in MODULES.iter().filter(|module| module.name != "workload") {
            let package = module.programs[0].package;
            let required = go_mod(module)
                .lines()
                .filter_map(|line| line.trim().trim_start_matches("require ").split_once(' '))
                .filter(|(path, _)| package == *path || package.starts_with(&format!("{path}/")))
                .filter(|(_, rest)| !rest.starts_with("=>"))
                .map(|(_, version)| version.split(' ').next().unwrap())
                .collect::<Vec<_>>();
            assert_eq!(required, [module.version], "{}", module.name);
        }
    }

    #[test]
    fn the_published_staging_modules_follow_kubernetes() {
        let staging = versions::KUBERNETES.replacen("v1.", "v0.", 1);
        for module in MODULES {
            for line in go_mod(module).lines().filter(|line| line.contains("=>")) {
                assert!(line.ends_with(&staging), "{}: {line}", module.name);
            }
        }
    }

    #[test]
    fn go_mod_lists_each_program_as_a_tool() {
        for module in MODULES.iter().filter(|module| module.name != "workload") {
            for program in module.programs {
                assert!(go_mod(module).contains(program.package), "{}", program.package);
            }
        }
    }

    #[test]
    fn program_names_are_unique_and_keys_carry_the_version() {
        let programs: Vec<_> = MODULES
            .iter()
            .flat_map(|module| module.programs)
            .map(|program| program.name)
            .collect();
        assert_eq!(programs.iter().collect::<BTreeSet<_>>().len(), programs.len());
        for module in MODULES {
            let prefix = format!("{}-{}-", module.name, module.version);
            assert!(module.key().starts_with(&prefix), "{}", module.key());
        }
    }

    #[test]
    fn kubernetes_is_told_its_version() {
        let kubernetes = MODULES.iter().find(|module| module.name == "kubernetes").unwrap();
        assert_eq!(
            kubernetes.link_flags(),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.4 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
        );
    }
}
