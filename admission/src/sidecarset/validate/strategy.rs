//! The update strategy, as far as it is one that updates.

use std::collections::BTreeSet;

use common::api::{
    k8s::IntOrString,
    sidecarset::{PriorityStrategy, ScatterTerm, UpdateStrategy, UpdateStrategyType},
};

use super::{Faults, check_selector, containers::check_enum};

const FIELD: &str = "spec.updateStrategy";

pub(super) fn check(strategy: &UpdateStrategy, faults: &mut Faults) {
    check_enum(&format!("{FIELD}.type"), strategy.type_.as_ref(), faults);
    if let Some(selector) = &strategy.selector {
        check_selector(&format!("{FIELD}.selector"), selector, faults);
    }
    if strategy.type_ == Some(UpdateStrategyType::NotUpdate) {
        return;
    }
    let keeps_some = !matches!(strategy.partition, None | Some(IntOrString::Int(0)));
    if keeps_some && strategy.selector.is_some() {
        faults.required(FIELD, "Partition and Selector cannot be used together");
    }
    amount(&format!("{FIELD}.partition"), strategy.partition.as_ref(), faults);
    amount(
        &format!("{FIELD}.maxUnavailable"),
        strategy.max_unavailable.as_ref(),
        faults,
    );
    if let Some(priority) = &strategy.priority_strategy {
        check_priority(priority, faults);
    }
    check_scatter(&strategy.scatter_strategy, faults);
}

/// A count, or a percentage.
fn amount(field: &str, amount: Option<&IntOrString>, faults: &mut Faults) {
    match amount {
        Some(IntOrString::Int(count)) if *count < 0 => {
            faults.invalid(field, count, "must be greater than or equal to 0");
        }
        Some(IntOrString::String(text)) => {
            let number = text.strip_suffix('%');
            if number.and_then(|number| number.parse::<u16>().ok()).is_none() {
                faults.invalid(field, text, "must be an integer or percentage (e.g '5%')");
            }
        }
        None | Some(IntOrString::Int(_)) => {}
    }
}

fn check_priority(priority: &PriorityStrategy, faults: &mut Faults) {
    let field = format!("{FIELD}.priorityStrategy");
    if !priority.weight_priority.is_empty() && !priority.order_priority.is_empty() {
        faults.forbidden(&field, "only one of weightPriority and orderPriority can be used");
    }
    for (index, term) in priority.weight_priority.iter().enumerate() {
        let field = format!("{field}.weightPriority[{index}]");
        if !(0..=100).contains(&term.weight) {
            faults.invalid(
                format!("{field}.weight"),
                term.weight,
                "must be between 0 and 100",
            );
        }
        check_selector(&format!("{field}.matchSelector"), &term.match_selector, faults);
    }
    for (index, term) in priority.order_priority.iter().enumerate() {
        if term.ordered_key.is_empty() {
            let field = format!("{field}.orderPriority[{index}].orderedKey");
            faults.required(field, "order key is required");
        }
    }
}

fn check_scatter(terms: &[ScatterTerm], faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (index, term) in terms.iter().enumerate() {
        let field = format!("{FIELD}.scatterStrategy[{index}]");
        if term.key.is_empty() {
            faults.required(format!("{field}.key"), "scatter key is required");
        }
        if !seen.insert((&term.key, &term.value)) {
            faults.duplicate(field, &format!("{}={}", term.key, term.value));
        }
    }
}
