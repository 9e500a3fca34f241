//! Pushes taken once, bounded, and by whose they are.

use super::*;
use crate::node::NodeConfig;
use crate::page;
use crate::query::Query;

const TTL: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Now {
    Now { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 }
}

fn node(max_series: usize) -> Node {
    let period = Duration::from_secs(2);
    let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch: 1, period, max_series };
    Node::new(config, at(0))
}

fn push(id: &str, seq: u64, metrics: Value) -> Value {
    json!({ "version": 1, "id": id, "seq": seq, "metrics": metrics })
}

fn counter(name: &str, value: i64) -> Value {
    json!({ "name": name, "type": "counter", "value": value })
}

fn find(node: &Node, name: &str) -> Value {
    let query = Query::parse(&json!({ "match": [name] })).unwrap();
    node.answer(&query, at(0))["series"].clone()
}

fn total(node: &Node, name: &str) -> i64 {
    find(node, name)[0]["total"].as_i64().unwrap()
}

#[test]
fn a_repeat_counts_once_also_after_a_reload() {
    let (mut node, mut intake) = (node(100), Intake::new(TTL));
    let one = || push("h1", 7, json!([counter("a", 3)]));
    assert_eq!(intake.take(&mut node, at(0), Pusher::Owner, one()).unwrap()["accepted"], 1);
    assert_eq!(intake.take(&mut node, at(0), Pusher::Owner, one()).unwrap()["repeat"], true);
    let saved = intake.save(&node, at(0));
    let mut intake = Intake::restore(TTL, &mut node, at(0), &saved).unwrap();
    assert_eq!(intake.take(&mut node, at(0), Pusher::Owner, one()).unwrap()["repeat"], true);
    // Another handle's, and the next one, are others.
    intake.take(&mut node, at(0), Pusher::Owner, push("h2", 7, json!([counter("a", 10)]))).unwrap();
    intake.take(&mut node, at(0), Pusher::Owner, push("h1", 9, json!([counter("a", 100)]))).unwrap();
    assert_eq!(
        intake.take(&mut node, at(0), Pusher::Owner, push("h1", 8, json!([counter("a", 1)]))).unwrap()["repeat"],
        true
    );
    assert_eq!(total(&node, "a"), 113);
    assert_eq!((total(&node, "stats-agg.pushes"), total(&node, "stats-agg.pushes_repeated")), (3, 3));
}

#[test]
fn the_memory_of_handles_is_bounded_and_forgets_who_is_quiet() {
    let (mut node, mut intake) = (node(100), Intake::new(TTL));
    for handle in 0..HANDLES_MAX as u64 + 10 {
        intake.take(&mut node, at(0), Pusher::Owner, push(&format!("h{handle}"), 1, json!([]))).unwrap();
        intake.take(&mut node, at(0), Pusher::Owner, push("talker", handle + 1, json!([]))).unwrap();
    }
    assert_eq!(intake.handles.len(), HANDLES_MAX);
    let again = |intake: &mut Intake, node: &mut Node, id: &str| {
        intake.take(node, at(0), Pusher::Owner, push(id, 1, json!([]))).unwrap()["repeat"] == json!(true)
    };
    assert!(again(&mut intake, &mut node, "talker"));
    assert!(!again(&mut intake, &mut node, "h0"));
}

