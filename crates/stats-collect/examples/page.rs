//! Prints the page of all series: `docs/series.md`.

fn main() {
    print!("{}", stats_collect::page());
}
