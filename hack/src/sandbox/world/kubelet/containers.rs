//! The life of a pod's containers, as a pure state machine: init containers one after the other, native sidecars before
//! what follows them, restarts with the real back-off, and the end of pods that are to end.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::sandbox::{
    pod::is_native_sidecar,
    quantity,
    tree::{items, text},
};

/// Where a container stands in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    Sidecar,
    App,
}

/// One container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) role: Role,
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) restarts: i64,
    /// What the kubelet has granted.
    pub(super) allocated: Value,
    /// What it runs with.
    pub(super) actual: Value,
    memory_limit: Option<f64>,
    backoff: Option<Backoff>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: DateTime<Utc> },
    Ended(Ended),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) reason: &'static str,
    pub(super) code: i32,
    pub(super) since: DateTime<Utc>,
    pub(super) at: DateTime<Utc>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Backoff {
    delay: TimeDelta,
    begun: DateTime<Utc>,
}

const FIRST_DELAY: TimeDelta = TimeDelta::seconds(10);
const LONGEST_DELAY: TimeDelta = TimeDelta::seconds(300);

/// What the state machine needs to know of the world.
pub(super) struct Surroundings<'a> {
    pub(super) now: DateTime<Utc>,
    pub(super) restart_policy: &'a str,
    pub(super) tick: TimeDelta,
    pub(super) init_time: TimeDelta,
    pub(super) startup_time: TimeDelta,
    /// How long the pod's work takes, if it ends.
    pub(super) runs: Option<TimeDelta>,
    /// The memory that a container uses.
    pub(super) memory: &'a (dyn Fn(&Container, DateTime<Utc>) -> f64 + Send + Sync),
    /// For messages: `name_namespace(uid)`.
    pub(super) pod: String,
}

/// What came of a step.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// When something happens by itself next.
    pub(super) due: Option<DateTime<Utc>>,
    /// Warning, reason, message.
    pub(super) events: Vec<(bool, &'static str, String)>,
}

impl Step {
    pub(super) fn due(&mut self, at: DateTime<Utc>) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// All containers of a pod, in the order of their start.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Containers {
    pub(super) all: Vec<Container>,
    pub(super) initialized: bool,
}

