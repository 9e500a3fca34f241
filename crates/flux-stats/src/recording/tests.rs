use super::frame::{Frame, HEADER, Piece, Pieces, header};
use super::stored::Step;
use super::*;
use crate::answer::{Answer, Extreme, Ranks, Series, Shape, Values, Whole};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use stats_core::IdSet;
use std::fs::{self, File};

const PATH: &str = "file";

/// What a recording tells, in words; answers as they came.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Session(Session),
    Answer(Answer, Option<IdSet>),
    Mark(Mark),
    End(Ended),
    Unread,
    Damage,
    Torn,
}

fn read(bytes: &[u8]) -> Result<Vec<Told>, Error> {
    let mut reader = Reader::new(bytes, Path::new(PATH))?;
    let mut told = Vec::new();
    while let Some((_, event)) = reader.next().unwrap() {
        told.push(match event {
            Event::Session(session) => Told::Session(session),
            Event::Answer(moment) => Told::Answer(moment.answer(), moment.asked().cloned()),
            Event::Mark(mark) => Told::Mark(mark),
            Event::End(ended) => Told::End(ended),
            Event::Unread => Told::Unread,
            Event::Damage { .. } => Told::Damage,
            Event::Torn { .. } => Told::Torn,
        });
    }
    Ok(told)
}

/// Answers, those without ranks of the instance.
fn record(path: &Path, answers: &[(Answer, Option<IdSet>)]) {
    let (mut writer, _) = Writer::open(path).unwrap();
    writer.session(1.0, &Session::default()).unwrap();
    for (answer, asked) in answers {
        match asked {
            None => writer.answer(answer.clone()).unwrap(),
            Some(asked) => writer.by_rank(answer.clone(), asked).unwrap(),
        }
    }
    writer.end(2.0, &Ended::Told).unwrap();
}

/// As answers are compared: rows in any order, derived numbers as they are kept.
fn kept(mut answer: Answer) -> Answer {
    let single = |number: &mut f64| *number = f64::from(*number as f32);
    single(&mut answer.ranks.oldest);
    for series in &mut answer.series {
        match &mut series.values {
            Values::Counter { rate, max, .. } => {
                single(rate);
                max.iter_mut().for_each(|(_, rate)| single(rate));
            }
            Values::Timer { rate, shape, relative_error, .. } => {
                [rate, relative_error].into_iter().for_each(single);
                if let Some(Shape { min, max, stddev, p50, p90, p99 }) = shape {
                    [min, max, stddev, p50, p90, p99].into_iter().for_each(single);
                }
            }
            Values::Set { estimate, relative_error } => {
                [estimate, relative_error].into_iter().for_each(single);
            }
            Values::Gauge { .. } | Values::Other(_) => {}
        }
    }
    answer.series.sort_by(|a, b| key(a).cmp(&key(b)));
    answer
}

fn key(series: &Series) -> (&str, Option<u32>, Vec<(&String, &String)>, &str) {
    (&series.name, series.rank, series.tags.iter().collect(), series.values.kind())
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        (0_i64..1 << 40).prop_map(|whole| whole as f64),
        (0_i64..1 << 50).prop_map(|nanoseconds| nanoseconds as f64 / 1e9),
        any::<f32>().prop_filter("no JSON", |x| x.is_finite()).prop_map(f64::from),
        any::<f64>().prop_filter("no JSON", |x| x.is_finite()),
    ]
}

fn values() -> impl Strategy<Value = Values> {
    let extreme = || {
        (number(), any::<u32>(), proptest::option::of(number())).prop_map(|(value, rank, time)| Extreme {
            value,
            rank,
            time,
        })
    };
    prop_oneof![
        (number(), number(), proptest::option::of((any::<u32>(), number())))
            .prop_map(|(total, rate, max)| Values::Counter { total, rate, max }),
        (0_u64..1 << 53, number(), extreme(), extreme()).prop_map(|(count, sum, min, max)| Values::Gauge {
            count,
            sum,
            min,
            max
        }),
        (0_u64..1 << 53, number(), number(), proptest::option::of(proptest::array::uniform6(number())))
            .prop_map(|(count, rate, sum, shape)| {
                let shape =
                    shape.map(|[min, max, stddev, p50, p90, p99]| Shape { min, max, stddev, p50, p90, p99 });
                Values::Timer { count, rate, sum, shape, relative_error: 0.0078 }
            }),
        number().prop_map(|estimate| Values::Set { estimate, relative_error: 0.0 }),
        "[a-z]{1,3}".prop_map(Values::Other),
    ]
}