#[test]
fn what_is_refused_is_counted_with_its_prefix_and_the_rest_counts() {
    let (mut node, mut intake) = (node(100), Intake::new(TTL));
    let mixed = json!([counter("modules.kvs.wakeups", 1), counter("app.good", 5), counter("app..bad", 1)]);
    let receipt = intake.take(&mut node, at(0), Pusher::Owner, push("h", 1, mixed)).unwrap();
    assert_eq!(receipt["accepted"], 1);
    assert_eq!(receipt["refused"][0]["name"], "modules.kvs.wakeups");
    assert_eq!(total(&node, "app.good"), 5);
    let refused = find(&node, "stats-agg.refused");
    let tagged: Vec<(&str, &str, i64)> = refused
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let tag = |key: &str| one["tags"][key].as_str().unwrap();
            (tag("prefix"), tag("reason"), one["total"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(tagged, [("app", "name", 1), ("modules", "reserved", 1)]);
    // Nothing but what is refused is an error.
    let all = push("h", 2, json!([counter("broker.x", 1), counter("jobs.x", 1)]));
    let error = intake.take(&mut node, at(0), Pusher::Owner, all).unwrap_err();
    assert_eq!(error.text, "\"broker.x\": names that begin with broker. are the service's own (and 1 more)");
    assert!(intake.take(&mut node, at(0), Pusher::Owner, json!({ "version": 9 })).is_err());
}

#[test]
fn tags_are_as_many_as_the_setting_allows() {
    let (mut node, mut intake) = (node(100), Intake::new(TTL));
    intake.set_limits(TTL, 1);
    let tagged = |tags: Value| json!([{ "name": "a", "type": "counter", "value": 1, "tags": tags }]);
    assert!(intake.take(&mut node, at(0), Pusher::Owner, push("h", 1, tagged(json!({ "a": "1" })))).is_ok());
    let error = intake
        .take(&mut node, at(0), Pusher::Owner, push("h", 2, tagged(json!({ "a": "1", "b": "2" }))))
        .unwrap_err();
    assert_eq!((error.reason, error.text.as_str()), ("tags", "a: 2 tags: at most 1 are allowed (max-tags)"));
}

#[test]
fn prefixes_of_refusals_are_bounded() {
    let (mut node, mut intake) = (node(1000), Intake::new(TTL));
    let many: Vec<Value> = (0..100).map(|n| counter(&format!("p{n}..x"), 1)).collect();
    intake.take(&mut node, at(0), Pusher::Owner, push("h", 1, many.into())).unwrap_err();
    let refused = find(&node, "stats-agg.refused");
    assert_eq!(refused.as_array().unwrap().len(), PREFIXES_MAX + 1);
    let sum: i64 = refused.as_array().unwrap().iter().map(|one| one["total"].as_i64().unwrap()).sum();
    assert_eq!(sum, 100);
}

#[test]
fn a_runaway_handle_does_not_push_out_the_service_s_series() {
    let (mut node, mut intake) = (node(100), Intake::new(TTL));
    let many: Vec<Value> = (0..500).map(|n| counter(&format!("job.f{n}"), 1)).collect();
    let receipt = intake.take(&mut node, at(0), Pusher::Owner, push("h", 1, many.into())).unwrap();
    assert!(receipt["accepted"].as_u64().unwrap() < 75, "{receipt}");
    assert!(receipt["refused"][0]["reason"].as_str().unwrap().contains("the share of \"job\""));
    let own = |n| Key::new(&format!("modules.m{n}.wakeups"), &[], Kind::Counter, Unit::None).unwrap();
    assert!((0..20).all(|n| node.declare(own(n)).is_ok()));
}

#[test]
fn where_no_room_is_left_each_refusal_is_told_once() {
    let (mut node, mut intake) = (node(100), Intake::new(TTL));
    let own = |n| Key::new(&format!("modules.m{n}.wakeups"), &[], Kind::Counter, Unit::None).unwrap();
    assert!((0..100).all(|n| node.declare(own(n)).is_ok()));
    let many: Vec<Value> = (0..50).map(|n| counter(&format!("app.n{n}"), 1)).collect();
    let error = intake.take(&mut node, at(0), Pusher::Owner, push("h", 1, many.into())).unwrap_err();
    assert!(error.text.contains("the limit of 100 series (max-series) is reached"), "{}", error.text);
    assert_eq!(node.events().overflow, 50);
    let refused = find(&node, "stats-agg.refused");
    assert_eq!((refused[0]["total"].as_i64(), refused.as_array().unwrap().len()), (Some(50), 1), "{refused}");
    // Nor is that room without end.
    let told = |n| Key::new(&format!("stats-agg.x{n}"), &[], Kind::Counter, Unit::None).unwrap();
    assert!((0..1000).filter(|&n| node.declare(told(n)).is_ok()).count() < 256);
}

#[test]
fn a_gauge_is_set_changed_kept_over_a_reload_and_gone_after_its_time() {
    let (mut one, mut intake) = (node(100), Intake::new(TTL));
    let gauge = |key: &str, value: f64| json!([{ "name": "g", "type": "gauge", key: value }]);
    let value = |node: &Node| find(node, "g")[0]["sum"].as_f64();
    intake.take(&mut one, at(0), Pusher::Owner, push("h", 1, gauge("add", 2.5))).unwrap();
    intake.take(&mut one, at(1), Pusher::Owner, push("h", 2, gauge("add", -1.0))).unwrap();
    assert_eq!(value(&one), Some(1.5));
    intake.take(&mut one, at(2), Pusher::Owner, push("h", 3, gauge("value", 7.0))).unwrap();
    let saved = intake.save(&one, at(10));
    let mut two = node(100);
    let mut intake = Intake::restore(TTL, &mut two, at(0), &saved).unwrap();
    assert_eq!(value(&two), Some(7.0));
    intake.take(&mut two, at(1), Pusher::Owner, push("h", 4, gauge("add", 1.0))).unwrap();
    intake.expire(&mut two, at(60));
    assert_eq!(value(&two), Some(8.0));
    intake.expire(&mut two, at(61));
    assert_eq!(value(&two), None);
    let brief = json!([{ "name": "g", "type": "gauge", "value": 1, "ttl": 2 }]);
    intake.take(&mut two, at(70), Pusher::Owner, push("h", 5, brief)).unwrap();
    intake.expire(&mut two, at(72));
    assert_eq!(value(&two), None);
}

#[test]
fn the_intake_s_part_of_the_page_is_what_is_left_and_taken_up() {
    let bytes = page::bytes(include_str!("../../docs/custody-file.md"), "## The intake's part");
    let (mut one, mut intake) = (node(100), Intake::new(TTL));
    let gauge = json!([{ "name": "app.g", "type": "gauge", "value": 7.5 }]);
    intake.take(&mut one, at(0), Pusher::Owner, push("h1", 7, gauge)).unwrap();
    intake.take(&mut one, at(0), Pusher::Guest(1001), push("g1", 2, json!([]))).unwrap();
    let saved = intake.save(&one, at(10));
    assert_eq!(saved, bytes, "{saved:02x?}");
    let mut two = node(100);
    let intake = Intake::restore(TTL, &mut two, at(500), &bytes).unwrap();
    assert_eq!(intake.save(&two, at(500)), bytes);
}

#[test]
fn what_is_remembered_and_told_has_the_limits_of_the_page() {
    let rows = page::rows(include_str!("../../docs/push.md"), "What is remembered, and told:");
    let long = json!({ "name": "x".repeat(100) });
    let (told, prefix) = name_of(&long);
    let limits = [
        ("handles of the owner whose last push is remembered", HANDLES_MAX),
        ("guests that are remembered", pushers::USERS_MAX),
        ("handles of a guest", pushers::HANDLES_OF_GUEST_MAX),
        ("pushes of a guest in a second", GUEST_PUSHES_MAX as usize),
        ("bytes of a guest's pushes in a second", GUEST_BYTES_MAX),
        ("refused metrics that an answer names", TOLD_MAX),
        ("characters of a name that an answer has", told.trim_end_matches('…').len()),
        ("characters of a `prefix`", prefix.len()),
        ("values of `prefix`", PREFIXES_MAX),
    ];
    let rows: Vec<_> = rows.iter().map(|row| (row[0], page::number(row[1]))).collect();
    assert_eq!(rows, limits.map(|(name, most)| (name, most as u128)));
}

#[test]
fn the_number_of_a_push_that_is_refused_whole_is_not_taken() {
    let (mut node, mut intake) = (node(100), Intake::new(TTL));
    let mut take = |metrics| intake.take(&mut node, at(0), Pusher::Owner, push("h", 1, metrics));
    take(json!(5)).unwrap_err();
    // All of its metrics are refused: it was read, and is a repeat from now on.
    take(json!([counter("broker.x", 1)])).unwrap_err();
    assert_eq!(take(json!([counter("a", 1)])).unwrap()["repeat"], true);
}

#[test]
fn what_was_saved_by_another_version_or_is_damaged_is_refused() {
    let mut node = node(100);
    for bytes in [&[][..], &[9], &[VERSION, 5], &[VERSION, 0, 0], &[VERSION, 0, 0, 0, 0]] {
        assert!(Intake::restore(TTL, &mut node, at(0), bytes).is_err());
    }
}

#[test]
fn a_guest_has_names_of_its_own_and_disturbs_nobody_s() {
    let (mut node, mut intake) = (node(1000), Intake::new(TTL));
    node.set_guest_series(2);
    let guest = Pusher::Guest(1001);
    let take = |intake: &mut Intake, node: &mut Node, pusher, seq, metrics: Value| {
        intake.take(node, at(0), pusher, push("h", seq, metrics))
    };
    take(&mut intake, &mut node, Pusher::Owner, 5, json!([counter("app.x", 1)])).unwrap();
    // The owner's handle of the same name is another one, and so is another guest's.
    for pusher in [guest, Pusher::Guest(1002)] {
        let receipt = take(&mut intake, &mut node, pusher, 1, json!([counter("app.x", 10)])).unwrap();
        assert_eq!((&receipt["accepted"], &receipt["repeat"]), (&json!(1), &json!(false)));
    }
    assert_eq!(take(&mut intake, &mut node, guest, 1, json!([])).unwrap()["repeat"], true);
    let saved = intake.save(&node, at(0));
    let mut intake = Intake::restore(TTL, &mut node, at(0), &saved).unwrap();
    assert_eq!(take(&mut intake, &mut node, guest, 1, json!([])).unwrap()["repeat"], true);
    assert_eq!(take(&mut intake, &mut node, Pusher::Owner, 6, json!([])).unwrap()["repeat"], false);
    assert_eq!(
        [total(&node, "app.x"), total(&node, "guests.1001.app.x"), total(&node, "guests.1002.app.x")],
        [1, 10, 10]
    );
    // What it may not: names of the service's own, of another guest, more than its quota, more tags than others.
    let many = json!([
        counter("app.y", 1),
        counter("app.z", 1),
        counter("modules.x", 1),
        counter("guests.1002.app.x", 1)
    ]);
    let receipt = take(&mut intake, &mut node, guest, 2, many).unwrap();
    assert_eq!(receipt["accepted"], 1);
    let reasons: Vec<&str> =
        receipt["refused"].as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap()).collect();
    assert!(reasons[0].starts_with("guests.1001 may have 2 series"), "{reasons:?}");
    assert!(reasons[1].contains("modules.") && reasons[2].contains("guests."), "{reasons:?}");
    let refused = find(&node, "stats-agg.refused");
    assert!(refused.as_array().unwrap().iter().all(|one| one["tags"]["prefix"] == "guests"), "{refused}");
    // Nor does what is beyond its quota alarm anyone.
    assert_eq!(node.events().overflow, 0);
    // What a handle says that it dropped is an owner's word.
    let lie = json!({ "version": 1, "id": "h", "seq": 3, "dropped": 1_000_000, "metrics": [] });
    intake.take(&mut node, at(0), guest, lie).unwrap();
    assert_eq!(total(&node, "stats-agg.dropped_by_handles"), 0);
}

#[test]
fn a_guest_s_gauge_lives_no_longer_than_others_and_its_series_end() {
    let (mut node, mut intake) = (node(1000), Intake::new(TTL));
    node.set_ttl(TTL);
    let metrics = json!([{ "name": "g", "type": "gauge", "value": 1, "ttl": 1e6 }, counter("c", 7)]);
    intake.take(&mut node, at(0), Pusher::Guest(9), push("h", 1, metrics)).unwrap();
    for second in 1..=70 {
        intake.expire(&mut node, at(second));
        node.tick(at(second));
    }
    assert_eq!(find(&node, "guests.**"), json!([]));
    assert_eq!(node.events().ended, 2);
}

#[test]
fn a_guest_has_a_budget_for_each_second() {
    let (mut intake, kib) = (Intake::new(TTL), 1 << 10);
    let admitted = |intake: &mut Intake, user, bytes, second| {
        (0..10_000).filter(|_| intake.admits_guest(user, bytes, at(second))).count()
    };
    assert_eq!([admitted(&mut intake, 1, 100, 5), admitted(&mut intake, 1, 100, 6)], [200, 200]);
    assert_eq!(admitted(&mut intake, 2, 100 * kib, 6), 10);
    assert!(!intake.admits_guest(3, 2 << 20, at(6)));
    // Users are as many as are remembered; the owner is none of them.
    (0..1000).for_each(|user| assert!(intake.admits_guest(user, 1, at(7))));
}
