//! What `docs/batch.md` says, held against the code: its bytes are those of a real encoder, its bounds are in force.

use super::*;
use crate::amount::Amount;
use crate::flows::Gain;
use crate::members::Members;
use crate::node::{CONTAINS_MAX, MergeRefused};
use crate::page::{self, Counted};
use crate::series::{Kind, Unit};
use crate::value::{Peak, Samples};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../docs/batch.md");
const SPAN_NS: u64 = 2_000_000_000;

fn key(name: &str, tags: &[(&str, &str)], kind: Kind, unit: Unit) -> Key {
    Key::new(name, tags, kind, unit).unwrap()
}

fn gain(amount: Amount, rank: u32) -> Gain {
    Gain { amount, peak: Peak::of(amount, SPAN_NS, rank) }
}

fn members(members: impl IntoIterator<Item = u32>) -> Members {
    let mut set = Members::default();
    members.into_iter().for_each(|member| {
        set.insert(&member.to_string());
    });
    set
}

fn identities(ids: &[(u32, u64, u64)]) -> Ids {
    let mut all = Ids::default();
    ids.iter().for_each(|&(rank, epoch, seq)| all.add(BatchId { rank, epoch, seq }));
    all
}

/// What rank 1 sends of itself and of those below it.
fn merged() -> Regular {
    let mut samples = Samples::default();
    [(3, 2), (200, 1)].into_iter().for_each(|(sample, times)| samples.add(sample, times));
    let one = |value, rank| States::of(Amount::whole(value), rank);
    Regular {
        rank: 1,
        epoch: 2,
        link_seq: 9,
        after: 8,
        closing: false,
        generation: 4,
        seq: Some(7),
        span_ns: SPAN_NS,
        coverage: vec![
            Group { age_ms: 0, closed: false, ranks: IdSet::range(1, 3) },
            Group { age_ms: 250, closed: true, ranks: IdSet::from_iter([5, 8]) },
        ],
        expiry_ms: 6000,
        next: IdSet::range(2, 3),
        contains: identities(&[(5, 3, 0), (5, 3, 1), (5, 3, 2), (5, 3, 6), (8, 4, 0)]),
        first: 3,
        dictionary: vec![
            key("app.x", &[("k", "v"), ("l", "w")], Kind::Counter, Unit::Nanoseconds),
            key("app.t", &[], Kind::Timer, Unit::Nanoseconds),
            key("app.u", &[], Kind::Set, Unit::None),
            key("app.g", &[], Kind::Gauge, Unit::Bytes),
        ],
        flows: WireFlows {
            counters: vec![
                (0, gain(Amount::whole(5), 3)),
                (1, gain(Amount::whole(20_000), 2)),
                (2, gain(Amount::from_parts(1_500_000), 1)),
                (3, gain(Amount::whole(-1), 1)),
            ],
            timers: vec![(4, samples)],
            sets: vec![(5, members([7, 8]))],
        },
        states: vec![
            (6, Some(one(3, 2).since(1_700_000_000).merged(one(1, 3)))),
            (9, Some(States::of(Amount::from_parts(500_000), 1))),
            (10, None),
        ],
        withdrawn: vec![11, 14],
    }
}

/// The gain of `app.x` in the examples: 5 within two seconds.
fn five(rank: u32) -> WireFlows {
    WireFlows { counters: vec![(0, gain(Amount::whole(5), rank))], ..WireFlows::default() }
}

fn shows(title: &str, message: &Message, bytes: &[u8]) {
    let page = page::bytes(PAGE, title);
    assert_eq!(bytes, page, "{title}: {bytes:02x?}");
    assert_eq!(&Message::decode(&page, u32::MAX).unwrap(), message, "{title}");
}

#[test]
fn the_question_of_the_page_is_what_is_sent() {
    let question = Question { id: BatchId { rank: 1, epoch: 2, seq: 300 }, bound: Some(5) };
    shows("## A question", &Message::Question(question), &question.encode());
    let anywhere = Question { bound: None, ..question }.encode();
    assert_eq!((anywhere[1], anywhere.len()), (0x02, question.encode().len() - 1));
}

