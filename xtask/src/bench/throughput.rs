//! What the module costs the jobs of an instance.

use super::Options;
use anyhow::{Context, Result};
use flux_testbed::{Backend, Instance, Options as InstanceOptions, Profile};
use std::time::Instant;

/// Jobs a second with the module, all defaults, against without, and the CPU time of all brokers for a job: in pairs,
/// since the machine's speed drifts. CPU time is the steadier of the two, and the one that the module could add to.
///
/// As in flux-core's own throughput test no job is really executed: then the brokers are what limits it, and not the
/// starting of processes.
pub(super) fn throughput(backend: Backend, options: &Options) -> Result<()> {
    let Backend::Real(_) = &backend else { return Ok(()) };
    let options_of = InstanceOptions { size: 4, profile: Profile::Release, ..InstanceOptions::new(backend) };
    let instance = Instance::start(options_of)?;
    compare(&instance, options, |with, run| {
        match run {
            _ if !with => {}
            Run::Begins => instance.load(0..4, "stats-agg", &[])?,
            Run::Ends => instance.remove(0..4, "stats-agg")?,
        }
        Ok(())
    })?;
    instance.stop()?;
    Ok(())
}

/// When something is to be done.
pub(super) enum Run {
    Begins,
    Ends,
}

/// Runs in pairs, of which one is with what `around` does when it is told `true`.
pub(super) fn compare(
    instance: &Instance,
    options: &Options,
    mut around: impl FnMut(bool, Run) -> Result<()>,
) -> Result<()> {
    let Backend::Real(flux) = instance.backend() else { return Ok(()) };
    let flux = flux.to_string_lossy().into_owned();
    let jobs = f64::from(options.jobs);
    // Jobs a second, and seconds of CPU a job.
    let run = || -> Result<[f64; 2]> {
        let (start, before) = (Instant::now(), broker_cpu_s(instance)?);
        let (copies, executed) =
            (format!("--cc=1-{}", options.jobs), "--setattr=system.exec.test.run_duration=0.001s");
        instance.run(0, &flux, &["submit", "--quiet", "--wait", &copies, executed, "true"])?;
        Ok([jobs / start.elapsed().as_secs_f64(), (broker_cpu_s(instance)? - before) / jobs])
    };
    run()?;
    let mut ratios = [Vec::new(), Vec::new()];
    for pair in 0..options.pairs {
        // Which goes first alternates, so that what the first run leaves behind favours neither.
        let mut runs = [[0.0; 2]; 2];
        for with in [pair % 2 == 0, pair % 2 == 1] {
            // Brokers slow down with the jobs that they remember.
            instance.forget_jobs()?;
            around(with, Run::Begins)?;
            runs[usize::from(with)] = run()?;
            around(with, Run::Ends)?;
        }
        let [without, with] = runs;
        println!(
            "jobs/s: {:.1} with, {:.1} without; brokers' CPU a job: {:.2} ms with, {:.2} ms without",
            with[0],
            without[0],
            with[1] * 1e3,
            without[1] * 1e3
        );
        for (ratios, (with, without)) in ratios.iter_mut().zip(with.into_iter().zip(without)) {
            ratios.push(with / without);
        }
    }
    let [rates, cpu] = ratios;
    let (pairs, jobs) = (rates.len(), options.jobs);
    let rate = median(rates)?;
    println!("job throughput with / without: {rate} of {pairs} pairs of {jobs} jobs; target >= 0.99");
    let cpu = median(cpu)?;
    println!("CPU of the brokers for a job, with / without: {cpu}");
    Ok(())
}

/// The CPU time of all brokers so far.
fn broker_cpu_s(instance: &Instance) -> Result<f64> {
    (0..instance.size()).map(|rank| cpu_s(instance.broker_pid(rank)?)).sum()
}

/// A process's CPU time, all threads, those that have ended included.
fn cpu_s(pid: u32) -> Result<f64> {
    // A tick is a hundredth of a second for whoever reads it from /proc (`USER_HZ`).
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name in parentheses: the state, which is the third field; utime and stime are 14 and 15.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| -> Result<f64> { Ok(fields.get(at).context("a short /proc/PID/stat")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / TICKS)
}

/// The median, and the 95 % interval around it.
pub(super) fn median(mut ratios: Vec<f64>) -> Result<String> {
    ratios.sort_by(f64::total_cmp);
    let middle = |at: usize| ratios.get(at).context("no pairs");
    let median = (middle(ratios.len() / 2)? + middle((ratios.len().max(1) - 1) / 2)?) / 2.0;
    let outside = outside_of_median(ratios.len());
    let (low, high) = (ratios[outside], ratios[ratios.len() - 1 - outside]);
    Ok(format!("median {median:.3} (95 %: {low:.3} to {high:.3})"))
}

/// How many of `n` ordered values at each end are outside the 95 % interval of their median, whatever they are
/// distributed like: the most for which a fair coin shows that few heads in `n` throws with a chance below 2.5 %.
fn outside_of_median(n: usize) -> usize {
    let mut chance = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let (mut sum, mut few) = (chance, 0);
    while sum < 0.025 && few < n {
        few += 1;
        chance *= (n - few + 1) as f64 / few as f64;
        sum += chance;
    }
    few.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::outside_of_median;

    #[test]
    fn the_interval_of_a_median_is_as_in_tables_of_the_sign_test() {
        assert_eq!([5, 6, 9, 10, 20].map(outside_of_median), [0, 0, 1, 1, 5]);
    }
}
