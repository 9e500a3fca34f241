//! Hosts by rank.

/// More are not spelled out, whatever an answer says.
const HOSTS_MAX: usize = 1 << 20;
/// Pairs of brackets in one name: racks, chassis, nodes.
const BRACKETS_MAX: usize = 8;

/// The hosts of an instance's brokers, in order of their ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// From a hostlist (RFC 29): `node[0-3,07-09],login`. What is not one is taken for plain names.
    pub(crate) fn new(hostlist: &str) -> Self {
        let mut hosts = Vec::new();
        for word in words(hostlist) {
            expand("", word, 0, &mut hosts);
        }
        Hosts(hosts)
    }

    /// The host of a rank; `None`: not known.
    pub(crate) fn of(&self, rank: u32) -> Option<&str> {
        self.0.get(rank as usize).map(String::as_str)
    }

    /// Whether all brokers are on one host, whose name then says nothing.
    pub(crate) fn is_one(&self) -> bool {
        self.0.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// The parts between commas outside brackets.
fn words(hostlist: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    hostlist
        .split(move |c| {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                _ => {}
            }
            c == ',' && !inside
        })
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

/// Each pair of brackets multiplies: the last one counts fastest.
fn expand(before: &str, rest: &str, brackets: usize, hosts: &mut Vec<String>) {
    let parts = rest.split_once('[').and_then(|(prefix, rest)| Some((prefix, rest.split_once(']')?)));
    match parts {
        Some((prefix, (ranges, rest))) if brackets < BRACKETS_MAX => {
            for number in ranges.split(',').flat_map(numbers) {
                if hosts.len() >= HOSTS_MAX {
                    return;
                }
                expand(&format!("{before}{prefix}{number}"), rest, brackets + 1, hosts);
            }
        }
        _ => hosts.push(format!("{before}{rest}")),
    }
}

/// `07-09`: 07, 08, 09. What is no range is itself.
fn numbers(range: &str) -> Box<dyn Iterator<Item = String> + '_> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(from), Ok(to)) => {
            let width = first.len();
            Box::new((from..=to).map(move |number| format!("{number:0width$}")))
        }
        _ => Box::new(std::iter::once(range.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(hostlist: &str) -> Vec<String> {
        Hosts::new(hostlist).0
    }

    #[test]
    fn a_hostlist_is_spelled_out_in_order() {
        assert_eq!(all("n[0-2,7],login"), ["n0", "n1", "n2", "n7", "login"]);
        assert_eq!(all("n[08-10]"), ["n08", "n09", "n10"]);
        assert_eq!(all("r[1-2]n[0-1]-ib"), ["r1n0-ib", "r1n1-ib", "r2n0-ib", "r2n1-ib"]);
        assert_eq!(all("b,a,b"), ["b", "a", "b"]);
        assert_eq!(all(""), [] as [&str; 0]);
    }

    #[test]
    fn what_is_no_hostlist_is_taken_as_it_is_and_never_grows_without_bound() {
        assert_eq!(all("n[0-"), ["n[0-"]);
        assert_eq!(all("n[x-3]"), ["nx-3"]);
        assert_eq!(all("n[0-18446744073709551615]").len(), HOSTS_MAX);
        assert_eq!(all("n[0-99999][0-99999]").len(), HOSTS_MAX);
        assert!(Hosts::new("a,a,a").is_one() && !Hosts::new("a,b").is_one());
    }
}
