use super::*;
use common::daemon::pflag::try_parse;
use std::ffi::OsString;

fn read(line: &str) -> Result<Args, String> {
    let argv = std::iter::once("recommender").chain(line.split_whitespace());
    try_parse(argv.map(OsString::from)).map_err(|error| error.to_string())
}

fn config(line: &str) -> Result<Config, String> {
    read(line)?.config().map_err(|error| error.to_string())
}

#[test]
fn takes_the_command_lines_that_vpa_runs_with() {
    for line in [
        "",
        "--v=4 --stderrthreshold=info",
        "--kubeconfig=K --recommender-interval=10s --address=127.0.0.1:1",
        "--leader-elect=true --leader-elect-resource-name=vpa-recommender-lease --leader-elect-resource-namespace=vpa",
        "--storage=prometheus --prometheus-address=http://p:9090 --history-length=30d --history-resolution=15m",
        "--container-recommendation-max-allowed-cpu=4 --container-recommendation-max-allowed-memory=16Gi",
        "--humanize-memory --round-cpu-millicores=50 --memory-saver=true --min-checkpoints=5",
    ] {
        config(line).unwrap();
    }
}

/// `spec/vpa.md` 2.1.
#[test]
fn has_every_flag_of_vpa_with_its_default() {
    let help = read("--help").unwrap_err();
    let mut flags = std::collections::BTreeMap::new();
    let mut last = String::new();
    for line in help.lines() {
        if let Some((_, rest)) = line.split_once("--") {
            last = rest.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
        }
        if let Some((_, default)) = line.split_once("[default: ") {
            flags
                .entry(last.clone())
                .or_insert(default.trim_end_matches(']').to_owned());
        }
    }
    for (flag, default) in [
        ("recommender-name", "default"),
        ("recommender-interval", "1m0s"),
        ("checkpoints-gc-interval", "10m0s"),
        ("checkpoints-timeout", "1m0s"),
        ("address", ":8942"),
        ("memory-saver", "false"),
        ("update-worker-count", "10"),
        ("min-checkpoints", "10"),
        ("recommendation-margin-fraction", "0.15"),
        ("pod-recommendation-min-cpu-millicores", "25"),
        ("pod-recommendation-min-memory-mb", "250"),
        ("target-cpu-percentile", "0.9"),
        ("recommendation-lower-bound-cpu-percentile", "0.5"),
        ("recommendation-upper-bound-cpu-percentile", "0.95"),
        ("confidence-interval-cpu", "24h0m0s"),
        ("target-memory-percentile", "0.9"),
        ("recommendation-lower-bound-memory-percentile", "0.5"),
        ("recommendation-upper-bound-memory-percentile", "0.95"),
        ("confidence-interval-memory", "24h0m0s"),
        ("humanize-memory", "false"),
        ("round-cpu-millicores", "1"),
        ("round-memory-bytes", "1"),
        ("prometheus-address", "http://prometheus.monitoring.svc"),
        ("prometheus-insecure", "false"),
        ("prometheus-cadvisor-job-name", "kubernetes-cadvisor"),
        ("history-length", "8d"),
        ("history-resolution", "1h"),
        ("history-cpu-metric", "container_cpu_usage_seconds_total"),
        ("history-memory-metric", "container_memory_working_set_bytes"),
        ("prometheus-query-timeout", "5m0s"),
        ("pod-label-prefix", "pod_label_"),
        ("metric-for-pod-labels", "up{job=\"kubernetes-pods\"}"),
        ("pod-namespace-label", "kubernetes_namespace"),
        ("pod-name-label", "kubernetes_pod_name"),
        ("container-namespace-label", "namespace"),
        ("container-pod-name-label", "pod_name"),
        ("container-name-label", "name"),
        ("use-external-metrics", "false"),
        ("memory-aggregation-interval", "24h0m0s"),
        ("memory-aggregation-interval-count", "8"),
        ("memory-histogram-decay-half-life", "24h0m0s"),
        ("cpu-histogram-decay-half-life", "24h0m0s"),
        ("oom-bump-up-ratio", "1.2"),
        ("oom-min-bump-up-bytes", "104857600"),
        ("cpu-integer-post-processor-enabled", "false"),
        ("leader-elect-resource-name", "vpa-recommender-lease"),
    ] {
        assert_eq!(flags.get(flag).map(String::as_str), Some(default), "--{flag}");
    }
}

#[test]
fn what_cannot_work_is_refused() {
    for (line, expected) in [
        (
            "--recommender-interval=0s",
            "--recommender-interval must be longer than zero",
        ),
        (
            "--update-worker-count=0",
            "invalid --update-worker-count: there must be at least one",
        ),
        (
            "--cpu-histogram-decay-half-life=0s",
            "--cpu-histogram-decay-half-life must be longer than zero",
        ),
        (
            "--prometheus-bearer-token=a --username=b",
            "invalid --prometheus-bearer-token: give only one of --prometheus-bearer-token, \
             --prometheus-bearer-token-file and --username",
        ),
    ] {
        assert_eq!(config(line).unwrap_err(), expected);
    }
    config("--prometheus-bearer-token=a --username=b --quirks=Q3").unwrap();
}