/// An answer of the instance, or of the ranks 0 to 2, of a handful of series.
fn answer() -> impl Strategy<Value = (Answer, Option<IdSet>)> {
    let names = "[ab]\\.[cdé<]";
    let unit = proptest::option::of("seconds|bytes");
    let series = (names, btree_map("[xy]", "[12]", 0..2), proptest::option::of(0_u32..3), unit, values());
    (any::<bool>(), vec(series, 0..8), number(), 0_u32..3, "[0-3]?").prop_map(
        |(by_rank, series, time, size, silent)| {
            let mut series: Vec<Series> = series
                .into_iter()
                .map(|(name, tags, rank, unit, values)| {
                    let rank = by_rank.then_some(rank.unwrap_or(0));
                    Series { name, tags, rank, ranks: None, unit, values, since: None }
                })
                .collect();
            series.sort_by(|a, b| key(a).cmp(&key(b)));
            series.dedup_by(|a, b| key(a) == key(b));
            let ranks =
                if by_rank { Ranks::default() } else { Ranks { silent, oldest: 0.5, ..Ranks::default() } };
            let instance = Whole { size: if by_rank { 0 } else { size }, hostlist: None };
            let period = if by_rank { 0.0 } else { 2.0 };
            let answer = Answer { time, instance, ranks, period, unanswered: String::new(), series };
            (answer, by_rank.then(|| IdSet::range(0, 2)))
        },
    )
}

/// What is told of these answers: those by rank only after one of the instance, whose cover they show.
fn expected(answers: &[(Answer, Option<IdSet>)]) -> Vec<Told> {
    let mut told = vec![Told::Session(Session::default())];
    let mut whole: Option<Answer> = None;
    for (answer, asked) in answers {
        let mut answer = kept(answer.clone());
        if asked.is_none() {
            whole = Some(answer.clone());
        } else {
            let Some(Answer { instance, ranks, period, .. }) = whole.clone() else { continue };
            answer = Answer { instance, ranks, period, ..answer };
        }
        told.push(Told::Answer(answer, asked.clone()));
    }
    told.push(Told::End(Ended::Told));
    told
}

fn sorted(told: Vec<Told>) -> Vec<Told> {
    let sort = |told| match told {
        Told::Answer(answer, asked) => Told::Answer(kept(answer), asked),
        other => other,
    };
    told.into_iter().map(sort).collect()
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PATH);
    (folder, path)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_step_leads_to_the_last_bit(before in number(), after in number()) {
        let step = Step::between(before, after);
        prop_assert_eq!(step.from(before).to_bits(), after.to_bits());
    }

    #[test]
    fn what_is_read_is_what_was_recorded(answers in vec(answer(), 0..12)) {
        let (_folder, path) = file();
        record(&path, &answers);
        prop_assert_eq!(sorted(read(&fs::read(&path).unwrap()).unwrap()), expected(&answers));
    }

    #[test]
    fn with_bits_flipped_it_tells_nothing_that_was_not_recorded(
        answers in vec(answer(), 1..6), flips in vec(any::<(prop::sample::Index, u8)>(), 1..4)
    ) {
        let (_folder, path) = file();
        record(&path, &answers);
        let whole = fs::read(&path).unwrap();
        let all = read(&whole).unwrap();
        let mut bytes = whole.clone();
        for (place, bit) in flips {
            bytes[HEADER..][place.index(whole.len() - HEADER)] ^= 1 << (bit % 8);
        }
        let told = read(&bytes).unwrap();
        for event in &told {
            let complaint = matches!(event, Told::Unread | Told::Damage | Told::Torn);
            prop_assert!(complaint || all.contains(event), "{event:?}");
        }
        prop_assert!(bytes == whole || told != all);
        // A recorder goes on behind it, and keeps all that can be read.
        fs::write(&path, &bytes).unwrap();
        record(&path, &answers);
        let mut after = told;
        if after.last() == Some(&Told::Torn) {
            after.pop();
        }
        after.extend(all);
        prop_assert_eq!(read(&fs::read(&path).unwrap()).unwrap(), after);
    }

    #[test]
    fn bytes_that_nobody_recorded_are_no_reason_to_panic(bytes in vec(any::<u8>(), 0..300), kind in 0_u8..7) {
        // Behind a good header; and in a frame whose checksum is right.
        let _ = read(&[&header()[..], &bytes].concat()).unwrap();
        let frame = Frame::new(kind, 1.0, &bytes).unwrap();
        let _ = read(&[&header()[..], &frame.bytes()].concat()).unwrap();
    }
}

