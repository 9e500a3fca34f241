//! The hosts of an instance by rank, from a hostlist (RFC 29).
//!
//! Our own reader: `hostlist-parser` makes a set of it, and a host that runs two brokers would then be one rank.

/// Hosts that a list is expanded to: one that says more is no list of an instance's hosts.
const HOSTS_MAX: usize = 1 << 20;

/// A host for each rank; none where Flux does not know them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Of `n[0-2,7],login1`. What is no hostlist tells of no hosts.
    pub(crate) fn of(hostlist: Option<&str>) -> Self {
        Hosts(hostlist.and_then(expand).unwrap_or_default())
    }

    /// The host of a rank.
    pub(crate) fn host(&self, rank: u32) -> Option<&str> {
        self.0.get(usize::try_from(rank).ok()?).map(String::as_str)
    }

    /// Whether all brokers are on one host, whose name then says nothing of a rank.
    pub(crate) fn is_one(&self) -> bool {
        self.0.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// `2 (n2)`, or `2` where the host is not known.
    pub(crate) fn name(&self, rank: u32) -> String {
        match self.host(rank) {
            Some(host) => format!("{rank} ({host})"),
            None => rank.to_string(),
        }
    }
}

fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for item in items(list)? {
        expand_item(item, "", &mut hosts)?;
    }
    Some(hosts)
}

/// What is between the commas that are not in brackets.
fn items(list: &str) -> Option<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if inside => return None,
            b'[' => inside = true,
            b']' if !inside => return None,
            b']' => inside = false,
            b',' if !inside => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    (!inside).then_some(items)
}

/// Adds the hosts of one item, whose beginning has been written out.
fn expand_item(item: &str, before: &str, hosts: &mut Vec<String>) -> Option<()> {
    let Some((name, rest)) = item.split_once('[') else {
        hosts.push(format!("{before}{item}"));
        return (hosts.len() <= HOSTS_MAX).then_some(());
    };
    let (numbers, rest) = rest.split_once(']')?;
    for range in numbers.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if from > to {
            return None;
        }
        // As wide as the first is written: 08-10 is 08, 09, 10.
        let width = first.len();
        for number in from..=to {
            expand_item(rest, &format!("{before}{name}{number:0width$}"), hosts)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_its_host_though_hosts_repeat() {
        for (list, hosts) in [
            ("n[0-2,7],login1", vec!["n0", "n1", "n2", "n7", "login1"]),
            ("a,a,a", vec!["a", "a", "a"]),
            ("n[1,1]", vec!["n1", "n1"]),
            ("n[08-10]-ib", vec!["n08-ib", "n09-ib", "n10-ib"]),
            ("r[1-2]n[0-1]", vec!["r1n0", "r1n1", "r2n0", "r2n1"]),
        ] {
            let of = Hosts::of(Some(list));
            let found: Vec<_> = (0..hosts.len() as u32).map(|rank| of.host(rank).unwrap()).collect();
            assert_eq!(found, hosts);
            assert_eq!(of.host(hosts.len() as u32), None);
        }
    }

    #[test]
    fn what_is_no_hostlist_tells_of_none() {
        for list in ["n[", "n]", "n[a]", "n[3-1]", "n[[1]]", "n[0-4294967295]", "n[1-"] {
            assert_eq!(Hosts::of(Some(list)), Hosts::default(), "{list}");
        }
        assert!(Hosts::of(Some("a,a,a")).is_one() && !Hosts::of(Some("a,b")).is_one());
        assert_eq!(Hosts::default().name(2), "2");
        assert_eq!(Hosts::of(Some("n[0-2]")).name(2), "2 (n2)");
    }
}
