//! From text to tokens. The language is read byte by byte, each byte a Latin-1 character, so that a letter beyond ASCII
//! falls into pieces (`spec/sidecarset.md` 3.4).

use std::ops::Range;

/// The units a quantity literal can have. Kubernetes has more; they are not in the language.
const UNITS: [&[u8]; 11] = [
    b"m", b"k", b"M", b"G", b"T", b"P", b"Ki", b"Mi", b"Gi", b"Ti", b"Pi",
];

/// A piece of the text and what it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Digits and what may belong to them; not necessarily a number.
    Number,
    /// The same with a unit at its end; not necessarily a quantity.
    Quantity,
    Identifier,
    Plus,
    Minus,
    Times,
    Over,
    Open,
    Close,
    Comma,
    /// A byte that begins nothing.
    Stray,
    End,
}

/// Takes tokens off the front of a text, and the end without end.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'t> {
    /// The text up to the first NUL.
    bytes: &'t [u8],
    /// Whether a NUL is the end; Kruise counts it as a column.
    nul: bool,
    position: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let bytes = text.as_bytes();
        let nul = bytes.iter().position(|byte| *byte == 0);
        Self {
            bytes: &bytes[..nul.unwrap_or(bytes.len())],
            nul: nul.is_some(),
            position: 0,
        }
    }

    pub(super) fn next(&mut self) -> Token {
        self.skip(is_space);
        let start = self.position;
        let kind = match self.peek() {
            None => {
                return Token {
                    kind: TokenKind::End,
                    at: start..start + usize::from(self.nul),
                };
            }
            Some(byte) if byte == b'.' || byte.is_ascii_digit() => {
                self.number();
                number_kind(&self.bytes[start..self.position])
            }
            Some(byte) if is_letter(byte) => {
                self.skip(|byte| is_letter(byte) || byte.is_ascii_digit() || byte == b'_');
                TokenKind::Identifier
            }
            Some(byte) => {
                self.position += 1;
                match byte {
                    b'+' => TokenKind::Plus,
                    b'-' => TokenKind::Minus,
                    b'*' => TokenKind::Times,
                    b'/' => TokenKind::Over,
                    b'(' => TokenKind::Open,
                    b')' => TokenKind::Close,
                    b',' => TokenKind::Comma,
                    _ => TokenKind::Stray,
                }
            }
        };
        Token {
            kind,
            at: start..self.position,
        }
    }

    pub(super) fn bytes(&self, token: &Token) -> &'t [u8] {
        &self.bytes[token.at.clone()]
    }

    /// Everything that Kruise takes into a number, so that what is no number is seen whole. Letters end it, except that
    /// directly after an `e` they begin a name, and so does an `e` after an exponent or a percent sign.
    fn number(&mut self) {
        let (mut point, mut exponent, mut percent) = (false, false, false);
        // After an `e`, until a digit or a sign.
        let mut exponent_open = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'0'..=b'9' => exponent_open = false,
                b'.' if !point && !exponent && !percent => point = true,
                b'e' | b'E' if exponent || percent => return,
                b'e' | b'E' => (exponent, exponent_open) = (true, true),
                b'+' | b'-' if exponent_open => exponent_open = false,
                b'%' if !percent => percent = true,
                byte if is_letter(byte) && !exponent_open => return self.skip(is_letter),
                _ => return,
            }
            self.position += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.position += 1;
        }
    }
}

/// Bytes of a token as text. Those that are no UTF-8 become U+FFFD one by one, as Go shows them.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

fn number_kind(token: &[u8]) -> TokenKind {
    let unit = token
        .iter()
        .position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match unit {
        Some(start) if UNITS.contains(&&token[start..]) => TokenKind::Quantity,
        _ => TokenKind::Number,
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0x85 | 0xA0)
}

/// Latin-1 has three letters among its signs and two signs among its letters.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, 0xAA | 0xB5 | 0xBA | 0xC0..=0xD6 | 0xD8..=0xF6 | 0xF8..)
}