proptest! {
    // Each is a file for each of its bytes.
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn cut_off_anywhere_it_tells_what_came_before_and_is_recorded_onto(answers in vec(answer(), 1..4)) {
        let (_folder, path) = file();
        record(&path, &answers);
        let whole = fs::read(&path).unwrap();
        let all = read(&whole).unwrap();
        for length in 0..whole.len() {
            let mut told = read(&whole[..length]).unwrap();
            let torn = told.last() == Some(&Told::Torn);
            if torn {
                told.pop();
            }
            prop_assert!(told.len() < all.len());
            prop_assert_eq!(&told[..], &all[..told.len()], "{} bytes", length);

            fs::write(&path, &whole[..length]).unwrap();
            let (writer, before) = Writer::open(&path).unwrap();
            // Nothing but the torn end goes.
            prop_assert!(length as u64 - before.cut <= writer.length());
            prop_assert_eq!(before.cut > 0 && length >= HEADER, torn, "{} bytes", length);
            drop(writer);
            record(&path, &answers);
            told.extend(all.clone());
            prop_assert_eq!(&read(&fs::read(&path).unwrap()).unwrap(), &told, "{} bytes", length);
        }
    }
}

fn counter(total: f64) -> Answer {
    let values = Values::Counter { total, rate: 1.0, max: None };
    let series = Series {
        name: "a".into(),
        tags: Default::default(),
        rank: None,
        ranks: None,
        unit: None,
        values,
        since: None,
    };
    Answer { time: total, series: vec![series], ..Answer::default() }
}

#[test]
fn after_damage_it_goes_on_with_the_next_reset() {
    let (_folder, path) = file();
    let answers: Vec<_> = (0..250).map(|total| (counter(total.into()), None)).collect();
    record(&path, &answers);
    let mut bytes = fs::read(&path).unwrap();
    let mut pieces = Pieces::new(&bytes[HEADER..]);
    // The session, and fifty answers.
    for _ in 0..51 {
        assert!(matches!(pieces.next().unwrap(), Some(Piece::Frame(_))));
    }
    let at = pieces.position() as usize;
    bytes[at + 30] ^= 1;
    let told = read(&bytes).unwrap();
    let count = |what: fn(&Told) -> bool| told.iter().filter(|told| what(told)).count();
    assert_eq!(count(|told| matches!(told, Told::Damage)), 1);
    assert_eq!(count(|told| matches!(told, Told::Unread)), 49, "from the 52nd to the 100th");
    assert_eq!(count(|told| matches!(told, Told::Answer(..))), 200);
    assert!(matches!(&told[51..54], [Told::Damage, Told::Unread, Told::Unread]));
    assert_eq!(told[101], Told::Answer(counter(100.0), None));
}

