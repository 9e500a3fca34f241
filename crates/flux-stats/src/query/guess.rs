//! What somebody may have meant whose pattern fits nothing.

use strsim::normalized_damerau_levenshtein as likeness;

/// Proposals at most.
const PROPOSALS: usize = 3;
/// How unlike a part of a name may be on average: half of it.
const FAR: f64 = 0.5;

/// Names, or patterns, like this one that do fit, the nearest first.
pub(super) fn near<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted: Vec<&str> = pattern.split('.').collect();
    let mut proposals: Vec<(f64, String)> = names.filter_map(|name| nearest(&wanted, name)).collect();
    proposals.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    proposals.dedup();
    proposals.into_iter().map(|(_, proposal)| proposal).take(PROPOSALS).collect()
}

/// How far the name is, part by part, and the pattern with the parts that do not fit replaced; `None`: too far.
fn nearest(wanted: &[&str], name: &str) -> Option<(f64, String)> {
    let parts: Vec<&str> = name.split('.').collect();
    // The end of a name alone is a guess, too: `wakeups` for `modules.kvs.wakeups`.
    if wanted.len() < parts.len() && parts.ends_with(wanted) {
        return Some((0.0, name.to_owned()));
    }
    // And so is what stands in the middle of it: `kvs`.
    if let [word] = wanted
        && let Some(place) = parts[..parts.len() - 1].iter().position(|part| part == word)
    {
        return Some((0.0, format!("{}.**", parts[..=place].join("."))));
    }
    if wanted.len() != parts.len() {
        return None;
    }
    let (mut distance, mut proposal) = (0.0, Vec::new());
    for (&wanted, &part) in wanted.iter().zip(&parts) {
        if wanted.contains('*') || wanted == part {
            proposal.push(wanted);
        } else {
            let far = 1.0 - likeness(wanted, part);
            if far > FAR {
                return None;
            }
            distance += far;
            proposal.push(part);
        }
    }
    (distance > 0.0).then(|| (distance, proposal.join(".")))
}

#[cfg(test)]
mod tests {
    const NAMES: [&str; 6] = [
        "modules.kvs.wakeups",
        "modules.kvs.work_s",
        "modules.kvs-watch.wakeups",
        "modules.job-list.wakeups",
        "broker.rss_bytes",
        "jobs.run",
    ];

    fn near(pattern: &str) -> Vec<String> {
        super::near(pattern, NAMES.into_iter())
    }

    #[test]
    fn what_is_nearly_a_name_is_taken_for_it() {
        assert_eq!(near("modules.kvs.wakups")[0], "modules.kvs.wakeups");
        assert_eq!(near("module.kvs.wakeup")[0], "modules.kvs.wakeups");
        assert_eq!(near("broker.rss"), Vec::<String>::new());
        assert_eq!(near("broker.rss_byte"), ["broker.rss_bytes"]);
        assert_eq!(near("modules.*.wakups"), ["modules.*.wakeups"]);
        assert_eq!(near("work_s"), ["modules.kvs.work_s"]);
        assert_eq!(near("kvs"), ["modules.kvs.**"]);
        assert_eq!(near("quite.something.else"), Vec::<String>::new());
    }
}
