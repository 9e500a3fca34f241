//! The page: one file that asks nobody for anything.

use super::charts::{self, Chart};
use super::model::Model;
use super::{clock::Clock, script, tables};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;

const STYLE: &str =
    concat!(include_str!("../../assets/uPlot.min.css"), "\n", include_str!("../../assets/page.css"));
/// uPlot 1.6.32 (MIT licence, `assets/uPlot.LICENSE`), and what draws with it.
const LIBRARY: &str = include_str!("../../assets/uPlot.iife.min.js");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// The page of a report. `made` is now, in seconds since 1970.
pub(super) fn page(model: &Model, findings: &[Finding], clock: &Clock, made: f64) -> String {
    let charts = charts::all(model);
    let title = title(model);
    // Nothing is loaded, and no script runs but these two, whatever a name may contain.
    let policy = format!(
        "default-src 'none'; img-src data:; style-src '{}'; script-src '{}' '{}'",
        script::digest(STYLE),
        script::digest(LIBRARY),
        script::digest(SCRIPT)
    );
    let section = |id: &str| charts.get(id).map(Vec::as_slice).unwrap_or_default();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "flux-stats " (env!("CARGO_PKG_VERSION")) };
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    p.lead { (clock.span(model.axis.start, model.axis.end())) }
                    nav aria-label="Parts of this page" {
                        a href="#findings" { "Findings" }
                        a href="#modules" { "Modules" }
                        a href="#ranks" { "Ranks" }
                        @if !section("jobs").is_empty() { a href="#jobs" { "Jobs" } }
                        a href="#memory" { "Memory" }
                        a href="#events" { "Events" }
                        a href="#series" { "All series" }
                    }
                }
                main {
                    section #summary aria-label="Summary" { (tables::summary(model, clock)) }
                    section #findings { h2 { "Findings" } (found(findings, model.looks_left_out)) }
                    section #modules {
                        h2 { "Modules" }
                        noscript { p.hint { "Charts need scripts; the tables have the same numbers." } }
                        (grid(section("modules")))
                        (tables::modules(model))
                    }
                    section #ranks { h2 { "Ranks" } (ranks(model)) }
                    @if !section("jobs").is_empty() {
                        section #jobs { h2 { "Jobs" } (grid(section("jobs"))) (tables::jobs(model)) }
                    }
                    section #memory { h2 { "Memory, descriptors, disk" } (grid(section("memory"))) (tables::room(model)) }
                    section #events { h2 { "Events" } (tables::events(model, clock)) }
                    section #series { h2 { "All series" } (tables::series(model)) }
                }
                footer {
                    p {
                        "Made by flux-stats " (env!("CARGO_PKG_VERSION")) ", " (clock.moment(made)) ", of " (model.source)
                        ". Times are in " (clock.zone(made)) ". Charts: uPlot 1.6.32, © 2022 Leon Sorokin, MIT licence."
                    }
                }
                script #data type="application/json" { (PreEscaped(script::data(model, &charts, clock))) }
                script { (PreEscaped(LIBRARY)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// What is wrong, in a sentence, with its evidence and what shows it.
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) severity: &'static str,
    pub(super) text: String,
    /// On which ranks; none: the instance.
    pub(super) place: Option<String>,
    /// Of a recording, when it was seen.
    pub(super) when: Option<String>,
    pub(super) evidence: Vec<String>,
    /// The command that shows it, while it lasts.
    pub(super) query: String,
}

fn title(model: &Model) -> String {
    match super::place(model) {
        // Of a long list, its first part says which cluster it is.
        Some(hosts) if hosts.chars().count() > 40 => {
            format!("Flux on {}…", hosts.chars().take(40).collect::<String>())
        }
        Some(hosts) => format!("Flux on {hosts}"),
        None => format!("Flux instance of {} brokers", model.last.instance.size),
    }
}

fn found(findings: &[Finding], left_out: u64) -> Markup {
    html! {
        @if findings.is_empty() {
            p.good { "Nothing that " code { "flux stats doctor" } " would complain about." }
        } @else {
            ol.findings {
                @for finding in findings {
                    li {
                        p {
                            span class={ "severity " (finding.severity) } { (finding.severity) } " "
                            strong { (finding.name) }
                            @if let Some(place) = &finding.place { " on " (place) }
                            @if let Some(when) = &finding.when { ", " (when) }
                        }
                        p { (finding.text) "." }
                        p.hint { (finding.evidence.join(", ")) }
                        p { code { (finding.query) } }
                    }
                }
            }
        }
        @if left_out > 0 {
            p.hint {
                "Ranks went missing, modules stalled, or came back so often that " (left_out) " of these moments were not looked at."
            }
        }
    }
}

fn grid(charts: &[Chart]) -> Markup {
    html! { div.grid { @for chart in charts { (figure(chart)) } } }
}

/// A chart, and its lines as a table.
fn figure(chart: &Chart) -> Markup {
    let head = format!("{}-title", chart.id);
    html! {
        figure aria-labelledby=(head) {
            figcaption { h3 #(head) { (chart.title) } p { (chart.text) } }
            div.chart #{ "chart-" (chart.id) } role="img" aria-label={ (chart.title) ": " (chart.text) ". The table below has its figures." } {}
            details {
                summary { "Figures" }
                (tables::table(
                    chart.title,
                    &[("", false), ("least", true), ("mean", true), ("most", true), ("last", true)],
                    chart.lines.iter().map(|line| {
                        let figures = line.figures().unwrap_or([f64::NAN; 4]);
                        let figures = figures.map(|number| html! { (chart.scale.text(number)) });
                        [vec![html! { (line.label) }], figures.to_vec()].concat()
                    }),
                ))
            }
        }
    }
}

fn ranks(model: &Model) -> Markup {
    let layers = script::layers(model);
    html! {
        @if model.heat.is_empty() {
            p.hint {
                "Nothing is known of single ranks: " code { "record --by-rank" } " tells what is recorded of them."
            }
        } @else {
            figure.wide aria-labelledby="heat-title" {
                figcaption {
                    h3 #heat-title { "Work by rank" }
                    p {
                        "Parts of a core, by rank and time"
                        @if model.heat.ranks_per_row > 1 {
                            "; a row is " (model.heat.ranks_per_row) " ranks, of which the busiest is shown"
                        }
                        "."
                    }
                    label { "Of " select #heat-layer { @for layer in &layers { option { (layer) } } } }
                }
                div.chart #chart-heat role="img" aria-label="Work by rank and time. The table below has the busiest." {}
                p.ramp aria-hidden="true" { span { "0" } i {} span #heat-most {} }
                p #heat-here aria-live="off" { "\u{a0}" }
            }
            (tables::pairs(model))
        }
    }
}

/// Charts by section, as the script gets them.
pub(super) type Charts = BTreeMap<&'static str, Vec<Chart>>;
