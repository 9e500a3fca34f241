//! OpenTelemetry's protocol over HTTP, as protobuf and as JSON (opentelemetry.io/docs/specs/otlp), by the messages of
//! `opentelemetry-proto`.

use crate::names::{labels, split, without_unit};
use crate::snapshot::{Point, Snapshot, Timer, Unit, Value, View};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, Summary, SummaryDataPoint, metric, number_data_point, summary_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use stats_collect::described;
use std::collections::BTreeMap;

/// As protobuf.
pub fn protobuf(view: &View<'_>, prefix: &str) -> Vec<u8> {
    request(view, prefix).encode_to_vec()
}

/// As JSON.
pub fn json(view: &View<'_>, prefix: &str) -> String {
    // It is texts and numbers, of which those that are not finite have been left out.
    serde_json::to_string(&request(view, prefix)).unwrap_or_default()
}

fn request(view: &View<'_>, prefix: &str) -> ExportMetricsServiceRequest {
    let mut metrics: BTreeMap<(String, u8), Metric> = BTreeMap::new();
    for point in &view.points {
        add(&mut metrics, view.snapshot, point, prefix);
    }
    let scope = InstrumentationScope {
        name: "flux-stats".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = metrics.into_values().collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
    let resource = Some(resource(view.snapshot));
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn resource(snapshot: &Snapshot) -> Resource {
    let instance = &snapshot.instance;
    let mut attributes = vec![text("service.name", "flux"), integer("flux.size", instance.size)];
    attributes.extend(instance.level.map(|level| integer("flux.level", level)));
    attributes.extend(instance.jobid.iter().map(|jobid| text("flux.jobid", jobid)));
    attributes.extend(instance.hostlist.iter().map(|hosts| text("flux.hostlist", hosts)));
    Resource { attributes, ..Resource::default() }
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

fn integer(key: &str, value: u64) -> KeyValue {
    attribute(key, any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// One number of a point, with the times that all numbers have.
fn numeric(snapshot: &Snapshot, point: &Point, value: f64, flows: bool) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: if flows { start_ns(point) } else { 0 },
        time_unix_nano: snapshot.time_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn attributes(point: &Point) -> Vec<KeyValue> {
    labels(point, &[]).iter().map(|(key, value)| text(key, value)).collect()
}

/// Zero: unknown.
fn start_ns(point: &Point) -> u64 {
    point.created_s.map_or(0, |seconds| u64::from(seconds) * 1_000_000_000)
}

fn add(metrics: &mut BTreeMap<(String, u8), Metric>, snapshot: &Snapshot, point: &Point, prefix: &str) {
    let mut name = String::new();
    let base = split(&point.name).base;
    super::prefixed(&mut name, prefix, without_unit(&base, point.unit));
    let row = described(&point.name);
    let description = row.map_or(String::new(), |row| row.described.about.to_owned());
    let mut put = |ending: &str,
                   unit: Unit,
                   kind: u8,
                   empty: fn() -> metric::Data,
                   fill: &dyn Fn(&mut metric::Data)| {
        let name = format!("{name}{ending}");
        let metric = metrics.entry((name.clone(), kind)).or_insert_with(|| Metric {
            name,
            description: description.clone(),
            // As the Unified Code for Units of Measure writes them.
            unit: match unit {
                Unit::None => "1",
                Unit::Seconds => "s",
                Unit::Bytes => "By",
            }
            .to_owned(),
            data: Some(empty()),
            ..Metric::default()
        });
        metric.data.iter_mut().for_each(fill);
    };
    let mut gauge = |ending: &str, unit: Unit, value: f64| {
        if value.is_finite() {
            let empty = || metric::Data::Gauge(Gauge::default());
            put(ending, unit, 0, empty, &|data| {
                if let metric::Data::Gauge(gauge) = data {
                    gauge.data_points.push(numeric(snapshot, point, value, false));
                }
            });
        }
    };
    match &point.value {
        Value::Gauge { ranks, sum, min, max } => {
            gauge("", point.unit, *sum);
            if point.rank.is_none() && !row.is_some_and(|row| row.of_root) {
                gauge(".min", point.unit, min.0);
                gauge(".max", point.unit, max.0);
                gauge(".ranks", Unit::None, *ranks as f64);
            }
        }
        Value::Set { estimate } => gauge("", point.unit, *estimate),
        Value::Counter { total, falls } => {
            let (kind, empty): (u8, fn() -> metric::Data) =
                if *falls { (2, || sum_of(false)) } else { (1, || sum_of(true)) };
            put("", point.unit, kind, empty, &|data| {
                if let metric::Data::Sum(sum) = data {
                    sum.data_points.push(numeric(snapshot, point, *total, true));
                }
            });
        }
        Value::Timer(timer) => match &timer.buckets {
            Some(buckets) => {
                put("", point.unit, 3, || metric::Data::Histogram(histogram()), &|data| {
                    if let metric::Data::Histogram(histogram) = data {
                        histogram.data_points.push(distribution(snapshot, point, timer, buckets));
                    }
                });
            }
            None => put("", point.unit, 4, || metric::Data::Summary(Summary::default()), &|data| {
                if let metric::Data::Summary(summary) = data {
                    summary.data_points.push(quantiles(snapshot, point, timer));
                }
            }),
        },
    }
}

fn sum_of(is_monotonic: bool) -> metric::Data {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    metric::Data::Sum(Sum { aggregation_temporality, is_monotonic, ..Sum::default() })
}

fn histogram() -> Histogram {
    Histogram { aggregation_temporality: AggregationTemporality::Cumulative.into(), ..Histogram::default() }
}

fn distribution(
    snapshot: &Snapshot,
    point: &Point,
    timer: &Timer,
    buckets: &[(f64, u64)],
) -> HistogramDataPoint {
    // Prometheus counts what is below a bound, OTLP what is between two.
    let below = buckets.iter().map(|(_, below)| *below).chain(std::iter::once(timer.count));
    let before = std::iter::once(0).chain(buckets.iter().map(|(_, below)| *below));
    HistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: start_ns(point),
        time_unix_nano: snapshot.time_ns,
        count: timer.count,
        sum: Some(timer.sum),
        bucket_counts: below.zip(before).map(|(below, before)| below.saturating_sub(before)).collect(),
        explicit_bounds: buckets.iter().map(|(bound, _)| *bound).collect(),
        min: timer.shape.map(|shape| shape.min),
        max: timer.shape.map(|shape| shape.max),
        ..HistogramDataPoint::default()
    }
}

fn quantiles(snapshot: &Snapshot, point: &Point, timer: &Timer) -> SummaryDataPoint {
    let values = timer.shape.iter().flat_map(|shape| shape.quantiles);
    let quantiles = crate::snapshot::QUANTILES.iter().zip(values);
    SummaryDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: start_ns(point),
        time_unix_nano: snapshot.time_ns,
        count: timer.count,
        sum: timer.sum,
        quantile_values: quantiles
            .map(|((quantile, _), value)| summary_data_point::ValueAtQuantile { quantile: *quantile, value })
            .collect(),
        ..SummaryDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;

    #[test]
    fn a_request_is_as_documented() {
        let text = json(&sample::snapshot().view(), "flux");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
    }

    #[test]
    fn protobuf_and_json_say_the_same() {
        let snapshot = sample::snapshot();
        let bytes = protobuf(&snapshot.view(), "flux");
        let read = ExportMetricsServiceRequest::decode(bytes.as_slice()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json(&snapshot.view(), "flux"));
    }
}
