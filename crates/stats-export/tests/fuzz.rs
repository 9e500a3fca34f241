//! Whatever scrapers, servers, ranks and admins write, it is read or refused. `ci/fuzz` runs it for a minute; here it is a
//! moment.

use stats_export::formats::prometheus::{Format, expose};
use stats_export::{Setting, Snapshot, fuzzing};

#[test]
fn whatever_others_write_is_read_or_refused() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Some((&which, rest)) = bytes.split_first() else { return };
        match which % 4 {
            0 => fuzzing::request(rest),
            1 => fuzzing::reply(rest),
            2 => {
                let text = String::from_utf8_lossy(rest);
                if let Ok(setting) = Setting::parse(&text) {
                    // What is shown of one can be read again.
                    assert!(
                        Setting::parse(setting.to_string().trim_end_matches(",name=")).is_ok(),
                        "{setting}"
                    );
                }
                let _ = Format::accepted(&text);
            }
            _ => {
                let Ok(answer) = serde_json::from_slice(rest) else { return };
                if let Ok(snapshot) = Snapshot::from_answer(&answer) {
                    let _ = expose(&snapshot.view(), "flux", Format::OpenMetrics);
                }
            }
        }
    });
}
