//! A cluster that is not kept but made up as it is asked for: whose pod, of which rollout, using how much, all follow from
//! numbers. What it looks like on the wire is as long as it is on a real API server.

use std::fmt::Write as _;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) pods: usize,
    /// Of each pod, a native sidecar among them in a third of the workloads.
    pub(super) containers: usize,
    pub(super) vpas: usize,
}

impl Size {
    pub(super) fn all_containers(self) -> usize {
        self.pods * self.containers
    }
}

/// What a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::Job => "batch/v1",
            _ => "apps/v1",
        }
    }
}

/// How many pods the workloads have, in turn: many small ones and few large ones.
const SIZES: [usize; 10] = [1, 1, 2, 3, 4, 6, 8, 10, 15, 25];
const WORKLOADS_PER_NAMESPACE: usize = 40;

/// The cluster. Only which rollout each pod is of is remembered.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) size: Size,
    /// The first pod of each workload, and the end.
    first: Vec<usize>,
    /// How often each pod was replaced.
    replaced: Vec<u32>,
}

impl Cluster {
    /// Every VPA has a workload of its own.
    pub(super) fn new(size: Size) -> Self {
        let whole: usize = (0..size.vpas).map(|workload| SIZES[workload % SIZES.len()]).sum();
        let mut first = Vec::with_capacity(size.vpas + 1);
        let mut passed = 0;
        for workload in 0..size.vpas {
            first.push(passed * size.pods / whole.max(1));
            passed += SIZES[workload % SIZES.len()];
        }
        first.push(size.pods);
        Self {
            size,
            first,
            replaced: vec![0; size.pods],
        }
    }

    pub(super) fn pods_of(&self, workload: usize) -> std::ops::Range<usize> {
        self.first[workload]..self.first[workload + 1]
    }

    pub(super) fn workload_of(&self, pod: usize) -> usize {
        self.first
            .partition_point(|first| *first <= pod)
            .saturating_sub(1)
            .min(self.size.vpas - 1)
    }

    /// Replaces a pod by the next one of its rollout.
    pub(super) fn replace(&mut self, pod: usize) {
        self.replaced[pod] += 1;
    }

    pub(super) fn namespace(workload: usize) -> String {
        format!("team-{}", workload / WORKLOADS_PER_NAMESPACE)
    }

    pub(super) fn workload_name(workload: usize) -> String {
        format!("service-{workload}")
    }

    pub(super) fn kind(workload: usize) -> Kind {
        match workload % 20 {
            0..=2 => Kind::StatefulSet,
            3 => Kind::DaemonSet,
            4 | 5 => Kind::Job,
            _ => Kind::Deployment,
        }
    }

    fn has_sidecar(workload: usize) -> bool {
        workload.is_multiple_of(3)
    }

    /// The rollout that a pod belongs to: a third of the Deployments are in the middle of one.
    fn rollout(&self, workload: usize, pod: usize) -> u64 {
        let rolling = workload.is_multiple_of(3) && pod.is_multiple_of(2);
        u64::from(self.replaced[pod]) * 2 + u64::from(rolling)
    }

    fn template_hash(&self, workload: usize, pod: usize) -> String {
        let mixed = mix(number(workload) << 20 | self.rollout(workload, pod));
        format!("{:010x}", mixed >> 24)
    }

    pub(super) fn pod_name(&self, pod: usize) -> String {
        let workload = self.workload_of(pod);
        let name = Self::workload_name(workload);
        match Self::kind(workload) {
            Kind::StatefulSet => format!("{name}-{}", pod - self.first[workload]),
            Kind::Deployment => format!("{name}-{}-{pod:05x}", self.template_hash(workload, pod)),
            Kind::DaemonSet | Kind::Job => format!("{name}-{pod:05x}{}", self.replaced[pod]),
        }
    }

    pub(super) fn container_name(workload: usize, container: usize) -> String {
        match container {
            0 => "app".to_owned(),
            1 if Self::has_sidecar(workload) => "istio-proxy".to_owned(),
            1 => "worker".to_owned(),
            n => format!("helper-{n}"),
        }
    }

