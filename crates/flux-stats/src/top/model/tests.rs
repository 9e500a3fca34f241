use super::*;
use crate::top::sample;

fn model() -> Model {
    let mut model = Model::new(Column::Work, "", 0.0);
    model.take_past(&sample::past());
    model.take(&sample::answer());
    model
}

fn names(model: &Model) -> Vec<String> {
    model.lines().into_iter().map(|line| line.name).collect()
}

fn selected(model: &Model) -> Option<(usize, String)> {
    let lines = model.lines();
    model.place(&lines).map(|place| (place, lines[place].name.clone()))
}

fn types(model: &mut Model, text: &str) {
    for c in text.chars() {
        model.act(Action::Type(c));
    }
}

/// The sample, later, with another module at the top.
fn later() -> Answer {
    let mut answer = sample::answer();
    answer.time += 2.0;
    for series in &mut answer.series {
        if let ("modules.heartbeat.work_s", Values::Counter { rate, .. }) =
            (&*series.name, &mut series.values)
        {
            *rate = 9.0;
        }
    }
    answer
}

#[test]
fn the_selected_line_stays_selected_when_the_order_changes() {
    let mut model = model();
    assert_eq!(selected(&model), None);
    model.act(Action::Down);
    assert_eq!(selected(&model), Some((0, "content".into())), "the first key shows where one is");
    model.act(Action::Down);
    assert_eq!(selected(&model), Some((1, "kvs".into())));
    model.take(&later());
    assert_eq!(selected(&model), Some((2, "kvs".into())));
    model.act(Action::Reverse);
    assert_eq!(selected(&model).unwrap().1, "kvs");
    model.act(Action::Sort(Column::Name));
    assert_eq!(selected(&model).unwrap().1, "kvs");
    model.act(Action::Last);
    let last = names(&model).pop();
    assert_eq!(selected(&model).map(|(_, name)| name), last);
    model.act(Action::PageDown);
    assert_eq!(selected(&model).map(|(_, name)| name), last, "there is nothing below");
    model.act(Action::Back);
    assert_eq!(selected(&model), None);
}

#[test]
fn sorting_by_the_same_column_again_turns_the_order_round() {
    let mut model = model();
    let by_work = names(&model);
    model.act(Action::Sort(Column::Work));
    let mut reversed = by_work.clone();
    reversed.reverse();
    assert_eq!(names(&model), reversed);
    model.act(Action::SortBeside { right: true });
    assert_eq!(model.screen().order.column, Column::Max);
    model.act(Action::SortBeside { right: false });
    model.act(Action::SortBeside { right: false });
    model.act(Action::SortBeside { right: false });
    assert_eq!(model.screen().order.column, Column::Name);
    // From the first it goes on at the last that can be sorted by, which is not the sparkline.
    model.act(Action::SortBeside { right: false });
    assert_eq!(model.screen().order.column, Column::Recvq);
}

#[test]
fn a_filter_works_while_it_is_typed_and_can_be_taken_back() {
    let mut model = model();
    let all = names(&model).len();
    model.act(Action::Filter);
    types(&mut model, "kvsx");
    assert_eq!(names(&model), [] as [&str; 0]);
    model.act(Action::Rub);
    assert_eq!(names(&model), ["kvs", "kvs-watch"]);
    model.act(Action::Abandon);
    assert_eq!(names(&model).len(), all);
    model.act(Action::Filter);
    types(&mut model, "kvs");
    model.act(Action::Accept);
    assert_eq!((names(&model).len(), model.typing.is_none()), (2, true));
    model.act(Action::Back);
    assert_eq!(names(&model).len(), all);
}

#[test]
fn a_picture_that_is_held_changes_only_when_it_goes_on() {
    let mut model = model();
    model.act(Action::Hold);
    let before = names(&model);
    model.take(&later());
    assert_eq!((names(&model), model.whole().unwrap().time), (before, sample::TIME));
    model.act(Action::Hold);
    assert_eq!((names(&model)[1].as_str(), model.whole().unwrap().time), ("content", sample::TIME + 2.0));
    // What came meanwhile is in the sparkline.
    let past = &model.screen().pasts[&Key::Module("heartbeat".into())];
    assert_eq!(
        past.recent(sample::TIME + 2.0, 60.0).map(|(_, rate)| rate).collect::<Vec<_>>(),
        [0.01, 900.0]
    );
}

