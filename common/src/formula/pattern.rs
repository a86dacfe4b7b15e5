//! `targetContainersNameRegex` in Go's syntax. The engine is the crate `regex`, which searches in linear time as Go's
//! does; what the two spell differently is rewritten or refused here (`spec/sidecarset.md` 3.11).

use regex::{Regex, RegexBuilder};

use super::MAX_LENGTH;

/// The most memory a compiled pattern can take, and as much again to search with.
const SIZE_LIMIT: usize = 1 << 20;

/// The most that Go lets a thing be repeated.
const MAX_REPEAT: u32 = 1000;

/// Classes that have a name in brackets; any may have a `^` before it.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not of Go's syntax.
    #[error("error parsing regexp: {0}")]
    Syntax(String),
    /// Larger than the names of containers can need.
    #[error("the pattern is too large: use at most {MAX_LENGTH} bytes and small repetitions")]
    TooLarge,
}

/// Compiles a pattern of Go's syntax. It is searched for anywhere in a name.
pub(super) fn compile(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > MAX_LENGTH {
        return Err(PatternError::TooLarge);
    }
    let compiled = RegexBuilder::new(&rewrite(pattern)?)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
        // The lines before the last draw the rewritten pattern, which nobody has written.
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            syntax(last.trim_start_matches("error: "))
        }
    })
}

/// A pattern of Go's syntax in that of the crate `regex`. Nothing is captured, since nobody asks.
fn rewrite(pattern: &str) -> Result<String, PatternError> {
    let mut rewriter = Rewriter {
        rest: pattern,
        out: String::with_capacity(pattern.len() + 16),
        after_repetition: false,
        names: Vec::new(),
    };
    rewriter.pattern()?;
    Ok(rewriter.out)
}

struct Rewriter<'p> {
    rest: &'p str,
    out: String,
    /// Whether a repetition has just been written: Go refuses to repeat it.
    after_repetition: bool,
    /// Names of groups so far.
    names: Vec<&'p str>,
}