#[test]
fn the_receipt_of_the_page_is_what_is_answered() {
    let bytes = page::bytes(PAGE, "## A receipt");
    let receipt = Receipt { status: Status::Taken, rank: 0, epoch: 3, generation: 0, period_ns: SPAN_NS };
    assert_eq!((receipt.encode(), Receipt::decode(&bytes).unwrap()), (bytes, receipt));
}

#[test]
fn the_batch_of_a_leaf_on_the_page_is_what_is_sent() {
    let batch = Regular {
        rank: 1,
        epoch: 2,
        link_seq: 1,
        after: 0,
        closing: false,
        generation: 0,
        seq: Some(1),
        span_ns: SPAN_NS,
        coverage: vec![Group { age_ms: 0, closed: false, ranks: IdSet::from_iter([1]) }],
        expiry_ms: 6000,
        next: IdSet::new(),
        contains: Ids::default(),
        first: 0,
        dictionary: vec![key("app.x", &[("k", "v")], Kind::Counter, Unit::None)],
        flows: five(1),
        states: Vec::new(),
        withdrawn: Vec::new(),
    };
    let bytes = batch.encode();
    let silent = Regular { seq: None, span_ns: 0, flows: WireFlows::default(), ..batch.clone() };
    shows("## A regular batch of a leaf", &Message::Regular(Box::new(batch)), &bytes);
    assert_eq!(silent.encode()[1], LONE, "as the table of flags has it");
}

#[test]
fn the_batch_with_others_in_it_on_the_page_is_what_is_sent() {
    let (batch, bytes) = (merged(), merged().encode());
    shows("## A regular batch with others in it", &Message::Regular(Box::new(batch)), &bytes);
}

#[test]
fn the_detached_batch_of_the_page_is_what_is_sent() {
    let batch = Detached {
        id: BatchId { rank: 1, epoch: 2, seq: 300 },
        doubt: true,
        bound: Some(0),
        generation: 4,
        contains: identities(&[(5, 3, 6)]),
        dictionary: vec![key("app.x", &[], Kind::Counter, Unit::None)],
        flows: five(5),
    };
    let bytes = batch.encode();
    shows("## A detached batch", &Message::Detached(Box::new(batch)), &bytes);
}

#[test]
fn sets_of_many_members_are_as_the_page_begins_them() {
    for (title, size) in [("The 100 members", 100), ("The 5,000 members", 5000)] {
        let mut out = Writer::new();
        members(0..size).encode(&mut out);
        let (bytes, shown) = (out.into_bytes(), page::bytes(PAGE, title));
        assert!(shown.len() >= 6 && bytes.starts_with(&shown), "{title}: {:02x?}", &bytes[..20]);
        let rows = page::rows(PAGE, title);
        let said = rows.last().unwrap()[1].strip_prefix("and so on: ").unwrap();
        assert_eq!(page::number(said.split(' ').next().unwrap()), bytes.len() as u128, "{title}");
    }
}

#[test]
fn the_flags_of_the_page_are_those_of_the_code() {
    let [regular, closing, sealed, lone, bound, doubt, withdrawn] =
        [REGULAR, CLOSING, SEALED, LONE, BOUND, DOUBT, WITHDRAWN].map(u128::from);
    let bits =
        page::rows(PAGE, "## The first two bytes").iter().map(|row| page::number(row[0])).collect::<Vec<_>>();
    assert_eq!(bits, [regular, closing, sealed, lone, bound, doubt, withdrawn]);
    assert_eq!((KIND, DETACHED, QUESTION, VERSION), (3, 1, 2, 4));
}

