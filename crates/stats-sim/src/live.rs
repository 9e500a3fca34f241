//! Synthetic ranks that send their batches to rank 0 of a real instance: what a flat instance of thousands of ranks
//! costs its root, as the root's own stats-agg measures it.

mod cost;
mod ranks;

use crate::arguments::{Arguments, Live};
use anyhow::{Context, Result, bail};
use cost::Cost;
use flux::Client;
use ranks::Ranks;
use std::time::Duration;

/// How many ranks join each second: modules of a large instance are not loaded at one moment.
const JOINING: u32 = 1_500;
/// The instance is measured alone for so many periods of its own.
const ALONE_PERIODS: u32 = 5;
/// Back-pressure has settled when the period that it grants has stayed for so many periods of the root; and if it does
/// not settle, so many are waited.
const SETTLED_PERIODS: u32 = 5;
const SETTLING_PERIODS: u32 = 90;

/// Plays the ranks, and says what they cost. False: what was pushed is not what the root has.
pub(crate) fn run(arguments: &Arguments, live: &Live) -> Result<bool> {
    let client = Client::open(live.uri.as_deref())?;
    let (via, size) = (client.rank()?, client.size()?);
    if via == 0 {
        println!(
            "connected to rank 0: what arrives does not pass the overlay (connect to another rank to see that)"
        );
    }
    let cost = |of: &str| {
        Cost::of_root(&client, &live.name).with_context(|| format!("asking what the root cost {of}"))
    };
    let idle = cost("alone")?;
    std::thread::sleep(arguments.period * ALONE_PERIODS);
    let begin = cost("alone")?;
    let alone = begin.since(&idle);
    println!("rank 0 alone: {alone}");

    let mut ranks = Ranks::new(&client, live, size, arguments.period);
    let joining = Duration::from_secs_f64(f64::from(live.flux) / f64::from(JOINING));
    ranks.join(joining)?;
    ranks.play(arguments.period)?;
    taken(&ranks)?;
    settle(&mut ranks, arguments.period)?;
    let (begin, sent) = (cost("with the synthetic ranks")?, ranks.begin_measuring());
    ranks.play(whole_periods(Duration::from_secs(live.seconds), ranks.period()))?;
    let (end, sent) = (cost("with the synthetic ranks")?, ranks.sent().since(&sent));
    let spent = end.since(&begin);
    println!(
        "{} synthetic ranks ({size}-{}) of {} series, {} of them changing, through rank {via}, for {:.1} s",
        live.flux,
        size + live.flux - 1,
        live.series(),
        live.changing(),
        sent.took_s
    );
    println!("{sent}");
    println!("rank 0 with them: {spent}");
    let share = spent.percent_of(&live.name);
    let more = spent.percent_of("broker") - alone.percent_of("broker");
    println!(
        "flat root of {} ranks: stats-agg thread {share:.1} % of a core (target <= 5 %: x {:.2}), broker's loop {more:.1} % \
         more (target <= 5 %: x {:.2}), overlay and connector {:.1} % more, at a period of {:.1} s that rank 0 grants; {:.0} ns of stats-agg a value",
        live.flux,
        share / 5.0,
        more / 5.0,
        spent.percent_of_overlay() - alone.percent_of_overlay(),
        ranks.period().as_secs_f64(),
        spent.seconds_of(&live.name) * 1e9 / sent.values.max(1) as f64,
    );

    ranks.leave()?;
    let (pushed, total) = (ranks.pushed(), end.synthetic_total(&client, &live.name)?);
    let arrived = total - idle.synthetic;
    taken(&ranks)?;
    println!("pushed {pushed}, arrived {arrived}: {}", if pushed == arrived { "equal" } else { "NOT EQUAL" });
    Ok(pushed == arrived)
}

/// At least so long, and as often as needed: in a part of a period more may be sent than in another.
fn whole_periods(least: Duration, period: Duration) -> Duration {
    period.mul_f64((least.as_secs_f64() / period.as_secs_f64()).ceil())
}

fn taken(ranks: &Ranks<'_>) -> Result<()> {
    if ranks.refused() > 0 {
        bail!("{} batches were refused: {}", ranks.refused(), ranks.first_refusal());
    }
    Ok(())
}

/// Lets time pass until back-pressure asks for no other period than before.
fn settle(ranks: &mut Ranks<'_>, period: Duration) -> Result<()> {
    let (mut stayed, mut before) = (Duration::ZERO, ranks.period());
    for _ in 0..SETTLING_PERIODS {
        ranks.play(period)?;
        let now = ranks.period();
        stayed = if now == before { stayed + period } else { Duration::ZERO };
        before = now;
        if stayed >= now.max(period * SETTLED_PERIODS) {
            break;
        }
    }
    Ok(())
}
