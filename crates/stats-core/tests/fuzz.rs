//! Hostile input: whatever bytes arrive, a node refuses or takes them, in time and memory that the input bounds, and
//! goes on.
//!
//! Each target runs for a second among the tests and for a minute in `ci/fuzz`; `BOLERO_RANDOM_TEST_TIME_MS` sets another
//! time, `BOLERO_RANDOM_SEED` repeats a run, and `cargo bolero test --engine libfuzzer` (cargo-bolero, a nightly compiler)
//! searches by coverage.

use peak_alloc::PeakAlloc;
use stats_core::{
    Amount, Intake, Key, Kind, MergeRefused, Node, NodeConfig, Now, Pusher, Query, Samples, Unit,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Changes to a message: bytes that are set, where it is cut, and what is put after it.
type Changes = (u8, Vec<(u16, u8)>, Option<u16>, Vec<u8>);

/// What a message may cost beyond its own size: tables that exist once, and room to grow.
const FIXED_BYTES: usize = 4 << 20;
/// What each of its bytes may cost: a key of a few bytes becomes a series with its name, totals and history.
const BYTES_A_BYTE: usize = 4096;

/// The peak of the heap is the process's: one target at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(rank: u32, level: u32) -> NodeConfig {
    let (epoch, period) = (11 + u64::from(rank), Duration::from_secs(2));
    NodeConfig { rank, size: 64, level, max_level: 2, epoch, period, max_series: 200 }
}

fn at(ns: u64) -> Now {
    Now { mono_ns: ns, wall_ns: 1_700_000_000_000_000_000 + ns }
}

fn key(name: &str, kind: Kind) -> Key {
    Key::new(name, &[("job", "f1")], kind, Unit::Nanoseconds).unwrap()
}

/// A leaf that has something of every kind.
fn leaf() -> Node {
    let mut leaf = Node::new(config(9, 2), at(0));
    let counter = leaf.declare(key("a.counter", Kind::Counter)).unwrap();
    let gauge = leaf.declare(key("a.gauge", Kind::Gauge)).unwrap();
    let timer = leaf.declare(key("a.timer", Kind::Timer)).unwrap();
    let set = leaf.declare(key("a.set", Kind::Set)).unwrap();
    leaf.add(counter, Amount::whole(7));
    leaf.set(gauge, Some(Amount::whole(-5)));
    let mut samples = Samples::default();
    (1..40).for_each(|ns: u64| samples.add(ns * ns * ns, 2));
    leaf.observe(timer, &samples);
    (0..200).for_each(|member| leaf.insert(set, &format!("member {member}")));
    leaf
}

/// Messages of every kind, in the order in which they arrive.
fn messages() -> Vec<Vec<u8>> {
    let (mut leaf, mut parent) = (leaf(), Node::new(config(1, 1), at(0)));
    let mut messages = Vec::new();
    for round in 0..4_u64 {
        let now = at(leaf.next_deadline_ns());
        let counter = leaf.find(&key("a.counter", Kind::Counter)).unwrap();
        leaf.add(counter, Amount::whole(i128::from(round) + 1));
        leaf.tick(now);
        while let Some(transmit) = leaf.poll_transmit(now) {
            messages.push(transmit.payload.clone());
            leaf.sent_to(transmit.token, 1);
            if round == 1 {
                // In doubt from now on: a question, and a batch that goes apart.
                leaf.handle_response(transmit.token, Err(stats_core::SendFailure::Unknown));
                break;
            }
            let receipt = parent.handle_merge(now, &transmit.payload).unwrap();
            leaf.handle_response(transmit.token, Ok(&receipt));
        }
    }
    assert!(messages.len() >= 5, "{} messages", messages.len());
    messages
}

fn changed(whole: &[u8], (_, bytes, cut, more): &Changes) -> Vec<u8> {
    let mut changed = whole.to_vec();
    for &(place, byte) in bytes {
        let length = changed.len().max(1);
        if let Some(at) = changed.get_mut(usize::from(place) % length) {
            *at = byte;
        }
    }
    if let Some(cut) = cut {
        changed.truncate(usize::from(*cut) % (changed.len() + 1));
    }
    changed.extend_from_slice(more);
    changed
}

/// Runs `body`, and holds its heap against the size of its input.
fn bounded<T>(input: &[u8], body: impl FnOnce() -> T) -> T {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let result = body();
    let grown = HEAP.peak_usage().saturating_sub(before);
    let allowed = FIXED_BYTES + BYTES_A_BYTE * input.len();
    assert!(grown <= allowed, "{} bytes of input grew the heap by {grown}", input.len());
    result
}

