//! Bounds that a peer meets.

use super::*;
use crate::answer::Whose;
use crate::batch::{Detached, Message, WireFlows};
use crate::flows::Sealed;
use crate::marks::BatchId;
use crate::series::{Key, Kind, Unit};

fn node(rank: u32, period_s: u64, max_series: usize) -> Node {
    let (level, max_level) = (rank.min(1), 1);
    let (epoch, period) = (u64::from(rank) + 7, Duration::from_secs(period_s));
    Node::new(NodeConfig { rank, size: 4, level, max_level, epoch, period, max_series }, at(0))
}

fn at(s: u64) -> Now {
    Now { mono_ns: s * 1_000_000_000, wall_ns: 0 }
}

fn count(node: &mut Node, name: &str, amount: i128) {
    let id = node.declare(Key::new(name, &[], Kind::Counter, Unit::None).unwrap()).unwrap();
    node.add(id, Amount::whole(amount));
}

/// One period of `child`, and what `parent` answers.
fn exchange(child: &mut Node, parent: &mut Node, now: Now) {
    child.tick(now);
    while let Some(transmit) = child.poll_transmit(now) {
        let answer = parent.handle_merge(now, &transmit.payload).unwrap();
        child.handle_response(transmit.token, Ok(&answer));
    }
}

#[test]
fn a_receiver_slows_its_senders_when_it_is_busy_and_not_because_its_own_period_is_long() {
    let (mut root, mut leaf) = (node(0, 3600, 100), node(1, 2, 100));
    exchange(&mut leaf, &mut root, at(4));
    assert_eq!(leaf.period_ns(), 2_000_000_000);
    let mut root = node(0, 2, 100);
    let busy = |children_ns| Busy { children_ns, own_ns: 0, span_ns: 2_000_000_000 };
    root.note_busy(busy(300_000_000), at(4));
    assert_eq!(root.granted_period_ns(), 2_000_000_000, "there are no children");
    exchange(&mut leaf, &mut root, at(8));
    root.note_busy(busy(900_000_000), at(10));
    exchange(&mut leaf, &mut root, at(12));
    assert_eq!(leaf.period_ns(), 4_000_000_000);
    (0..3).for_each(|_| root.note_busy(busy(0), at(16)));
    exchange(&mut leaf, &mut root, at(20));
    assert_eq!(leaf.period_ns(), 2_000_000_000);
}

#[test]
fn what_was_kept_is_kept_though_the_bound_on_series_is_lower_now() {
    let mut before = node(0, 2, 200);
    (0..150).for_each(|number| count(&mut before, &format!("broker.series{number}"), 1));
    let config = NodeConfig { max_series: 100, epoch: 99, ..before.config().clone() };
    let mut after = Node::restore(config, at(0), &before.save()).unwrap();
    assert_eq!(Sealed::of(&after.own), Sealed::of(&before.own));
    let one_more = after.declare(Key::new("one.more", &[], Kind::Counter, Unit::None).unwrap());
    assert!(one_more.is_err());
}

#[test]
fn a_rank_answers_for_what_it_has_declared_and_not_for_what_others_have() {
    let (mut root, mut leaf) = (node(0, 2, 100), node(1, 2, 100));
    count(&mut leaf, "modules.leaf.wakeups", 5);
    exchange(&mut leaf, &mut root, at(4));
    // It has a place behind that of the leaf's.
    count(&mut root, "modules.root.wakeups", 0);
    count(&mut root, "modules.root.work_s", 7);
    let own = |key: &Key| root.series(root.find(key).unwrap(), None, at(4), Whose::Own).is_some();
    let key = |name: &str| Key::new(name, &[], Kind::Counter, Unit::None).unwrap();
    assert!(!own(&key("modules.leaf.wakeups")), "of which it knows the sum");
    assert!(own(&key("modules.root.wakeups")), "a zero is told");
    assert!(own(&key("modules.root.work_s")));
    root.handle_clear(1);
    assert!(root.series(root.find(&key("modules.root.work_s")).unwrap(), None, at(4), Whose::Own).is_some());
}

fn detached(seq: u64, contains: Ids) -> Vec<u8> {
    let id = BatchId { rank: 2, epoch: 1, seq };
    let (generation, flows) = (0, WireFlows::default());
    Detached { id, doubt: false, bound: None, generation, contains, dictionary: vec![], flows }.encode()
}

