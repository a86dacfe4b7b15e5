//! What the admission component tells of itself: VPA's metrics under their names (`spec/vpa.md` 5.2), and ours.

use std::time::Duration;

use common::{daemon::metrics::sample, target::ControllerKey};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

use crate::{
    answer::{Answer, Subject, Trouble},
    pod::PodError,
};

/// VPA's buckets L1.
const STEP_BUCKETS: [f64; 23] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0,
    100.0, 120.0, 150.0, 240.0, 300.0,
];
/// VPA's buckets L2.
const ADMISSION_BUCKETS: [f64; 21] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0,
];
/// Where the time of a review really lies.
const REVIEW_BUCKETS: [f64; 16] = [
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0,
];

/// The metrics. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pods: Family<Applied, Counter>,
    outcomes: Family<OutcomeLabel, Counter>,
    admission: Family<ReviewLabels, Histogram, Buckets>,
    steps: Family<StepLabel, Histogram, Buckets>,
    reviews: Family<ReviewLabels, Histogram, Buckets>,
    refused: Family<RefusedLabel, Counter>,
    panics: Counter,
    scale_waits: Counter,
    expiry: Family<CertificateLabel, Gauge>,
    lease_renewals: Family<RenewedLabel, Counter>,
}

/// How a review ended, in VPA's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    /// It could not be done.
    Error,
    /// Nothing was to be changed.
    Skipped,
    /// The object was changed.
    Applied,
}

/// What a review's time is spent on, in VPA's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The body.
    ReadRequest,
    /// The answer.
    Admit,
    /// Its text.
    BuildResponse,
    /// Until it is handed over.
    WriteResponse,
    /// All of it.
    Total,
}

/// Why a request got no review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Not JSON.
    ContentType,
    /// More than 5 MiB.
    TooLarge,
    /// The body did not come in time, or not whole.
    Unread,
    /// Too many at once.
    Overload,
    /// Not everything is listed yet.
    NotSynced,
}

impl Refused {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::ContentType,
        Self::TooLarge,
        Self::Unread,
        Self::Overload,
        Self::NotSynced,
    ];

    /// The value of the metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ContentType => "content_type",
            Self::TooLarge => "too_large",
            Self::Unread => "unread",
            Self::Overload => "overload",
            Self::NotSynced => "not_synced",
        }
    }
}

/// What became of a new pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodOutcome {
    /// It got resources.
    Sized,
    /// It is a VPA's, and has what it should have, or nothing is recommended for its containers.
    NothingToChange,
    /// No VPA that sizes new pods controls it.
    NoVpa,
    /// Its controllers cannot be followed to the top.
    ControllerUnknown,
    /// It is no pod that can be read.
    Unreadable,
}

impl PodOutcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [
        Self::Sized,
        Self::NothingToChange,
        Self::NoVpa,
        Self::ControllerUnknown,
        Self::Unreadable,
    ];

    /// The value of the metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sized => "Sized",
            Self::NothingToChange => "NothingToChange",
            Self::NoVpa => "NoVpa",
            Self::ControllerUnknown => "ControllerUnknown",
            Self::Unreadable => "Unreadable",
        }
    }

    /// What came of a pod's review.
    pub(crate) fn of(answer: &Answer) -> Self {
        match &answer.trouble {
            Some(Trouble::Pod(PodError::Controller(_))) => Self::ControllerUnknown,
            Some(_) => Self::Unreadable,
            None if answer.response.patch.is_empty() => Self::NoVpa,
            None => {
                let patch = &answer.response.patch;
                let sizes = patch
                    .iter()
                    .any(|operation| operation.path().contains("/resources"));
                if sizes { Self::Sized } else { Self::NothingToChange }
            }
        }
    }
}

