//! The scale subresources of controllers that are not well known, asked for once and remembered for a while. An answer
//! that cannot be had is not an answer: what was known before stays until the server says otherwise.

use std::{collections::HashMap, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::autoscaling::v1::Scale as ScaleObject;
use kube::{
    Api, Client,
    api::DynamicObject,
    core::ApiResource,
    discovery::{ApiGroup, Scope},
    error::DiscoveryError,
};

use crate::{
    clock::{Clock, Moment},
    target::{ControllerKey, Scale, ScaleLookup},
};

/// How long an answer holds, at least; at most twice that, so that not all are asked for again at once (`spec/vpa.md`
/// 2.3).
const FRESH: Duration = Duration::from_secs(600);
/// How long a failure holds.
const RETRY: Duration = Duration::from_secs(60);
/// How long an answer is kept that nobody reads.
const UNUSED: Duration = Duration::from_secs(3600);
/// How long the kinds of a group are believed in.
const KINDS: Duration = Duration::from_secs(300);
/// How long one look-up may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// What is known of scales.
pub struct Scales {
    client: Client,
    clock: Clock,
    entries: HashMap<ControllerKey, Entry>,
    groups: HashMap<String, (Moment, Group)>,
}

enum Group {
    Known(Box<ApiGroup>),
    Missing,
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    again_at: Moment,
    read_at: Moment,
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Found(Scale),
    NotFound(String),
    Failed(String),
}

/// What one look-up gave.
enum Asked {
    Answer(Answer),
    /// Nobody could be asked: neither a yes nor a no.
    Unanswered(String),
}

impl Scales {
    /// Nothing yet.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            entries: HashMap::new(),
            groups: HashMap::new(),
        }
    }

    /// What is known of a scale.
    #[must_use]
    pub fn get(&self, key: &ControllerKey) -> ScaleLookup<'_> {
        match self.entries.get(key).map(|entry| &entry.answer) {
            None => ScaleLookup::Unasked,
            Some(Answer::Found(scale)) => ScaleLookup::Found(scale),
            Some(Answer::NotFound(error)) => ScaleLookup::NotFound(error),
            Some(Answer::Failed(error)) => ScaleLookup::Failed(error),
        }
    }

    /// Notes that these are in use, and asks for those that nobody has asked for or that are due again. Gives those of which
    /// something else is known now.
    pub async fn refresh(
        &mut self,
        keys: impl IntoIterator<Item = ControllerKey>,
        workers: usize,
    ) -> Vec<ControllerKey> {
        let now = self.clock.moment();
        let mut due = Vec::new();
        for key in keys {
            match self.entries.get_mut(&key) {
                Some(entry) => {
                    entry.read_at = now;
                    if entry.again_at <= now {
                        due.push(key);
                    }
                }
                None => due.push(key),
            }
        }
        due.sort_by(|one, other| {
            (&one.namespace, &one.kind, &one.name).cmp(&(&other.namespace, &other.kind, &other.name))
        });
        due.dedup();
        self.learn_groups(&due, now).await;
        let asked: Vec<_> = stream::iter(due)
            .map(|key| async {
                let asked = self.ask(&key).await;
                (key, asked)
            })
            .buffer_unordered(workers.max(1))
            .collect()
            .await;
        let mut changed = Vec::new();
        for (key, asked) in asked {
            let answer = |entries: &HashMap<ControllerKey, Entry>| Some(entries.get(&key)?.answer.clone());
            let before = answer(&self.entries);
            self.note(key.clone(), asked, now);
            if before != answer(&self.entries) {
                changed.push(key);
            }
        }
        self.entries.retain(|_, entry| now.since(entry.read_at) < UNUSED);
        changed
    }

    fn note(&mut self, key: ControllerKey, asked: Asked, now: Moment) {
        let fresh = FRESH.saturating_add(jitter(&key));
        let entry = match asked {
            Asked::Answer(answer) => {
                let holds = if matches!(answer, Answer::Found(_)) {
                    fresh
                } else {
                    RETRY
                };
                Entry {
                    answer,
                    again_at: now + holds,
                    read_at: now,
                }
            }
            Asked::Unanswered(error) => {
                tracing::warn!(controller = %key, %error, "cannot ask for a scale");
                match self.entries.remove(&key) {
                    Some(known) => Entry {
                        again_at: now + RETRY,
                        read_at: now,
                        ..known
                    },
                    None => Entry {
                        answer: Answer::Failed(error),
                        again_at: now + RETRY,
                        read_at: now,
                    },
                }
            }
        };
        self.entries.insert(key, entry);
    }

    async fn learn_groups(&mut self, keys: &[ControllerKey], now: Moment) {
        let mut groups: Vec<&str> = keys.iter().map(|key| group_of(&key.api_version)).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let known = self.groups.get(group);
            if known.is_some_and(|(learned, _)| now.since(*learned) < KINDS) {
                continue;
            }
            let asked = tokio::time::timeout(DEADLINE, kube::discovery::group(&self.client, group)).await;
            let learned = match asked {
                Ok(Ok(kinds)) => Group::Known(Box::new(kinds)),
                Ok(Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_)))) => Group::Missing,
                Ok(Err(error)) => {
                    tracing::warn!(group, %error, "cannot discover the kinds of a group");
                    continue;
                }
                Err(_) => {
                    tracing::warn!(group, "no answer about the kinds of a group in time");
                    continue;
                }
            };
            self.groups.insert(group.to_owned(), (now, learned));
        }
    }

    async fn ask(&self, key: &ControllerKey) -> Asked {
        let group = group_of(&key.api_version);
        let resource = match self.groups.get(group) {
            None => return Asked::Unanswered(format!("the kinds of group {group:?} are not known")),
            Some((_, Group::Missing)) => None,
            Some((_, Group::Known(kinds))) => resource(key, kinds),
        };
        let Some(resource) = resource else {
            let error = format!("no matches for kind {:?} in group {group:?}", key.kind);
            return Asked::Answer(Answer::Failed(error));
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        match tokio::time::timeout(DEADLINE, api.get_scale(&key.name)).await {
            Err(_) => Asked::Unanswered("no answer in time".to_owned()),
            Ok(Ok(scale)) => Asked::Answer(Answer::Found(read(&key.namespace, &scale))),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => {
                Asked::Answer(Answer::NotFound(status.message.clone()))
            }
            Ok(Err(error)) => Asked::Unanswered(error.to_string()),
        }
    }
}

/// The kind as the server serves it: in the version that the reference names, or in the one it prefers.
fn resource(key: &ControllerKey, group: &ApiGroup) -> Option<ApiResource> {
    let version = key.api_version.rsplit('/').next().unwrap_or_default();
    let named = group
        .versioned_resources(version)
        .into_iter()
        .find(|(resource, _)| resource.kind == key.kind);
    let found = named.or_else(|| group.recommended_kind(&key.kind));
    found
        .filter(|(_, capabilities)| capabilities.scope == Scope::Namespaced)
        .map(|(resource, _)| resource)
}

fn read(namespace: &str, scale: &ScaleObject) -> Scale {
    let owners = scale.metadata.owner_references.as_deref().unwrap_or_default();
    let status = scale.status.as_ref();
    Scale {
        owner: ControllerKey::controller_of(namespace, owners),
        selector: status
            .and_then(|status| status.selector.clone())
            .unwrap_or_default(),
        replicas: scale.spec.as_ref().and_then(|spec| spec.replicas),
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// A part of [`FRESH`] that is always the same for one controller.
fn jitter(key: &ControllerKey) -> Duration {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    Duration::from_secs(hasher.finish() % FRESH.as_secs())
}
