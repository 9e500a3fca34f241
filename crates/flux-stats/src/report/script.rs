//! What the page's script gets.

use super::charts::{self, Chart};
use super::clock::Clock;
use super::model::Model;
use super::page::Charts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Modules that the map can show alone. Each takes a byte for each cell.
const LAYERS_MAX: usize = 5;
/// In a map of so many cells or more only the hottest.
const CELLS_MANY: usize = 16_000;
/// A cell of which nothing is known; others are the 250th part of the map's greatest share.
const UNKNOWN: u8 = 255;
const STEPS: f32 = 250.0;

/// The hash of an inline script or style, as a Content Security Policy has it.
pub(super) fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// The page's data, as JSON that may stand in a script element.
pub(super) fn data(model: &Model, sections: &Charts, clock: &Clock) -> String {
    let colours = charts::colours(sections);
    let none = BTreeMap::new();
    let of_section = |(section, charts): (&&str, &Vec<Chart>)| -> Vec<Value> {
        let colours = if *section == "modules" { &colours } else { &none };
        charts.iter().map(|chart| charts::data(chart, colours)).collect()
    };
    let charts: Vec<Value> = sections.iter().flat_map(of_section).collect();
    let notes: Vec<Value> = model
        .notes
        .iter()
        .map(|note| json!({ "from": note.from, "to": note.to, "kind": note.kind.name(), "text": note.text }))
        .collect();
    let axis = &model.axis;
    let data = json!({
        "zone": clock.zone_id(),
        "start": axis.start, "width": axis.width, "count": axis.count,
        "charts": charts, "notes": notes, "heat": heat(model),
    });
    // Nothing in it can end the element, or begin a comment in it.
    data.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// What the map shows: all modules, or one.
pub(super) fn layers(model: &Model) -> Vec<String> {
    let many = model.heat.all.len() >= CELLS_MANY;
    let modules = model.heat.hottest(if many { LAYERS_MAX / 2 } else { LAYERS_MAX });
    std::iter::once("all modules").chain(modules).map(str::to_owned).collect()
}

fn heat(model: &Model) -> Value {
    let heat = &model.heat;
    if heat.is_empty() {
        return Value::Null;
    }
    let layer = |name: &String| {
        let cells = heat.modules.get(name).unwrap_or(&heat.all);
        let most = cells.iter().fold(0.0_f32, |most, share| most.max(*share));
        let cell = |share: &f32| match share {
            share if share.is_nan() => UNKNOWN,
            share => (share / most.max(f32::MIN_POSITIVE) * STEPS).round() as u8,
        };
        let cells: Vec<u8> = cells.iter().map(cell).collect();
        json!({ "label": name, "most": charts::short(most.into()), "cells": STANDARD.encode(cells) })
    };
    // The first is of all modules, though one should have that name.
    let mut layers: Vec<Value> = layers(model).iter().skip(1).map(layer).collect();
    layers.insert(0, layer(&String::new()));
    let hosts = super::hosts(model);
    let rows: Vec<String> = (0..heat.rows as u32)
        .map(|row| {
            let first = row * heat.ranks_per_row;
            let last = (first + heat.ranks_per_row - 1).min(model.last.instance.size.max(first + 1) - 1);
            match hosts.host(first) {
                _ if last > first => format!("ranks {first} to {last}"),
                Some(host) => format!("rank {first} ({host})"),
                None => format!("rank {first}"),
            }
        })
        .collect();
    json!({
        "start": heat.axis.start, "width": heat.axis.width, "columns": heat.axis.count,
        "ranks": heat.ranks_per_row, "rows": rows, "layers": layers,
    })
}