#[test]
fn any_batch_is_taken_or_refused_and_the_node_goes_on() {
    let _alone = alone();
    let messages = messages();
    let mut parent = Node::new(config(1, 1), at(0));
    let mut now = 0;
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        now += 1_000_000;
        let message = &messages[usize::from(changes.0) % messages.len()];
        let message = changed(message, changes);
        let before = parent.events();
        let taken = bounded(&message, || parent.handle_merge(at(now), &message)).is_ok();
        let after = parent.events();
        assert_eq!(after.refused - before.refused, u64::from(!taken));
        // Whatever it took it can send on, and say.
        if now >= parent.next_deadline_ns() {
            parent.tick(at(now));
            let mut sent = 0;
            let saved = Node::restore(parent.config().clone(), at(now), &parent.save());
            assert!(saved.is_ok(), "what it leaves to its next load: {}", saved.unwrap_err());
            while let Some(transmit) = parent.poll_transmit(at(now)) {
                let above = Node::new(config(0, 0), at(now)).handle_merge(at(now), &transmit.payload);
                assert!(!matches!(above, Err(MergeRefused::Decode(_))), "{}", above.unwrap_err());
                parent.handle_response(transmit.token, Err(stats_core::SendFailure::Refused));
                sent += 1;
                assert!(
                    sent <= 2000,
                    "held: {:?}",
                    parent.audit().held.iter().map(|held| held.id).collect::<Vec<_>>()
                );
            }
            assert!(parent.answer(&Query::default(), at(now))["series"].as_array().unwrap().len() <= 200);
        }
    });
}

/// The peak of the heap while a node of `rank` takes up what a leaf sends that has `count` series of a kind, filled by
/// `fill`; the first message and the second, which names none of them again. With each its size.
fn cost(rank: u32, kind: Kind, count: u32, fill: impl Fn(&mut Node, &Key)) -> Vec<(usize, usize)> {
    let wide = |rank, level| NodeConfig { max_series: 100_000, ..config(rank, level) };
    let (mut leaf, mut parent) = (Node::new(wide(9, 2), at(0)), Node::new(wide(rank, rank), at(0)));
    let keys: Vec<Key> =
        (0..count).map(|n| Key::new(&format!("modules.{n:x}"), &[], kind, Unit::None).unwrap()).collect();
    let mut costs = Vec::new();
    for _ in 0..2 {
        for key in &keys {
            leaf.declare(key.clone()).unwrap();
            fill(&mut leaf, key);
        }
        let now = at(leaf.next_deadline_ns());
        leaf.tick(now);
        let transmit = leaf.poll_transmit(now).unwrap();
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let receipt = parent.handle_merge(now, &transmit.payload).unwrap();
        costs.push((transmit.payload.len(), HEAP.peak_usage().saturating_sub(before)));
        leaf.handle_response(transmit.token, Ok(&receipt));
    }
    costs
}

/// What a service asks for before it lets a node read a message: it is refused where there is not so much.
#[test]
fn what_taking_up_a_message_takes_is_no_more_than_is_asked_for() {
    let _alone = alone();
    let mut wide = Samples::default();
    // Each fourth bucket above: as many of them are empty as may be.
    (8..60).for_each(|bits: u32| (0..16).for_each(|cut: u64| wide.add((16 + cut) << (bits - 4), 1)));
    let mut one = Samples::default();
    one.add(1, 1);
    for rank in [0, 1] {
        let counters = cost(rank, Kind::Counter, 10_000, |node, key| {
            node.add(node.find(key).unwrap(), Amount::whole(1))
        });
        // Another value in each period.
        let gauges = cost(rank, Kind::Gauge, 10_000, |node, key| {
            let (id, value) = (node.find(key).unwrap(), i128::from(node.next_deadline_ns()));
            node.set(id, Some(Amount::whole(value)));
        });
        let timers = cost(rank, Kind::Timer, 10_000, |node, key| node.observe(node.find(key).unwrap(), &one));
        let sets = cost(rank, Kind::Set, 10_000, |node, key| {
            let id = node.find(key).unwrap();
            node.insert(id, "x");
        });
        let keys = cost(rank, Kind::Counter, 10_000, |_, _| {});
        let wide = cost(rank, Kind::Timer, 2_000, |node, key| node.observe(node.find(key).unwrap(), &wide));
        for (bytes, peak) in [counters, gauges, timers, sets, keys].into_iter().flatten() {
            assert!(peak <= Node::memory_of_merge(bytes) + (1 << 20), "{bytes} bytes took {peak}");
        }
        for (bytes, peak) in wide {
            // The part of it that is for distributions alone.
            assert!(peak <= 32 * bytes + (1 << 20), "{bytes} bytes of distributions took {peak}");
        }
    }
}

