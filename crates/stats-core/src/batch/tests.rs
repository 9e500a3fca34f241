use super::*;
use crate::amount::Amount;
use crate::flows::{Gain, Sealed};
use crate::members::Members;
use crate::series::{Kind, SeriesId, Unit};
use crate::value::{Peak, Samples};
use proptest::prelude::*;

const SPAN_NS: u64 = 1_000_000_000;

fn amount() -> impl Strategy<Value = Amount> {
    let whole = any::<i64>().prop_map(|whole| Amount::whole(i128::from(whole)));
    let small = (-1000_i64..1000).prop_map(|whole| Amount::whole(i128::from(whole)));
    let parts = any::<i64>().prop_map(|parts| Amount::from_parts(i128::from(parts)));
    prop_oneof![whole, small, parts]
}

fn numbers() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::btree_set(0_u32..100, 0..20).prop_map(|numbers| numbers.into_iter().collect())
}

fn flows() -> impl Strategy<Value = WireFlows> {
    let gain = (amount(), 0_u32..50)
        .prop_map(|(amount, rank)| Gain { amount, peak: Peak::of(amount, SPAN_NS, rank) });
    let samples = proptest::collection::vec((any::<u32>(), 1_u64..5), 1..20).prop_map(|pairs| {
        let mut samples = Samples::default();
        pairs.into_iter().for_each(|(sample, times)| samples.add(u64::from(sample), times));
        samples
    });
    let members = (1_u32..300).prop_map(|size| {
        let mut members = Members::default();
        (0..size).for_each(|number| {
            members.insert(&number.to_string());
        });
        members
    });
    let zip = |(numbers, gains, timed, sets): (Vec<u32>, Vec<Gain>, Vec<Samples>, Vec<Members>)| WireFlows {
        counters: numbers.iter().copied().zip(gains).collect(),
        timers: numbers.iter().copied().zip(timed).collect(),
        sets: numbers.iter().copied().zip(sets).collect(),
    };
    use proptest::collection::vec;
    (numbers(), vec(gain, 20), vec(samples, 0..3), vec(members, 0..2)).prop_map(zip)
}

fn ids() -> impl Strategy<Value = Ids> {
    proptest::collection::vec((0_u32..9, 0_u64..3, 0_u64..9), 0..9).prop_map(|triples| {
        let mut ids = Ids::default();
        triples.into_iter().for_each(|(rank, epoch, seq)| ids.add(BatchId { rank, epoch, seq }));
        ids
    })
}

fn set() -> impl Strategy<Value = IdSet> {
    proptest::collection::vec(0_u32..64, 0..9).prop_map(|ranks| ranks.into_iter().collect())
}

fn keys() -> Vec<Key> {
    vec![
        Key::new("a.b", &[("k", "v")], Kind::Counter, Unit::Nanoseconds).unwrap(),
        Key::new("a.c", &[], Kind::Set, Unit::None).unwrap(),
    ]
}

fn regular() -> impl Strategy<Value = Message> {
    let head = (any::<bool>(), proptest::option::of(0_u64..1000), 0_u64..9, 0_u64..1000, 0_u64..9);
    let group = (0_u64..9000, any::<bool>(), set());
    let group = group.prop_map(|(age_ms, closed, ranks)| Group { age_ms, closed, ranks });
    let states = (numbers(), proptest::collection::vec(proptest::option::of((amount(), 0_u32..9)), 20));
    let rest = (proptest::collection::vec(group, 0..3), set(), ids(), flows(), states, numbers());
    (head, rest).prop_map(
        |((closing, seq, after, more, generation), (coverage, next, contains, flows, states, withdrawn))| {
            let sealed = seq.is_some();
            let state = |(value, rank)| States::of(value, rank);
            let states: Vec<_> =
                states.0.into_iter().zip(states.1.into_iter().map(|one| one.map(state))).collect();
            let lone = contains.is_empty() && next.is_empty();
            let mut flows = if sealed { flows } else { WireFlows::default() };
            if lone {
                flows.own_peaks(SPAN_NS, 3);
            }
            Message::Regular(Box::new(Regular {
                rank: 3,
                epoch: 77,
                link_seq: after + more,
                after,
                closing,
                generation,
                seq,
                span_ns: if sealed { SPAN_NS } else { 0 },
                coverage,
                expiry_ms: 6000,
                next: if sealed { next } else { IdSet::new() },
                contains: if sealed { contains } else { Ids::default() },
                first: 4,
                dictionary: keys(),
                flows,
                states,
                withdrawn,
            }))
        },
    )
}

