//! Questions: by rank, by subtree, over time, as streams; and what is refused.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::{coverage, eventually, facts, query};

const LIMIT: Duration = Duration::from_secs(30);

facts! {
    an_answer_by_rank_adds_up_to_the_whole,
    a_rank_that_does_not_answer_is_named,
    ranks_that_cannot_be_asked_are_named_at_once,
    a_streaming_request_for_one_answer_ends_with_it,
    recent_periods_are_remembered,
    a_stream_is_fed_each_period_and_ends_with_its_client,
    a_wrong_question_is_refused_with_what_is_allowed,
}

/// Six ranks with the module, covered.
fn instance(backend: Backend) -> Instance {
    let instance = Instance::start(Options { size: 6, ..Options::new(backend) }).unwrap();
    instance.load(0..6, "stats-agg", &["period=0.5s"]).unwrap();
    eventually("all ranks", LIMIT, || coverage(&query(&instance, &["none"])), |ranks| ranks.0 == "0-5");
    instance
}

fn end(instance: Instance) {
    instance.remove(0..6, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn ask(instance: &Instance, rank: u32, question: Value) -> Value {
    instance.rpc(rank, "stats-agg.query", question).unwrap()
}

/// The sum of totals, by rank.
fn by_rank(answer: &Value) -> BTreeMap<u64, f64> {
    let mut ranks = BTreeMap::new();
    for series in answer["series"].as_array().unwrap() {
        *ranks.entry(series["rank"].as_u64().unwrap()).or_default() += series["total"].as_f64().unwrap();
    }
    ranks
}

fn an_answer_by_rank_adds_up_to_the_whole(backend: Backend) {
    let instance = instance(backend);
    let pattern = "modules.loadgen.wakeups";
    instance.load(1..6, "loadgen", &["rate=50"]).unwrap();
    let whole =
        || ask(&instance, 0, json!({ "match": [pattern] }))["series"][0]["total"].as_f64().unwrap_or(0.0);
    eventually("some load", LIMIT, whole, |&total| total > 200.0);
    instance.remove(1..6, "loadgen").unwrap();
    // Nothing is added any more, once all has arrived.
    let mut last = -1.0;
    let settled = || {
        let now = whole();
        (now, std::mem::replace(&mut last, now))
    };
    let (total, _) = eventually(
        "the end of it",
        LIMIT,
        {
            let mut settled = settled;
            move || {
                std::thread::sleep(Duration::from_secs(2));
                settled()
            }
        },
        |(now, before)| now == before,
    );

    let answer = ask(&instance, 0, json!({ "match": [pattern], "by": "rank" }));
    let ranks = by_rank(&answer);
    assert_eq!(ranks.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5], "of {total}: {answer}");
    assert_eq!(ranks.values().sum::<f64>(), total);
    let some = by_rank(&ask(&instance, 0, json!({ "match": [pattern], "by": "rank", "ranks": "2,4" })));
    assert_eq!(
        some,
        ranks.iter().filter(|(rank, _)| [2, 4].contains(*rank)).map(|(&r, &t)| (r, t)).collect()
    );

    let answer = ask(&instance, 0, json!({ "match": [pattern], "by": "subtree" }));
    let subtrees = by_rank(&answer);
    assert_eq!(
        subtrees,
        BTreeMap::from([(1, ranks[&1] + ranks[&3] + ranks[&4]), (2, ranks[&2] + ranks[&5])])
    );
    let told: Vec<&str> =
        answer["series"].as_array().unwrap().iter().map(|series| series["ranks"].as_str().unwrap()).collect();
    assert_eq!(told, ["1,3-4", "2,5"]);
    // An interior rank answers for its own subtree.
    let below = by_rank(&ask(&instance, 1, json!({ "match": [pattern], "by": "rank" })));
    assert_eq!(below.keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
    end(instance);
}

fn a_rank_that_does_not_answer_is_named(backend: Backend) {
    let instance = instance(backend);
    let whole = || ask(&instance, 0, json!({ "match": ["modules.stats-agg.wakeups"], "by": "rank" }));
    eventually("series of all ranks", LIMIT, whole, |answer| by_rank(answer).len() == 6);
    let pid = instance.broker_pid(5).unwrap().to_string();
    let signal =
        |name: &str| drop(instance.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", name, &pid]).unwrap());
    signal("STOP");
    let answer = whole();
    assert_eq!(answer["unanswered"], "5");
    assert_eq!(by_rank(&answer).len(), 5);
    signal("CONT");
    eventually("rank 5 again", LIMIT, whole, |answer| {
        answer["unanswered"] == "" && by_rank(answer).len() == 6
    });
    // Of ranks that do not exist or are not covered, nobody is asked.
    let answer = ask(&instance, 0, json!({ "match": ["none"], "by": "rank", "ranks": "3,77" }));
    assert_eq!(answer["unanswered"], "77");
    end(instance);
}

fn ranks_that_cannot_be_asked_are_named_at_once(backend: Backend) {
    let instance = instance(backend);
    instance.remove([5], "stats-agg").unwrap();
    for (ranks, unanswered) in [("5", "5"), ("", ""), ("5,77", "5,77")] {
        let answer = ask(&instance, 0, json!({ "by": "rank", "ranks": ranks }));
        assert_eq!((&answer["unanswered"], &answer["series"]), (&unanswered.into(), &json!([])));
    }
    instance.load([5], "stats-agg", &["period=0.5s"]).unwrap();
    end(instance);
}

fn a_streaming_request_for_one_answer_ends_with_it(backend: Backend) {
    let instance = instance(backend);
    let question = json!({ "match": ["modules.stats-agg.wakeups"] });
    // Two are waited for, or the end.
    assert_eq!(instance.stream(0, "stats-agg.query", &question, 2).unwrap().len(), 1);
    end(instance);
}

fn recent_periods_are_remembered(backend: Backend) {
    let instance = instance(backend);
    // Ten minutes of history with this period are kept in slots of two seconds.
    instance.load([3], "loadgen", &["rate=40"]).unwrap();
    let question = json!({ "match": ["modules.loadgen.wakeups"], "since": 8.0 });
    let recent = || ask(&instance, 0, question.clone())["series"][0]["since"].clone();
    let near = |since: &Value| since["rate"].as_f64().is_some_and(|rate| (rate - 40.0).abs() < 2.0);
    let since = eventually("eight seconds of it", LIMIT, recent, near);
    let points: Vec<f64> =
        since["points"].as_array().unwrap().iter().map(|point| point.as_f64().unwrap()).collect();
    assert!((3..=5).contains(&points.len()), "{since}");
    let seconds = since["seconds"].as_f64().unwrap();
    assert!((6.0..=10.5).contains(&seconds), "{since}");
    let mean = points.iter().sum::<f64>() / points.len() as f64;
    assert!((mean - since["total"].as_f64().unwrap() / seconds).abs() < 5.0, "{since}");
    // A gauge of all ranks: their sum, and the greatest of one.
    let question = json!({ "match": ["modules.broker.source.*"], "since": 8.0 });
    let recent = || ask(&instance, 0, question.clone())["series"][0]["since"].clone();
    let last =
        |since: &Value| ["points", "max"].map(|of| since[of].as_array().unwrap().last().unwrap().as_f64());
    let all = [Some(f64::from(instance.size())), Some(1.0)];
    eventually("a sum over all ranks", LIMIT, recent, |since| last(since) == all);
    instance.remove([3], "loadgen").unwrap();
    end(instance);
}

fn a_stream_is_fed_each_period_and_ends_with_its_client(backend: Backend) {
    let instance = instance(backend);
    let question = json!({ "match": ["modules.stats-agg.wakeups"], "stream": true });
    let answers = instance.stream(0, "stats-agg.query", &question, 4).unwrap();
    let totals: Vec<f64> =
        answers.iter().map(|answer| answer["series"][0]["total"].as_f64().unwrap()).collect();
    assert_eq!(totals.len(), 4);
    assert!(totals.is_sorted() && totals[0] < totals[3], "{totals:?}");
    // Its client is gone, and so is the stream.
    let open = || ask(&instance, 0, json!({ "match": ["stats-agg.streams"] }))["series"][0]["sum"].clone();
    eventually("no stream", LIMIT, open, |open| open == 0);
    let error = instance.rpc(0, "stats-agg.query", question).unwrap_err().to_string();
    assert!(error.contains("stream: the request must be a streaming one"), "{error}");
    end(instance);
}

fn a_wrong_question_is_refused_with_what_is_allowed(backend: Backend) {
    let instance = instance(backend);
    for (question, said) in [
        (json!({ "mach": ["a"] }), "mach: unknown key; allowed: match, by, ranks, since, stream"),
        (json!({ "match": ["["] }), "match: \"[\": [ without ]"),
        (json!({ "by": "host" }), "by: expected \"none\", \"rank\" or \"subtree\", got \"host\""),
        (json!({ "ranks": "0-1" }), "ranks: only with \"by\":\"rank\""),
    ] {
        let error = instance.rpc(0, "stats-agg.query", question).unwrap_err();
        assert_eq!(error.errnum(), Some(22));
        assert!(error.to_string().contains(said), "{error}");
    }
    end(instance);
}
