//! What holds for a slot, whatever its thread does.

use super::*;
use crate::clock::SCALE_ONE;
use proptest::prelude::*;

fn table() -> Box<Table> {
    // SAFETY: all fields of Table are atomics, for which zero bytes are a valid value.
    unsafe { zeroed() }
}

proptest! {
    /// Whatever a thread does, its three times add up to the wall time, and turns to work.
    #[test]
    fn work_sleep_and_blocked_add_up_to_wall(
        steps in prop::collection::vec((0u64..1_000_000, 0u8..3), 1..200), tail in 0u64..5000,
    ) {
        let t = table();
        let slot = &t.slots[0];
        slot.become_known(1, 1000);
        let mut now = 1000;
        let (mut turns, mut longest, mut turn) = (0u64, 0u64, 0u64);
        for (d, what) in steps {
            now += d;
            match (slot.read().state, what) {
                (WORKING, 0) => { slot.work_to_blocked(now); turn += d; }
                (WORKING, _) => {
                    slot.any_work_to_sleep(now, SCALE_ONE);
                    turn += d; longest = longest.max(turn); turn = 0; turns += 1;
                }
                (SLEEPING, _) => slot.sleep_to_work(now),
                _ => slot.blocked_to_work(now),
            }
            let s = slot.read();
            prop_assert_eq!(s.work + s.sleep + s.blocked, now - 1000);
        }
        let s = slot.read();
        prop_assert_eq!(s.at(now + tail).iter().sum::<u64>(), now + tail - 1000);
        prop_assert_eq!(s.longest, longest);
        let counted: u64 = slot.histogram.iter().map(|c| u64::from(c.load(Relaxed))).sum();
        prop_assert_eq!(counted, turns);
    }
}

#[test]
fn a_clock_that_steps_back_between_processors_adds_nothing_and_loses_nothing() {
    let t = table();
    let slot = &t.slots[3];
    slot.become_known(1, 500);
    slot.work_to_sleep(480, SCALE_ONE);
    slot.sleep_to_work(600);
    let s = slot.read();
    assert_eq!((s.work, s.sleep, s.wakeups), (0, 100, 1));
}

#[test]
fn a_turn_with_nested_waits_is_one_turn_and_its_waits_are_not_work() {
    let t = table();
    let slot = &t.slots[0];
    slot.become_known(3, 0);
    slot.work_to_sleep(10, SCALE_ONE);
    slot.sleep_to_work(100);
    slot.work_to_blocked(130);
    assert_eq!(slot.turn_start(&slot.read()), 100);
    slot.blocked_to_work(1130);
    slot.any_work_to_sleep(1150, SCALE_ONE);
    let s = slot.read();
    assert_eq!((s.work, s.sleep, s.blocked, s.wakeups), (60, 90, 1000, 1));
    assert_eq!((s.longest, s.longest_at, s.generation), (50, 1150, 3));
    assert_eq!(slot.turn_start(&s), 1150);
}

#[test]
fn a_wait_left_by_cancellation_is_not_counted_as_work() {
    let t = table();
    let slot = &t.slots[0];
    slot.become_known(1, 0);
    slot.work_to_sleep(10, SCALE_ONE);
    slot.work_to_blocked(1010);
    slot.any_work_to_sleep(1020, SCALE_ONE);
    let s = slot.read();
    assert_eq!((s.work, s.sleep, s.blocked, s.longest), (10, 1000, 10, 10));
}

#[test]
fn a_writer_stopped_midway_does_not_hang_the_reader() {
    let t = table();
    t.slots[0].become_known(1, 0);
    t.slots[0].begin(t.slots[0].head(), 5, &t.slots[0].hot.work);
    assert!(!t.slots[0].read().consistent);
}

#[test]
fn a_full_table_gives_no_slot_and_a_freed_one_is_used_again() {
    let t = table();
    for tid in 1..=SLOTS as i32 {
        assert!(t.make_slot(tid).is_some());
    }
    assert!(t.slot_for_owner(9999).is_none());
    let seven = t.slot_for_owner(7).unwrap();
    seven.become_known(1, 0);
    assert!(t.slot_for_owner(7).is_none());
    seven.free();
    assert_eq!(t.slot_for_owner(9999).unwrap().tid(), 9999);
}

/// A sampler makes slots for threads and gives those back that are not needed, while the threads come by themselves: no
/// slot ever has two owners, and none is lost.
#[test]
fn a_slot_is_given_back_or_claimed_and_never_both() {
    use std::sync::atomic::AtomicBool;
    const THREADS: i32 = 2;
    const ROUNDS: u32 = 100_000;
    let t = table();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let come = |tid| {
            let t = &t;
            move || {
                for round in 1..=ROUNDS {
                    let slot = t.slot_for_owner(tid).unwrap();
                    for _ in 0..20 {
                        assert_eq!(slot.tid(), tid, "round {round}");
                    }
                    slot.free();
                }
            }
        };
        let threads: Vec<_> = (1..=THREADS).map(|tid| scope.spawn(come(tid))).collect();
        let sampler = scope.spawn(|| {
            while !over.load(Relaxed) {
                for index in (1..=THREADS).filter_map(|tid| t.make_slot(tid)) {
                    t.slots[index].give_back();
                }
            }
        });
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Relaxed);
        sampler.join().unwrap();
        assert!(ends.iter().all(Result::is_ok));
    });
    assert!(t.slots.iter().all(|slot| slot.tid() == 0), "{t:?}");
}