#[test]
fn a_sender_of_endless_epochs_is_refused_before_what_waits_cannot_be_sent_on() {
    let mut interior = node(1, 2, 100);
    let mut refused = 0;
    for batch in 0..4 {
        let mut contains = Ids::default();
        (0..100_000).for_each(|n| contains.add(BatchId { rank: 3, epoch: batch * 1_000_000 + n, seq: 0 }));
        match interior.handle_merge(at(1), &detached(batch, contains)) {
            Ok(_) => {}
            Err(MergeRefused::Full { rank: 1, .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 2);
    interior.tick(at(8));
    let sent = interior.poll_transmit(at(8)).unwrap();
    assert!(matches!(Message::decode(&sent.payload, u32::MAX), Ok(Message::Regular(_))));
    assert!(node(0, 2, 100).handle_merge(at(8), &sent.payload).is_ok());
}

#[test]
fn a_generation_that_flux_cannot_count_to_is_malformed() {
    let id = BatchId { rank: 2, epoch: 1, seq: 0 };
    let (generation, flows) = (u64::from(u32::MAX) + 1, WireFlows::default());
    let contains = Ids::default();
    let batch = Detached { id, doubt: false, bound: None, generation, contains, dictionary: vec![], flows };
    assert!(matches!(node(0, 2, 100).handle_merge(at(1), &batch.encode()), Err(MergeRefused::Decode(_))));
}

#[test]
fn very_many_batches_set_aside_take_bounded_room_and_lose_nothing() {
    let mut leaf = node(1, 2, 100);
    for period in 1..1200 {
        count(&mut leaf, "x", 1);
        leaf.tick(at(period * 4));
        let transmit = leaf.poll_transmit(at(period * 4)).unwrap();
        leaf.handle_response(transmit.token, Err(SendFailure::Overlap));
    }
    let held = leaf.audit().held;
    assert!(held.len() <= 1000);
    let kept = held
        .into_iter()
        .flat_map(|holding| holding.flows)
        .fold(Amount::default(), |sum, (_, amount)| sum.plus(amount));
    assert_eq!((kept, leaf.events().parked), (Amount::whole(1199), 1199));
}

/// A rank that lies below takes what it is told up to where the ranks above could not read it any more: what it hands
/// on, and what it leaves to its next load, is always read.
#[test]
fn no_claims_of_a_child_make_its_parent_unreadable() {
    let claims = |epoch: u64, from: u64, gap: u64| {
        let mut contains = Ids::default();
        (0..900).for_each(|run| contains.add(BatchId { rank: 3, epoch, seq: from + gap * run }));
        contains
    };
    let (mut root, mut middle) = (node(0, 2, 100), node(1, 2, 100));
    count(&mut middle, "app.x", 5);
    let (mut taken, mut seq) = (0, 0);
    let mut offer = |middle: &mut Node, contains: Ids| {
        seq += 2;
        let id = BatchId { rank: 3, epoch: 12, seq };
        let (dictionary, flows) = (vec![], WireFlows::default());
        let message = Detached { id, doubt: false, bound: None, generation: 0, contains, dictionary, flows };
        taken += usize::from(middle.handle_merge(at(1), &message.encode()).is_ok());
    };
    // Marks forget an epoch behind sixteen others: then as many runs of it are new again.
    for round in 0..3 {
        offer(&mut middle, claims(5, 10_000 * round, 2));
        (100..120).for_each(|epoch| offer(&mut middle, claims(epoch + 100 * round, 0, 1)));
    }
    // And each batch is one more of its own epoch.
    (0..1200).for_each(|_| offer(&mut middle, Ids::default()));
    assert!(taken > 900, "{taken}");
    let mut middle = Node::restore(middle.config().clone(), at(2), &middle.save()).unwrap();
    exchange(&mut middle, &mut root, at(4));
    let total = root.total(root.find(&Key::new("app.x", &[], Kind::Counter, Unit::None).unwrap()).unwrap());
    assert_eq!(total, Amount::whole(5));
}

/// A clear is an event: who claims one that has not been would have all later ones taken for old.
#[test]
fn a_clear_that_has_not_been_is_refused_and_one_that_has_is_followed() {
    let (mut root, mut liar, mut leaf) = (node(0, 2, 100), node(2, 2, 100), node(1, 2, 100));
    root.note_event(50);
    count(&mut liar, "a", 1);
    liar.handle_clear(51);
    liar.tick(at(4));
    let refused = root.handle_merge(at(4), &liar.poll_transmit(at(4)).unwrap().payload).unwrap_err();
    assert_eq!(refused, MergeRefused::Generation { generation: 51, newest: 50 });
    let (id, contains, flows) = (BatchId { rank: 3, epoch: 1, seq: 1 }, Ids::default(), WireFlows::default());
    let apart =
        Detached { id, doubt: false, bound: None, generation: 51, contains, dictionary: vec![], flows };
    assert_eq!(root.handle_merge(at(4), &apart.encode()), Err(refused));
    // One that was, and of which this rank has not been told: it was not there.
    leaf.handle_clear(40);
    exchange(&mut leaf, &mut root, at(4));
    assert_eq!((root.generation(), root.events().refused), (40, 2));
    // An older event, told late, changes nothing.
    root.note_event(10);
    root.note_event(51);
    assert!(root.handle_merge(at(4), &apart.encode()).is_ok());
}

#[test]
fn a_rank_is_covered_once_in_a_batch() {
    let mut leaf = node(1, 2, 100);
    leaf.tick(at(4));
    let payload = leaf.poll_transmit(at(4)).unwrap().payload;
    let Ok(Message::Regular(mut batch)) = Message::decode(&payload, u32::MAX) else {
        panic!("a leaf's batch")
    };
    let group = batch.coverage[0].clone();
    (0..4).for_each(|_| batch.coverage.push(group.clone()));
    let refused = node(0, 2, 100).handle_merge(at(4), &batch.encode()).unwrap_err();
    assert_eq!(refused.to_string(), "bad batch: malformed: more ranks covered than there are");
}
