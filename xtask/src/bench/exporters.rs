//! What exporters to sinks that do not behave cost the jobs of an instance, and the reactor of rank 0.

use super::Options;
use super::throughput::{Run, compare};
use anyhow::{Context, Result};
use flux_testbed::{Backend, Instance, Options as InstanceOptions, Profile};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Modules in use do not end while the benchmark runs.
const LONG: Duration = Duration::from_secs(3600);

/// Jobs a second with the module and every sink that does not behave, against with the module alone; and the longest turn
/// of the service's reactor at rank 0 after its load in both.
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
    compare(&instance, options, |which, run| {
        match run {
            Run::Begins => {
                let exports: Vec<&str> = exports.iter().filter(|_| which).map(String::as_str).collect();
                instance.load(0..4, "stats-agg", &exports)?;
                // The load is a long turn of its own, and no exporter's.
                thread::sleep(Duration::from_secs(1));
                instance.rpc(0, "stats-agg.stats-clear", json!({}))?;
            }
            Run::Ends => {
                let ask =
                    json!({ "match": ["modules.stats-agg.longest_work_s"], "by": "rank", "ranks": "0" });
                let answer = instance.rpc(0, "stats-agg.query", ask)?;
                let turn = answer["series"][0]["max"]["value"].as_f64().context("no longest turn")?;
                longest[usize::from(which)].push(turn * 1e3);
                instance.remove(0..4, "stats-agg")?;
            }
        }
        Ok(())
    })?;
    for (turns, what) in longest.iter_mut().zip(["without exporters", "with exporters"]) {
        turns.sort_by(f64::total_cmp);
        let median = turns.get(turns.len() / 2).context("no runs")?;
        println!(
            "longest turn of the reactor at rank 0, {what}: median {median:.2} ms of {} runs",
            turns.len()
        );
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
