//! What exporters to sinks that do not behave cost the jobs of an instance, and the reactor of rank 0.

use super::Options;
use super::throughput::{Run, compare, median};
use anyhow::{Context, Result};
use flux_testbed::{Backend, Instance, Options as InstanceOptions, Profile};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Modules in use do not end while the benchmark runs.
const LONG: Duration = Duration::from_secs(3600);

/// Jobs a second with the module and every sink that does not behave, against with the module alone; and the longest turn
/// of the service's reactor at rank 0 after its load, and the processors' time that its threads there take, in both. The
/// last is the steadiest: what of the throughput it does not explain, the machine does.
pub(super) fn exporters(backend: Backend, options: &Options) -> Result<()> {
    let Backend::Real(_) = &backend else { return Ok(()) };
    let profile = if options.debug { Profile::Debug } else { Profile::Release };
    let instance = Instance::start(InstanceOptions { size: 4, profile, ..InstanceOptions::new(backend) })?;
    let dead = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let never_reads = server(|stream| {
        thread::sleep(LONG);
        drop(stream);
    })?;
    let closes = server(|mut stream| drop(stream.read(&mut [0; 100])))?;
    let silent = server(|mut stream| while stream.read(&mut [0; 65536]).is_ok_and(|length| length > 0) {})?;
    let failing = server(|mut stream| {
        while stream.read(&mut [0; 65536]).is_ok_and(|length| length > 0) {
            let _ = stream.write_all(
                b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    })?;
    let scraped = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let exports = [
        format!("graphite,target=127.0.0.1:{dead},period=1s,name=dead"),
        format!("graphite,target=127.0.0.1:{never_reads},period=1s,name=never-reads"),
        format!("graphite-pickle,target=127.0.0.1:{closes},period=1s,name=closes"),
        format!("otlp,target=http://127.0.0.1:{silent},period=1s,name=silent"),
        format!("influx,target=http://127.0.0.1:{failing}/write?db=a,period=1s,name=failing"),
        "graphite,target=no-such-host.invalid:2003,period=1s,name=nowhere".to_owned(),
        format!("statsd,target=127.0.0.1:{dead},period=1s,name=no-statsd"),
        format!("prometheus,listen=127.0.0.1:{scraped}"),
    ]
    .map(|export| format!("export={export}"));
    // A scraper that is well, and one that never reads.
    thread::spawn(move || {
        loop {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", scraped)) {
                let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
                let _ = stream.read_to_end(&mut Vec::new());
            }
            let deaf = TcpStream::connect(("127.0.0.1", scraped));
            let _ = deaf.as_ref().map(|mut deaf| deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n"));
            thread::sleep(Duration::from_secs(1));
        }
    });
    let mut longest = [Vec::new(), Vec::new()];
    let mut shares = [Vec::new(), Vec::new()];
    let pid = instance.broker_pid(0)?;
    let processors = thread::available_parallelism()?.get() as f64;
    let mut begun = (Instant::now(), 0.0);
    compare(&instance, options, |which, run| {
        match run {
            Run::Begins => {
                let exports: Vec<&str> = exports.iter().filter(|_| which).map(String::as_str).collect();
                instance.load(0..4, "stats-agg", &exports)?;
                // The load is a long turn of its own, and no exporter's.
                thread::sleep(Duration::from_secs(1));
                instance.rpc(0, "stats-agg.stats-clear", json!({}))?;
                begun = (Instant::now(), threads_cpu_s(pid)?);
            }
            Run::Ends => {
                let ask =
                    json!({ "match": ["modules.stats-agg.longest_work_s"], "by": "rank", "ranks": "0" });
                let answer = instance.rpc(0, "stats-agg.query", ask)?;
                let turn = answer["series"][0]["max"]["value"].as_f64().context("no longest turn")?;
                longest[usize::from(which)].push(turn * 1e3);
                let share = (threads_cpu_s(pid)? - begun.1) / begun.0.elapsed().as_secs_f64() / processors;
                shares[usize::from(which)].push(share * 100.0);
                instance.remove(0..4, "stats-agg")?;
            }
        }
        Ok(())
    })?;
    for (which, what) in ["without exporters", "with exporters"].into_iter().enumerate() {
        let (turn, share) =
            (median(std::mem::take(&mut longest[which]))?, median(std::mem::take(&mut shares[which]))?);
        println!("rank 0 {what}, ms of the reactor's longest turn: {turn}");
        println!("rank 0 {what}, % of all processors in its threads: {share}");
    }
    instance.stop()?;
    Ok(())
}

fn server(serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    Ok(port)
}

/// The CPU time of the module's threads in a broker so far.
fn threads_cpu_s(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let folder = thread?.path();
        let file = |name: &str| std::fs::read_to_string(folder.join(name));
        // One that ended meanwhile is none of the module's.
        let (Ok(name), Ok(times)) = (file("comm"), file("schedstat")) else { continue };
        if ["stats-agg", "stats-export"].contains(&name.trim_end()) {
            sum += times.split(' ').next().context("an empty schedstat")?.parse::<f64>()? / 1e9;
        }
    }
    Ok(sum)
}
