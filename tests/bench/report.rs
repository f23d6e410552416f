//! Results of one run, as a table and as one JSON document.

use crate::machine::Machine;
use crate::samples::Samples;
use serde::Serialize;

/// Unit of a result. Values are seconds, per second, bytes, bytes per second, percent, or a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Seconds,
    PerSecond,
    Bytes,
    BytesPerSecond,
    Percent,
    Ratio,
}

impl Unit {
    /// Returns true for a rate, where more is better. For other units, less is better.
    fn is_rate(self) -> bool {
        matches!(self, Self::PerSecond | Self::BytesPerSecond)
    }

    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value < 1e-3 => format!("{:.1} us", value * 1e6),
            Self::Seconds if value < 1.0 => format!("{:.2} ms", value * 1e3),
            Self::Seconds => format!("{value:.2} s"),
            Self::PerSecond => format!("{value:.0} /s"),
            Self::Bytes => format!("{:.2} MiB", value / MIB),
            Self::BytesPerSecond => format!("{:.0} MiB/s", value / MIB),
            Self::Percent => format!("{value:.3} %"),
            Self::Ratio => format!("{value:.2} x"),
        }
    }
}

/// Bytes per MiB.
pub(crate) const MIB: f64 = 1024.0 * 1024.0;

/// Limits of a result. Without limits, the result is for information only.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Target {
    pub(crate) must: Option<f64>,
    pub(crate) aim: Option<f64>,
    /// True if the limits apply to the 99th percentile instead of the median.
    pub(crate) judges_p99: bool,
}

impl Target {
    /// No limits.
    pub(crate) const NONE: Self = Self { must: None, aim: None, judges_p99: false };

    /// One limit of the median.
    pub(crate) fn must(must: f64) -> Self {
        Self { must: Some(must), ..Self::NONE }
    }

    /// A limit of the median, and a goal.
    pub(crate) fn must_aim(must: f64, aim: f64) -> Self {
        Self { aim: Some(aim), ..Self::must(must) }
    }

    /// Applies the limits to the 99th percentile.
    pub(crate) fn of_p99(self) -> Self {
        Self { judges_p99: true, ..self }
    }
}

/// A measured program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) version: String,
    /// True for quackd, whose version is that of the build.
    #[serde(skip)]
    pub(crate) is_ours: bool,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) target: Target,
    pub(crate) samples: Samples,
    /// Measured program, if its version is known.
    pub(crate) program: Option<Program>,
    /// Title of the row's chart in the plot.
    pub(crate) chart: Option<String>,
}

impl Row {
    /// Creates a row of `values` in `unit`.
    ///
    /// # Errors
    /// `values` is empty.
    pub(crate) fn new(
        name: impl Into<String>,
        unit: Unit,
        target: Target,
        values: Vec<f64>,
    ) -> anyhow::Result<Self> {
        let name = name.into();
        let samples = Samples::new(values);
        let samples = samples.ok_or_else(|| anyhow::anyhow!("nothing was measured for {name}"))?;
        Ok(Self { name, unit, target, samples, program: None, chart: None })
    }

    /// Returns the 99th percentile, or the lowest value of a rate.
    pub(crate) fn worst(&self) -> f64 {
        if self.unit.is_rate() { self.samples.lowest() } else { self.samples.p99() }
    }

    fn verdict(&self) -> &'static str {
        let judged = if self.target.judges_p99 { self.worst() } else { self.samples.median() };
        let meets =
            |limit: f64| if self.unit.is_rate() { limit <= judged } else { judged <= limit };
        match (self.target.must, self.target.aim) {
            (None, None) => "-",
            (Some(must), _) if !meets(must) => "over",
            (_, Some(aim)) if !meets(aim) => "ok, aim missed",
            _ => "ok",
        }
    }

    fn show_target(&self) -> String {
        let sign = if self.unit.is_rate() { ">=" } else { "<=" };
        let mut text = match self.target.must {
            Some(must) => format!("{sign} {}", self.unit.show(must)),
            None => return "-".to_owned(),
        };
        if self.target.judges_p99 {
            text.push_str(" p99");
        }
        if let Some(aim) = self.target.aim {
            text.push_str(&format!(", aim {}", self.unit.show(aim)));
        }
        text
    }
}