impl<'p> Rewriter<'p> {
    fn pattern(&mut self) -> Result<(), PatternError> {
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '*' | '+' | '?' => self.repetition(&c.to_string())?,
                '{' => match self.bounds()? {
                    Some(bounds) => self.repetition(&bounds)?,
                    None => self.literal(c),
                },
                '.' | '^' | '$' | '|' | ')' => self.write(&c.to_string()),
                _ => self.literal(c),
            }
        }
        Ok(())
    }

    fn repetition(&mut self, operator: &str) -> Result<(), PatternError> {
        if self.after_repetition {
            return Err(syntax("invalid nested repetition operator"));
        }
        self.write(operator);
        if self.take("?") {
            self.write("?");
        }
        self.after_repetition = true;
        Ok(())
    }

    /// What follows the brace of `{2}`, `{2,}` or `{2,5}`. Any other brace is an ordinary character.
    fn bounds(&mut self) -> Result<Option<String>, PatternError> {
        let Some((inside, rest)) = self.rest.split_once('}') else {
            return Ok(None);
        };
        let (low, high) = inside.split_once(',').unwrap_or((inside, inside));
        let is_number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits && (text.len() == 1 || !text.starts_with('0'))
        };
        if !is_number(low) || !(high.is_empty() || is_number(high)) {
            return Ok(None);
        }
        if [low, high]
            .iter()
            .any(|text| !text.is_empty() && text.parse().unwrap_or(u32::MAX) > MAX_REPEAT)
        {
            return Err(syntax("invalid repeat count: use at most 1000"));
        }
        self.rest = rest;
        Ok(Some(format!("{{{inside}}}")))
    }

    /// What follows an opening parenthesis.
    fn group(&mut self) -> Result<(), PatternError> {
        if self.take("?P<") || self.take("?<") {
            let Some((name, rest)) = self.rest.split_once('>') else {
                return Err(syntax("invalid named capture"));
            };
            let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(word) || self.names.contains(&name) {
                return Err(syntax("invalid or duplicate name of a capture"));
            }
            self.names.push(name);
            self.rest = rest;
        } else if self.take("?") {
            return self.flags();
        }
        self.write("(?:");
        Ok(())
    }

    /// What follows `(?` where no name does: flags for the rest of the group that it stands in, or for its own.
    fn flags(&mut self) -> Result<(), PatternError> {
        let (mut on, mut off) = (String::new(), None);
        loop {
            let end = match self.next() {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    let list = off.as_mut().unwrap_or(&mut on);
                    if !list.contains(flag) {
                        list.push(flag);
                    }
                    continue;
                }
                Some('-') if off.is_none() => {
                    off = Some(String::new());
                    continue;
                }
                Some(end @ (':' | ')')) if off.as_deref() != Some("") => end,
                _ => return Err(syntax("invalid or unsupported Perl syntax")),
            };
            let off = off.unwrap_or_default();
            on.retain(|flag| !off.contains(flag));
            let dash = if off.is_empty() { "" } else { "-" };
            match (end, on.is_empty() && off.is_empty()) {
                (')', true) => {}
                (')', false) => self.write(&format!("(?{on}{dash}{off})")),
                _ => self.write(&format!("(?{on}{dash}{off}:")),
            }
            return Ok(());
        }
    }

    /// What follows a backslash outside of a class.
    fn escape(&mut self) -> Result<(), PatternError> {
        if self.take("Q") {
            let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
            self.rest = rest;
            quoted.chars().for_each(|c| self.literal(c));
            return Ok(());
        }
        for (name, assertion) in [("A", "\\A"), ("z", "\\z"), ("b", "(?-u:\\b)"), ("B", "\\B")] {
            if self.take(name) {
                self.write(assertion);
                return Ok(());
            }
        }
        match self.escaped_class() {
            Some(class) => self.write(&class),
            None => {
                let c = self.escaped_character()?;
                self.literal(c);
            }
        }
        Ok(())
    }

    /// The characters that an escape stands for, if it is for many. Go counts ASCII only, except by Unicode's names.
    fn escaped_class(&mut self) -> Option<String> {
        let class = match self.rest.chars().next()? {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            's' => "[\\t\\n\\x0C\\r ]",
            'S' => "[^\\t\\n\\x0C\\r ]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            'p' | 'P' => {
                let length = match self.rest[1..].chars().next() {
                    Some('{') => self.rest.find('}').map_or(self.rest.len(), |end| end + 1),
                    Some(c) => 1 + c.len_utf8(),
                    None => 1,
                };
                let (class, rest) = self.rest.split_at(length);
                self.rest = rest;
                return Some(format!("\\{class}"));
            }
            _ => return None,
        };
        self.next();
        Some(class.to_owned())
    }

    /// The character that an escape stands for.
    fn escaped_character(&mut self) -> Result<char, PatternError> {
        let invalid = || syntax("invalid escape sequence");
        let c = self
            .next()
            .ok_or_else(|| syntax("trailing backslash at end of expression"))?;
        let code = match c {
            'a' => 0x07,
            'f' => 0x0C,
            'n' => 0x0A,
            'r' => 0x0D,
            't' => 0x09,
            'v' => 0x0B,
            'x' if self.take("{") => {
                let (digits, rest) = self.rest.split_once('}').ok_or_else(invalid)?;
                self.rest = rest;
                hexadecimal(digits).ok_or_else(invalid)?
            }
            'x' => {
                let digits = self.rest.get(..2).ok_or_else(invalid)?;
                self.rest = &self.rest[2..];
                hexadecimal(digits).ok_or_else(invalid)?
            }
            // One digit that is not 0 would refer to a group, which Go has not.
            '0'..='7' => {
                let more = self
                    .rest
                    .bytes()
                    .take(2)
                    .take_while(|byte| matches!(byte, b'0'..=b'7'))
                    .count();
                if c != '0' && more == 0 {
                    return Err(invalid());
                }
                let (digits, rest) = self.rest.split_at(more);
                self.rest = rest;
                u32::from_str_radix(&format!("{c}{digits}"), 8).map_err(|_| invalid())?
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => return Ok(c),
            _ => return Err(invalid()),
        };
        char::from_u32(code).ok_or_else(invalid)
    }

    /// What follows an opening bracket.
    fn class(&mut self) -> Result<(), PatternError> {
        self.write("[");
        if self.take("^") {
            self.write("^");
        }
        let mut first = true;
        while first || !self.take("]") {
            first = false;
            if let Some(named) = self.named_class()? {
                self.write(&named);
                continue;
            }
            if self.rest.starts_with('\\') {
                self.next();
                if let Some(class) = self.escaped_class() {
                    self.write(&class);
                    continue;
                }
                let low = self.escaped_character()?;
                self.range(low)?;
            } else {
                let low = self.next().ok_or_else(|| syntax("missing closing ]"))?;
                self.range(low)?;
            }
        }
        self.write("]");
        Ok(())
    }

    /// `[:alpha:]` and the like. Any other bracket in a class is an ordinary character.
    fn named_class(&mut self) -> Result<Option<String>, PatternError> {
        let Some((name, rest)) = self
            .rest
            .strip_prefix("[:")
            .and_then(|rest| rest.split_once(":]"))
        else {
            return Ok(None);
        };
        if !NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(syntax("invalid character class range"));
        }
        self.rest = rest;
        Ok(Some(format!("[:{name}:]")))
    }

    /// A character of a class, or the range that it begins.
    fn range(&mut self, low: char) -> Result<(), PatternError> {
        self.literal(low);
        if self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1 {
            self.next();
            let high = if self.take("\\") {
                self.escaped_character()?
            } else {
                self.next().ok_or_else(|| syntax("missing closing ]"))?
            };
            if high < low {
                return Err(syntax("invalid character class range"));
            }
            self.write("-");
            self.literal(high);
        }
        Ok(())
    }

    /// A character that stands for itself.
    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() {
            self.write(&c.to_string());
        } else {
            self.write(&format!("\\x{{{:X}}}", u32::from(c)));
        }
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
        self.after_repetition = false;
    }

    fn take(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }
}

fn hexadecimal(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

fn syntax(text: &str) -> PatternError {
    PatternError::Syntax(text.to_owned())
}
