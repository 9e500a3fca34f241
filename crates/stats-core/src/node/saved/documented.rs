//! What `docs/custody-file.md` says of the node's part, held against the code.

use super::*;
use crate::amount::Amount;
use crate::intake::Intake;
use crate::node::{NodeConfig, SendFailure};
use crate::page::{self, Counted};
use crate::series::{Kind, Unit};
use std::time::Duration;

const PAGE: &str = include_str!("../../../docs/custody-file.md");
const TITLE: &str = "## The node's part";

fn at(s: u64) -> Now {
    Now { mono_ns: s * 1_000_000_000, wall_ns: (1_700_000_000 + s) * 1_000_000_000 }
}

fn node(rank: u32, epoch: u64) -> Node {
    let period = Duration::from_secs(2);
    let mut node = Node::new(
        NodeConfig { rank, size: 4, level: rank, max_level: 2, epoch, period, max_series: 100 },
        at(0),
    );
    node.handle_clear(4);
    node
}

fn count(node: &mut Node, name: &str, amount: i128) {
    let id = node.declare(Key::new(name, &[], Kind::Counter, Unit::None).unwrap()).unwrap();
    node.add(id, Amount::whole(amount));
}

/// Rank 2 sends rank 1 what it has.
fn from_below(leaf: &mut Node, node: &mut Node, s: u64) {
    leaf.tick(at(s));
    while let Some(transmit) = leaf.poll_transmit(at(s)) {
        let answer = node.handle_merge(at(s), &transmit.payload).unwrap();
        leaf.handle_response(transmit.token, Ok(&answer));
    }
}

/// What rank 1 sends in a period does not arrive.
fn upwards(node: &mut Node, s: u64, failure: SendFailure) {
    node.tick(at(s));
    let transmit = node.poll_transmit(at(s)).unwrap();
    node.sent_to(transmit.token, 0);
    node.handle_response(transmit.token, Err(failure));
}

/// Rank 1 with something of all that there is to be saved.
fn rank_1() -> Node {
    let (mut node, mut leaf) = (node(1, 9), node(2, 7));
    count(&mut node, "app.x", 5);
    count(&mut leaf, "app.y", 3);
    from_below(&mut leaf, &mut node, 4);
    upwards(&mut node, 8, SendFailure::Overlap);
    count(&mut node, "app.x", -1);
    upwards(&mut node, 12, SendFailure::Unknown);
    count(&mut node, "app.x", 2);
    count(&mut leaf, "app.y", 4);
    from_below(&mut leaf, &mut node, 16);
    node
}

#[test]
fn the_node_s_part_of_the_page_is_what_is_left_and_taken_up() {
    let (node, bytes) = (rank_1(), page::bytes(PAGE, TITLE));
    assert_eq!(node.save(), bytes, "{:02x?}", node.save());
    assert_eq!(page::bytes(PAGE, "## The length"), (bytes.len() as u64).to_le_bytes());
    let config = NodeConfig { epoch: 10, ..node.config().clone() };
    let after = Node::restore(config, at(20), &bytes).unwrap();
    assert_eq!((after.audit(), after.save()), (node.audit(), bytes));
}

#[test]
fn version_2_is_taken_up_without_times_as_the_page_has_it() {
    let rows = page::rows(PAGE, TITLE);
    let rows = rows.iter().filter(|row| !row[1].contains("not in version 2"));
    let mut bytes: Vec<u8> = rows.flat_map(|row| page::hexadecimal(row[0])).collect();
    bytes[0] = VERSION_WITHOUT_TIMES;
    let node = Node::restore(rank_1().config().clone(), at(20), &bytes).unwrap();
    assert_eq!((node.audit(), Sealed::of(&node.own), node.marks), {
        let before = rank_1();
        (before.audit(), Sealed::of(&before.own), before.marks)
    });
    assert_eq!((VERSION, VERSION_WITHOUT_TIMES), (3, 2));
}

fn counted() -> Vec<Counted> {
    fn node(from: &mut Reader<'_>) -> Result<(), DecodeError> {
        Node::restore(rank_1().config().clone(), at(0), &page::rest(from)).map(drop)
    }
    fn intake(from: &mut Reader<'_>) -> Result<(), DecodeError> {
        Intake::restore(Duration::from_secs(1), &mut rank_1(), at(0), &page::rest(from)).map(drop)
    }
    // Version, generation, series, totals, marks.
    let batches = [&[VERSION, 0, 0][..], &[0; 8], &[0]].concat();
    let epoch = [&[1, 5, 0, 0, 1][..], &[0; 9]].concat();
    vec![
        ("series", vec![VERSION, 0], node),
        ("ranks with marks", Vec::new(), |from| Marks::decode(from).map(drop)),
        ("forgotten epochs of a rank", vec![1, 5, 0], |from| Marks::decode(from).map(drop)),
        ("epochs of a rank that are remembered", vec![1, 5, 0, 0], |from| Marks::decode(from).map(drop)),
        ("runs of one epoch", epoch, |from| Marks::decode(from).map(drop)),
        ("batches in custody", batches.clone(), node),
        ("batches set aside", [&batches[..], &[0]].concat(), node),
        ("handles of the owner", vec![2], intake),
        ("guests", vec![2, 0], intake),
        ("handles of a guest", vec![2, 0, 1, 5], intake),
        ("bytes of an `id`", vec![2, 1], intake),
        ("gauges", vec![2, 0, 0], intake),
    ]
}

#[test]
fn the_bounds_of_the_page_are_in_force() {
    page::holds_bounds(&page::rows(PAGE, "## Bounds"), &counted());
}

#[test]
fn what_is_refused_is_told_as_the_page_has_it() {
    let config = rank_1().config().clone();
    let refused = |bytes: &[u8]| Node::restore(config.clone(), at(0), bytes).unwrap_err().to_string();
    assert!(PAGE.contains(&format!("\"{}\"", refused(&[9]))));
    // Version, generation, series, totals, marks; one batch, of a doubt that there is not.
    let doubt = [&[VERSION, 0, 0][..], &[0; 8], &[0, 1, 3]].concat();
    let reason = refused(&doubt);
    assert!(PAGE.contains(&format!("`{}`", reason.strip_prefix("malformed: ").unwrap())), "{reason}");
}