/// Which certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    /// The one that is checked with.
    Ca,
    /// The one that is shown.
    Serving,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Applied {
    applied: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReviewLabels {
    status: &'static str,
    resource: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusedLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RenewedLabel {
    result: &'static str,
}

#[derive(Clone, Copy, Debug)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl Metrics {
    /// Registers the metrics.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            pods: Family::default(),
            outcomes: Family::default(),
            admission: Family::new_with_constructor(Buckets(&ADMISSION_BUCKETS)),
            steps: Family::new_with_constructor(Buckets(&STEP_BUCKETS)),
            reviews: Family::new_with_constructor(Buckets(&REVIEW_BUCKETS)),
            refused: Family::default(),
            panics: Counter::default(),
            scale_waits: Counter::default(),
            expiry: Family::default(),
            lease_renewals: Family::default(),
        };
        let vpa = registry.sub_registry_with_prefix("vpa_admission_controller");
        vpa.register(
            "admission_pods",
            "Number of Pods processed by VPA Admission Controller",
            metrics.pods.clone(),
        );
        vpa.register(
            "admission_latency_seconds",
            "Time spent in VPA Admission Controller",
            metrics.admission.clone(),
        );
        vpa.register(
            "execution_latency_seconds",
            "Time spent in various parts of VPA Admission Controller",
            metrics.steps.clone(),
        );
        let ours = registry.sub_registry_with_prefix("outrigger_admission");
        ours.register(
            "pods",
            "New pods, and what became of them",
            metrics.outcomes.clone(),
        );
        ours.register(
            "review_seconds",
            "Time from the last byte of a review to the first of its answer",
            metrics.reviews.clone(),
        );
        ours.register(
            "refused_requests",
            "Requests that were no review, or got none",
            metrics.refused.clone(),
        );
        ours.register(
            "panics",
            "Reviews that met a bug and were answered without a change",
            metrics.panics.clone(),
        );
        ours.register(
            "scale_waits",
            "Pods that waited for the scale of an unknown controller",
            metrics.scale_waits.clone(),
        );
        ours.register(
            "certificate_expiry_timestamp_seconds",
            "When a certificate expires",
            metrics.expiry.clone(),
        );
        ours.register(
            "status_lease_renewals",
            "Attempts to renew the status lease, and why they failed",
            metrics.lease_renewals.clone(),
        );
        for applied in ["true", "false"] {
            let _zero = metrics.pods.get_or_create(&Applied { applied });
        }
        metrics
    }

    /// One of each, for the documentation.
    pub(crate) fn sample(&self) {
        let Self {
            pods,
            outcomes,
            admission,
            steps,
            reviews,
            refused,
            panics: _,
            scale_waits: _,
            expiry,
            lease_renewals,
        } = self;
        sample(pods);
        sample(outcomes);
        sample(admission);
        sample(steps);
        sample(reviews);
        sample(refused);
        sample(expiry);
        sample(lease_renewals);
    }

    /// A review was answered.
    pub(crate) fn reviewed(&self, subject: Subject, status: Status, took: Duration) {
        let resource = match subject {
            Subject::Pod => "Pod",
            Subject::Vpa => "VPA",
            Subject::SidecarSet => "SidecarSet",
            Subject::Unknown => "unknown",
        };
        let status = match (subject, status) {
            (_, Status::Error) => "error",
            (Subject::Pod, status) => {
                let applied = if status == Status::Applied {
                    "true"
                } else {
                    "false"
                };
                self.pods.get_or_create(&Applied { applied }).inc();
                status.name()
            }
            (_, status) => status.name(),
        };
        let labels = ReviewLabels { status, resource };
        self.admission.get_or_create(&labels).observe(took.as_secs_f64());
        self.reviews.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A new pod was answered.
    pub(crate) fn pod(&self, outcome: PodOutcome) {
        let outcome = outcome.name();
        self.outcomes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A step of a review took this long.
    pub(crate) fn step(&self, step: Step, took: Duration) {
        let step = match step {
            Step::ReadRequest => "read_request",
            Step::Admit => "admit",
            Step::BuildResponse => "build_response",
            Step::WriteResponse => "write_response",
            Step::Total => "total",
        };
        self.steps
            .get_or_create(&StepLabel { step })
            .observe(took.as_secs_f64());
    }

    /// A request got no review.
    pub(crate) fn refused(&self, reason: Refused) {
        let reason = reason.name();
        self.refused.get_or_create(&RefusedLabel { reason }).inc();
    }

    /// A review met a bug.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// A pod waits for a scale.
    pub(crate) fn waits_for_scale(&self, key: &ControllerKey) {
        tracing::debug!(controller = %key, "a pod waits for a scale");
        self.scale_waits.inc();
    }

    /// A certificate expires then, in seconds since 1970.
    pub(crate) fn expires(&self, which: Which, at: i64) {
        let certificate = match which {
            Which::Ca => "ca",
            Which::Serving => "serving",
        };
        self.expiry
            .get_or_create(&CertificateLabel { certificate })
            .set(at);
    }

    /// An attempt to renew the status lease ended so.
    pub(crate) fn lease(&self, result: &'static str) {
        self.lease_renewals.get_or_create(&RenewedLabel { result }).inc();
    }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Skipped => "skipped",
            Self::Applied => "applied",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::{Operation, Response};
    use common::target::TopmostError;

    #[test]
    fn what_became_of_a_pod() {
        let answer = |paths: &[&str], trouble: Option<Trouble>| {
            let mut response = Response::allowed("u".to_owned());
            let operations = paths.iter().map(|path| Operation::set((*path).to_owned(), "1"));
            response.patch = operations.collect();
            Answer { response, trouble }
        };
        let observed = "/metadata/annotations/vpaObservedContainers";
        for (answer, expected) in [
            (answer(&[], None), PodOutcome::NoVpa),
            (answer(&[observed], None), PodOutcome::NothingToChange),
            (
                answer(&["/spec/containers/0/resources/requests/cpu", observed], None),
                PodOutcome::Sized,
            ),
            (
                answer(&[], Some(PodError::Controller(TopmostError::Cycle).into())),
                PodOutcome::ControllerUnknown,
            ),
            (
                answer(&[], Some(PodError::NoObject.into())),
                PodOutcome::Unreadable,
            ),
        ] {
            assert_eq!(PodOutcome::of(&answer), expected);
        }
    }

    #[test]
    fn vpa_s_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.reviewed(Subject::Pod, Status::Applied, Duration::from_millis(15));
        metrics.reviewed(Subject::Pod, Status::Error, Duration::from_millis(15));
        metrics.step(Step::ReadRequest, Duration::from_millis(15));
        let text = common::daemon::metrics::encode(&registry).unwrap();
        for line in [
            "vpa_admission_controller_admission_pods_total{applied=\"true\"} 1",
            "vpa_admission_controller_admission_pods_total{applied=\"false\"} 0",
            "vpa_admission_controller_admission_latency_seconds_bucket{le=\"0.02\",status=\"applied\",resource=\"Pod\"} 1",
            "vpa_admission_controller_admission_latency_seconds_count{status=\"error\",resource=\"Pod\"} 1",
            "vpa_admission_controller_execution_latency_seconds_bucket{le=\"0.01\",step=\"read_request\"} 0",
            "outrigger_admission_review_seconds_bucket{le=\"5e-05\",status=\"applied\",resource=\"Pod\"} 0",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
