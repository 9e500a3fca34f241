//! What each line amounts to, where statsd implementations differ and where they do not. The rows follow what etsy's
//! statsd, brubeck, statsd_exporter and the DogStatsD agent do; where they disagree, one is chosen and the row says why.

use stats_core::{Amount, Kind, Unit};
use stats_ingest::{Bad, Delta, HandOver, Limits, Shard};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is there after the lines: series as `name{tags} kind value`, sorted; then what was not counted.
fn outcome(lines: &[u8]) -> String {
    let mut shard = Shard::new(Limits { series: 1000, tags: 16, ttl: Duration::from_secs(600) });
    shard.receive(lines);
    shown(&shard.hand_over())
}

fn shown(over: &HandOver) -> String {
    let mut all = BTreeMap::new();
    for change in &over.changes {
        let key = change.key.as_ref().unwrap();
        let tags: Vec<String> = key.tags().map(|(key, value)| format!("{key}={value}")).collect();
        let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
        let kind = match (key.kind(), key.unit()) {
            (Kind::Timer, Unit::Millionths) => "histogram",
            (kind, _) => kind.name(),
        };
        let value = match &change.delta {
            Delta::Count(amount) | Delta::Gauge(amount) => number(*amount),
            Delta::Samples(samples) => {
                // Nanoseconds as milliseconds, millionths as plain numbers: both are what was sent.
                let sum = Amount::from_parts(samples.sum() as i128);
                format!("{} of {}", samples.count(), number(sum))
            }
            Delta::Members(members) => format!("{} members", members.estimate()),
            Delta::Gone => "gone".to_owned(),
        };
        all.insert(format!("{}{tags} {kind}", key.name()), value);
    }
    let mut parts: Vec<String> = all.into_iter().map(|(name, value)| format!("{name} {value}")).collect();
    let counts = &over.counts;
    for (bad, &count) in Bad::ALL.iter().zip(&counts.bad) {
        (0..count).for_each(|_| parts.push(format!("bad {}", bad.name())));
    }
    for refused in &over.refused {
        parts.push(format!("refused {} {}", refused.refusal.name(), refused.prefix));
    }
    for (what, count) in [
        ("event", counts.events),
        ("check", counts.service_checks),
        ("conflict", counts.conflicts),
        ("tag dropped", counts.tags_dropped),
    ] {
        (0..count).for_each(|_| parts.push(what.to_owned()));
    }
    parts.join("; ")
}

fn number(amount: Amount) -> String {
    let shown = amount.to_f64();
    if shown.fract() == 0.0 { format!("{shown:.0}") } else { shown.to_string() }
}