#[test]
fn a_file_that_is_no_recording_is_left_alone() {
    let (_folder, path) = file();
    for content in [&b"#!/bin/sh\n"[..], b"x", b"\x89PNG\r\n\x1a\n and more of it"] {
        fs::write(&path, content).unwrap();
        let error = Writer::open(&path).unwrap_err().to_string();
        assert!(error.contains("is no recording of flux stats: it begins with"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
        assert!(matches!(read(content), Err(Error::Foreign { .. })));
    }
    for version in [1, 3] {
        let other = [&header()[..14], &[version, 0]].concat();
        fs::write(&path, &other).unwrap();
        assert!(
            matches!(Writer::open(&path), Err(Error::Version { found, .. }) if found == u16::from(version))
        );
        assert_eq!(fs::read(&path).unwrap(), other);
    }
    assert!(matches!(Writer::open(path.parent().unwrap()), Err(Error::NoFile { .. })));
}

#[test]
fn a_file_is_recorded_to_by_one() {
    let (_folder, path) = file();
    let (_writer, before) = Writer::open(&path).unwrap();
    assert_eq!((before.answers, before.cut), (0, 0));
    assert!(matches!(Writer::open(&path), Err(Error::Busy { .. })));
}

#[test]
fn a_file_that_is_removed_or_cut_meanwhile_is_noticed() {
    let (_folder, path) = file();
    let (mut writer, _) = Writer::open(&path).unwrap();
    writer.answer(counter(1.0)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(20).unwrap();
    assert!(matches!(writer.answer(counter(2.0)), Err(Error::Changed { found: 20, .. })));
    drop(writer);
    let (mut writer, _) = Writer::open(&path).unwrap();
    writer.answer(counter(1.0)).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(matches!(writer.answer(counter(2.0)), Err(Error::Gone { .. })));
}

#[test]
fn what_does_not_change_takes_next_to_no_room() {
    let (_folder, path) = file();
    let series = |row: u32, total: u32| Series {
        name: format!("modules.m{row}.work_s"),
        values: Values::Counter { total: f64::from(total) * 0.001_234_567, rate: 0.0, max: None },
        ..counter(0.0).series[0].clone()
    };
    let answer = |time: u32| {
        let series = (0..600).map(|row| series(row, if row < 100 { time * (row + 1) } else { 7 })).collect();
        Answer { time: time.into(), series, ..Answer::default() }
    };
    let answers: Vec<_> = (0..300).map(|time| (answer(time), None)).collect();
    record(&path, &answers);
    let each = fs::metadata(&path).unwrap().len() / 300;
    assert!(each < 800, "{each} bytes an answer, of which 100 series changed");
}

/// As somebody would who has this page alone: the description in `recording.rs`.
#[test]
fn a_file_is_what_its_description_says_byte_by_byte() {
    let page = include_str!("../recording.rs");
    // Offset and size of the row that goes on with `words`.
    let field = |words: &str| {
        let row = page.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}"));
        let mut cells = row.trim_start_matches("//!").split_whitespace();
        let offset: usize = cells.next().unwrap().parse().unwrap();
        (offset, cells.next().unwrap().parse::<usize>().ok(), cells.collect::<Vec<_>>())
    };
    let bytes_of = |cells: &[&str]| -> Vec<u8> {
        cells.iter().map_while(|cell| u8::from_str_radix(cell, 16).ok()).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PATH);
    record(&path, &[]);
    let file = fs::read(&path).unwrap();

    let (at, size, cells) = field("89 66 6C");
    assert_eq!(file[at..at + size.unwrap()], bytes_of(&cells)[..]);
    let (at, size, cells) = field("the format's version");
    let version: u16 = cells.last().unwrap().parse().unwrap();
    assert_eq!((&file[at..at + 2], size), (&version.to_le_bytes()[..], Some(2)));

    let frame = &file[at + 2..];
    let (at, size, cells) = field("F1 52 45 43");
    assert_eq!(frame[at..at + size.unwrap()], bytes_of(&cells)[..]);
    let (at, ..) = field("n, the length of the body");
    let n = u32::from_le_bytes(frame[at..at + 4].try_into().unwrap()) as usize;
    let (body, size, _) = field("the body: DEFLATE");
    assert_eq!(size, None);
    let (at, ..) = field("CRC-32 (IEEE) of bytes 4..8 and 12..21+n");
    let mut sum = crc32fast::Hasher::new();
    sum.update(&frame[4..8]);
    sum.update(&frame[12..21 + n]);
    assert_eq!(frame[at..at + 4], sum.finalize().to_le_bytes());
    let ((kind, ..), (when, size, _)) =
        (field("what the body is: 1 session"), field("when: seconds since 1970"));
    assert_eq!((frame[kind], size), (1, Some(8)));
    assert_eq!(f64::from_le_bytes(frame[when..when + 8].try_into().unwrap()), 1.0);
    let mut content = Vec::new();
    let mut inflated = flate2::read::DeflateDecoder::new(&frame[body..body + n]);
    std::io::Read::read_to_end(&mut inflated, &mut content).unwrap();
    assert_eq!(postcard::from_bytes::<Session>(&content).unwrap(), Session::default());
    // The next frame, the end, begins right behind it, and is the last.
    let end = &frame[body + n..];
    assert_eq!((&end[..4], end[kind]), (&frame[..4], 5));
}
