//! Whether the memory that this process takes grows.

/// The line through points that lies closest to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) slope: f64,
    pub(super) mean: f64,
}

impl Line {
    /// By least squares; none for fewer than two places.
    pub(super) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = f64::from(u32::try_from(points.len()).ok()?);
        let mean_of = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean_of(|point| point.0), mean_of(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        (spread > 0.0).then(|| Self {
            slope: together / spread,
            mean: y,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_through_points() {
        for (points, expected) in [
            (&[][..], None),
            (&[(1.0, 5.0)], None),
            (&[(0.0, 5.0), (2.0, 5.0)], Some((0.0, 5.0))),
            (&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)], Some((2.0, 3.0))),
            // One that sticks out tilts it a little.
            (&[(0.0, 4.0), (1.0, 10.0), (2.0, 4.0)], Some((0.0, 6.0))),
        ] {
            let line = Line::through(points).map(|line| (line.slope, line.mean));
            assert_eq!(line, expected, "{points:?}");
        }
    }
}