/// Batches that are all sketch or all set but for their beginning: few samples and many, near each other and far
/// apart; members few, many, and very many, as a set keeps each in another form.
fn distributions() -> Vec<Vec<u8>> {
    let sketches = [(5, 1), (50, 1 << 50), (3000, 1 << 20)].map(|(count, step)| {
        let mut samples = Samples::default();
        (0..count).for_each(|number: u64| samples.add(number.wrapping_mul(step), number + 1));
        let fill = move |node: &mut Node| {
            let timer = node.declare(key("a.timer", Kind::Timer)).unwrap();
            node.observe(timer, &samples);
        };
        Box::new(fill) as Box<dyn Fn(&mut Node)>
    });
    let sets = [40, 1000, 20_000].map(|count| {
        let fill = move |node: &mut Node| {
            let set = node.declare(key("a.set", Kind::Set)).unwrap();
            (0..count).for_each(|member| node.insert(set, &format!("member {member}")));
        };
        Box::new(fill) as Box<dyn Fn(&mut Node)>
    });
    let batch = |fill: Box<dyn Fn(&mut Node)>| {
        let mut leaf = Node::new(config(10, 2), at(0));
        fill(&mut leaf);
        let now = at(leaf.next_deadline_ns());
        leaf.tick(now);
        leaf.poll_transmit(now).unwrap().payload
    };
    sketches.into_iter().chain(sets).map(batch).collect()
}

#[test]
fn any_sketch_and_any_set_is_refused_or_has_sound_quantiles_and_members() {
    let _alone = alone();
    let batches = distributions();
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        let batch = changed(&batches[usize::from(changes.0) % batches.len()], changes);
        // Beside one that is whole, so that what was changed is merged as well.
        let mut node = Node::new(config(1, 1), at(0));
        let mut own = leaf();
        own.tick(at(own.next_deadline_ns()));
        node.handle_merge(at(1), &own.poll_transmit(at(1)).unwrap().payload).unwrap();
        let _ = bounded(&batch, || node.handle_merge(at(2), &batch));
        for series in node.answer(&Query::default(), at(3))["series"].as_array().unwrap() {
            let number = |key: &str| series[key].as_f64().filter(|number| number.is_finite());
            match series["type"].as_str() {
                // A batch may tell of a clear, after which there is nothing.
                Some("timer") if number("count") == Some(0.0) => assert!(series["p50"].is_null(), "{series}"),
                Some("timer") => {
                    let quantiles = ["min", "p50", "p90", "p99", "max"].map(|key| number(key).unwrap());
                    assert!(quantiles.is_sorted(), "{series}");
                    assert!(number("count").unwrap() >= 1.0 && number("stddev").unwrap() >= 0.0, "{series}");
                }
                Some("set") => assert!(number("estimate").unwrap() >= 0.0, "{series}"),
                _ => {}
            }
        }
    });
}

#[test]
fn any_receipt_leaves_custody_whole_or_passes_it_on() {
    let _alone = alone();
    let mut parent = Node::new(config(1, 1), at(0));
    let mut first = leaf();
    first.tick(at(first.next_deadline_ns()));
    let receipt = parent.handle_merge(at(1), &first.poll_transmit(at(1)).unwrap().payload).unwrap();
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        let mut leaf = leaf();
        leaf.tick(at(leaf.next_deadline_ns()));
        let transmit = leaf.poll_transmit(at(leaf.next_deadline_ns())).unwrap();
        let receipt = changed(&receipt, changes);
        bounded(&receipt, || leaf.handle_response(transmit.token, Ok(&receipt)));
        // A receipt that cannot be read says nothing: the batch is held, and in doubt.
        let held = leaf.audit().held;
        assert!(held.is_empty() || held.iter().map(|held| held.flows.len()).sum::<usize>() <= 3);
        leaf.tick(at(leaf.next_deadline_ns()));
    });
}