/// Lines, what they amount to, and why.
type Row = (&'static str, &'static str, &'static str);

fn check(rows: &[Row]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(lines, expected, why)| {
            let found = outcome(lines.as_bytes());
            (found != *expected)
                .then(|| format!("{lines:?} ({why})\n  expected {expected}\n  found    {found}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn types() {
    check(&[
        ("x:2|c\nx:3|c", "x counter 5", "all"),
        ("x:-2|c\nx:5|c", "x counter 3", "counters may go down"),
        ("x:10|C\nx:15|C\nx:22|C", "x counter 12", "brubeck: cumulative; the first total primes"),
        ("x:10|C\nx:3|C\nx:5|C", "x counter 5", "brubeck: a lower total began anew at zero"),
        ("x:0|C\nx:4|C", "x counter 4", "brubeck takes a total of 0 for unset, which loses these"),
        ("x:7|C", "x counter 0", "brubeck: nothing is known of what was before"),
        ("x:-7|C", "bad negative", "a total so far is not negative"),
        ("x:7|g\nx:5|g", "x gauge 5", "all"),
        (
            "x:7|g\nx:+3|g\nx:-1|g",
            "x gauge 9",
            "etsy, brubeck, exporter: a sign is a change (DogStatsD: a value)",
        ),
        ("x:2|ms\nx:4.5|ms", "x timer 2 of 6.5", "all"),
        ("x:0.25|h\nx:3|d", "x histogram 2 of 3.25", "DogStatsD: not only durations"),
        ("x:a|s\nx:b|s\nx:a|s", "x set 2 members", "all"),
        ("x:1|m", "bad type", "an unknown type is no counter (etsy's is)"),
        ("x:1|kv", "bad type", "likewise"),
        ("x:1|G", "bad type", "likewise"),
    ]);
}

/// Each row of the list of tricky cases.
#[test]
fn tricky_cases() {
    check(&[
        ("x", "bad format", "no colon"),
        ("x:1", "bad format", "no type"),
        (":1|c", "bad name", "no name (etsy and brubeck take it)"),
        ("x:|c", "bad value", "no value (brubeck: 0)"),
        ("x:|g", "bad value", "likewise"),
        ("x:|s", "bad value", "no member (etsy: '0')"),
        ("x:1|", "bad type", "an empty type is no counter (etsy's is)"),
        ("x:1|c|", "bad section", "an empty section"),
        ("x:-10|g", "x gauge -10", "a change of a gauge that is not set is from 0"),
        ("x:0|g\nx:-3|g", "x gauge -3", "all"),
        ("x:+10e1|c", "x counter 100", "all"),
        ("x:-1|ms", "bad negative", "etsy; brubeck and the exporter take it"),
        ("x:-1|h", "bad negative", "likewise"),
        ("x:-0.0|ms", "x timer 1 of 0", "all"),
        ("x:0x10|c", "bad value", "brubeck; etsy and the exporter read other bases"),
        ("x:Infinity|c", "bad value", "one would poison the sum of a tree"),
        ("x:NaN|g", "bad value", "likewise"),
        ("x:inf|ms", "bad value", "likewise"),
        ("x:1e999|c", "bad range", "likewise"),
        ("x: 5|c", "bad value", "brubeck; etsy trims it"),
        ("x:1,5|ms", "bad value", "all"),
        ("x:1|c|@0", "bad rate", "brubeck; etsy: infinity, the exporter: 1"),
        ("x:1|c|@2", "bad rate", "brubeck, DogStatsD; etsy halves"),
        ("x:1|c|@-1", "bad rate", "all but the exporter"),
        ("x:1|c|@2e-1", "x counter 5", "0.2 (etsy reads 2)"),
        ("x:1|c|@", "bad rate", "all; the exporter counts the line all the same"),
        ("x:1|c|@.", "bad rate", "likewise"),
        ("x:1|c|@.1.", "bad rate", "likewise"),
        ("x:1|c|@blah", "bad rate", "likewise"),
        ("x:1|c|@inf", "bad rate", "likewise"),
        ("x:1|c|@1e-300", "bad rate", "it would stand for 10^300"),
        ("x:2|c|@0.1", "x counter 20", "all"),
        ("x:1.5|c|@1", "x counter 1.5", "all"),
        (
            "x:320|ms|@0.1",
            "x timer 10 of 3200",
            "count, sum and distribution are scaled alike, so that a mean is one",
        ),
        (
            "x:2|ms|@0.3\nx:2|ms|@0.3\nx:2|ms|@0.3",
            "x timer 10 of 20",
            "what a rate leaves over is carried on",
        ),
        ("x:5|g|@0.1", "x gauge 5", "a gauge's rate means nothing"),
        ("x:a|s|@0.1", "x set 1 members", "nor a set's"),
        (
            "a b/c+d:1|c",
            "a_b-c_d counter 1",
            "etsy's spaces and slashes; the rest becomes _ (etsy removes it)",
        ),
        ("a..b:1|c", "bad name", "an empty part cannot be shown as a tree"),
        ("a.:1|c", "bad name", "brubeck: bad, too"),
        ("é:1|c", "_ counter 1", "UTF-8 outside of ASCII becomes _"),
        ("x:1|c\r\ny:2|c\r\n", "x counter 1; y counter 2", "CR belongs to the end of the line"),
        (
            "x:1|c\nx:2|g",
            "x counter 1; x gauge 2; conflict",
            "both are kept, as etsy does, and it is counted",
        ),
        ("x:1|ms\nx:2|h", "x histogram 1 of 2; x timer 1 of 1; conflict", "likewise"),
        ("x,a=1:1|c|#b:2", "bad tags", "two styles at once: exporter"),
        ("x:1|c|#novalue", "x counter 1; tag dropped", "the line counts without it: exporter"),
        ("x:1|c|#a:b:c", "x{a=b:c} counter 1", "the first colon ends the key"),
        ("x:1|c|#a:b,,", "x{a=b} counter 1; tag dropped; tag dropped", "empty tags are counted"),
        ("consumer:Kafka::X:1|c", "bad value", "a name has no colon"),
        ("\n\nx:1|c\n\n", "x counter 1", "empty lines are nothing"),
        ("", "", "nor is an empty datagram anything"),
    ]);
    assert_eq!(outcome(b"x\xff:1|c"), "bad utf8");
    assert_eq!(outcome(b"x:1|c|#a:\xc3\x28\ny:1|c"), "y counter 1; bad utf8", "and harms no other line");
    let mut long = b"x:1|c\n".repeat(11_000);
    assert_eq!(outcome(&long), "x counter 11000", "datagrams of any length");
    long.truncate(65_536);
    assert_eq!(outcome(&long), "x counter 10922; bad type");
}

#[test]
fn dogstatsd() {
    check(&[
        ("x:1:2:3|c", "x counter 6", "1.1: several values"),
        ("x:1:2:3|ms|@0.5", "x timer 6 of 12", "with one rate"),
        ("x:1::2|h", "x histogram 2 of 3", "empty members are skipped"),
        ("x:::|c", "bad value", "but all"),
        ("x:1:b|c", "bad value", "a line is taken whole or not at all"),
        ("x:a:b|s", "x set 1 members", "a set's member may hold colons"),
        ("x:1:-1|g", "x gauge 0", "in order: a value, then a change"),
        ("x:1|c|#a:b|@0.5", "x{a=b} counter 2", "sections in any order"),
        ("x:1|c|@0.5|#a:b", "x{a=b} counter 2", "likewise"),
        ("x:1|c|#b:2,a:1\nx:1|c|#a:1,b:2", "x{a=1,b=2} counter 2", "tags in any order are one series"),
        ("x:1|c|#a:b|#c:d", "bad tags", "tags twice"),
        ("x:1|c|c:ci-83c0|#a:b", "x{a=b} counter 1", "1.2: container"),
        ("x:1|c|T1656581400", "x counter 1", "1.3: counted when it arrives"),
        ("x:1|g|Tnot-a-time", "x gauge 1", "and not looked at, as the exporter does"),
        ("x:1|c|e:it-false,cn-nginx", "x counter 1", "external data"),
        ("x:1|c|card:low", "x counter 1", "cardinality"),
        ("x:1|c|new:field", "x counter 1", "what comes next has this form"),
        ("x:1|c|rubbish", "bad section", "and rubbish has not"),
        ("x:1|c|#a:Über", "x{a=Über} counter 1", "tags are UTF-8"),
        ("_e{5,4}:title|text|d:1|#a:b", "event", "ignored, and no metric named _e{5,4}"),
        ("_sc|name|0|m:all|is well", "check", "likewise"),
        ("_ex:1|c", "_ex counter 1", "other names may begin so"),
    ]);
}

#[test]
fn etsy_packing() {
    check(&[
        ("x:1|c:2|c", "x counter 3", "etsy, telegraf: several values with a type each"),
        ("x:1|c:5|ms", "x counter 1; x timer 1 of 5; conflict", "the types may differ"),
        ("x:1|c|@0.5:3|c", "x counter 5", "and so may the rates"),
        ("x:1|c:2|c|#a:b", "bad tags", "whose tags would they be? exporter: bad"),
        ("x:1|c:2", "bad format", "all of it or nothing"),
        ("x:1|c:", "bad format", "likewise"),
    ]);
}

#[test]
fn tags_in_names() {
    check(&[
        ("x,a=1,b=2:1|c", "x{a=1,b=2} counter 1", "Influx"),
        ("x#a=1,b=2:1|c", "x{a=1,b=2} counter 1", "Librato"),
        ("x[a=1,b=2]:1|c", "x{a=1,b=2} counter 1", "SignalFX"),
        ("x;a=1;b=2:1|c", "x{a=1,b=2} counter 1", "Graphite, and what etsy makes of |#"),
        ("x;a=1:1|c\nx:1|c|#a:1", "x{a=1} counter 2", "all are the same tags"),
    ]);
}

#[test]
fn flux_s_own_clients() {
    check(&[
        (
            "flux.0.content-cache.count:7|g\nflux.3.content-cache.count:5|g\nflux.0.content-cache.count:8|g",
            "flux.content-cache.count gauge 13",
            "fripp: without the rank they merge, and a gauge is the sum of the ranks that send here",
        ),
        (
            "flux.0.x:10|C\nflux.1.x:100|C\nflux.0.x:11|C\nflux.1.x:103|C",
            "flux.x counter 4",
            "each rank has its own total so far",
        ),
        ("flux.job.state.run:2|g", "flux.job.state.run gauge 2", "another prefix has no rank"),
        ("modules.kvs.x:1|c", "refused reserved modules", "the service's own names"),
        ("stats-agg.x:1|c\nbroker.y:1|c", "refused reserved stats-agg; refused reserved broker", "likewise"),
        ("jobs/x:1|c", "jobs-x counter 1", "but not what only looks alike"),
    ]);
}
