//! The format, read and written.

use super::written::{digits, written};
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn value(metric: Value) -> Pushed {
    Metric::parse(metric).unwrap().value
}

#[test]
fn every_type_of_the_document_is_understood() {
    let document = include_str!("../../docs/push.md");
    let example = document.split("```json").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let push = Push::parse(serde_json::from_str(example).unwrap()).unwrap();
    assert_eq!(push.identity, Some(("5f0c2f6a9d1e4b37".to_owned(), 12)));
    let metrics: Vec<Metric> = push.metrics.into_iter().map(|m| Metric::parse(m).unwrap()).collect();
    assert!(metrics[0].key.tags().eq([("queue", "batch")]));
    assert_eq!(metrics[0].value, Pushed::Count(Amount::whole(42)));
    assert_eq!(metrics[1].value, Pushed::Set(Amount::nearest(7.5).unwrap()));
    assert_eq!(metrics[2].value, Pushed::Add(Amount::whole(-1)));
    let Pushed::Samples(fetch) = &metrics[3].value else { panic!() };
    assert_eq!((fetch.count(), fetch.sum()), (4, 1_512_500_000));
    let Pushed::Samples(reply) = &metrics[4].value else { panic!() };
    assert_eq!((reply.count(), reply.sum(), metrics[4].key.unit()), (2, 8_192_000_000, Unit::Millionths));
    let Pushed::Members(users) = &metrics[5].value else { panic!() };
    assert_eq!(users.estimate(), 2.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read(
        count in any::<i64>(), far in -1000_i128..1000, value in -1e20..1e20_f64,
        samples in proptest::collection::vec((0_u32..64, any::<u64>()), 1..100),
        members in 1_u32..200,
    ) {
        let again = |kind, unit, value: &Pushed| {
            let key = Key::new("a.b", &[("k", "v")], kind, unit).unwrap();
            let metric = Metric { key, value: value.clone(), ttl: None };
            let text = metric.to_json().to_string();
            let read = Metric::parse(serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(read.key, metric.key);
            read.value
        };
        let counter = Pushed::Count(Amount::whole(i128::from(count) * (far + 1)));
        prop_assert_eq!(&again(Kind::Counter, Unit::None, &counter), &counter);
        // A reader of JSON may be off by the last bit of a double.
        let amount = Amount::nearest(value).unwrap();
        let near = |found: Amount| (found.to_f64() - value).abs() <= value.abs() * 1e-15 + 1e-6;
        let set = again(Kind::Gauge, Unit::None, &Pushed::Set(amount));
        prop_assert!(matches!(set, Pushed::Set(found) if near(found)), "{:?}", set);
        let add = again(Kind::Gauge, Unit::None, &Pushed::Add(amount));
        prop_assert!(matches!(add, Pushed::Add(found) if near(found)), "{:?}", add);
        let mut all = Samples::default();
        samples.iter().for_each(|(shift, sample)| all.add(sample >> shift, 1));
        let all = Pushed::Samples(all);
        for unit in [Unit::Nanoseconds, Unit::Millionths] {
            prop_assert_eq!(&again(Kind::Timer, unit, &all), &all);
        }
        let mut set = Members::default();
        (0..members).for_each(|member| { set.insert(&member.to_string()); });
        let set = Pushed::Members(set);
        prop_assert_eq!(&again(Kind::Set, Unit::None, &set), &set);
    }
}

#[test]
fn no_integer_beyond_a_double_s_is_written() {
    assert_eq!(digits(1 << 53, true), json!(-(1_i64 << 53)));
    assert_eq!(digits((1 << 53) + 1, false), json!("9007199254740993"));
    assert_eq!(digits(u128::from(u64::MAX) + 1, true), json!("-18446744073709551616"));
    assert_eq!(written(Amount::from_parts(-1_500_000)), json!(-1.5));
}

#[test]
fn whole_numbers_are_exact_however_large() {
    let counter = |value: Value| value_of(json!({ "name": "a", "type": "counter", "value": value }));
    fn value_of(metric: Value) -> Pushed {
        Metric::parse(metric).unwrap().value
    }
    assert_eq!(counter(json!(u64::MAX)), Pushed::Count(Amount::whole(u64::MAX.into())));
    assert_eq!(
        counter(json!("-123456789012345678901")),
        Pushed::Count(Amount::whole(-123_456_789_012_345_678_901))
    );
    assert_eq!(counter(json!(0.25)), Pushed::Count(Amount::from_parts(250_000)));
}

#[test]
fn a_sketch_is_what_its_samples_are() {
    let mut samples = Samples::default();
    [5_u64, 200, 70_000].iter().for_each(|&sample| samples.add(sample, 2));
    let buckets: Vec<_> = samples.buckets().map(|(bucket, times)| json!([bucket, times])).collect();
    let sketch = json!({ "sum": samples.sum().to_string(), "squares": samples.sum_of_squares() as u64,
        "min": 5, "max": 70_000, "buckets": buckets });
    let pushed = value(json!({ "name": "a", "type": "histogram", "sketch": sketch }));
    assert_eq!(pushed, Pushed::Samples(samples));
    let listed = json!({ "name": "a", "type": "histogram", "samples": [[5e-6, 2], [2e-4, 2], [0.07, 2]] });
    assert_eq!(value(listed), pushed);
    let mut members = Members::default();
    members.insert("x");
    let sketch = json!({ "name": "a", "type": "set", "sketch": members.to_hex() });
    assert_eq!(value(sketch), value(json!({ "name": "a", "type": "set", "members": ["x", "x"] })));
}

#[test]
fn a_wrong_metric_is_refused_with_what_is_expected() {
    let with = |key: &str, value: Value| {
        let mut metric = json!({ "name": "a.b", "type": "counter", "value": 1 });
        metric[key] = value;
        metric
    };
    for (metric, reason, said) in [
        (json!(5), "value", "a metric is expected to be an object"),
        (json!({ "type": "counter" }), "name", "name: expected a text"),
        (with("name", json!("a..b")), "name", "bad name \"a..b\""),
        (with("name", json!("x".repeat(201))), "name", "bad name"),
        (
            with("name", json!("modules.kvs.wakeups")),
            "reserved",
            "that begin with modules. are the service's own",
        ),
        (with("type", json!("countr")), "type", "type: expected \"counter\", \"gauge\", \"timer\""),
        (with("type", Value::Null), "type", "got null"),
        (with("value", json!("NaN")), "value", "value: expected a number up to 1e27, got \"NaN\""),
        (with("value", json!(1e300)), "value", "value: expected a number"),
        (with("value", json!("9".repeat(38))), "value", "value: expected a number"),
        (with("value", Value::Null), "value", "value: expected a number up to 1e27, got null"),
        (with("tags", json!({ "a": 1 })), "tags", "bad tags"),
        (with("tags", json!({ "": "x" })), "tags", "bad tags"),
        (with("ttl", json!(5)), "value", "ttl: only a gauge has one"),
        (with("valeu", json!(5)), "value", "valeu: unknown key; allowed: name"),
        (json!({ "name": "a", "type": "gauge" }), "value", "either value or add"),
        (json!({ "name": "a", "type": "gauge", "value": 1, "ttl": 0 }), "value", "ttl: expected seconds"),
        (
            json!({ "name": "a", "type": "timer", "samples": [-1] }),
            "value",
            "samples: expected a number from 0",
        ),
        (json!({ "name": "a", "type": "timer", "samples": [1e10] }), "value", "samples: expected"),
        (json!({ "name": "a", "type": "histogram", "samples": [1e13] }), "value", "samples: expected"),
        (json!({ "name": "a", "type": "timer", "samples": [[1, 2, 3]] }), "value", "samples: expected"),
        (json!({ "name": "a", "type": "timer", "samples": 5 }), "value", "samples: expected a list"),
        (json!({ "name": "a", "type": "timer", "sketch": { "sum": -1 } }), "value", "sketch: sum: expected"),
        (json!({ "name": "a", "type": "set", "members": [1] }), "value", "members: expected texts"),
        (json!({ "name": "a", "type": "set", "sketch": "0z" }), "value", "sketch: malformed"),
        (json!({ "name": "a", "type": "set", "sketch": "0" }), "value", "sketch: malformed"),
    ] {
        let refusal = Metric::parse(metric.clone()).unwrap_err();
        assert_eq!(refusal.reason, reason, "{metric}");
        assert!(refusal.text.contains(said), "{metric}: {refusal}");
    }
}

#[test]
fn a_wrong_push_is_refused_whole() {
    let good = json!({ "version": 1, "id": "a", "seq": 1, "metrics": [] });
    assert!(Push::parse(good.clone()).is_ok());
    for (key, value, said) in [
        ("version", json!(2), "version: expected 1, got 2"),
        ("version", Value::Null, "version: expected 1, got 0"),
        ("id", Value::Null, "id, seq: expected"),
        ("id", json!("a b"), "id, seq: expected"),
        ("id", json!("a".repeat(65)), "id, seq: expected"),
        ("seq", json!(0), "id, seq: expected"),
        ("seq", json!(-1), "seq: expected a whole number from 0, got -1"),
        ("metrics", json!({}), "metrics: expected a list"),
        ("metric", json!([]), "metric: unknown key; allowed: version, id"),
    ] {
        let mut push = good.clone();
        push[key] = value;
        let refusal = Push::parse(push).unwrap_err();
        assert!(refusal.text.contains(said), "{key}: {refusal}");
    }
}

#[test]
fn a_refusal_names_the_metric_once() {
    let why = "\"modules.x\": names that begin with modules. are the service's own";
    assert_eq!(refusal_text("modules.x", why), why);
    assert_eq!(refusal_text("a.b", "more than 16 tags"), "a.b: more than 16 tags");
}
