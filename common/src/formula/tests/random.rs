//! Random formulas: whole ones, damaged ones, and noise. One number decides everything, so that a find can be repeated.

use super::naive::Tree;

pub(super) const UNITS: [&str; 11] = ["m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"];

/// Pieces of which noise is made: everything the language knows, and what looks like it.
const PIECES: [&str; 48] = [
    "+",
    "-",
    "*",
    "/",
    "(",
    ")",
    ",",
    " ",
    "\n",
    "\t",
    "cpu",
    "memory",
    "MEMORY",
    "Cpu",
    "max(",
    "min(",
    "MAX (",
    "foo(",
    "x_1",
    "_",
    "1",
    "0",
    ".5",
    "2.",
    "1e3",
    "1e",
    "1e+",
    "1E-400",
    "9e999",
    "50%",
    "%",
    "50%5",
    "100m",
    "1.5Gi",
    "10P",
    "9223372036854775807m",
    ".Pi",
    "1e3Mi",
    "1K",
    "2cpu",
    "1Ei",
    "é",
    "à",
    "ê",
    "\0",
    "\u{85}",
    "\u{a0}",
    "٣",
];

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    pub(super) fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A formula that follows the grammar.
    pub(super) fn tree(&mut self, depth: usize) -> Tree {
        let inner = |random: &mut Self| Box::new(random.tree(depth - 1));
        match self.below(if depth == 0 { 4 } else { 10 }) {
            0 => Tree::Number(self.number()),
            1 => Tree::Quantity(self.digits(), self.one_of(&UNITS)),
            2 => Tree::Variable("cpu"),
            3 => Tree::Variable(self.one_of(&["cpu", "memory", "memory", "nobody"])),
            4 => Tree::Negate(inner(self)),
            5 | 6 => {
                let name = self.one_of(&["max", "min"]);
                Tree::Call(name, inner(self), inner(self))
            }
            _ => {
                let operator = self.one_of(&['+', '-', '*', '/']);
                Tree::Binary(operator, inner(self), inner(self))
            }
        }
    }

    /// A tree as somebody may write it.
    pub(super) fn written(&mut self, tree: &Tree) -> String {
        let mut text = String::new();
        self.write(&mut text, tree, 0);
        self.space(&mut text);
        text
    }

    /// `strength` is that of the operator around it: 0 none, 1 sums, 2 products, 3 signs.
    fn write(&mut self, text: &mut String, tree: &Tree, strength: usize) {
        self.space(text);
        match tree {
            Tree::Number(number) => text.push_str(number),
            Tree::Quantity(digits, unit) => text.push_str(&format!("{digits}{unit}")),
            Tree::Variable(name) => {
                let name = if self.chance(10) {
                    name.to_uppercase()
                } else {
                    (*name).to_owned()
                };
                text.push_str(&name);
            }
            Tree::Negate(operand) => {
                text.push('-');
                self.write(text, operand, 3);
            }
            Tree::Call(name, left, right) => {
                let name = if self.chance(10) {
                    name.to_uppercase()
                } else {
                    (*name).to_owned()
                };
                text.push_str(&name);
                self.space(text);
                text.push('(');
                self.write(text, left, 0);
                self.space(text);
                text.push(',');
                self.write(text, right, 0);
                self.space(text);
                text.push(')');
            }
            Tree::Binary(operator, left, right) => {
                let own = if matches!(operator, '+' | '-') { 1 } else { 2 };
                let parentheses = own < strength || self.chance(5);
                if parentheses {
                    text.push('(');
                }
                self.write(text, left, own);
                self.space(text);
                text.push(*operator);
                self.write(text, right, own + 1);
                if parentheses {
                    self.space(text);
                    text.push(')');
                }
            }
        }
    }

    /// Something like a formula, or nothing like one.
    pub(super) fn noise(&mut self) -> String {
        match self.below(3) {
            0 => {
                let most = if self.chance(2) { 500 } else { 30 };
                (0..self.below(most)).map(|_| self.one_of(&PIECES)).collect()
            }
            1 => {
                let tree = self.tree(3);
                let mut bytes = self.written(&tree).into_bytes();
                for _ in 0..=self.below(3) {
                    let at = self.below(bytes.len() + 1);
                    match self.below(3) {
                        0 if at < bytes.len() => _ = bytes.remove(at),
                        1 if at < bytes.len() => bytes[at] = self.next().to_le_bytes()[0],
                        _ => drop(bytes.splice(at..at, self.one_of(&PIECES).bytes())),
                    }
                }
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => {
                let bytes: Vec<u8> = (0..self.below(60))
                    .map(|_| self.next().to_le_bytes()[0])
                    .collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }

    pub(super) fn digits(&mut self) -> String {
        let size = self.one_of(&[1_u64, 10, 100, 1000, 100_000]);
        let whole = self.next() % size;
        match self.below(4) {
            0 => format!("{whole}.{}", self.next() % 1000),
            1 => format!("{whole}."),
            2 => format!(".{}", self.next() % 1000),
            _ => whole.to_string(),
        }
    }

    fn number(&mut self) -> String {
        let digits = self.digits();
        match self.below(10) {
            0 => format!("{digits}e{}", self.below(6)),
            1 => format!("{digits}E-{}", self.below(6)),
            2 => format!("{digits}e+{}", self.below(310)),
            3..=5 => format!("{digits}%"),
            _ => digits,
        }
    }

    fn space(&mut self, text: &mut String) {
        if self.chance(20) {
            text.push_str(self.one_of(&[" ", "  ", "\n", "\t"]));
        }
    }
}
