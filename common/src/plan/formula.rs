//! Steps 3 and 4 of the plan: the formulas of SidecarSets, evaluated on the resources as the recommendations leave them,
//! and what becomes of a container that has both (`DESIGN.md` 2, `spec/sidecarset.md` 3.1 to 3.3, 3.7).

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use super::{
    Base, ContainerPlan, PlanInput, Stage,
    proportion::{self, Proportional},
    reason::Reason,
    recommend::{self, Recommendation},
    resource::{Resource, set},
    sizing::Composition,
};
use crate::{
    formula::{Candidate, Field, Outcome, Policy, PolicyError, Sizing as Computed},
    gates::{Gate, Gates},
    pod::{Kind, ResourceList, Resources, Side},
    quantity::Quantity,
};

/// A limit is so much larger than its request that the two have nothing to do with each other.
const UNRELATED: i64 = 10;

static NOTHING: Resources = Resources {
    requests: None,
    limits: None,
};

/// The formulas that size containers of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Formulas {
    /// The containers that have one.
    pub containers: Vec<FormulaOf>,
    /// The sidecars of all the pod's SidecarSets, with a formula or without: none of them is a target.
    pub sidecars: BTreeSet<String>,
    /// The containers that should have one, but nobody knows which.
    pub unknown: Vec<UnknownFormula>,
}

/// A container whose SidecarSet has a formula for it, but not known in the revision that the pod has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormula {
    /// The container's name in the pod.
    pub container: String,
    /// The SidecarSet.
    pub set: String,
    /// The revision that the pod names; empty if it names none.
    pub revision: String,
}

impl UnknownFormula {
    /// Why the container is left as it is, for people.
    #[must_use]
    pub fn skipped(&self) -> String {
        if self.revision.is_empty() {
            "the pod names no revision, and its hash is not that of the set".to_owned()
        } else {
            format!("revision {} is not known", self.revision)
        }
    }
}

/// The formula of one container.
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaOf {
    /// The container's name in the pod: of a pair that is upgraded hot, one of the two.
    pub container: String,
    /// Its name in the SidecarSet.
    pub sidecar: String,
    /// The SidecarSet that it is from.
    pub set: String,
    /// The revision of the SidecarSet that it is from; empty if that has no name.
    pub revision: String,
    /// The formula.
    pub policy: Arc<Policy>,
}

/// What a formula came to.
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaPlan<'a> {
    /// The formula.
    pub of: &'a FormulaOf,
    /// What became of it.
    pub fate: FormulaFate,
}

/// What became of a formula.
#[derive(Clone, Debug, PartialEq)]
pub enum FormulaFate {
    /// It sizes the container.
    Followed,
    /// It sizes the container by what the pod's containers have, since it fails on what is recommended for them.
    OnOwnValues,
    /// It fails on what the pod's containers have. The container is left to its recommendation, or as it is; whoever
    /// injects it has to refuse the pod.
    Failed(PolicyError),
    /// It would take a limit away, which cannot be done to a pod that runs.
    LimitWouldVanish(Resource),
}

impl Formulas {
    /// The formula of a container.
    #[must_use]
    pub fn of(&self, container: &str) -> Option<&FormulaOf> {
        self.containers.iter().find(|of| of.container == container)
    }
}

impl FormulaPlan<'_> {
    /// Whether the container has what its formula says, or what is recommended on top of that.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        matches!(self.fate, FormulaFate::Followed | FormulaFate::OnOwnValues)
    }

    /// Why it is not followed, if it is not.
    #[must_use]
    pub fn skipped(&self) -> Option<String> {
        match &self.fate {
            FormulaFate::Followed | FormulaFate::OnOwnValues => None,
            FormulaFate::Failed(error) => Some(error.to_string()),
            FormulaFate::LimitWouldVanish(resource) => Some(Reason::LimitWouldVanish(*resource).to_string()),
        }
    }
}