/// A group that failed.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) group: &'static str,
    pub(crate) why: String,
}

/// Results of one run.
#[derive(Debug)]
pub(crate) struct Report {
    machine: Machine,
    quick: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) load_at_end: Option<String>,
}

impl Report {
    pub(crate) fn new(machine: Machine, quick: bool) -> Self {
        Self { machine, quick, rows: Vec::new(), failures: Vec::new(), load_at_end: None }
    }

    /// Returns the header and a Markdown table.
    pub(crate) fn table(&self) -> String {
        let mut text = self.header();
        let heads = ["budget", "target", "median", "p99 (rates: lowest)", "n", "verdict"];
        let mut lines = vec![heads.map(str::to_owned)];
        lines.extend(self.rows.iter().map(|row| {
            [
                row.name.clone(),
                row.show_target(),
                row.unit.show(row.samples.median()),
                row.unit.show(row.worst()),
                row.samples.n().to_string(),
                row.verdict().to_owned(),
            ]
        }));
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        for (at, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(&widths) {
                text.push_str(&format!("| {cell:<width$} "));
            }
            text.push_str("|\n");
            if at == 0 {
                for width in &widths {
                    text.push_str(&format!("|{}", "-".repeat(width + 2)));
                }
                text.push_str("|\n");
            }
        }
        for failure in &self.failures {
            text.push_str(&format!("\nFAILED {}: {}", failure.group, failure.why));
        }
        text
    }

    /// Returns the date, the build and the machine.
    pub(crate) fn machine_line(&self) -> String {
        let machine = &self.machine;
        let Machine { date, quackd, cores, processor, memory_gib, system, profile, .. } = machine;
        let mut text = format!("{date}, quackd {quackd}, {profile} build; {cores} cores");
        if let Some(processor) = processor {
            text.push_str(&format!(" of {processor}"));
        }
        if let Some(gib) = memory_gib {
            text.push_str(&format!(", {gib:.0} GiB"));
        }
        text.push_str(&format!(", {system}"));
        if self.quick {
            text.push_str(", quick");
        }
        text
    }

    /// Returns the load averages before and after the run.
    pub(crate) fn load_line(&self) -> Option<String> {
        let (begin, end) = (self.machine.load.as_ref()?, self.load_at_end.as_ref()?);
        Some(format!("load average {begin} before, {end} after"))
    }

    fn header(&self) -> String {
        let mut text = self.machine_line();
        if let Some(load) = self.load_line() {
            text.push_str(&format!("; {load}"));
        }
        let versions = self.programs().into_iter();
        let versions: Vec<String> =
            versions.map(|Program { name, version, .. }| format!("{name} {version}")).collect();
        if !versions.is_empty() {
            text.push_str(&format!("\nVersions: {}", versions.join(", ")));
        }
        text.push_str("\n\n");
        text
    }

    /// Returns each compared program once.
    fn programs(&self) -> Vec<&Program> {
        let mut programs: Vec<&Program> = Vec::new();
        for program in self.rows.iter().filter_map(|row| row.program.as_ref()) {
            if !program.is_ours && !programs.contains(&program) {
                programs.push(program);
            }
        }
        programs
    }

    /// Returns one JSON document with values in base units.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        #[derive(Serialize)]
        struct RowJson<'a> {
            name: &'a str,
            unit: Unit,
            must: Option<f64>,
            aim: Option<f64>,
            median: f64,
            worst: f64,
            n: usize,
            verdict: &'a str,
        }
        #[derive(Serialize)]
        struct Document<'a> {
            machine: &'a Machine,
            load_at_end: &'a Option<String>,
            quick: bool,
            programs: Vec<&'a Program>,
            rows: Vec<RowJson<'a>>,
            failures: &'a [Failure],
        }
        let rows = self.rows.iter().map(|row| RowJson {
            name: &row.name,
            unit: row.unit,
            must: row.target.must,
            aim: row.target.aim,
            median: row.samples.median(),
            worst: row.worst(),
            n: row.samples.n(),
            verdict: row.verdict(),
        });
        Ok(serde_json::to_string_pretty(&Document {
            machine: &self.machine,
            load_at_end: &self.load_at_end,
            quick: self.quick,
            programs: self.programs(),
            rows: rows.collect(),
            failures: &self.failures,
        })?)
    }
}
