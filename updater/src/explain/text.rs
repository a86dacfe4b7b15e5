//! An explanation for people.

use std::{collections::BTreeSet, fmt};

use common::pod::ResourceList;

use super::{ContainerView, DecisionView, EvictionsView, Explanation, GroupView, PodView};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            name,
            update_mode,
            admission_fresh,
            evictions,
            groups,
            pods,
        } = self;
        writeln!(
            f,
            "VPA {namespace}/{name}: update mode {update_mode}, {} live pods",
            pods.len()
        )?;
        match admission_fresh {
            Some(true) => writeln!(f, "  the admission controller's lease is fresh")?,
            Some(false) => writeln!(f, "  the admission controller's lease is NOT fresh")?,
            None => {}
        }
        writeln!(f, "  evictions: {evictions}")?;
        for group in groups {
            writeln!(f, "  {group}")?;
        }
        if pods.is_empty() {
            writeln!(f, "  it controls no live pod, or leaves running pods alone")?;
        }
        for pod in pods {
            write!(f, "\n{pod}")?;
        }
        Ok(())
    }
}

impl fmt::Display for EvictionsView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget => f.write_str("as many as the disruption budget allows"),
            Self::Probe => f.write_str("one, to see whether admission sizes the pod that follows"),
            Self::Stopped(reason) => write!(f, "none ({reason})"),
            Self::LoopSkipped => f.write_str("none, and no resizes either (Q26)"),
        }
    }
}

impl fmt::Display for GroupView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            name,
            configured,
            running,
            pending,
            tolerance,
            below_min_replicas,
        } = self;
        write!(
            f,
            "group {kind} {name}: wants {configured}, {running} run, {pending} are pending, {tolerance} may be disrupted at once"
        )?;
        if *below_min_replicas {
            f.write_str("; below minReplicas")?;
        }
        Ok(())
    }
}

impl fmt::Display for PodView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            phase,
            started,
            decision,
            reason,
            because,
            priority,
            containers,
        } = self;
        let what = match decision {
            DecisionView::Resize => "would be resized in place",
            DecisionView::Evict => "would be evicted",
            DecisionView::Unboost => "would have its startup boost ended",
            DecisionView::Leave => "is left as it is",
        };
        write!(f, "pod {name} ({phase}")?;
        if let Some(started) = started {
            write!(f, " since {}", started.format("%Y-%m-%d %H:%M:%S"))?;
        }
        write!(f, ") {what}")?;
        if let (Some(reason), Some(because)) = (reason, because) {
            write!(f, ": {because} ({reason})")?;
        }
        writeln!(
            f,
            "\n  its requests would change by {:.1} %{}{}",
            priority.resource_diff * 100.0,
            if priority.scale_up {
                ", some are too low"
            } else {
                ""
            },
            if priority.outside_bounds {
                ", some are out of bounds"
            } else {
                ""
            },
        )?;
        for container in containers {
            write!(f, "{container}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ContainerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = match (self.kind, self.counts_for_eviction) {
            ("container", true) => "",
            ("container", false) => ", unknown to admission",
            (_, true) => ", native sidecar",
            (_, false) => ", native sidecar that is no reason to evict",
        };
        writeln!(f, "  {}{note}", self.name)?;
        let lists = [
            &self.requests,
            &self.limits,
            &self.planned_requests,
            &self.planned_limits,
        ];
        let resources: BTreeSet<&String> = lists.into_iter().flat_map(ResourceList::keys).collect();
        for resource in resources {
            let amount = |list: &ResourceList| {
                list.get(resource)
                    .map_or_else(|| "-".to_owned(), ToString::to_string)
            };
            let change = |has: &ResourceList, planned: &ResourceList| match planned.get(resource) {
                Some(planned) if has.get(resource).is_none_or(|has| !has.same_value(planned)) => {
                    format!("{} -> {planned}", amount(has))
                }
                Some(_) | None => amount(has),
            };
            write!(
                f,
                "    {resource}: request {}, limit {}",
                change(&self.requests, &self.planned_requests),
                change(&self.limits, &self.planned_limits)
            )?;
            if self.lower_bound.contains_key(resource) || self.upper_bound.contains_key(resource) {
                write!(
                    f,
                    ", bounds {} to {}",
                    amount(&self.lower_bound),
                    amount(&self.upper_bound)
                )?;
            }
            writeln!(f)?;
        }
        for reason in &self.reasons {
            writeln!(f, "    {reason}")?;
        }
        Ok(())
    }
}