/// Plans the containers of a pod that has formulas: recommendations first, formulas on what these give, and
/// recommendations again for the containers that have both.
pub(super) fn plan<'a>(
    input: &PlanInput<'a>,
    formulas: &'a Formulas,
    base: &[Base<'a>],
) -> (Vec<Recommendation>, Vec<ContainerPlan<'a>>) {
    // What a container with a formula has was computed before, by somebody or by us, and is set aside.
    let set_aside: Vec<_> = base
        .iter()
        .map(|base| Base {
            container: base.container,
            resources: match formulas.of(base.container.name()) {
                Some(_) => &NOTHING,
                None => base.resources,
            },
            spec: base.spec,
        })
        .collect();
    let recommendations = recommend::capped_recommendations(input, &set_aside);
    let first: Vec<_> = set_aside
        .iter()
        .map(|base| super::recommended(input, &recommendations, base))
        .collect();
    let results: Vec<_> = base
        .iter()
        .map(|base| {
            let of = formulas.of(base.container.name())?;
            Some((of, evaluate(input, formulas, of, base, &first)))
        })
        .collect();

    // A formula's result is what its container has before the recommendation is looked at.
    let ratios: Vec<_> = base
        .iter()
        .zip(&results)
        .map(|(base, result)| match result {
            Some((_, Ok(result))) => Cow::Owned(without_unrelated_requests(&result.resources)),
            Some((_, Err(_))) | None => Cow::Borrowed(base.resources),
        })
        .collect();
    let bases: Vec<_> = base
        .iter()
        .zip(&ratios)
        .map(|(base, ratio)| Base {
            container: base.container,
            resources: ratio,
            spec: base.spec,
        })
        .collect();
    let mut recommendations = recommend::capped_recommendations(input, &bases);

    let containers = base.iter().zip(&ratios).zip(results);
    let containers = containers
        .map(|((base, ratio), result)| {
            let mut plan = super::recommended(input, &recommendations, base);
            match result {
                None => {}
                Some((of, Err(error))) => {
                    plan.reasons.push(Reason::FormulaFailed {
                        set: of.set.clone(),
                        error: error.to_string(),
                    });
                    let fate = FormulaFate::Failed(error);
                    plan.formula = Some(FormulaPlan { of, fate });
                }
                Some((of, Ok(result))) => {
                    compose(
                        input,
                        &mut plan,
                        (of, base.spec),
                        result,
                        ratio,
                        &mut recommendations,
                    );
                }
            }
            plan
        })
        .collect();
    (recommendations, containers)
}

/// What a formula gave.
struct Given {
    computed: Computed,
    resources: Resources,
    /// Why it is not what the recommended values give.
    on_own_values: Option<PolicyError>,
    reasons: Vec<Reason>,
}