#[test]
fn one_goes_from_a_module_to_its_ranks_to_a_rank_and_back() {
    let mut model = model();
    assert_eq!(model.wanted(), None, "all modules are in the overview");
    model.act(Action::Down);
    model.act(Action::Down);
    model.act(Action::Open);
    let ranks = Subject::Ranks("kvs".into());
    assert_eq!(model.wanted(), Some(Wanted { subject: ranks.clone(), charted: None }));
    assert_eq!(names(&model), [] as [&str; 0]);
    model.take_detail(&ranks, sample::by_rank(), None);
    assert_eq!(names(&model), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(model.lines()[3].host, "node04");
    model.act(Action::First);
    model.act(Action::Down);
    model.act(Action::Open);
    assert_eq!(model.screen().subject, Subject::Rank(1));
    // An answer that comes too late is of no use to another screen.
    model.take_detail(&ranks, sample::by_rank(), None);
    assert!(model.lines().is_empty());
    model.take_detail(&Subject::Rank(1), sample::of_rank(1), None);
    assert_eq!(selected(&model).unwrap().1, "kvs", "the module that one came from");
    model.act(Action::Open);
    let series = Subject::Series { pattern: "modules.kvs.**".into(), rank: Some(1) };
    assert_eq!(model.screen().subject, series);
    for _ in 0..3 {
        model.act(Action::Back);
    }
    assert_eq!((&model.screen().subject, selected(&model).unwrap().1.as_str()), (&Subject::Modules, "kvs"));
}

#[test]
fn the_history_of_the_selected_series_is_asked_for_where_there_is_one() {
    let mut model = model();
    model.act(Action::Pattern);
    types(&mut model, " modules.kvs.** ");
    model.act(Action::Accept);
    let subject = Subject::Series { pattern: "modules.kvs.**".into(), rank: None };
    assert_eq!(model.wanted().unwrap().charted, None);
    model.take_detail(&subject, sample::series(), None);
    assert_eq!(model.wanted().unwrap().charted.as_deref(), Some("modules.kvs.blocked_s"), "the first");
    model.act(Action::Last);
    assert_eq!(model.wanted().unwrap().charted.as_deref(), Some("modules.kvs.work_s"));
    model.take_detail(&subject, sample::series(), Some(sample::past()));
    let charted = Key::Series("modules.kvs.work_s".into());
    assert_eq!(model.screen().chart(&charted).unwrap().recent(sample::TIME, 600.0).count(), 150);
    // What was heard here stands in until the history comes.
    model.act(Action::Sort(Column::Name));
    let sendq = Key::Series("modules.kvs.sendq".into());
    while selected(&model).unwrap().1 != "sendq" {
        model.act(Action::Down);
    }
    assert_eq!(model.wanted().unwrap().charted.as_deref(), Some("modules.kvs.sendq"));
    assert_eq!(model.screen().chart(&sendq).unwrap().recent(sample::TIME, 600.0).count(), 1);
}

#[test]
fn silence_is_told_and_the_next_answer_ends_it() {
    let mut model = model();
    model.tick(4.0);
    assert_eq!(model.silent_s(), None);
    model.tick(6.5);
    assert_eq!(model.silent_s(), Some(6.5), "three periods");
    model.lose("gone".into());
    model.tick(7.0);
    model.take(&later());
    assert_eq!((model.silent_s(), &model.link.lost), (None, &None));
    model.lose("gone".into());
    assert_eq!(model.silent_s(), Some(0.0), "a lost connection is told at once");
    let mut slow = Model::new(Column::Work, "", 60.0);
    slow.take(&sample::answer());
    slow.tick(179.0);
    assert_eq!(slow.silent_s(), None, "nor is it said when answers are wanted but once a minute");
}

#[test]
fn screens_do_not_pile_up_without_bound() {
    let mut model = model();
    for _ in 0..1000 {
        model.act(Action::Pattern);
        types(&mut model, "jobs.*");
        model.act(Action::Accept);
    }
    assert_eq!(model.path().count(), SCREENS_MAX);
}
