//! What a shard keeps, and for how long; what a sender cannot make it do.

use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Query, Unit};
use stats_ingest::{Delta, HandOver, Limits, Recorder, Refusal, Shard};
use std::time::Duration;

const TTL_S: u32 = 600;

fn shard(series: usize) -> Shard {
    Shard::new(Limits { series, tags: 16, ttl: Duration::from_secs(u64::from(TTL_S)) })
}

fn node(max_series: usize) -> Node {
    let (epoch, period) = (7, Duration::from_secs(2));
    let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch, period, max_series };
    Node::new(config, Now { mono_ns: 0, wall_ns: 0 })
}

fn send(shard: &mut Shard, lines: &str) {
    shard.receive(lines.as_bytes());
}

/// All series as rank 0 answers them: name and tags, and the total, sum or number of members.
fn answers(node: &Node, pattern: &str) -> Vec<(String, f64)> {
    let query = Query::parse(&serde_json::json!({ "match": [pattern] })).unwrap();
    let answer = node.answer(&query, Now { mono_ns: 1, wall_ns: 1 });
    let shown = |one: &serde_json::Value| {
        let value = ["total", "sum", "estimate"].iter().find_map(|key| one[key].as_f64());
        let tags = if one["tags"].as_object().is_some_and(|tags| !tags.is_empty()) {
            one["tags"].to_string()
        } else {
            String::new()
        };
        (format!("{}{tags}", one["name"].as_str().unwrap()), value.unwrap_or(f64::NAN))
    };
    answer["series"].as_array().unwrap().iter().map(shown).collect()
}

fn value(node: &Node, name: &str) -> Option<f64> {
    answers(node, name).first().map(|&(_, value)| value)
}

fn refused(over: &HandOver) -> u64 {
    over.refused.iter().map(|refused| refused.lines).sum()
}

#[test]
fn a_hand_over_holds_what_came_since_the_last_one() {
    let mut shard = shard(100);
    send(&mut shard, "a:1|c\nb:2|g");
    assert_eq!(shard.hand_over().changes.len(), 2);
    assert_eq!(shard.hand_over().changes.len(), 0);
    send(&mut shard, "a:5|c");
    let over = shard.hand_over();
    assert_eq!(over.changes.len(), 1);
    assert!(matches!(over.changes[0].delta, Delta::Count(gain) if gain == Amount::whole(5)));
    assert!(over.changes[0].key.is_none(), "the key is handed over once");
    assert_eq!((over.series, over.counts.lines), (2, 1));
}

#[test]
fn a_gauge_that_is_changed_in_a_later_period_changes_what_it_was() {
    let (mut shard, mut node, mut recorder) = (shard(100), node(1000), Recorder::default());
    for lines in ["x:10|g", "x:-4|g", "x:+1|g"] {
        send(&mut shard, lines);
        recorder.record(&mut node, shard.hand_over());
    }
    assert_eq!(value(&node, "x"), Some(7.0));
}

#[test]
fn everything_arrives_in_the_node_exactly() {
    let (mut shard, mut node, mut recorder) = (shard(1000), node(10_000), Recorder::default());
    for round in 0..50 {
        for name in 0..20 {
            send(
                &mut shard,
                &format!("c{name}:{round}|c|@0.5\nt{name}:1.5|ms\ns{name}:{round}|s\nh{name}:0.25|h"),
            );
        }
        recorder.record(&mut node, shard.hand_over());
    }
    for name in 0..20 {
        assert_eq!(value(&node, &format!("c{name}")), Some(f64::from(2 * (0..50).sum::<i32>())));
        assert!((value(&node, &format!("t{name}")).unwrap() - 50.0 * 0.0015).abs() < 1e-9, "seconds");
        assert_eq!(value(&node, &format!("h{name}")), Some(12.5));
    }
    let own = |name: &str| value(&node, &format!("stats-agg.statsd.{name}"));
    assert_eq!((own("packets"), own("lines"), own("samples")), (Some(1000.0), Some(4000.0), Some(4000.0)));
    assert_eq!((own("series"), own("conflicts"), own("dropped")), (Some(80.0), Some(0.0), Some(0.0)));
}

#[test]
fn a_runaway_source_gets_half_of_the_room_and_the_next_finds_some() {
    let mut shard = shard(1000);
    for number in 0..5000 {
        send(&mut shard, &format!("run.away.{number}:1|c"));
    }
    let over = shard.hand_over();
    assert_eq!((over.series, refused(&over)), (500, 4500));
    assert_eq!((over.refused[0].refusal, &*over.refused[0].prefix), (Refusal::Series, "run"));
    // A job's series are its own, whatever their names are.
    for number in 0..5000 {
        send(&mut shard, &format!("run.away.{number}:1|c|#jobid:f1"));
    }
    assert_eq!(shard.hand_over().series, 750);
    send(&mut shard, "late.comer:1|c\nanother:1|ms");
    let over = shard.hand_over();
    assert_eq!((over.series, refused(&over)), (752, 0));
    // What is there goes on.
    send(&mut shard, "run.away.3:1|c");
    assert_eq!((shard.hand_over().changes.len(), shard.hand_over().series), (1, 752));
}

