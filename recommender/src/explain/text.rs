//! An explanation for people.

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use common::daemon::GoDuration;

use super::{Amount, ContainerExplanation, Exact, Explanation, Number, Range, ResourceExplanation, Samples};
use crate::{num, postprocess::Cap, recommend::Source};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            name,
            target,
            update_mode,
            unsupported,
            pods,
            margin,
            interval_level,
            containers,
        } = self;
        let target = target.as_deref().unwrap_or("nothing");
        let plural = if *pods == 1 { "" } else { "s" };
        writeln!(
            f,
            "VPA {namespace}/{name}: sizes {target}, update mode {update_mode}, {pods} pod{plural}"
        )?;
        if let Some(reason) = unsupported {
            writeln!(f, "  its target cannot be sized: {reason}")?;
        }
        if containers.is_empty() {
            writeln!(
                f,
                "  nothing is known of any container: no checkpoint, and no pod"
            )?;
        }
        for container in containers {
            write!(f, "\n{container}")?;
        }
        if !containers.is_empty() {
            writeln!(
                f,
                "\nUsage is the percentile, rounded up to the end of its bucket (5 % wide); it lies in the interval in {:.0} % of \
                 cases, if samples\nare independent of each other. Margin {:.0} %. Confidence is history in units of the confidence \
                 interval; the lower bound is\nmultiplied by (1 + 0.001/confidence)^-2, the upper by 1 + 1/confidence.",
                interval_level * 100.0,
                margin * 100.0
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for ContainerExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            off,
            checkpoint,
            cpu,
            memory,
        } = self;
        write!(f, "container {name}")?;
        match checkpoint {
            Some(written) => writeln!(f, ", by its checkpoint of {}", time(*written))?,
            None => writeln!(f, ", without a checkpoint yet")?,
        }
        if *off {
            return writeln!(f, "  mode Off: nothing is recommended");
        }
        cpu.write(f, "cpu", "samples")?;
        memory.write(f, "memory", "peaks")
    }
}

impl ResourceExplanation {
    fn write(&self, f: &mut fmt::Formatter<'_>, resource: &str, samples: &str) -> fmt::Result {
        let Self {
            source,
            samples: seen,
            confidence,
            target,
            lower_bound,
            upper_bound,
            uncapped_target,
        } = self;
        write!(f, "  {resource:<7} ")?;
        seen.write(f, samples)?;
        writeln!(f, "; confidence {confidence:.4}")?;
        if let Some(because) = source.because() {
            writeln!(f, "          {because}")?;
        }
        if matches!(source, Source::NoSamples | Source::NotControlled) {
            return Ok(());
        }
        writeln!(
            f,
            "    {:<7} {:>5} {:>10} {:>22} {:>11} {:>11} {:>11} {:>16}",
            "", "", "usage", "interval", "with margin", "× conf.", "minimum", "recommended"
        )?;
        for (name, number) in [("target", target), ("lower", lower_bound), ("upper", upper_bound)] {
            number.write(f, name)?;
        }
        match (uncapped_target, &target.recommended) {
            (Some(uncapped), Some(capped)) if uncapped != capped => {
                writeln!(f, "    uncapped target {uncapped}")
            }
            _ => Ok(()),
        }
    }
}

impl Samples {
    fn write(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        let Self {
            count,
            first,
            last,
            worth,
        } = self;
        write!(f, "{count} {what}")?;
        if let (Some(first), Some(last)) = (first, last) {
            let span = span(*last - *first);
            write!(f, " over {span} ({} to {})", time(*first), time(*last))?;
            write!(f, ", worth {worth:.1} that do not fade")?;
        }
        Ok(())
    }
}

impl Number {
    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let Self {
            percentile,
            usage,
            interval,
            with_margin,
            confidence_factor,
            scaled,
            minimum,
            estimated: _,
            caps,
            recommended,
            published,
        } = self;
        let interval = interval.map_or_else(|| "unknown".to_owned(), |range| range.to_string());
        let scaled = confidence_factor.map_or_else(|| "–".to_owned(), |_| scaled.to_string());
        let recommended_text = recommended
            .as_ref()
            .map_or_else(|| "–".to_owned(), ToString::to_string);
        let mut notes: Vec<String> = caps.iter().map(|cap| words(*cap).to_owned()).collect();
        if let Some(published) = published.as_ref().filter(|_| published != recommended) {
            notes.push(format!("the status still says {published}"));
        }
        let line = format!(
            "    {name:<7} {:>5} {:>10} {interval:>22} {:>11} {scaled:>11} {:>11} {recommended_text:>16}  {}",
            format!("p{}", (percentile * 1000.0).round() / 10.0),
            usage.to_string(),
            with_margin.to_string(),
            minimum.to_string(),
            notes.join(", "),
        );
        writeln!(f, "{}", line.trim_end())
    }
}

fn words(cap: Cap) -> &'static str {
    match cap {
        Cap::WholeCores => "rounded up to whole cores",
        Cap::MinAllowed => "raised to minAllowed",
        Cap::MaxAllowed => "lowered to maxAllowed",
        Cap::GlobalMaxAllowed => "lowered to the recommender's maximum",
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.high {
            Some(high) => write!(f, "{} to {high}", self.low),
            None => write!(f, "{} or more", self.low),
        }
    }
}

impl fmt::Display for Amount {
    /// Short: memory with one decimal and a binary suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "{}", cpu.to_quantity()),
            Self::Memory(memory) => {
                let suffixes = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
                let fits = suffixes.into_iter().find(|(power, _)| memory.0 >= 1 << power);
                match fits {
                    Some((power, suffix)) => {
                        write!(f, "{:.1}{suffix}", num::float(memory.0) / num::float(1 << power))
                    }
                    None => write!(f, "{}", memory.0),
                }
            }
        }
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.clone().canonical())
    }
}

fn time(time: DateTime<Utc>) -> impl fmt::Display {
    time.format("%Y-%m-%dT%H:%M:%SZ")
}

fn span(delta: TimeDelta) -> GoDuration {
    let seconds = u64::try_from(delta.num_seconds()).unwrap_or(0);
    GoDuration(std::time::Duration::from_secs(seconds))
}