    fn labels(&self, pod: usize) -> String {
        let workload = self.workload_of(pod);
        let name = Self::workload_name(workload);
        let own = match Self::kind(workload) {
            Kind::StatefulSet => format!(
                r#""statefulset.kubernetes.io/pod-name":"{}","apps.kubernetes.io/pod-index":"{}""#,
                self.pod_name(pod),
                pod - self.first[workload]
            ),
            Kind::Deployment => format!(r#""pod-template-hash":"{}""#, self.template_hash(workload, pod)),
            Kind::DaemonSet => {
                format!(
                    r#""controller-revision-hash":"{}","pod-template-generation":"{}""#,
                    self.template_hash(workload, pod),
                    self.replaced[pod]
                )
            }
            Kind::Job => format!(
                r#""batch.kubernetes.io/controller-uid":"{:032x}""#,
                mix(number(workload))
            ),
        };
        format!(
            r#"{{"app.kubernetes.io/name":"{name}","app.kubernetes.io/part-of":"suite-{}","tier":"{}","version":"v{}",{own}}}"#,
            workload % 97,
            ["front", "middle", "back"][workload % 3],
            workload % 11
        )
    }

    /// A pod as the API server sends it.
    pub(super) fn pod(&self, pod: usize, text: &mut String) {
        let workload = self.workload_of(pod);
        let kind = Self::kind(workload);
        let owner = match kind {
            Kind::Deployment => "ReplicaSet",
            other => other.name(),
        };
        let _infallible = write!(
            text,
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{}","namespace":"{}","uid":"{:032x}","resourceVersion":"{}","creationTimestamp":"2026-03-01T00:00:00Z","labels":{},"annotations":{{"kubernetes.io/config.source":"api","prometheus.io/scrape":"true"}},"ownerReferences":[{{"apiVersion":"{}","kind":"{owner}","name":"{}","uid":"{:032x}","controller":true,"blockOwnerDeletion":true}}],{MANAGED_FIELDS}}},"spec":{{{POD_SPEC},"#,
            self.pod_name(pod),
            Self::namespace(workload),
            mix(number(pod)),
            pod + 1,
            self.labels(pod),
            kind.api_version(),
            Self::workload_name(workload),
            mix(number(workload)),
        );
        let sidecar = Self::has_sidecar(workload).then_some(1);
        let regular = || (0..self.size.containers).filter(|n| Some(*n) != sidecar);
        text.push_str(r#""initContainers":["#);
        write_container(text, "setup", 0, "");
        if sidecar.is_some() {
            text.push(',');
            write_container(text, "istio-proxy", 1, r#""restartPolicy":"Always","#);
        }
        text.push_str(r#"],"containers":["#);
        separated(text, regular(), |text, n| {
            write_container(text, &Self::container_name(workload, n), n, "");
        });
        let _infallible = write!(text, r#"]}},"status":{{{POD_STATUS},"containerStatuses":["#);
        separated(text, regular(), |text, n| {
            write_status(text, &Self::container_name(workload, n));
        });
        text.push_str(r#"],"initContainerStatuses":["#);
        if sidecar.is_some() {
            write_status(text, "istio-proxy");
        }
        text.push_str("]}}");
    }

    /// What a pod uses, as metrics-server says it.
    pub(super) fn pod_metrics(&self, pod: usize, now: DateTime<Utc>, turn: u64, text: &mut String) {
        let workload = self.workload_of(pod);
        let _infallible = write!(
            text,
            r#"{{"metadata":{{"name":"{}","namespace":"{}","creationTimestamp":"{time}","labels":{}}},"timestamp":"{time}","window":"15.021s","containers":["#,
            self.pod_name(pod),
            Self::namespace(workload),
            self.labels(pod),
            time = time(now),
        );
        separated(text, 0..self.size.containers, |text, container| {
            let luck = mix(number(pod) << 24 ^ turn << 4 ^ number(container));
            let base = mix(number(workload) << 4 ^ number(container));
            // From a millicore to a few cores and from 20 MB to 2 GB, each with its own spread.
            let cpu = (1_000_000 << (base % 11)) + luck % (500_000 << (base % 11));
            let memory = (20_000 << (base >> 8 & 6)) + (luck >> 20) % (8_000 << (base >> 8 & 6));
            let _infallible = write!(
                text,
                r#"{{"name":"{}","usage":{{"cpu":"{cpu}n","memory":"{memory}Ki"}}}}"#,
                Self::container_name(workload, container)
            );
        });
        text.push_str("]}");
    }

    /// The VPA of a workload, with a status if it has one by now.
    pub(super) fn vpa(workload: usize, status: Option<&str>, text: &mut String) {
        let kind = Self::kind(workload);
        let _infallible = write!(
            text,
            r#"{{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscaler","metadata":{{"name":"{name}","namespace":"{}","uid":"{:032x}","resourceVersion":"{}","generation":1,"creationTimestamp":"2026-02-01T00:00:00Z",{MANAGED_FIELDS}}},"spec":{{"targetRef":{{"apiVersion":"{}","kind":"{}","name":"{name}"}},"updatePolicy":{{"updateMode":"{}"}},"resourcePolicy":{{"containerPolicies":[{{"containerName":"*","maxAllowed":{{"cpu":"8","memory":"16Gi"}}}}]}}}},"status":{}}}"#,
            Self::namespace(workload),
            mix(number(workload)),
            workload + 1,
            kind.api_version(),
            kind.name(),
            ["Off", "Recreate", "InPlaceOrRecreate"][workload % 3],
            status.unwrap_or("{}"),
            name = Self::workload_name(workload),
        );
    }

    /// A workload itself.
    pub(super) fn controller(workload: usize, text: &mut String) {
        let kind = Self::kind(workload);
        let _infallible = write!(
            text,
            r#"{{"apiVersion":"{}","kind":"{}","metadata":{{"name":"{name}","namespace":"{}","uid":"{:032x}","resourceVersion":"1",{MANAGED_FIELDS}}},"spec":{{"selector":{{"matchLabels":{{"app.kubernetes.io/name":"{name}"}}}},"template":{{"spec":{{{POD_SPEC}}}}}}}}}"#,
            kind.api_version(),
            kind.name(),
            Self::namespace(workload),
            mix(number(workload)),
            name = Self::workload_name(workload),
        );
    }

    /// The checkpoint of a container, as a recommender left it that has run for eight days.
    pub(super) fn checkpoint(
        &self,
        workload: usize,
        container: usize,
        now: DateTime<Utc>,
        text: &mut String,
    ) {
        let vpa = Self::workload_name(workload);
        let name = Self::container_name(workload, container);
        let luck = mix(number(workload) << 4 ^ number(container));
        let end = now.timestamp() + 3600 + i64::try_from(luck % 72_000).unwrap_or(0);
        let mut windows = String::new();
        separated(&mut windows, self.pods_of(workload), |windows, pod| {
            let peak = 20_000_000 + mix(number(pod)) % 2_000_000_000;
            let _infallible = write!(windows, r#"\"{}\":[{end},{peak}]"#, self.pod_name(pod));
        });
        let histogram = |first: u64, buckets: u64, total: f64| {
            let mut weights = String::new();
            separated(&mut weights, 0..buckets, |weights, bucket| {
                let weight = 1 + mix(luck ^ bucket) % 10_000;
                let _infallible = write!(weights, r#""{}":{weight}"#, first + bucket);
            });
            format!(
                r#"{{"referenceTimestamp":"2026-03-01T00:00:00Z","bucketWeights":{{{weights}}},"totalWeight":{total}}}"#
            )
        };
        let _infallible = write!(
            text,
            r#"{{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscalerCheckpoint","metadata":{{"name":"{vpa}-{name}","namespace":"{}","uid":"{luck:032x}","resourceVersion":"1","annotations":{{"outrigger/open-windows":"{{\"windows\":{{{windows}}}}}"}},{MANAGED_FIELDS}}},"spec":{{"vpaObjectName":"{vpa}","containerName":"{name}"}},"status":{{"lastUpdateTime":"{written}","version":"v3","cpuHistogram":{},"memoryHistogram":{},"firstSampleStart":"{}","lastSampleStart":"{written}","totalSamplesCount":11520}}}}"#,
            Self::namespace(workload),
            histogram(luck % 40, 12, 215.0),
            histogram(luck % 30, 4, 2.0),
            time(now - TimeDelta::days(8)),
            written = time(now - TimeDelta::minutes(5)),
        );
    }
}

fn write_container(text: &mut String, name: &str, number: usize, extra: &str) {
    let _infallible = write!(
        text,
        r#"{{"name":"{name}","image":"registry.example.org/team/{name}:1.{number}.0",{extra}"resources":{{"limits":{{"cpu":"1","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},{CONTAINER}}}"#
    );
}

fn write_status(text: &mut String, name: &str) {
    let _infallible = write!(
        text,
        r#"{{"name":"{name}","containerID":"containerd://0f7bb3f5d1cba2ad6a6a4b7d8f7d1d9d5a1c3e1f2b3a4c5d6e7f8091a2b3c4d5","image":"registry.example.org/team/{name}:1.0.0","imageID":"registry.example.org/team/{name}@sha256:0f7bb3f5d1cba2ad6a6a4b7d8f7d1d9d5a1c3e1f2b3a4c5d6e7f8091a2b3c4d5","lastState":{{}},"ready":true,"restartCount":0,"started":true,"state":{{"running":{{"startedAt":"2026-03-01T00:00:05Z"}}}},"resources":{{"limits":{{"cpu":"1","memory":"512Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}}}}"#
    );
}

/// Writes items with a comma between them.
pub(super) fn separated<T>(
    text: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        write(text, item);
    }
}

fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn number(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A number that looks random (splitmix64).
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What nobody reads and every object has.
const MANAGED_FIELDS: &str = r#""managedFields":[{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:tier":{},"f:version":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"9f0c5ac1-4e88-4a4c-9a83-0a3b2a6d9a11\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"SETTING_0\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"SETTING_1\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}},"manager":"kube-controller-manager","operation":"Update","time":"2026-03-01T00:00:00Z"},{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}},"manager":"kubelet","operation":"Update","subresource":"status","time":"2026-03-01T00:00:05Z"}]"#;
const POD_SPEC: &str = r#""volumes":[{"name":"kube-api-access-x7v2p","projected":{"defaultMode":420,"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"items":[{"key":"ca.crt","path":"ca.crt"}],"name":"kube-root-ca.crt"}},{"downwardAPI":{"items":[{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"},"path":"namespace"}]}}]}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-17","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority""#;
const POD_STATUS: &str = r#""phase":"Running","conditions":[{"lastProbeTime":null,"lastTransitionTime":"2026-03-01T00:00:01Z","status":"True","type":"Initialized"},{"lastProbeTime":null,"lastTransitionTime":"2026-03-01T00:00:05Z","status":"True","type":"Ready"},{"lastProbeTime":null,"lastTransitionTime":"2026-03-01T00:00:05Z","status":"True","type":"ContainersReady"},{"lastProbeTime":null,"lastTransitionTime":"2026-03-01T00:00:00Z","status":"True","type":"PodScheduled"}],"hostIP":"10.0.0.17","podIP":"10.244.17.23","podIPs":[{"ip":"10.244.17.23"}],"startTime":"2026-03-01T00:00:00Z","qosClass":"Burstable""#;
const CONTAINER: &str = r#""ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"SETTING_0","value":"a value of some length, as settings have"},{"name":"SETTING_1","value":"another value of some length, as settings have"},{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],"volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kube-api-access-x7v2p","readOnly":true}],"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent""#;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn what_is_made_up_is_json_and_belongs_together() {
        let cluster = Cluster::new(Size {
            pods: 60,
            containers: 2,
            vpas: 8,
        });
        let counted: usize = (0..8).map(|workload| cluster.pods_of(workload).len()).sum();
        assert_eq!(counted, 60);
        let now = DateTime::from_timestamp(1_772_366_400, 0).unwrap();
        let mut sizes = Vec::new();
        for pod in 0..60 {
            let workload = cluster.workload_of(pod);
            assert!(cluster.pods_of(workload).contains(&pod), "{pod} {workload}");
            let read = |write: &dyn Fn(&mut String)| -> Value {
                let mut text = String::new();
                write(&mut text);
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
            };
            let object = read(&|text| cluster.pod(pod, text));
            sizes.push(object.to_string().len());
            let metrics = read(&|text| cluster.pod_metrics(pod, now, 1, text));
            assert_eq!(object["metadata"]["name"], metrics["metadata"]["name"]);
            assert_eq!(metrics["containers"].as_array().unwrap().len(), 2);
            let vpa = read(&|text| Cluster::vpa(workload, None, text));
            let controller = read(&|text| Cluster::controller(workload, text));
            assert_eq!(vpa["spec"]["targetRef"]["name"], controller["metadata"]["name"]);
            let selector = &controller["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"];
            assert_eq!(&object["metadata"]["labels"]["app.kubernetes.io/name"], selector);
            let checkpoint = read(&|text| cluster.checkpoint(workload, 1, now, text));
            let annotation = checkpoint["metadata"]["annotations"]["outrigger/open-windows"].as_str();
            let windows: Value = serde_json::from_str(annotation.unwrap()).unwrap();
            let pods = windows["windows"].as_object().unwrap().len();
            assert_eq!(pods, cluster.pods_of(workload).len());
        }
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((6_500..8_500).contains(&mean), "a pod is about 7 KB, not {mean}");
    }
}