impl Containers {
    /// Nothing has started yet.
    pub(super) fn new(spec: &Value) -> Self {
        let has_init = items(spec, "/initContainers").next().is_some();
        let waiting = if has_init {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        let container = |value: &Value, role| Container {
            name: text(value, "/name").into(),
            image: text(value, "/image").into(),
            role,
            state: State::Waiting {
                reason: waiting,
                message: String::new(),
            },
            last: None,
            restarts: 0,
            allocated: resources(value),
            actual: resources(value),
            memory_limit: memory_limit(&value["resources"]),
            backoff: None,
        };
        let init = items(spec, "/initContainers").map(|value| {
            let role = if is_native_sidecar(value) {
                Role::Sidecar
            } else {
                Role::Init
            };
            container(value, role)
        });
        let apps = items(spec, "/containers").map(|value| container(value, Role::App));
        Self {
            all: init.chain(apps).collect(),
            initialized: !has_init,
        }
    }

    /// What happens at this moment to a pod of this specification.
    pub(super) fn step(&mut self, spec: &Value, around: &Surroundings<'_>) -> Step {
        let mut step = Step::default();
        for value in items(spec, "/initContainers").chain(items(spec, "/containers")) {
            let mut all = self.all.iter_mut();
            if let Some(one) = all.find(|one| one.name == text(value, "/name")) {
                one.take_image(text(value, "/image"), around, &mut step);
            }
        }
        self.all
            .iter_mut()
            .for_each(|container| container.go_on(around, &mut step));
        if self.phase(around.restart_policy).is_some() {
            for sidecar in self.all.iter_mut().filter(|one| one.role == Role::Sidecar) {
                sidecar.end("Completed", 0, around.now);
            }
            return Step { due: None, ..step };
        }
        if !self.initialized {
            self.initialized = self.initialize(around, &mut step);
        }
        if self.initialized {
            for one in self.all.iter_mut().filter(|one| one.role != Role::Init) {
                one.keep_running(around, &mut step);
            }
        }
        step
    }

    /// Goes through the init containers as far as it gets; whether it gets through.
    fn initialize(&mut self, around: &Surroundings<'_>, step: &mut Step) -> bool {
        for one in self.all.iter_mut().filter(|one| one.role != Role::App) {
            let done = matches!(&one.state, State::Ended(ended) if ended.code == 0);
            if one.role == Role::Init && done {
                continue;
            }
            one.keep_running(around, step);
            let goes_on = one.role == Role::Sidecar && one.is_ready(around);
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// The final phase, if the pod has come to its end.
    pub(super) fn phase(&self, restart_policy: &str) -> Option<&'static str> {
        let for_good = |one: &Container| match &one.state {
            State::Ended(ended) if !restarts(one.role, restart_policy, ended.code) => Some(ended.code == 0),
            _ => None,
        };
        let failed_init = self
            .all
            .iter()
            .any(|one| one.role == Role::Init && for_good(one) == Some(false));
        if failed_init {
            return Some("Failed");
        }
        let apps = self.all.iter().filter(|one| one.role == Role::App);
        let ends: Option<Vec<bool>> = apps.map(for_good).collect();
        match ends {
            Some(ends) if ends.iter().all(|good| *good) => Some("Succeeded"),
            Some(_) => Some("Failed"),
            None => None,
        }
    }
}

impl Container {
    /// The memory limit it runs with.
    pub(super) fn memory_limit(&self) -> Option<f64> {
        self.memory_limit
    }

    /// Lets it run with what is granted.
    pub(super) fn actuate(&mut self) {
        self.actual = self.allocated.clone();
        self.memory_limit = memory_limit(&self.actual);
    }

    pub(super) fn is_ready(&self, around: &Surroundings<'_>) -> bool {
        match &self.state {
            State::Running { since } => self.role != Role::Init && around.now >= *since + around.startup_time,
            State::Ended(ended) => self.role == Role::Init && ended.code == 0,
            State::Waiting { .. } => false,
        }
    }

    /// Another image ends what runs, and the container starts again with it at once.
    fn take_image(&mut self, image: &str, around: &Surroundings<'_>, step: &mut Step) {
        if self.image == image || self.role == Role::Init {
            return;
        }
        image.clone_into(&mut self.image);
        if matches!(self.state, State::Running { .. }) {
            let event = format!("Container {} definition changed, will be restarted", self.name);
            step.events.push((false, "Killing", event));
            self.end("Completed", 0, around.now);
            self.backoff = None;
        }
    }

    /// What a running container does by itself: end, be killed, become ready.
    fn go_on(&mut self, around: &Surroundings<'_>, step: &mut Step) {
        let State::Running { since } = self.state else {
            return;
        };
        let now = around.now;
        if self
            .memory_limit()
            .is_some_and(|limit| (around.memory)(self, now) > limit)
        {
            step.due(now + around.tick);
            // It takes a moment to fill the memory.
            if now > since {
                self.end("OOMKilled", 137, now);
                return;
            }
        }
        let ends = match self.role {
            Role::Init => Some(since + around.init_time),
            Role::App => around.runs.map(|runs| since + runs),
            Role::Sidecar => None,
        };
        match ends {
            Some(at) if now >= at => self.end("Completed", 0, now),
            Some(at) => step.due(at),
            None => {}
        }
        if !self.is_ready(around) && self.role != Role::Init && now < since + around.startup_time {
            step.due(since + around.startup_time);
        }
    }

    /// Starts it, also again, unless it has ended for good or must wait.
    fn keep_running(&mut self, around: &Surroundings<'_>, step: &mut Step) {
        let now = around.now;
        let ended = match (&self.state, &self.last) {
            (State::Running { .. }, _) => return,
            (State::Ended(ended), _) => ended.clone(),
            (State::Waiting { .. }, Some(last)) => last.clone(),
            (State::Waiting { .. }, None) => return self.start(around, step),
        };
        if !restarts(self.role, around.restart_policy, ended.code) {
            return;
        }
        if ended.at == now {
            // So that whoever watches sees the end before the new start, as mostly happens on a real node.
            return step.due(now + around.tick);
        }
        // As the kubelet: none before the first restart, then doubling, forgotten after a long good run.
        let backoff = self
            .backoff
            .filter(|backoff| ended.at - backoff.begun <= LONGEST_DELAY * 2);
        let delay = backoff.map_or(TimeDelta::zero(), |backoff| backoff.delay);
        if now < ended.at + delay {
            step.due(ended.at + delay);
            if matches!(self.state, State::Ended(_)) {
                let (name, pod) = (&self.name, &around.pod);
                let seconds = delay.num_seconds();
                let span = match (seconds / 60, seconds % 60) {
                    (0, seconds) => format!("{seconds}s"),
                    (minutes, seconds) => format!("{minutes}m{seconds}s"),
                };
                let event = format!("Back-off restarting failed container {name} in pod {pod}");
                step.events.push((true, "BackOff", event));
                self.state = State::Waiting {
                    reason: "CrashLoopBackOff",
                    message: format!("back-off {span} restarting failed container={name} pod={pod}"),
                };
                self.last = Some(ended);
            }
            return;
        }
        self.backoff = Some(Backoff {
            delay: backoff.map_or(FIRST_DELAY, |backoff| (backoff.delay * 2).min(LONGEST_DELAY)),
            begun: now,
        });
        self.restart(ended, around, step);
    }

    /// Starts it again at once.
    pub(super) fn restart(&mut self, ended: Ended, around: &Surroundings<'_>, step: &mut Step) {
        self.last = Some(ended);
        self.restarts += 1;
        self.start(around, step);
    }

    fn start(&mut self, around: &Surroundings<'_>, step: &mut Step) {
        self.actuate();
        self.state = State::Running { since: around.now };
        let event = format!("Started container {}", self.name);
        step.events.push((false, "Started", event));
        self.go_on(around, step);
    }

    fn end(&mut self, reason: &'static str, code: i32, now: DateTime<Utc>) {
        if let State::Running { since } = self.state {
            self.state = State::Ended(Ended {
                reason,
                code,
                since,
                at: now,
            });
        }
    }
}

/// The resources of a container in a specification; an object in any case.
pub(super) fn resources(container: &Value) -> Value {
    match container.get("resources") {
        Some(resources) if resources.is_object() => resources.clone(),
        _ => json!({}),
    }
}

fn memory_limit(resources: &Value) -> Option<f64> {
    let limit = quantity::at(&resources["limits"]["memory"])?;
    limit.sign().is_gt().then(|| limit.approximate_f64())
}

fn restarts(role: Role, policy: &str, code: i32) -> bool {
    match (role, policy) {
        (Role::Sidecar, _) | (Role::App, "Always") => true,
        (Role::Init, "Always" | "OnFailure") | (Role::App, "OnFailure") => code != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_772_366_400;

    /// One container whose memory is over its limit from its start on.
    fn doomed() -> (Containers, Value) {
        let spec = json!({"containers": [
            {"name": "app", "image": "app:1", "resources": {"limits": {"memory": "100"}}},
        ]});
        (Containers::new(&spec), spec)
    }

    fn around(
        seconds: i64,
        memory: &(dyn Fn(&Container, DateTime<Utc>) -> f64 + Send + Sync),
    ) -> Surroundings<'_> {
        Surroundings {
            now: DateTime::from_timestamp(NOON + seconds, 0).unwrap(),
            restart_policy: "Always",
            tick: TimeDelta::seconds(1),
            init_time: TimeDelta::seconds(1),
            startup_time: TimeDelta::seconds(1),
            runs: None,
            memory,
            pod: "a_b(c)".into(),
        }
    }

    #[test]
    fn the_back_off_doubles_from_ten_seconds_to_five_minutes() {
        let (mut containers, spec) = doomed();
        // Killed one second after each start.
        let memory = |container: &Container, now| match container.state {
            State::Running { since } if now - since >= TimeDelta::seconds(1) => 200.0,
            _ => 0.0,
        };
        let mut starts = Vec::new();
        for second in 0..2000 {
            let step = containers.step(&spec, &around(second, &memory));
            if step.events.iter().any(|(_, reason, _)| *reason == "Started") {
                starts.push(second);
            }
        }
        let gaps: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // A second of life, then a tick (the first time) or the back-off.
        assert_eq!(gaps, [2, 11, 21, 41, 81, 161, 301, 301, 301, 301, 301]);
        assert_eq!(containers.all[0].restarts, 11);
    }

    #[test]
    fn the_back_off_is_forgotten_after_a_long_good_run() {
        let (mut containers, spec) = doomed();
        let memory = |container: &Container, now: DateTime<Utc>| match container.state {
            State::Running { since } if now - since >= TimeDelta::seconds(601) => 200.0,
            _ => 0.0,
        };
        for second in 0..4000 {
            containers.step(&spec, &around(second, &memory));
            assert!(!matches!(containers.all[0].state, State::Waiting { .. }));
        }
        assert_eq!(containers.all[0].restarts, 6);
    }

    #[test]
    fn another_image_starts_a_container_again() {
        let (mut containers, mut spec) = doomed();
        let memory = |_: &Container, _| 0.0;
        containers.step(&spec, &around(0, &memory));
        spec["containers"][0]["image"] = json!("app:2");
        let step = containers.step(&spec, &around(5, &memory));
        assert_eq!(step.events[0].1, "Killing");
        assert!(matches!(containers.all[0].state, State::Ended(_)));
        containers.step(&spec, &around(6, &memory));
        let one = &containers.all[0];
        assert_eq!((one.image.as_str(), one.restarts), ("app:2", 1));
        assert_eq!(
            one.state,
            State::Running {
                since: around(6, &memory).now
            }
        );
    }
}
