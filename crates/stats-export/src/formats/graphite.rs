//! Graphite: its plaintext protocol, and pickles of it (graphite.readthedocs.io, "Feeding in your data").

use super::{number, numbers, prefixed, tags};
use crate::snapshot::{Point, View};
use std::fmt::Write;

/// Numbers in one pickle: what carbon itself sends at most.
const PICKLED: usize = 500;

/// `PATH VALUE TIME` lines. A series with tags has them in its path (`a.b;key=value`), as Graphite 1.1 has them.
pub fn plaintext(view: &View<'_>, prefix: &str) -> String {
    let mut text = String::new();
    each(view, prefix, |path, value, seconds| {
        let before = text.len();
        text.push_str(path);
        text.push(' ');
        if number(&mut text, value) {
            let _ = writeln!(text, " {seconds}");
        } else {
            text.truncate(before);
        }
    });
    text
}

/// The same as pickles of some hundred numbers, each behind its length.
pub fn pickle(view: &View<'_>, prefix: &str) -> Vec<u8> {
    let mut all: Vec<(String, (u64, f64))> = Vec::new();
    each(view, prefix, |path, value, seconds| {
        if value.is_finite() {
            all.push((path.to_owned(), (seconds, value)));
        }
    });
    let mut bytes = Vec::new();
    for some in all.chunks(PICKLED) {
        // It is texts and numbers: there is nothing that could not be pickled.
        let pickled = serde_pickle::to_vec(&some, serde_pickle::SerOptions::new().proto_v2());
        let Ok(pickled) = pickled else { continue };
        let length = u32::try_from(pickled.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&pickled);
    }
    bytes
}

fn each(view: &View<'_>, prefix: &str, mut take: impl FnMut(&str, f64, u64)) {
    let seconds = view.snapshot.time_ns / 1_000_000_000;
    let (mut path, mut tagged) = (String::new(), String::new());
    for point in &view.points {
        tagged.clear();
        write_tags(point, &mut tagged);
        numbers(point, |ending, value| {
            path.clear();
            prefixed(&mut path, prefix, &point.name);
            if !ending.is_empty() {
                path.push('.');
                path.push_str(ending);
            }
            path.push_str(&tagged);
            take(&path, value, seconds);
        });
    }
}

fn write_tags(point: &Point, out: &mut String) {
    // Of a key Graphite allows no ; ! ^ =, of a value no ; and no ~ at its beginning; neither line nor path has blanks.
    let clean = |text: &str, bad: &[char]| -> String {
        text.chars().map(|c| if c.is_whitespace() || bad.contains(&c) { '_' } else { c }).collect()
    };
    for (key, value) in tags(point) {
        let (key, value) = (clean(key, &[';', '!', '^', '=']), clean(&value, &[';']));
        let value = value.strip_prefix('~').map_or(value.clone(), |rest| format!("_{rest}"));
        let _ = write!(out, ";{key}={value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;

    #[test]
    fn lines_are_as_documented() {
        insta::assert_snapshot!(plaintext(&sample::snapshot().view(), "flux"));
    }

    #[test]
    fn pickles_hold_what_lines_say() {
        let snapshot = sample::snapshot();
        let bytes = pickle(&snapshot.view(), "flux");
        let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!(bytes.len(), 4 + length);
        let read: Vec<(String, (u64, f64))> =
            serde_pickle::from_slice(&bytes[4..], Default::default()).unwrap();
        let text = plaintext(&snapshot.view(), "flux");
        let lines: Vec<String> =
            read.iter().map(|(path, (seconds, value))| format!("{path} {value} {seconds}")).collect();
        assert_eq!(lines, text.lines().collect::<Vec<_>>());
        let many = snapshot.points.iter().cycle().take(1000).collect();
        let bytes = pickle(&View { snapshot: &snapshot, points: many }, "");
        let mut rest = bytes.as_slice();
        let mut frames = 0;
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let frame = &after[..u32::from_be_bytes(*length) as usize];
            let read: Vec<(String, (u64, f64))> =
                serde_pickle::from_slice(frame, Default::default()).unwrap();
            assert!(read.len() <= PICKLED && frame.len() < 1 << 20, "carbon takes no more");
            (rest, frames) = (&after[frame.len()..], frames + 1);
        }
        assert!(frames > 2);
    }
}
