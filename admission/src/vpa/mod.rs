//! Reviews of VPA objects: decoded as Go decodes them, validated, and given the default update mode (`spec/vpa.md` 1.8).

mod decode;
mod field;
mod object;
mod validate;

#[cfg(test)]
mod tests;

use common::gates::Gates;

use self::{
    field::{FieldError, Path, invalid_status},
    object::Vpa,
    validate::validate,
};
use crate::review::{Operation, Request, Response, Value};

/// Whether a VPA may be written as it is, and what is added to it.
#[must_use]
pub fn review(request: &Request<'_>, gates: &Gates) -> Response {
    let mut response = Response::allowed(request.uid.clone());
    let errors = match objects(request) {
        Ok((new, old)) => {
            let found = validate(&new, &old, gates);
            response.warnings = found.warnings;
            if new.spec.update_policy.is_none() {
                response.patch.push(default_update_policy());
            }
            found.errors
        }
        Err(error) => vec![FieldError::internal(&Path::root(), &error)],
    };
    if !errors.is_empty() {
        response.allowed = false;
        response.patch.clear();
        response.status = Some(invalid_status(request, &errors));
    }
    response
}

/// The object, and the one it replaces; an empty one if it replaces none.
fn objects(request: &Request<'_>) -> Result<(Vpa, Vpa), String> {
    let new = Vpa::decode(request.object)?;
    let old = if request.operation == "UPDATE" {
        Vpa::decode(request.old_object)?
    } else {
        Vpa::default()
    };
    Ok((new, old))
}

fn default_update_policy() -> Operation {
    Operation::Add {
        path: "/spec/updatePolicy".to_owned(),
        value: Value::Object([("updateMode", "Recreate")].into()),
    }
}