/// The rows of the page's table after `title`: offset, bytes and meaning.
fn rows(title: &str) -> Vec<(usize, usize, &'static str)> {
    let page = include_str!("../../docs/slots.md");
    let table =
        page.split_once(title).unwrap().1.split_once("| offset | type | what |\n|---|---|---|\n").unwrap().1;
    let rows = table.lines().map_while(|row| row.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = rows.map(|row| row.splitn(3, " | ").collect::<Vec<_>>());
    cells.map(|cells| (cells[0].parse().unwrap(), bytes(cells[1]), cells[2])).collect()
}

/// How many bytes a type of the page takes.
fn bytes(kind: &str) -> usize {
    if let Some((each, count)) =
        kind.strip_prefix('[').and_then(|list| list.strip_suffix(']')?.split_once("; "))
    {
        return bytes(each) * count.parse::<usize>().unwrap();
    }
    match kind {
        "u8" => 1,
        "u32" | "i32" => 4,
        "u64" => 8,
        _ => panic!("{kind}"),
    }
}

/// Offset and bytes of fields.
macro_rules! fields {
    ($of:ident: $($field:ident)*) => {{
        fn size<T>(_: fn(&$of) -> &T) -> usize {
            size_of::<T>()
        }
        vec![$((offset_of!($of, $field), size(|of| &of.$field))),*]
    }};
}

#[test]
fn the_fields_of_the_page_are_those_of_the_code() {
    let places = |title| rows(title).iter().map(|&(offset, bytes, _)| (offset, bytes)).collect::<Vec<_>>();
    let header = fields!(Header: magic version header_bytes slot_bytes slot_count pid use_counter start_time generation
        blocked_known scale sampled_ns overflow);
    assert_eq!(places("**Header**"), header);

    let mut slot = fields!(Hot: head since work sleep blocked wakeups longest longest_at);
    slot.extend([(offset_of!(Slot, owner), 4), (offset_of!(Slot, owner) + 4, 4)]);
    slot.extend(
        fields!(Slot: depth _reserved0 turn_work turn_start known_since _reserved1 name blocked_calls
        longest_blocked longest_blocked_at call_start module histogram),
    );
    assert_eq!(places("**Slot**"), slot);
    let (offset, bytes) = *slot.last().unwrap();
    assert_eq!(offset + bytes, size_of::<Slot>(), "nothing is left out at the end");
    assert!(slot.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0), "nor in between");
}

#[test]
fn what_the_page_says_that_a_field_holds_is_what_is_written() {
    let mapping = crate::mapping::Mapping::create().unwrap();
    let header = rows("**Header**");
    let word = |name: &str| {
        let (offset, _, what) = *header.iter().find(|row| row.2.starts_with(name)).expect(name);
        // SAFETY: the offset is of a 32-bit field of the header, as the test above makes sure.
        let word =
            unsafe { (&raw const *mapping.table).byte_add(offset).cast::<AtomicU32>().as_ref().unwrap() };
        (word.load(Relaxed), what.rsplit_once(": ").and_then(|(_, said)| said.parse().ok()))
    };
    for name in ["layout version", "size of the header", "size of a slot", "number of slots"] {
        let (written, said) = word(name);
        assert_eq!(Some(written), said, "{name}");
    }
    assert_eq!(word("pid").0, std::process::id());
    assert_eq!(header[0].2, "magic, the bytes `FLUXSLOT`");
    assert_eq!(mapping.table.header.magic.load(Relaxed).to_ne_bytes(), *b"FLUXSLOT");

    let page = include_str!("../../docs/slots.md");
    assert!(page.contains(&format!("Layout version {VERSION};")) && page.contains(&format!("{SLOTS} slots")));
    let states = format!(
        "**State**: {WORKING} working, {SLEEPING} sleeping, {BLOCKED} blocked (low two bits), plus {NESTED} inside a nested \
         reactor run, {SPLIT} split (this turn has had a nested wait), {UNNAMED} unnamed"
    );
    let said: Vec<&str> = page.split_whitespace().collect();
    assert!(said.join(" ").contains(&states), "{states}");

    // The head: sequence << 32, generation << 8, state.
    let slot = Slot::boxed();
    slot.become_known(3, 1000);
    let head = slot.hot.head.load(Relaxed);
    let (generation, state) = (head >> 8 & 0xff_ffff, head & 0xff);
    assert_eq!((head >> 32 & 1, generation, state), (0, 3, u64::from(WORKING | UNNAMED)));
}