#[test]
fn any_saved_state_is_taken_up_or_refused() {
    let _alone = alone();
    let mut whole = leaf();
    whole.tick(at(whole.next_deadline_ns()));
    let saved = whole.save();
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        let saved = changed(&saved, changes);
        if let Ok(mut node) = bounded(&saved, || Node::restore(config(9, 2), at(5), &saved)) {
            node.tick(at(node.next_deadline_ns()));
            let _ = node.poll_transmit(at(node.next_deadline_ns()));
            // What was taken up can be left again.
            assert!(Node::restore(config(9, 2), at(5), &node.save()).is_ok());
        }
    });
}

#[test]
fn any_text_is_a_question_or_refused_in_bounded_time() {
    let _alone = alone();
    let name = "modules.some-module-of-a-long-name.work_per_wakeup_s.".repeat(4);
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<(String, Vec<u8>)>().for_each(
        |(text, alphabet)| {
            // Characters that mean something are rare in random text.
            let pattern: String =
                alphabet.iter().map(|&byte| char::from(b"*?[]{},.!-ab"[usize::from(byte) % 12])).collect();
            for pattern in [text, &pattern] {
                let question = serde_json::json!({ "match": [pattern] });
                if let Ok(query) = bounded(pattern.as_bytes(), || Query::parse(&question)) {
                    query.matches(&name);
                }
            }
        },
    );
}

#[test]
fn any_push_is_taken_or_refused_in_bounded_memory() {
    let _alone = alone();
    let push = include_str!("../docs/push.md").split("```json").nth(1).unwrap().split("```").next().unwrap();
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        let bytes = changed(push.as_bytes(), changes);
        let Ok(payload) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return };
        let (mut node, mut intake) = (Node::new(config(1, 1), at(0)), Intake::new(Duration::from_secs(1)));
        for pusher in [Pusher::Owner, Pusher::Guest(7)] {
            let payload = payload.clone();
            let _ = bounded(&bytes, || intake.take(&mut node, at(0), pusher, payload));
        }
        assert!(node.answer(&Query::default(), at(0))["series"].as_array().unwrap().len() <= 200);
        // What was taken can be left and taken up.
        let saved = intake.save(&node, at(0));
        assert!(Intake::restore(Duration::from_secs(1), &mut node, at(0), &saved).is_ok());
    });
}

#[test]
fn any_name_and_tags_are_a_series_or_refused() {
    let _alone = alone();
    bolero::check!()
        .with_test_time(Duration::from_secs(1))
        .with_type::<(Vec<u8>, Vec<(u8, String)>)>()
        .for_each(|(bytes, tags)| {
            // Mostly what names are made of.
            let name: String =
                bytes.iter().map(|&byte| char::from(b"ab.-_9./ ;"[usize::from(byte) % 10])).collect();
            let keys: Vec<String> = tags.iter().map(|(key, _)| format!("k{key}")).collect();
            let tags: Vec<(&str, &str)> =
                keys.iter().map(String::as_str).zip(tags.iter().map(|(_, value)| value.as_str())).collect();
            let made = bounded(&bytes.repeat(2), || Key::new(&name, &tags, Kind::Counter, Unit::None));
            let Ok(key) = made else { return };
            assert_eq!(key.name(), name);
            assert!(key.tags().is_sorted_by(|before, after| before.0 < after.0));
            let mut node = Node::new(config(1, 1), at(0));
            let id = node.declare(key.clone()).unwrap();
            assert_eq!(node.find(&key), Some(id));
            // What can be a series can be left and taken up.
            let again = Node::restore(config(1, 1), at(0), &node.save()).unwrap();
            assert!(again.find(&key).is_some());
        });
}

#[test]
fn any_saved_intake_is_taken_up_or_refused() {
    let _alone = alone();
    let (mut node, mut intake) = (Node::new(config(1, 1), at(0)), Intake::new(Duration::from_secs(1)));
    let gauge = serde_json::json!({ "name": "a.b", "type": "gauge", "value": 5 });
    let push = serde_json::json!({ "version": 1, "id": "me", "seq": 3, "metrics": [gauge] });
    intake.take(&mut node, at(0), Pusher::Owner, push).unwrap();
    let saved = intake.save(&node, at(0));
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        let saved = changed(&saved, changes);
        let mut node = Node::new(config(1, 1), at(0));
        let ttl = Duration::from_secs(1);
        if let Ok(intake) = bounded(&saved, || Intake::restore(ttl, &mut node, at(0), &saved)) {
            let again = intake.save(&node, at(0));
            assert!(Intake::restore(ttl, &mut node, at(0), &again).is_ok());
        }
    });
}
