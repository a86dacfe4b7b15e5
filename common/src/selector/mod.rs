//! Label selectors: the text and the object form that Kubernetes has for them, and what they match. Pure values; who
//! is asked for the labels of what is the caller's business.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::{collections::BTreeSet, fmt, str::FromStr};

/// Which sets of labels are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// None at all: what a VPA gets whose target cannot be resolved.
    Nothing,
    /// Those that satisfy every requirement; all of them when there is none. Sorted.
    All(Vec<Requirement>),
}

/// What one label must be like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    key: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Exists,
    Absent,
    In(Values),
    /// Also satisfied where the label is absent.
    NotIn(Values),
    Above(i64),
    Below(i64),
}

/// A set of label values, mostly of one: there is a selector for every controller of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Values(Box<[Box<str>]>);

impl FromIterator<String> for Values {
    fn from_iter<I: IntoIterator<Item = String>>(values: I) -> Self {
        let sorted: BTreeSet<String> = values.into_iter().collect();
        Self(sorted.into_iter().map(String::into_boxed_str).collect())
    }
}

impl Values {
    fn one(value: String) -> Self {
        Self(Box::new([value.into_boxed_str()]))
    }

    fn contains(&self, value: &str) -> bool {
        self.0.binary_search_by(|known| (**known).cmp(value)).is_ok()
    }
}

/// Why a selector cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The text ends too early or goes on where it should not.
    #[error("cannot read selector {selector:?}: expected {expected}, found {found}")]
    Syntax {
        /// The whole text.
        selector: String,
        /// What should stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// Not a label name.
    #[error("{0:?} is not a label name")]
    Key(String),
    /// Not a label value.
    #[error("{0:?} is not a label value")]
    Value(String),
    /// Not a whole number where one is compared.
    #[error("{0:?} is compared by size and must be a whole number")]
    Number(String),
    /// An operator nobody knows.
    #[error("unknown operator {0:?}: use In, NotIn, Exists or DoesNotExist")]
    Operator(String),
    /// `In` and `NotIn` need values, `Exists` and `DoesNotExist` must have none.
    #[error("operator {operator} on {key:?} has {count} values")]
    ValueCount {
        /// The operator.
        operator: String,
        /// The label.
        key: String,
        /// How many there are.
        count: usize,
    },
}

impl Selector {
    /// Whether labels, found by name, are meant.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements
                .iter()
                .all(|requirement| requirement.rule.allows(label(&requirement.key))),
        }
    }

    /// Whether it asks for nothing, so that all labels are meant.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// The labels that must be there with exactly one value: what an index can look for.
    pub fn exact_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let requirements = match self {
            Self::Nothing => [].as_slice(),
            Self::All(requirements) => requirements,
        };
        requirements
            .iter()
            .filter_map(|requirement| match &requirement.rule {
                Rule::In(Values(values)) => match &**values {
                    [value] => Some((requirement.key.as_str(), &**value)),
                    _ => None,
                },
                _ => None,
            })
    }

    /// Exactly these labels, and any others.
    pub fn labels<K: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::all(labels.into_iter().map(|(key, value)| Requirement {
            key: key.into(),
            rule: Rule::In(Values::one(value.into())),
        }))
    }

    fn all(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        let mut requirements: Vec<_> = requirements.into_iter().collect();
        requirements.sort();
        requirements.shrink_to_fit();
        Self::All(requirements)
    }
}

impl Rule {
    fn allows(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Above(bound) => number(value).is_some_and(|value| value > *bound),
            Self::Below(bound) => number(value).is_some_and(|value| value < *bound),
        }
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

impl TryFrom<&LabelSelector> for Selector {
    type Error = SelectorError;

