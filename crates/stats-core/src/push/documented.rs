//! The limits and reasons of `docs/push.md`, each tried.

use super::*;
use crate::page;
use serde_json::json;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../docs/push.md");

/// What makes a push or a metric of a given size, and what becomes of it.
type Try = fn(u128) -> Result<(), Refusal>;

fn push(key: &str, value: Value) -> Result<(), Refusal> {
    let mut push = json!({ "version": 1, "id": "a", "seq": 1, "metrics": [] });
    push[key] = value;
    Push::parse(push).map(drop)
}

fn metric(kind: &str, key: &str, value: Value) -> Result<(), Refusal> {
    let mut metric = json!({ "name": "a", "type": kind });
    if kind == "counter" && key != "value" {
        metric["value"] = 1.into();
    }
    if key == "ttl" {
        metric["add"] = 1.into();
    }
    metric[key] = value;
    Metric::parse(metric).map(drop)
}

fn text(length: u128) -> Value {
    "x".repeat(length as usize).into()
}

fn list(length: u128, entry: fn(u128) -> Value) -> Value {
    (0..length).map(entry).collect()
}

/// A number beyond 64 bits is one of JSON's, too.
fn number(digits: u128) -> Value {
    serde_json::from_str(&digits.to_string()).unwrap()
}

fn tags(tags: impl Iterator<Item = (String, Value)>) -> Result<(), Refusal> {
    metric("counter", "tags", Value::Object(tags.collect()))
}

fn of_guest(length: u128) -> Result<(), Refusal> {
    const NAMESPACE: &str = "guests.1001.";
    let name = text(length.saturating_sub(NAMESPACE.len() as u128));
    Metric::parse_for(json!({ "name": name, "type": "counter", "value": 1 }), Some(NAMESPACE)).map(drop)
}

/// A sample in each bucket.
fn buckets(length: u128) -> Result<(), Refusal> {
    let pairs: Vec<Value> = (0..length).map(|bucket| json!([bucket, 1])).collect();
    let (sum, squares, max) = (u128::from(u64::MAX) * length / 2, u128::MAX, u64::MAX);
    let digits = |number: u128| number.to_string();
    let sketch = json!({
        "sum": digits(sum), "squares": digits(squares), "min": 0, "max": digits(max.into()), "buckets": pairs,
    });
    metric("timer", "sketch", sketch)
}

/// How many times the sample 0.
fn times_of_a_bucket(times: u128) -> Result<(), Refusal> {
    let sketch = json!({ "sum": 0, "squares": 0, "min": 0, "max": 0, "buckets": [[0, number(times)]] });
    metric("timer", "sketch", sketch)
}

fn tried() -> Vec<(&'static str, &'static str, Try)> {
    let whole = "the push is refused";
    vec![
        ("metrics of a push", whole, |n| push("metrics", list(n, |_| json!({})))),
        ("characters of `id`", whole, |n| push("id", text(n))),
        ("`seq`, `dropped`", whole, |n| push("seq", number(n))),
        ("`seq`, `dropped`", whole, |n| push("dropped", number(n))),
        ("bytes of a name (of a guest, `guests.UID.` included)", "name", |n| {
            metric("counter", "name", text(n))
        }),
        ("bytes of a name (of a guest, `guests.UID.` included)", "name", of_guest),
        ("tags of a metric (or `max-tags`, if that is less)", "tags", |n| {
            tags((0..n).map(|tag| (format!("k{tag}"), "v".into())))
        }),
        ("bytes of a tag's key or value", "tags", |n| tags([("k".into(), text(n))].into_iter())),
        ("bytes of a tag's key or value", "tags", |n| {
            tags([("k".repeat(n as usize), "v".into())].into_iter())
        }),
        ("`value`, `add`, of either sign (as doubles compare)", "value", |n| {
            metric("counter", "value", n.to_string().into())
        }),
        ("`value`, `add`, of either sign (as doubles compare)", "value", |n| {
            metric("gauge", "add", format!("-{n}").into())
        }),
        ("entries of `samples`", "value", |n| metric("timer", "samples", list(n, |_| 1.into()))),
        ("a sample of a timer, in seconds (below 2^63 ns)", "value", |n| {
            metric("timer", "samples", json!([number(n)]))
        }),
        ("a sample of a histogram (below 2^63 millionths)", "value", |n| {
            metric("histogram", "samples", json!([number(n)]))
        }),
        ("`times` of a sample, and of a bucket", "value", |n| {
            metric("timer", "samples", json!([[1, number(n)]]))
        }),
        ("`times` of a sample, and of a bucket", "value", times_of_a_bucket),
        ("different buckets of a `sketch`", "value", buckets),
        ("entries of `members`", "value", |n| metric("set", "members", list(n, |m| m.to_string().into()))),
        ("bytes of a member", "value", |n| metric("set", "members", json!([text(n)]))),
        ("seconds of `ttl`, above 0", "value", |n| metric("gauge", "ttl", number(n))),
    ]
}

#[test]
fn each_limit_of_the_page_is_taken_and_one_more_is_refused() {
    let rows = page::rows(PAGE, "## Limits");
    let named: BTreeSet<&str> = tried().iter().map(|&(name, ..)| name).collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<BTreeSet<_>>(), named);
    for (name, beyond, one_of) in tried() {
        let row = rows.iter().find(|row| row[0] == name).unwrap();
        let most = page::number(row[1]);
        // Values are compared as doubles: near the greatest one more is the same.
        let more = most + if most > u128::from(u64::MAX) { most / 1000 } else { 1 };
        assert_eq!(one_of(most), Ok(()), "{name}");
        let refused = one_of(more).expect_err(name);
        let reason = if beyond.contains(' ') { "value" } else { beyond };
        assert_eq!(refused.reason, reason, "{name}: {refused}");
        assert!(row[2].trim_start_matches('`').starts_with(beyond), "{name}: {}", row[2]);
    }
}

#[test]
fn the_reasons_of_the_page_are_those_of_the_code() {
    let room = [
        Refused::Full(1),
        Refused::Pushed(1, 2),
        Refused::Share("a".to_owned()),
        Refused::Guest("a".to_owned(), 1, 2),
    ];
    let room = room.map(|refused| Refusal::from(refused).reason);
    let form = [
        metric("counter", "name", Value::Null),
        metric("counter", "name", "modules.a".into()),
        metric("counter", "tags", 1.into()),
        metric("countr", "value", 1.into()),
        metric("counter", "value", Value::Null),
        push("version", 2.into()),
    ];
    let form = form.map(|refused| refused.unwrap_err().reason);
    let rows = page::rows(PAGE, "and `reason`:");
    let documented: BTreeSet<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    assert_eq!(documented, room.into_iter().chain(form).collect());
}