fn counted() -> Vec<Counted> {
    fn message(from: &mut Reader<'_>) -> Result<(), DecodeError> {
        Message::decode(&page::rest(from), u32::MAX).map(drop)
    }
    // Rank, epoch, two numbers on the link, clear; coverage, expiry, first new key, keys; number, span.
    let (head, rest, sealed): (&[u8], &[u8], &[u8]) =
        (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0], &[0, 0, 0], &[7, 9]);
    let regular = |flags: u8, parts: &[&[u8]]| [&[VERSION, flags][..], head, &parts.concat()].concat();
    let counter = [0_u8, 1, b'a'];
    vec![
        ("groups of coverage", regular(LONE, &[]), message),
        ("ranges of a set of ranks", Vec::new(), |from| IdSet::decode(from).map(drop)),
        ("keys of a message", regular(LONE, &[rest]), message),
        ("counters, timers, sets: each", regular(LONE | SEALED, &[rest, &[0], sealed]), message),
        ("counters, timers, sets: each", regular(LONE | SEALED, &[rest, &[0], sealed, &[0, 0]]), message),
        ("counters, timers, sets: each", regular(LONE | SEALED, &[rest, &[0], sealed, &[0, 0, 0]]), message),
        ("changed states", regular(LONE, &[rest, &[0]]), message),
        ("withdrawn series", regular(LONE | WITHDRAWN, &[rest, &[0, 0]]), message),
        ("epochs of identities", Vec::new(), |from| Ids::decode(from).map(drop)),
        ("runs of one epoch", [&[1, 1][..], &[0; 8]].concat(), |from| Ids::decode(from).map(drop)),
        ("bytes of a name", vec![0], |from| Key::decode(from).map(drop)),
        ("tags of a key", counter.to_vec(), |from| Key::decode(from).map(drop)),
        ("bytes of a tag's key or value", [&counter[..], &[1]].concat(), |from| Key::decode(from).map(drop)),
        ("bytes of a tag's key or value", [&counter[..], &[1, 1, b'k']].concat(), |from| {
            Key::decode(from).map(drop)
        }),
        ("buckets of a timer", Vec::new(), |from| Samples::decode(from).map(drop)),
        ("hashes of a set", vec![0], |from| Members::decode(from).map(drop)),
        ("listed registers of a set", vec![1], |from| Members::decode(from).map(drop)),
    ]
}

#[test]
fn the_bounds_of_the_page_are_in_force() {
    page::holds_bounds(&page::rows(PAGE, "## Bounds"), &counted());
    assert!(
        PAGE.contains("All keys on a link, since its first message: 1,048,576.") && SERIES_MAX == 1_048_576
    );
}

#[test]
fn the_page_has_every_reason_for_which_bytes_are_refused_and_no_other() {
    let code = [
        include_str!("../batch.rs"),
        include_str!("flows.rs"),
        include_str!("../idset.rs"),
        include_str!("../marks.rs"),
        include_str!("../members.rs"),
        include_str!("../node/children.rs"),
        include_str!("../series/key.rs"),
        include_str!("../sketch.rs"),
        include_str!("../value.rs"),
        include_str!("../wire.rs"),
    ];
    let code = code.iter().filter_map(|code| code.split("#[cfg(test)]").next());
    let reasons =
        code.flat_map(|code| ["Malformed(\"", "bad(\""].map(|call| code.split(call).skip(1))).flatten();
    let reasons: BTreeSet<&str> = reasons.filter_map(|rest| rest.split('"').next()).collect();
    let rows = page::rows(PAGE, "## What is refused");
    let documented: BTreeSet<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    // This one is of sets that are text.
    assert!(reasons.contains("expected pairs of hexadecimal digits"));
    let missing: Vec<_> = reasons.symmetric_difference(&documented).collect();
    assert_eq!(missing, [&"expected pairs of hexadecimal digits"]);
}

#[test]
fn a_series_twice_among_states_or_withdrawn_is_not_refused_as_the_page_says() {
    let states = |value| Some(States::of(Amount::whole(value), 1));
    let batch = Regular { states: vec![(6, states(1)), (6, states(2))], withdrawn: vec![7, 7], ..merged() };
    assert_eq!(Message::decode(&batch.encode(), u32::MAX).unwrap(), Message::Regular(Box::new(batch)));
}

#[test]
fn the_answers_of_the_page_are_those_of_a_receiver() {
    let decode = MergeRefused::Decode(Message::decode(&[9], u32::MAX).unwrap_err());
    assert!(PAGE.contains(&format!("\"{decode}\"").replace(&VERSION.to_string(), "4")), "{decode}");
    let answers = [
        MergeRefused::Rank { rank: 9, size: 4 },
        MergeRefused::Above { rank: 1 },
        MergeRefused::Generation { generation: 7, newest: 6 },
        MergeRefused::Dictionary { rank: 2, max: SERIES_MAX },
        MergeRefused::Overlap { rank: 2, seq: 6 },
        MergeRefused::Full { rank: 1, waiting: CONTAINS_MAX },
    ];
    let rows = page::rows(PAGE, "does not fit the receiver");
    let shown: Vec<_> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    assert_eq!(shown, answers.map(|answer| answer.to_string()));
}
