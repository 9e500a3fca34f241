//! `flux stats export`: all series once, in a format of somebody else's.

use crate::instance::{By, Question, Reach};
use crate::outcome::{Ended, Failure, Outcome, complain, print, say};
use crate::show;
use clap::{Args, ValueEnum};
use serde_json::Value as Json;
use stats_export::formats::prometheus::{Format as Exposition, expose};
use stats_export::formats::{graphite, influx, jsonl, otlp};
use stats_export::{Snapshot, is_of_others};

/// As the module's exporters have it.
const PREFIX: &str = "flux";
const PREFIX_MAX: usize = 100;

/// Print series once, in a format that monitoring systems read
///
/// The same names and numbers as the module's own exporters tell ([[stats-agg.export]]), which send them or serve them
/// by themselves, but for since when each is counted, which those say. Timers are told with their quantiles.
#[derive(Args)]
#[command(after_help = "Examples:
  flux stats export --format prometheus > /var/lib/node_exporter/flux.prom
  flux stats export --format graphite 'jobs.*' | nc graphite 2003
  flux stats export --format influx --by rank 'modules.*.work_s'")]
pub(crate) struct Options {
    /// Which series, as `flux stats query` takes them; all without one, but for the names of others (node_up_count, …)
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// The format
    #[arg(short, long, value_enum)]
    format: Format,
    /// How to split them up
    #[arg(long, value_enum, value_name = "WHAT", default_value = "none")]
    by: Split,
    /// What names begin with
    #[arg(long, default_value = PREFIX, value_parser = prefix)]
    prefix: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Prometheus' text format
    Prometheus,
    /// OpenMetrics 1.0
    Openmetrics,
    /// Carbon's lines, with tags
    Graphite,
    /// InfluxDB's line protocol
    Influx,
    /// An OTLP request as JSON
    OtlpJson,
    /// A JSON object for each series, one a line
    Jsonl,
}

#[derive(Clone, Copy, ValueEnum)]
enum Split {
    /// Not: one number for the instance
    None,
    /// What each rank measured itself, with its rank as a tag
    Rank,
}

fn prefix(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if text.len() <= PREFIX_MAX && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected at most {PREFIX_MAX} of A-Z a-z 0-9 _ - ."))
    }
}

pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    let by = match options.by {
        Split::None => By::None,
        Split::Rank => By::Rank,
    };
    let question = Question::new(&options.patterns).by(by);
    question.check().map_err(Failure::Usage)?;
    let text = reach.connect()?.ask_text(&question)?;
    let answer = crate::instance::parsed(&text)?;
    if answer.series.is_empty() && !options.patterns.is_empty() {
        return Err(Failure::Failed(format!(
            "no series fits {}: `flux stats query` shows those that there are",
            options.patterns.join(" or ")
        )));
    }
    let mut written: Json = serde_json::from_str(&text)?;
    if options.patterns.is_empty() {
        leave_out_others(&mut written);
    }
    let (text, clashes) = options.written(&written)?;
    print(&text)?;
    if clashes > 0 {
        let what = "series left out that would have another's name and labels in this format";
        complain(&format!("{clashes} {what}: --format jsonl has all"));
    }
    if !answer.is_partial() {
        return Ok(Outcome::Done);
    }
    // Who reads the numbers may not see that some are missing.
    say(&show::coverage(&answer));
    Ok(Outcome::Partial)
}

/// As exporters do without a pattern: each fact once.
fn leave_out_others(answer: &mut Json) {
    if let Some(series) = answer["series"].as_array_mut() {
        series.retain(|one| !one["name"].as_str().is_some_and(is_of_others));
    }
}

impl Options {
    /// And how many series are left out, since the format knows no difference between them and others.
    fn written(&self, answer: &Json) -> Result<(String, u64), Failure> {
        let snapshot = Snapshot::from_answer(answer)?;
        let (view, prefix) = (snapshot.view(), self.prefix.as_str());
        let exposed = |format| {
            let exposition = expose(&view, prefix, format);
            (exposition.text, exposition.clashes)
        };
        let text = match self.format {
            Format::Prometheus => return Ok(exposed(Exposition::Text)),
            Format::Openmetrics => return Ok(exposed(Exposition::OpenMetrics)),
            Format::Graphite => graphite::plaintext(&view, prefix),
            Format::Influx => influx::lines(&view, prefix),
            Format::OtlpJson => otlp::json(&view, prefix) + "\n",
            Format::Jsonl => jsonl::lines(&view),
        };
        Ok((text, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_written_in_every_format() {
        let answer = json!({
            "version": 1, "time": 1_700_000_000.5, "period": 2.0, "instance": { "size": 2 },
            "ranks": { "covered": "0-1", "missing": "", "offline": "", "absent": "", "silent": "", "oldest": 0.5 },
            "series": [{ "name": "app.steps", "tags": { "queue": "a" }, "type": "counter", "total": 7, "rate": 0.5 },
                       { "name": "app.credit", "tags": {}, "type": "counter", "total": -2, "falls": true, "rate": 0 }]
        });
        let written = |format| {
            let options = Options { patterns: Vec::new(), format, by: Split::None, prefix: "hpc".into() };
            let (text, clashes) = options.written(&answer).unwrap();
            assert_eq!(clashes, 0);
            text
        };
        for format in Format::value_variants() {
            let text = written(*format);
            let name = if matches!(format, Format::Jsonl) { "app.steps" } else { "hpc" };
            assert!(text.contains(name) && text.contains('7') && text.ends_with('\n'), "{text}");
        }
        assert!(written(Format::Prometheus).contains("hpc_app_steps_total{queue=\"a\"} 7\n"));
        let openmetrics = written(Format::Openmetrics);
        assert!(
            openmetrics.ends_with("# EOF\n") && openmetrics.contains("\nhpc_app_credit_net -2\n"),
            "{openmetrics}"
        );
        assert!(written(Format::Graphite).contains("hpc.app.steps;queue=a 7 1700000000\n"));
    }

    #[test]
    fn what_a_format_cannot_tell_apart_is_counted() {
        let one = |key: &str| json!({ "name": "a", "tags": { key: "1" }, "type": "counter", "total": 7, "rate": 0.5 });
        let answer = json!({ "version": 1, "time": 1, "period": 2.0, "instance": { "size": 1 },
            "ranks": { "covered": "0", "missing": "", "offline": "", "absent": "", "silent": "", "oldest": 0 },
            "series": [one("a.b"), one("a_b"), one("a-b")] });
        let clashes = |format| {
            let options = Options { patterns: Vec::new(), format, by: Split::None, prefix: "hpc".into() };
            options.written(&answer).unwrap().1
        };
        assert_eq!((clashes(Format::Prometheus), clashes(Format::Jsonl)), (2, 0));
    }

    #[test]
    fn each_fact_is_told_once() {
        let mut answer =
            json!({ "series": [{ "name": "app.steps" }, { "name": "node_up_count" }, { "name": "own" }] });
        leave_out_others(&mut answer);
        assert_eq!(answer["series"], json!([{ "name": "app.steps" }, { "name": "own" }]));
    }

    #[test]
    fn a_prefix_is_part_of_a_name() {
        assert_eq!(prefix("a.b-c_1"), Ok("a.b-c_1".into()));
        assert_eq!(prefix(""), Ok(String::new()));
        for wrong in ["a b", "ä", &"a".repeat(101)] {
            assert!(prefix(wrong).unwrap_err().starts_with("expected at most 100"));
        }
    }
}
