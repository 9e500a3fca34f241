//! Moments as a person reads them: in the time zone of whoever makes the report.

use crate::show;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};

pub(super) struct Clock(TimeZone);

impl Clock {
    /// In the zone of this machine, or of `TZ`.
    pub(super) fn local() -> Self {
        let zone = TimeZone::system();
        // A browser can be told of a zone by its name alone.
        Clock(if zone.iana_name().is_some() { zone } else { TimeZone::UTC })
    }

    #[cfg(test)]
    pub(super) fn utc() -> Self {
        Clock(TimeZone::UTC)
    }

    fn zoned(&self, time: f64) -> Option<ZonedDateTime> {
        let time = Timestamp::from_microsecond((time * 1e6) as i64).ok()?;
        Some(time.to_zoned_datetime(self.0.clone()))
    }

    /// A date and a time of day.
    pub(super) fn moment(&self, time: f64) -> String {
        let text = |time: ZonedDateTime| time.strftime("%Y-%m-%d %H:%M:%S").to_string();
        self.zoned(time).map_or_else(|| show::UNKNOWN.to_owned(), text)
    }

    /// From one moment to another, and how long that is.
    pub(super) fn span(&self, from: f64, to: f64) -> String {
        let day = |time: f64| self.zoned(time).map(|time| time.date());
        let mut end = self.moment(to);
        let end = if day(from) == day(to) { end.split_off(11.min(end.len())) } else { end };
        format!("{} to {end} {}, {}", self.moment(from), self.zone(to), show::duration((to - from).round()))
    }

    /// The zone's name at that time, as a person knows it.
    pub(super) fn zone(&self, time: f64) -> String {
        self.zoned(time).map_or_else(String::new, |time| time.strftime("%Z").to_string())
    }

    /// The zone, as a browser knows it.
    pub(super) fn zone_id(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}