fn detached() -> impl Strategy<Value = Message> {
    (any::<bool>(), proptest::option::of(0_u32..9), ids(), flows()).prop_map(
        |(doubt, bound, contains, flows)| {
            let id = BatchId { rank: 3, epoch: u64::MAX, seq: 9 };
            let dictionary = keys();
            Message::Detached(Box::new(Detached {
                id,
                doubt,
                bound,
                generation: 4,
                contains,
                dictionary,
                flows,
            }))
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let question = proptest::option::of(0_u32..9)
        .prop_map(|bound| Message::Question(Question { id: BatchId { rank: 1, epoch: 2, seq: 3 }, bound }));
    prop_oneof![4 => regular(), 2 => detached(), 1 => question]
}

fn bytes(message: &Message) -> Vec<u8> {
    match message {
        Message::Regular(batch) => batch.encode(),
        Message::Detached(batch) => batch.encode(),
        Message::Question(question) => question.encode(),
    }
}

proptest! {
    #[test]
    fn a_message_comes_back_as_it_went(message in message()) {
        prop_assert_eq!(Message::decode(&bytes(&message), u32::MAX).unwrap(), message);
    }

    #[test]
    fn a_truncated_message_is_refused_wherever_it_ends(message in message()) {
        let bytes = bytes(&message);
        prop_assert!((0..bytes.len()).all(|end| Message::decode(&bytes[..end], u32::MAX).is_err()));
    }

    #[test]
    fn mutated_and_random_bytes_never_panic(
        message in message(),
        at in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        random in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = bytes(&message);
        for (index, byte) in at {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        // What is accepted is a message like any other: it can be sent on.
        if let Ok(message) = Message::decode(&bytes, u32::MAX) {
            self::bytes(&message);
        }
        let _ = Message::decode(&random, u32::MAX);
        let _ = Message::decode(&[&[VERSION], random.as_slice()].concat(), u32::MAX);
        let _ = Receipt::decode(&random);
    }
}

#[test]
fn a_receipt_comes_back_and_another_version_is_refused_by_name() {
    for status in [Status::Taken, Status::NeedFull, Status::NotTaken] {
        let receipt = Receipt { status, rank: 1, epoch: 2, generation: 3, period_ns: 4 };
        assert_eq!(Receipt::decode(&receipt.encode()).unwrap(), receipt);
    }
    let error = Message::decode(&[9, 0, 0], u32::MAX).unwrap_err();
    assert_eq!(error.to_string(), format!("version 9 of the format, this side speaks {VERSION}"));
    assert_eq!(Receipt::decode(&[1]).unwrap_err(), DecodeError::Version { found: 1, spoken: VERSION.into() });
}

#[test]
fn a_counter_that_changes_in_every_period_costs_its_amount_alone() {
    // What a leaf sends of its modules: nanoseconds slept in two seconds, turns, switches.
    let gain = |whole| Gain { amount: Amount::whole(whole), peak: Peak::default() };
    let counters = (0..300).map(|number| (number, gain([1_973_112_345, 250, 41, 3][number as usize % 4])));
    let flows = WireFlows { counters: counters.collect(), ..WireFlows::default() };
    let mut out = Writer::new();
    flows.write(false, &mut out);
    assert!(out.into_bytes().len() <= 300 * 3, "the mean of 5, 2, 1 and 1 bytes, and the frame");
}

#[test]
fn all_series_of_a_catalog_as_full_as_can_be_fit_in_one_message() {
    let dictionary = vec![Key::new("a", &[], Kind::Counter, Unit::None).unwrap(); CATALOG_MOST];
    let (id, flows) = (BatchId { rank: 1, epoch: 2, seq: 3 }, WireFlows::default());
    let contains = Ids::default();
    let batch = Detached { id, doubt: false, bound: None, generation: 0, contains, dictionary, flows };
    let Ok(Message::Detached(read)) = Message::decode(&batch.encode(), u32::MAX) else { panic!() };
    assert_eq!(read.dictionary.len(), CATALOG_MOST);
}

/// What was read, written again.
impl WriteFlows for WireFlows {
    fn write(&self, peaks: bool, out: &mut Writer) {
        fn named<T: Clone>(kind: Kind, all: &[(u32, T)]) -> Vec<(SeriesId, T)> {
            all.iter().map(|(number, value)| (SeriesId::new(kind, *number), value.clone())).collect()
        }
        let counters = named(Kind::Counter, &self.counters);
        let (timers, sets) = (named(Kind::Timer, &self.timers), named(Kind::Set, &self.sets));
        let number = |id: SeriesId| Some(id.position() as u32);
        Numbered::new(&Sealed { counters, timers, sets }, number).write(peaks, out);
    }
}
