//! Brokers as a person sees them.

use super::{Broker, Thread};
use crate::show::{Align, duration, table};

const HEADER: [&str; 12] = [
    "MODULE", "TID", "STATE", "FOR", "TURN", "WAKEUPS", "WORK", "SLEEP", "BLOCKED", "P99 WORK", "LONGEST",
    "CPU",
];

/// A heading, a table, and who is blocked most.
pub(crate) fn broker(broker: &Broker) -> String {
    let columns: Vec<_> = HEADER
        .iter()
        .map(|&name| (name, if matches!(name, "MODULE" | "STATE") { Align::Left } else { Align::Right }))
        .collect();
    let rows = table(&columns, broker.threads.iter().map(row));
    format!("{}\n{rows}{}", heading(broker), most_blocked(broker))
}

fn most_blocked(broker: &Broker) -> String {
    let turns = broker.threads.iter().filter_map(|thread| Some((thread, thread.turns.as_ref()?)));
    let blocked = turns.filter_map(|(thread, turns)| Some((thread, turns, turns.blocked_s?)));
    match blocked.max_by(|a, b| a.2.total_cmp(&b.2)) {
        Some((thread, turns, blocked_s)) if blocked_s > 0.0 => format!(
            "most blocked: {}, {} in {} calls, the longest {}\n",
            thread.module,
            duration(blocked_s),
            turns.blocked_calls,
            duration(turns.longest_blocked_s)
        ),
        _ => String::new(),
    }
}

fn heading(broker: &Broker) -> String {
    let mut parts = vec![format!("pid {}", broker.pid)];
    if broker.stopped {
        parts.push("STOPPED".to_owned());
    }
    match &broker.probe {
        None => parts.push("no probe: CPU time alone is known".to_owned()),
        Some(probe) => {
            if !probe.active {
                parts.push("its probe has been stopped".to_owned());
            }
            if !probe.blocked_available {
                parts.push("blocked cannot be told from sleep".to_owned());
            }
            if let Some(looked_s) = probe.looked_s {
                parts.push(format!("last looked at itself {} ago", duration(looked_s)));
            }
            if probe.overflow > 0 {
                parts.push(format!("{} threads are not timed", probe.overflow));
            }
        }
    }
    let name = broker.rank.map_or("broker".to_owned(), |rank| format!("rank {rank}"));
    format!("{name}: {}", parts.join(", "))
}

fn row(thread: &Thread) -> Vec<String> {
    let dash = || "-".to_owned();
    let time = |seconds: Option<f64>| seconds.map_or_else(dash, duration);
    let turns = thread.turns.as_ref();
    let wall = turns.map_or(0.0, |t| t.work_s + t.sleep_s + t.blocked_s.unwrap_or(0.0));
    let share = |part: Option<f64>| match part {
        Some(part) if wall > 0.0 => format!("{:.2}%", 100.0 * part / wall),
        _ => dash(),
    };
    let mark = if thread.torn { "?" } else { "" };
    let kind = if thread.pid.is_some() { " (process)" } else { "" };
    vec![
        format!("{}{kind}", thread.module),
        thread.tid.to_string(),
        format!("{}{mark}", thread.state),
        time(thread.state_s),
        time(thread.turn_s),
        turns.map_or_else(dash, |t| t.wakeups.to_string()),
        share(turns.map(|t| t.work_s)),
        share(turns.map(|t| t.sleep_s)),
        share(turns.and_then(|t| t.blocked_s)),
        time(turns.and_then(|t| t.work_p99_s)),
        time(turns.map(|t| t.longest_work_s)),
        time(thread.cpu_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peek::{ProbeState, Turns};

    #[test]
    fn a_broker_is_a_heading_and_a_row_for_each_thread() {
        let idle = |module: &str, pid, tid| Thread {
            module: module.into(),
            pid,
            tid,
            state: "waits",
            state_s: None,
            turn_s: None,
            turns: None,
            cpu_s: Some(0.25),
            torn: false,
        };
        let turns = Turns {
            wakeups: 1200,
            work_s: 25.0,
            sleep_s: 74.0,
            blocked_s: Some(1.0),
            blocked_calls: 3,
            longest_blocked_s: 0.5,
            work_p50_s: Some(12e-6),
            work_p99_s: Some(0.002),
            longest_work_s: 20.5,
        };
        let working = Thread {
            state: "working",
            state_s: Some(12.3),
            turn_s: Some(20.5),
            turns: Some(turns),
            ..idle("resource-status-x", None, 103)
        };
        let shown = Broker {
            rank: Some(5),
            pid: 100,
            stopped: true,
            probe: Some(ProbeState {
                active: true,
                blocked_available: true,
                looked_s: Some(3.2),
                overflow: 0,
            }),
            threads: vec![working, idle("sched-simple", Some(200), 200), idle("ZMQbg/IO/0", None, 101)],
        };
        insta::assert_snapshot!(broker(&shown), @r"
        rank 5: pid 100, STOPPED, last looked at itself 3.20s ago
        MODULE                  TID  STATE      FOR   TURN  WAKEUPS    WORK   SLEEP  BLOCKED  P99 WORK  LONGEST    CPU
        resource-status-x       103  working  12.3s  20.5s     1200  25.00%  74.00%    1.00%    2.00ms    20.5s  250ms
        sched-simple (process)  200  waits        -      -        -       -       -        -         -        -  250ms
        ZMQbg/IO/0              101  waits        -      -        -       -       -        -         -        -  250ms
        most blocked: resource-status-x, 1.00s in 3 calls, the longest 500ms
        ");
    }
}
