//! Faults on demand: rules that match requests by verb, resource and name, and strike with a probability, a number of
//! times, the same way for the same seed. Jumps of the clock are the virtual clock's own.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{api::mix, error::ApiError};

/// One rule. Empty lists match everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `webhook` for calls that
    /// the server makes itself.
    #[serde(default)]
    pub verbs: Vec<String>,
    /// As `pods`, `pods/resize`, `deployments.apps`, `pods.metrics.k8s.io`; for webhooks their names.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Names of objects.
    #[serde(default)]
    pub names: Vec<String>,
    /// How likely a matching request is struck.
    #[serde(default = "always")]
    pub probability: f64,
    /// How often it strikes at most.
    #[serde(default)]
    pub count: Option<u64>,
    /// What happens then.
    pub effect: Effect,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "type",
    deny_unknown_fields
)]
pub enum Effect {
    /// The answer comes later, in the machine's time.
    Latency {
        /// By how much.
        milliseconds: u64,
    },
    /// An error instead of the answer: 429, 500, 409, 410 or any other.
    Error {
        /// The HTTP code.
        code: u16,
        /// Sent as `Retry-After` and in the details.
        #[serde(default)]
        retry_after_seconds: Option<u32>,
    },
    /// The connection breaks without an answer, and nothing is done.
    Reset,
    /// What was asked for is done, and the connection breaks without an answer.
    LoseAnswer,
    /// A watch ends after so many events.
    DropWatch {
        /// How many are still delivered.
        after_events: u64,
    },
    /// A watch stays open and says nothing any more after so many events.
    StallWatch {
        /// How many are still delivered.
        after_events: u64,
    },
    /// A watch fails with 410 after so many events.
    ExpireWatch {
        /// How many are still delivered.
        after_events: u64,
    },
    /// A call to a webhook times out, without the wait.
    WebhookTimeout,
    /// A metrics list leaves out this part of its items, each by the luck of its name.
    MetricsGap {
        /// From 0 to 1.
        part: f64,
    },
    /// Metrics say this instead of the truth; what is not given stays true.
    MetricsLie {
        /// Of every container.
        #[serde(default)]
        cpu: Option<String>,
        /// Of every container.
        #[serde(default)]
        memory: Option<String>,
        /// When it was measured.
        #[serde(default)]
        timestamp: Option<String>,
    },
}

/// What a request is, as far as faults look at it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// See [`Fault::verbs`].
    pub verb: &'a str,
    /// See [`Fault::resources`].
    pub resource: &'a str,
    /// The object's name, or nothing.
    pub name: &'a str,
}

/// The rules in force. Clones share them.
#[derive(Clone, Debug)]
pub struct Faults {
    rules: Arc<Mutex<Rules>>,
    cut: Arc<Notify>,
    seed: u64,
}

#[derive(Debug, Default)]
struct Rules {
    next: u64,
    list: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    fault: Fault,
    tried: u64,
    struck: u64,
}

impl Fault {
    /// Strikes every request with `effect`; narrow it with the other methods.
    #[must_use]
    pub fn new(effect: Effect) -> Self {
        Self {
            verbs: Vec::new(),
            resources: Vec::new(),
            names: Vec::new(),
            probability: 1.0,
            count: None,
            effect,
        }
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = verbs.iter().map(|&verb| verb.into()).collect();
        self
    }

    /// Only these resources.
    #[must_use]
    pub fn on(mut self, resources: &[&str]) -> Self {
        self.resources = resources.iter().map(|&resource| resource.into()).collect();
        self
    }

    /// Only so many times.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.count = Some(count);
        self
    }

    /// Only with this probability.
    #[must_use]
    pub fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        let one_of = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        one_of(&self.verbs, request.verb)
            && one_of(&self.resources, request.resource)
            && one_of(&self.names, request.name)
    }
}