    fn try_from(object: &LabelSelector) -> Result<Self, SelectorError> {
        let labels = object.match_labels.iter().flatten();
        let exact = labels.map(|(key, value)| {
            Ok(Requirement {
                key: checked_key(key)?,
                rule: Rule::In(Values::one(checked_value(value)?)),
            })
        });
        let expressions = object.match_expressions.iter().flatten().map(|expression| {
            let values = expression.values.iter().flatten();
            let values = values
                .map(|value| checked_value(value))
                .collect::<Result<Values, _>>()?;
            let rule = match (expression.operator.as_str(), values.0.len()) {
                ("In", 1..) => Rule::In(values),
                ("NotIn", 1..) => Rule::NotIn(values),
                ("Exists", 0) => Rule::Exists,
                ("DoesNotExist", 0) => Rule::Absent,
                (operator @ ("In" | "NotIn" | "Exists" | "DoesNotExist"), count) => {
                    return Err(SelectorError::ValueCount {
                        operator: operator.to_owned(),
                        key: expression.key.clone(),
                        count,
                    });
                }
                (operator, _) => return Err(SelectorError::Operator(operator.to_owned())),
            };
            Ok(Requirement {
                key: checked_key(&expression.key)?,
                rule,
            })
        });
        Ok(Self::all(
            exact.chain(expressions).collect::<Result<Vec<_>, _>>()?,
        ))
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`; an empty text means everything.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut reader = Reader { text, rest: text };
        let mut requirements = Vec::new();
        if reader.peek().is_some() {
            requirements.push(reader.requirement()?);
            while reader.peek().is_some() {
                reader.expect(",", "a comma")?;
                requirements.push(reader.requirement()?);
            }
        }
        Ok(Self::all(requirements))
    }
}

/// Reads tokens off the front of a selector's text.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

const OPERATORS: [&str; 9] = ["!=", "==", "=", "!", "<", ">", "(", ")", ","];

impl<'a> Reader<'a> {
    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.peek() == Some("!") {
            self.take();
            return Ok(Requirement {
                key: checked_key(self.word()?)?,
                rule: Rule::Absent,
            });
        }
        let key = checked_key(self.word()?)?;
        let rule = match self.peek() {
            None | Some(",") => Rule::Exists,
            Some("=" | "==") => {
                self.take();
                Rule::In(Values::one(checked_value(self.value())?))
            }
            Some("!=") => {
                self.take();
                Rule::NotIn(Values::one(checked_value(self.value())?))
            }
            Some(">") => {
                self.take();
                Rule::Above(self.number()?)
            }
            Some("<") => {
                self.take();
                Rule::Below(self.number()?)
            }
            Some("in") => {
                self.take();
                Rule::In(self.values()?)
            }
            Some("notin") => {
                self.take();
                Rule::NotIn(self.values()?)
            }
            Some(_) => return Err(self.error("an operator")),
        };
        Ok(Requirement { key, rule })
    }

    fn values(&mut self) -> Result<Values, SelectorError> {
        self.expect("(", "(")?;
        let mut values = vec![checked_value(self.value())?];
        while self.peek() == Some(",") {
            self.take();
            values.push(checked_value(self.value())?);
        }
        self.expect(")", "a comma or )")?;
        Ok(values.into_iter().collect())
    }

    fn word(&mut self) -> Result<&'a str, SelectorError> {
        match self.peek() {
            Some(token) if !OPERATORS.contains(&token) => Ok(self.take()),
            _ => Err(self.error("a label name")),
        }
    }

    /// A value, which may be missing: `a=` asks for the empty one.
    fn value(&mut self) -> &'a str {
        match self.peek() {
            Some(token) if !OPERATORS.contains(&token) => self.take(),
            _ => "",
        }
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let word = self.value();
        word.parse().map_err(|_| SelectorError::Number(word.to_owned()))
    }

    fn expect(&mut self, token: &str, expected: &'static str) -> Result<(), SelectorError> {
        if self.peek() == Some(token) {
            self.take();
            Ok(())
        } else {
            Err(self.error(expected))
        }
    }

    fn take(&mut self) -> &'a str {
        let token = self.peek().unwrap_or_default();
        self.rest = &self.rest[token.len()..];
        token
    }

    /// The next token, if there is one; the white space before it is gone afterwards.
    fn peek(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_ascii_start();
        let operator = OPERATORS
            .into_iter()
            .find(|operator| self.rest.starts_with(operator));
        let length = operator.map_or_else(
            || {
                self.rest
                    .find(|c: char| c.is_ascii_whitespace() || "=!<>(),".contains(c))
                    .unwrap_or(self.rest.len())
            },
            str::len,
        );
        self.rest.get(..length).filter(|token| !token.is_empty())
    }

    fn error(&mut self, expected: &'static str) -> SelectorError {
        let found = self
            .peek()
            .map_or_else(|| "the end".to_owned(), |token| format!("{token:?}"));
        SelectorError::Syntax {
            selector: self.text.to_owned(),
            expected,
            found,
        }
    }
}

/// A label name: at most 63 letters, digits, `-`, `_`, `.`, with a letter or digit at both ends, and perhaps a DNS
/// name and a slash before it.
fn checked_key(key: &str) -> Result<String, SelectorError> {
    let (prefix, name) = key
        .rsplit_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let name_fits = !name.is_empty() && is_label_text(name);
    let prefix_fits = prefix.is_none_or(|prefix| {
        prefix.len() <= 253
            && prefix.split('.').all(|part| {
                let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                !part.is_empty() && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
            })
    });
    if name_fits && prefix_fits {
        Ok(key.to_owned())
    } else {
        Err(SelectorError::Key(key.to_owned()))
    }
}

fn checked_value(value: &str) -> Result<String, SelectorError> {
    if is_label_text(value) {
        Ok(value.to_owned())
    } else {
        Err(SelectorError::Value(value.to_owned()))
    }
}

fn is_label_text(text: &str) -> bool {
    let at_end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && at_end(text.chars().next())
        && at_end(text.chars().next_back())
}

impl fmt::Display for Selector {
    /// The text that reads back as this selector; for [`Selector::Nothing`], which has none, a remark.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::All(requirements) = self else {
            return f.write_str("<nothing>");
        };
        for (index, requirement) in requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let list = |Values(values): &Values| values.join(",");
        match &self.rule {
            Rule::Exists => write!(f, "{key}"),
            Rule::Absent => write!(f, "!{key}"),
            Rule::In(values) if values.0.len() == 1 => write!(f, "{key}={}", list(values)),
            Rule::In(values) => write!(f, "{key} in ({})", list(values)),
            Rule::NotIn(values) if values.0.len() == 1 => write!(f, "{key}!={}", list(values)),
            Rule::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
            Rule::Above(bound) => write!(f, "{key}>{bound}"),
            Rule::Below(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

#[cfg(test)]
mod tests;
