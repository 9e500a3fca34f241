//! Answers in steps of bounded length: a reactor that has children to hear goes on between them.

use crate::answer::{Whose, join};
use crate::node::Node;
use crate::query::Query;
use crate::schedule::Now;
use crate::series::SeriesId;
use serde_json::{Map, Value};

/// A node's part of an answer in the making. What is merged between two steps is in the series that come later; a clear
/// starts it anew, and so does the end of a series.
#[derive(Debug)]
pub struct Steps {
    query: Query,
    /// Whose series, as a list; `None`: a tree.
    whose: Option<Whose>,
    /// How many series of the catalog have been looked at; `None`: all, and what is selected is in order.
    looked: Option<usize>,
    selected: Vec<SeriesId>,
    /// How many of them are done.
    done: usize,
    generation: u64,
    removals: u64,
    list: String,
    tree: Map<String, Value>,
}

impl Steps {
    /// A list of series.
    pub fn list(node: &Node, query: Query, whose: Whose) -> Self {
        Self::new(node, query, Some(whose))
    }

    /// The tree, as [`Node::tree`] has it, of the series that are asked for.
    pub fn tree(node: &Node, query: Query) -> Self {
        Self::new(node, query, None)
    }

    fn new(node: &Node, query: Query, whose: Option<Whose>) -> Self {
        Steps {
            query,
            whose,
            looked: Some(0),
            selected: Vec::new(),
            done: 0,
            generation: node.generation(),
            removals: node.catalog.removals(),
            list: String::new(),
            tree: Map::new(),
        }
    }

    /// Looks for what is wanted among `count` more series. True: all have been looked at.
    fn look(&mut self, node: &Node, count: usize) -> bool {
        let Some(from) = self.looked else { return true };
        let (found, last) = node.look_for(&self.query, from, count);
        self.selected.extend(found);
        self.looked = (!last).then_some(from.saturating_add(count));
        if last {
            node.sort(&mut self.selected);
        }
        false
    }

    /// Goes on by about `series` series. True: it is whole.
    pub fn go_on(&mut self, node: &Node, now: Now, series: usize) -> bool {
        if (node.generation(), node.catalog.removals()) != (self.generation, self.removals) {
            *self = Self::new(node, std::mem::take(&mut self.query), self.whose);
        }
        if !self.look(node, series) {
            return false;
        }
        let end = self.done.saturating_add(series).min(self.selected.len());
        match self.whose {
            Some(whose) => {
                for &id in self.selected.get(self.done..end).unwrap_or_default() {
                    let series = node.series(id, self.query.since_ns(), now, whose);
                    let text = series.and_then(|series| serde_json::to_string(&series).ok());
                    join(&mut self.list, &text.unwrap_or_default());
                }
                self.done = end;
            }
            None => {
                while self.done < end {
                    let rest = self.selected.get(self.done..).unwrap_or_default();
                    self.done = self.selected.len() - node.add_name(&mut self.tree, rest).len();
                }
            }
        }
        let whole = self.done >= self.selected.len();
        if whole && self.whose.is_none() {
            node.add_ranks(&mut self.tree, now);
        }
        whole
    }

    /// The bytes that it has come to.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is nothing in it yet.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.tree.is_empty()
    }

    /// The series, as the inside of a JSON list; of a tree, the tree as a JSON object.
    pub fn into_text(self) -> String {
        if self.whose.is_some() { self.list } else { Value::Object(self.tree).to_string() }
    }
}

/// An answer as text: its frame ([`Node::frame`], with what the caller adds) and the inside of its list of series.
pub fn framed(frame: &Value, series: &[String]) -> String {
    let mut text = frame.to_string();
    // An object: its last brace makes room for one more key.
    text.pop();
    text.push_str(if text.len() > 1 { ",\"series\":[" } else { "\"series\":[" });
    let mut first = true;
    for part in series.iter().filter(|part| !part.is_empty()) {
        if !std::mem::take(&mut first) {
            text.push(',');
        }
        text.push_str(part);
    }
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_frame_and_parts_become_one_object() {
        let parts = ["{\"a\":1}".to_owned(), String::new(), "{\"b\":2},{\"c\":3}".to_owned()];
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let whole = json!({ "version": 1, "series": [{ "a": 1 }, { "b": 2 }, { "c": 3 }] });
        assert_eq!(read(&framed(&json!({ "version": 1 }), &parts)), whole);
        assert_eq!(read(&framed(&json!({}), &[])), json!({ "series": [] }));
    }
}