impl Faults {
    /// No rule; `seed` decides the luck of those to come.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rules: Arc::default(),
            cut: Arc::default(),
            seed,
        }
    }

    /// Adds a rule; gives its number.
    pub fn add(&self, fault: Fault) -> u64 {
        let mut rules = self.lock();
        let id = rules.next;
        rules.next += 1;
        rules.list.push(Rule {
            id,
            fault,
            tried: 0,
            struck: 0,
        });
        id
    }

    /// Takes one rule away; false when there is none of this number.
    pub fn remove(&self, id: u64) -> bool {
        let mut rules = self.lock();
        let before = rules.list.len();
        rules.list.retain(|rule| rule.id != id);
        rules.list.len() < before
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        self.lock().list.clear();
    }

    /// Ends every watch that is open, as a server does that is started again.
    pub fn cut_watches(&self) {
        self.cut.notify_waiters();
    }

    /// Waits until watches are cut, from now on.
    pub(super) fn cut(&self) -> impl Future<Output = ()> {
        self.cut.notified()
    }

    /// The rules with their numbers and how often each has struck.
    #[must_use]
    pub fn list(&self) -> Vec<(u64, Fault, u64)> {
        self.lock()
            .list
            .iter()
            .map(|rule| (rule.id, rule.fault.clone(), rule.struck))
            .collect()
    }

    /// How often a rule has struck; never, if it was taken away.
    #[must_use]
    pub fn struck(&self, id: u64) -> u64 {
        let rules = self.lock();
        let rule = rules.list.iter().find(|rule| rule.id == id);
        rule.map_or(0, |rule| rule.struck)
    }

    /// The effects on one request.
    #[must_use]
    pub fn strike(&self, request: &Request<'_>) -> Vec<Effect> {
        let mut rules = self.lock();
        let mut effects = Vec::new();
        for rule in rules.list.iter_mut().filter(|rule| rule.fault.matches(request)) {
            if rule.fault.count.is_some_and(|count| rule.struck >= count) {
                continue;
            }
            rule.tried += 1;
            if lucky(self.seed ^ mix(rule.id) ^ rule.tried, rule.fault.probability) {
                rule.struck += 1;
                effects.push(rule.fault.effect.clone());
            }
        }
        effects
    }

    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Effect {
    /// Waits as long as this effect asks, and gives the error it is, if it is one.
    pub async fn suffer(&self) -> Option<ApiError> {
        match self {
            Self::Latency { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
                None
            }
            Self::Error {
                code,
                retry_after_seconds,
            } => {
                let (reason, message) = match code {
                    409 => (
                        "Conflict",
                        "the object has been modified; please apply your changes to the latest version and try again",
                    ),
                    410 => (
                        "Expired",
                        "The provided continue parameter is too old to display a consistent list result.",
                    ),
                    429 => ("TooManyRequests", "Too many requests, please try again later."),
                    503 => (
                        "ServiceUnavailable",
                        "the server is currently unable to handle the request",
                    ),
                    504 => (
                        "Timeout",
                        "the server was unable to return a response in the time allotted",
                    ),
                    _ => ("InternalError", "Internal error occurred: a fault was asked for"),
                };
                let error = ApiError::new(*code, reason, message);
                Some(match retry_after_seconds {
                    Some(seconds) => error.retry_after(*seconds),
                    None => error,
                })
            }
            _ => None,
        }
    }
}

/// Whether a draw falls within a probability.
#[must_use]
pub(super) fn lucky(draw: u64, probability: f64) -> bool {
    let bits = u32::try_from(mix(draw) >> 32).unwrap_or(u32::MAX);
    f64::from(bits) / 4_294_967_296.0 < probability
}

fn always() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: Request<'_> = Request {
        verb: "patch",
        resource: "pods/resize",
        name: "a",
    };

    #[test]
    fn a_fault_strikes_what_it_matches_and_as_often_as_it_may() {
        let faults = Faults::new(0);
        let error = Effect::Error {
            code: 429,
            retry_after_seconds: Some(1),
        };
        faults.add(
            Fault::new(error.clone())
                .verbs(&["patch"])
                .on(&["pods/resize"])
                .times(2),
        );
        assert_eq!(
            faults.strike(&Request {
                resource: "pods",
                ..PATCH
            }),
            []
        );
        assert_eq!(faults.strike(&Request { verb: "get", ..PATCH }), []);
        assert_eq!(faults.strike(&PATCH), std::slice::from_ref(&error));
        assert_eq!(faults.strike(&PATCH), std::slice::from_ref(&error));
        assert_eq!(faults.strike(&PATCH), []);
    }

    #[tokio::test(start_paused = true)]
    async fn latency_is_as_long_as_asked() {
        let begun = tokio::time::Instant::now();
        let late = Effect::Latency { milliseconds: 250 }.suffer().await;
        assert!(late.is_none());
        assert_eq!(begun.elapsed(), Duration::from_millis(250));
    }

    #[test]
    fn luck_is_the_same_for_the_same_seed_and_about_as_asked() {
        let draw = |seed| {
            let faults = Faults::new(seed);
            faults.add(Fault::new(Effect::Reset).with_probability(0.25));
            (0..1000).map(|_| faults.strike(&PATCH).len()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let struck: usize = draw(7).iter().sum();
        assert!((200..300).contains(&struck), "{struck}");
    }
}
