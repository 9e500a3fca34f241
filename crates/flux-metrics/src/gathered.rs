//! What is pushed, as text (stats-core's `docs/push.md`).

use serde_json::{Map, Value, json};
use stats_core::{Key, Members, PUSH_VERSION, Samples, Unit};

/// Integers beyond this are written as digits: readers of JSON keep doubles.
const INTEGER_MAX: u128 = 1 << 53;

/// What a series gained, or is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Gathered {
    /// A counter gained this.
    Count(i128),
    /// A gauge is this.
    Set(f64),
    /// A gauge has changed by this.
    Add(f64),
    /// A timer or histogram has these more.
    Samples(Samples),
    /// A set was given these.
    Members(Members),
}

impl Gathered {
    /// What is later than this, added to it.
    pub(crate) fn follow(&mut self, later: &Gathered) {
        match (&mut *self, later) {
            (Gathered::Count(sum), Gathered::Count(more)) => *sum = sum.saturating_add(*more),
            (Gathered::Set(value) | Gathered::Add(value), Gathered::Add(by)) => *value += by,
            (Gathered::Samples(samples), Gathered::Samples(more)) => samples.merge(more),
            (Gathered::Members(members), Gathered::Members(more)) => members.merge(more),
            (present, later) => *present = later.clone(),
        }
    }
}

fn whole(number: u128, negative: bool) -> Value {
    let sign = if negative { "-" } else { "" };
    match i64::try_from(number) {
        Ok(small) if number <= INTEGER_MAX => (if negative { -small } else { small }).into(),
        _ => format!("{sign}{number}").into(),
    }
}

/// One metric of a push.
pub(crate) fn metric(key: &Key, gathered: &Gathered) -> Value {
    let mut map = Map::new();
    map.insert("name".into(), key.name().into());
    if !key.tags().is_empty() {
        let tags = key.tags().iter().map(|(key, value)| (key.clone(), value.clone().into()));
        map.insert("tags".into(), Value::Object(tags.collect()));
    }
    let (kind, field, value) = match gathered {
        Gathered::Count(gained) => ("counter", "value", whole(gained.unsigned_abs(), *gained < 0)),
        Gathered::Set(value) => ("gauge", "value", json!(value)),
        Gathered::Add(by) => ("gauge", "add", json!(by)),
        Gathered::Samples(samples) if key.unit() == Unit::Nanoseconds => ("timer", "sketch", sketch(samples)),
        Gathered::Samples(samples) => ("histogram", "sketch", sketch(samples)),
        Gathered::Members(members) => ("set", "sketch", members.to_hex().into()),
    };
    map.insert("type".into(), kind.into());
    map.insert(field.into(), value);
    Value::Object(map)
}

fn sketch(samples: &Samples) -> Value {
    let (min, max) = samples.range().unwrap_or_default();
    let buckets: Vec<Value> = samples.buckets().map(|(bucket, times)| json!([bucket, times])).collect();
    json!({
        "sum": whole(samples.sum(), false),
        "squares": whole(samples.sum_of_squares(), false),
        "min": whole(min.into(), false),
        "max": whole(max.into(), false),
        "buckets": buckets,
    })
}

/// A whole push.
pub(crate) fn push(id: &str, seq: u64, dropped: u64, metrics: Vec<Value>) -> String {
    json!({ "version": PUSH_VERSION, "id": id, "seq": seq, "dropped": dropped, "metrics": metrics })
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stats_core::{Amount, Kind, Metric, Pushed};

    fn read(kind: Kind, unit: Unit, gathered: &Gathered) -> Pushed {
        let key = Key::new("a.b", &[("k", "v")], kind, unit).unwrap();
        let text = metric(&key, gathered).to_string();
        let read = Metric::parse(serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read.key, key);
        read.value
    }

    proptest! {
        #[test]
        fn the_service_reads_what_was_gathered(
            count in any::<i64>(), far in -1000_i128..1000, value in -1e20..1e20_f64,
            samples in proptest::collection::vec((0_u32..64, any::<u64>()), 1..100),
            members in proptest::collection::vec("[a-z]{1,5}", 1..200),
        ) {
            let wide = i128::from(count) * (far + 1);
            let counter = read(Kind::Counter, Unit::None, &Gathered::Count(wide));
            prop_assert_eq!(counter, Pushed::Count(Amount::whole(wide)));
            // A reader of JSON may be off by the last bit of a double.
            let near = |found: Amount| (found.to_f64() - value).abs() <= value.abs() * 1e-15 + 1e-6;
            let set = read(Kind::Gauge, Unit::None, &Gathered::Set(value));
            prop_assert!(matches!(set, Pushed::Set(found) if near(found)), "{:?}", set);
            let add = read(Kind::Gauge, Unit::None, &Gathered::Add(value));
            prop_assert!(matches!(add, Pushed::Add(found) if near(found)), "{:?}", add);
            let mut all = Samples::default();
            samples.iter().for_each(|(shift, sample)| all.add(sample >> shift, 1));
            for unit in [Unit::Nanoseconds, Unit::None] {
                let found = read(Kind::Timer, unit, &Gathered::Samples(all.clone()));
                prop_assert_eq!(found, Pushed::Samples(all.clone()));
            }
            let mut set = Members::default();
            members.iter().for_each(|member| { set.insert(member); });
            prop_assert_eq!(read(Kind::Set, Unit::None, &Gathered::Members(set.clone())), Pushed::Members(set));
        }
    }

    #[test]
    fn no_integer_beyond_a_double_s_is_written() {
        assert_eq!(whole(1 << 53, true), json!(-(1_i64 << 53)));
        assert_eq!(whole((1 << 53) + 1, false), json!("9007199254740993"));
        assert_eq!(whole(u128::from(u64::MAX) + 1, true), json!("-18446744073709551616"));
    }

    #[test]
    fn what_follows_adds_up() {
        let mut gauge = Gathered::Add(1.0);
        gauge.follow(&Gathered::Set(5.0));
        gauge.follow(&Gathered::Add(2.0));
        assert_eq!(gauge, Gathered::Set(7.0));
        let mut counter = Gathered::Count(1);
        counter.follow(&Gathered::Count(2));
        assert_eq!(counter, Gathered::Count(3));
    }
}