#[test]
fn spellings_of_one_series_take_room_too() {
    let mut shard = shard(100);
    for number in 0..1000 {
        // An empty tag more each time: one series, and always another text.
        send(&mut shard, &format!("x:1|c|#a:b{}", ",".repeat(number % 500)));
    }
    let over = shard.hand_over();
    assert_eq!(over.series, 1);
    assert!(refused(&over) >= 800, "{}", refused(&over));
}

#[test]
fn refusals_name_a_bounded_number_of_prefixes() {
    let mut shard = shard(0);
    for number in 0..10_000 {
        send(&mut shard, &format!("p{number}.x:1|c\nmodules.{number}:1|c"));
    }
    let over = shard.hand_over();
    assert!(over.refused.len() <= 20, "{}", over.refused.len());
    assert_eq!(refused(&over), 20_000);
    let other = over.refused.iter().find(|refused| &*refused.prefix == "other").unwrap();
    assert!(other.lines > 9_000, "{other:?}");
}

#[test]
fn a_job_s_series_expire_and_their_room_is_free_again() {
    let (mut shard, mut node, mut recorder) = (shard(100), node(1000), Recorder::default());
    send(&mut shard, "x:1|g|#jobid:f1\nx:2|g\ny:1|c|#jobid:f1");
    recorder.record(&mut node, shard.hand_over());
    assert_eq!(answers(&node, "x").len(), 2);
    shard.set_time(TTL_S - 1);
    assert_eq!(shard.hand_over().series, 3);
    shard.set_time(2 * TTL_S);
    let over = shard.hand_over();
    assert_eq!((over.series, over.counts.expired), (1, 2));
    recorder.record(&mut node, over);
    assert_eq!(answers(&node, "x"), [("x".to_owned(), 2.0)], "the gauge of the job is gone, the other stays");
    // Its number goes to another series, and nothing is mixed up.
    send(&mut shard, "z:5|g\nx:3|g");
    recorder.record(&mut node, shard.hand_over());
    assert_eq!((value(&node, "z"), value(&node, "x")), (Some(5.0), Some(3.0)));
    // All room that jobs took is free: half of it for one that comes then.
    for job in 0..50 {
        shard.set_time((3 + job) * TTL_S);
        assert_eq!(refused(&shard.hand_over()), 0);
        for number in 0..40 {
            send(&mut shard, &format!("n{number}:1|c|#jobid:j{job}"));
        }
        let over = shard.hand_over();
        assert_eq!(refused(&over), 0, "job {job}");
    }
}

#[test]
fn a_rank_that_is_silent_leaves_the_sum_of_a_gauge() {
    let mut shard = shard(100);
    shard.set_time(100);
    send(&mut shard, "flux.0.x:10|g\nflux.1.x:5|g");
    let gauge = |over: &HandOver| match over.changes[0].delta {
        Delta::Gauge(value) => value,
        _ => panic!("no gauge"),
    };
    assert_eq!(gauge(&shard.hand_over()), Amount::whole(15));
    shard.set_time(100 + 86_400 - 1);
    send(&mut shard, "flux.0.x:11|g");
    shard.hand_over();
    shard.set_time(100 + 86_400 + TTL_S);
    assert_eq!(gauge(&shard.hand_over()), Amount::whole(11));
}

#[test]
fn a_full_node_counts_what_it_has_no_room_for_and_its_own_series_have_room() {
    let (mut shard, mut node, mut recorder) = (shard(10_000), node(100), Recorder::default());
    for number in 0..1000 {
        send(&mut shard, &format!("app.n{number}:1|c"));
    }
    recorder.record(&mut node, shard.hand_over());
    let refused = answers(&node, "stats-agg.statsd.refused");
    let counted: f64 = refused.iter().map(|(_, lines)| lines).sum();
    assert!(refused[0].0.contains(r#""prefix":"app""#) && refused[0].0.contains("catalog"), "{refused:?}");
    let kept = answers(&node, "app.*").len();
    assert_eq!(kept as f64 + counted, 1000.0);
    let own = Key::new("modules.late.wakeups", &[], Kind::Counter, Unit::None).unwrap();
    assert!(node.declare(own).is_ok());
}

#[test]
fn a_shard_that_begins_anew_leaves_no_gauge_of_the_one_before() {
    let (mut node, mut recorder) = (node(1000), Recorder::default());
    for lines in ["old:1|g", "new:2|g"] {
        let mut shard = shard(100);
        send(&mut shard, lines);
        recorder.record(&mut node, shard.hand_over());
    }
    assert_eq!((value(&node, "old"), value(&node, "new")), (None, Some(2.0)));
}

#[test]
fn the_last_bad_line_is_told_and_is_printable() {
    let mut shard = shard(100);
    send(&mut shard, &format!("x:\u{7}\u{1b}[2Jrubbish{}|c", "x".repeat(5000)));
    let bad = shard.hand_over().last_bad.unwrap();
    assert_eq!(bad.bad.name(), "value");
    assert!(
        bad.text.starts_with("x:") && bad.text.chars().count() <= 120 && !bad.text.contains('\u{1b}'),
        "{bad:?}"
    );
    assert_eq!(shard.hand_over().last_bad, None);
}