/// A formula on what the containers are planned to have, and if that fails, on what they have.
fn evaluate(
    input: &PlanInput<'_>,
    formulas: &Formulas,
    of: &FormulaOf,
    own: &Base<'_>,
    planned: &[ContainerPlan<'_>],
) -> Result<Given, PolicyError> {
    let excluded = |name: &str| name == own.container.name() || formulas.sidecars.contains(name);
    let after = |name: &str| {
        planned
            .iter()
            .find(|plan| plan.container.name() == name)
            .map(after)
    };
    let on = |after: &dyn Fn(&str) -> Option<Resources>| {
        let candidates = candidates(input, planned, after);
        let candidates = candidates.iter().map(|(kind, name, resources)| Candidate {
            kind: *kind,
            name,
            resources,
        });
        of.policy.evaluate(candidates, excluded)
    };
    let (computed, on_own_values) = match on(&after) {
        Ok(computed) => (computed, None),
        Err(error) => (on(&|_| None)?, Some(error)),
    };
    let mut resources = computed.resources();
    if input.stage == Stage::Running {
        whole_bytes(&mut resources);
    }
    let mut reasons = Vec::new();
    for field in Field::ALL {
        reasons.extend(reason(of, field, computed.outcome(field)));
    }
    hold_requests(&mut resources, &mut reasons);
    Ok(Given {
        computed,
        resources,
        on_own_values,
        reasons,
    })
}

/// A kubelet reports whole bytes, and waits for ever to see the fraction that it was asked for: such a resize never ends, and no
/// other begins. New pods have the fraction, as Kruise gives it.
fn whole_bytes(resources: &mut Resources) {
    let lists = [&mut resources.requests, &mut resources.limits];
    for list in lists.into_iter().flatten() {
        if let Some(memory) = list.get_mut(Resource::Memory.name()) {
            *memory = memory.rounded_up_to_units();
        }
    }
}

/// Everything that may be a target, with what it is to have or, where nothing is planned, what it has. A native sidecar
/// counts whatever the gate says: to read what it has is not to manage it.
fn candidates<'p>(
    input: &PlanInput<'p>,
    planned: &[ContainerPlan<'p>],
    after: &dyn Fn(&str) -> Option<Resources>,
) -> Vec<(Kind, &'p str, Cow<'p, Resources>)> {
    let all = Gates::default().with(Gate::NativeSidecar, true);
    let containers = input.pod.managed(&all);
    containers
        .map(|container| {
            let name = container.name();
            let resources = match after(name) {
                Some(after) => Cow::Owned(after),
                None => {
                    let base = planned.iter().find(|plan| plan.container.name() == name);
                    Cow::Borrowed(match (base, input.stage) {
                        (Some(plan), _) => plan.base,
                        (None, Stage::New) => container.spec_resources(),
                        (None, Stage::Running) => container.current_resources().0,
                    })
                }
            };
            (container.kind(), name, resources)
        })
        .collect()
}

/// What a container has once its plan is carried out.
fn after(plan: &ContainerPlan<'_>) -> Resources {
    let with = |base: &Option<ResourceList>, planned: &ResourceList| {
        let mut list = base.clone();
        if !planned.is_empty() {
            list.get_or_insert_default().extend(planned.clone());
        }
        list
    };
    Resources {
        requests: with(&plan.base.requests, &plan.requests),
        limits: with(&plan.base.limits, &plan.limits),
    }
}

fn reason(of: &FormulaOf, field: Field, outcome: &Outcome) -> Option<Reason> {
    match outcome {
        Outcome::NoFormula => None,
        Outcome::Unlimited => Some(Reason::Unlimited { field }),
        Outcome::Computed { aggregate, result } => Some(Reason::Computed {
            field,
            set: of.set.clone(),
            formula: of.policy.formula(field)?.to_owned(),
            aggregate: aggregate.clone(),
            result: result.clone(),
        }),
    }
}

/// The API server refuses a pod that requests more than its limit; Kruise writes one (`spec/sidecarset.md` 3.7).
fn hold_requests(resources: &mut Resources, reasons: &mut Vec<Reason>) {
    let Some(limits) = &resources.limits else { return };
    for (name, request) in resources.requests.iter_mut().flatten() {
        if let Some(limit) = limits.get(name)
            && request.cmp_value(limit).is_gt()
        {
            reasons.push(Reason::HeldToLimit {
                resource: name.clone(),
                from: request.clone(),
            });
            *request = limit.clone();
        }
    }
}

/// A container that has `present` in its spec, with what its formula says, and on top of it what is recommended.
fn compose<'a>(
    input: &PlanInput<'a>,
    plan: &mut ContainerPlan<'a>,
    (of, present): (&'a FormulaOf, &Resources),
    given: Given,
    ratio: &Resources,
    recommendations: &mut Vec<Recommendation>,
) {
    let Given {
        computed,
        resources,
        on_own_values,
        reasons,
    } = given;
    // What was planned for it without a formula was in proportion to what it has, and that is set aside.
    plan.reasons = reasons;
    plan.requests = resources.requests.unwrap_or_default();
    plan.limits = resources.limits.unwrap_or_default();
    if let Some(error) = &on_own_values {
        plan.reasons.push(Reason::OnOwnValues {
            error: error.to_string(),
        });
    }
    let name = plan.container.name();
    let is_recommended = !plan.switched_off
        && (!input.sizing.is_off() || input.even_if_off)
        && input.sizing.recommendation.is_some();
    let own = |one: &Recommendation| one.amounts.container == name;
    if !is_recommended || input.sizing.composition == Composition::Formula {
        recommendations.retain(|one| !own(one));
    } else if let Some(recommendation) = recommendations.iter_mut().find(|one| own(one)) {
        put_on_top(input, plan, recommendation, ratio);
    }
    let mut fate = match on_own_values {
        Some(_) => FormulaFate::OnOwnValues,
        None => FormulaFate::Followed,
    };
    for resource in Resource::BOTH {
        finish(input, plan, resource, &computed, present);
    }
    if input.stage == Stage::Running
        && let Some(Field { resource, .. }) = plan.dropped.first().copied()
    {
        plan.requests = ResourceList::default();
        plan.limits = ResourceList::default();
        plan.dropped.clear();
        plan.reasons = vec![Reason::LimitWouldVanish(resource)];
        fate = FormulaFate::LimitWouldVanish(resource);
    }
    plan.formula = Some(FormulaPlan { of, fate });
}

/// Step 4: what was measured beats what was guessed, unless the owner of the VPA says otherwise.
fn put_on_top(
    input: &PlanInput<'_>,
    plan: &mut ContainerPlan<'_>,
    recommendation: &mut Recommendation,
    ratio: &Resources,
) {
    plan.reasons.extend(recommendation.reasons.clone());
    let formula_limits = plan.limits.clone();
    let amounts = &mut recommendation.amounts;
    for (resource, target) in &mut amounts.target {
        if resource.is_empty() {
            continue;
        }
        let by_formula = plan.requests.get(resource);
        if input.sizing.composition == Composition::Floor
            && let Some(floor) = by_formula.filter(|floor| floor.cmp_value(target).is_gt())
        {
            plan.reasons.push(Reason::Floor {
                resource: resource.clone(),
                recommended: target.clone(),
            });
            // Nobody is to find the container too large for being where its owner wants it.
            *target = floor.clone();
            for bound in [&mut amounts.lower_bound, &mut amounts.upper_bound] {
                if let Some(bound) = bound.as_mut().and_then(|bound| bound.get_mut(resource))
                    && bound.cmp_value(floor).is_lt()
                {
                    *bound = floor.clone();
                }
            }
            continue;
        }
        plan.reasons.push(Reason::Recommended {
            resource: resource.clone(),
            vpa: input.sizing.name.clone(),
        });
        plan.requests.insert(resource.clone(), target.clone());
    }
    let policy = input.sizing.policy(plan.container.name());
    if policy.is_some_and(|policy| policy.requests_only) && !input.sizing.is_off() {
        return;
    }
    for resource in Resource::BOTH {
        let name = resource.name();
        if !amounts.target.contains_key(name) {
            continue;
        }
        let request = plan.requests.get(name);
        let limit = match formula_limits.get(name).filter(|limit| !limit.is_zero()) {
            Some(limit) if ratio.request(name).is_none() => {
                Some(limit.clone().max_value(request.cloned().unwrap_or_default()))
            }
            Some(_) | None => {
                let default = set(input.limit_ranges.container_defaults(), name);
                match proportion::limit(resource, ratio, request, default) {
                    Proportional::Overflowed(limit) => {
                        plan.reasons.push(Reason::LimitOverflowed(resource));
                        Some(limit)
                    }
                    Proportional::Limit(limit) => Some(limit),
                    Proportional::None(_) => None,
                }
            }
        };
        if let Some(limit) = limit {
            plan.limits.insert(name.to_owned(), limit);
        }
    }
}

/// The result without the requests that give no proportion: those that are nothing, or next to nothing beside the limit.
/// Such a limit is kept.
fn without_unrelated_requests(result: &Resources) -> Resources {
    let mut ratio = result.clone();
    let limits = result.limits.as_ref();
    if let Some(requests) = &mut ratio.requests {
        requests.retain(|name, request| {
            !request.is_zero()
                && set(limits, name).is_none_or(|limit| times(request, UNRELATED).cmp_value(limit).is_ge())
        });
    }
    ratio
}

fn times(quantity: &Quantity, times: i64) -> Quantity {
    (0..times).fold(Quantity::default(), |sum, _| &sum + quantity)
}

/// What the formula leaves open for one resource: a request that the API server would add, and a limit that is there though
/// the formula gives none.
fn finish(
    input: &PlanInput<'_>,
    plan: &mut ContainerPlan<'_>,
    resource: Resource,
    computed: &Computed,
    present: &Resources,
) {
    let name = resource.name();
    if let Some(limit) = plan.limits.get(name) {
        if !plan.requests.contains_key(name) {
            plan.requests.insert(name.to_owned(), limit.clone());
        }
        return;
    }
    let Some(limit) = present.limit(name) else {
        return;
    };
    let unlimited = *computed.outcome(Field::new(Side::Limits, resource)) == Outcome::Unlimited;
    let default = set(input.limit_ranges.container_defaults(), name);
    if unlimited && default.is_none_or(|default| !default.same_value(limit)) {
        // The namespace did not give it, so it was computed from one that is gone.
        plan.dropped.push(Field::new(Side::Limits, resource));
        if !plan.requests.contains_key(name)
            && present
                .request(name)
                .is_some_and(|request| request.same_value(limit))
        {
            plan.dropped.push(Field::new(Side::Requests, resource));
        }
    } else if let Some(request) = plan.requests.get_mut(name)
        && request.cmp_value(limit).is_gt()
    {
        plan.reasons.push(Reason::HeldToLimit {
            resource: name.to_owned(),
            from: request.clone(),
        });
        *request = limit.clone();
    }
}
