//! A curve for the terminal, and as a file for everywhere else.

use std::fmt::Write as _;

use common::quantity::Quantity;

use super::plot::Curve;

const COLUMNS: usize = 72;
const ROWS: usize = 16;
/// Each row of the terminal shows this many heights.
const HEIGHTS: [char; 4] = ['.', '-', '~', '\''];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// The room around the curve.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 50.0;
const BELOW: f64 = 50.0;

/// The curve in letters, as high as its largest value; nothing stands where it has none.
pub(super) fn terminal(curve: &Curve) -> String {
    let mut rows = vec![vec![' '; COLUMNS]; ROWS];
    for (along, up) in curve.places() {
        let Some(up) = up else { continue };
        let column = nearest(along, COLUMNS - 1);
        let height = nearest(up, ROWS * HEIGHTS.len() - 1);
        let row = ROWS - 1 - height / HEIGHTS.len();
        if let (Some(place), Some(mark)) = (
            rows.get_mut(row).and_then(|row| row.get_mut(column)),
            HEIGHTS.get(height % HEIGHTS.len()),
        ) {
            *place = *mark;
        }
    }
    let top = top(curve).to_string();
    let wide = top.len().max(1);
    let mut picture = format!("{}\n", curve.formula);
    for (index, row) in rows.iter().enumerate() {
        let label = match index {
            0 => top.as_str(),
            last if last == ROWS - 1 => "0",
            _ => "",
        };
        let line: String = row.iter().collect();
        _ = writeln!(picture, "{label:>wide$} |{}", line.trim_end());
    }
    let [from, to] = ends(curve);
    let axis = "-".repeat(COLUMNS);
    let bottom = format!(
        "{from} {:^1$} {to}",
        curve.variable,
        COLUMNS.saturating_sub(from.len() + to.len() + 1)
    );
    _ = write!(picture, "{:>wide$} +{axis}\n{:>wide$}  {bottom}", "", "");
    picture
}

/// The curve as an SVG file.
pub(super) fn svg(curve: &Curve) -> String {
    let x = |along: f64| LEFT + along * (WIDTH - LEFT - RIGHT);
    let y = |up: f64| HEIGHT - BELOW - up * (HEIGHT - ABOVE - BELOW);
    let mut path = String::new();
    let mut draws = false;
    for (along, up) in curve.places() {
        if let Some(up) = up {
            let command = if draws { 'L' } else { 'M' };
            _ = write!(path, "{command}{:.1} {:.1} ", x(along), y(up));
        }
        draws = up.is_some();
    }
    let [from, to] = ends(curve);
    let [left, right, top, bottom] = [x(0.0), x(1.0), y(1.0), y(0.0)];
    let mut grid = String::new();
    for quarter in 1..=4 {
        let at = y(f64::from(quarter) / 4.0);
        _ = write!(grid, r##"<path d="M{left} {at}H{right}" stroke="#ddd"/>"##);
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="14">
<title>{formula}</title>
<rect width="100%" height="100%" fill="#fff"/>
{grid}
<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#333"/>
<path d="{path}" fill="none" stroke="#1f6feb" stroke-width="2.5"/>
<text x="{left}" y="28" font-family="monospace">{formula}</text>
<text x="{label}" y="{top}" text-anchor="end" dominant-baseline="middle">{highest}</text>
<text x="{label}" y="{bottom}" text-anchor="end" dominant-baseline="middle">0</text>
<text x="{left}" y="{below}">{from}</text>
<text x="{middle}" y="{below}" text-anchor="middle">{variable}</text>
<text x="{right}" y="{below}" text-anchor="end">{to}</text>
</svg>
"##,
        formula = escaped(&curve.formula),
        highest = top_label(curve),
        label = left - 8.0,
        below = bottom + 24.0,
        middle = f64::midpoint(left, right),
        variable = curve.variable,
        path = path.trim_end(),
    )
}

fn top_label(curve: &Curve) -> String {
    escaped(&top(curve).to_string())
}

/// The largest value, exactly.
fn top(curve: &Curve) -> Quantity {
    let values = curve.points.iter().filter_map(|(_, value)| value.as_ref());
    let largest = values.reduce(|one, other| if other.cmp_value(one).is_gt() { other } else { one });
    largest.cloned().unwrap_or_default()
}

fn ends(curve: &Curve) -> [String; 2] {
    [curve.points.first(), curve.points.last()]
        .map(|point| point.map(|(at, _)| at.to_string()).unwrap_or_default())
}

/// The place of a share among so many.
fn nearest(share: f64, last: usize) -> usize {
    let steps = u32::try_from(last).unwrap_or(u32::MAX);
    let wanted = share.clamp(0.0, 1.0) * f64::from(steps);
    (0..=last)
        .min_by(|one, other| distance(*one, wanted).total_cmp(&distance(*other, wanted)))
        .unwrap_or(0)
}

fn distance(place: usize, wanted: f64) -> f64 {
    (f64::from(u32::try_from(place).unwrap_or(u32::MAX)) - wanted).abs()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
