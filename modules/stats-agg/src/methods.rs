//! What the module answers.

use crate::agg::StatsAgg;
use crate::upstream::OVERLAP;
use flux::{Answer, Error, Event, Level, Method, Request, Role, Scope};
use stats_core::{GUEST_BYTES_MAX, GUEST_PUSHES_MAX, MergeRefused, Node, Pusher};
use std::time::Duration;

/// How long the publication of a clear may take.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);

impl StatsAgg {
    /// The merged tree. On a rank other than 0: of its subtree.
    fn stats_get(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.check_guest(request)?;
        self.on_own_account(|agg| agg.ask_tree(scope, request))
    }

    /// Series with totals, rates and coverage.
    fn query(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.check_guest(request)?;
        self.on_own_account(|agg| agg.ask_series(scope, request))
    }

    /// A client is gone (RFC 6). Nobody awaits an answer.
    fn disconnect(&mut self, _scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.end_streams_of(request);
        Ok(Answer::Later)
    }

    /// A stream is no longer wanted (RFC 6). Nobody awaits an answer.
    fn cancel(&mut self, _scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.cancel_stream(request);
        Ok(Answer::Later)
    }

    fn check_guest(&self, request: &Request<'_>) -> Result<(), Error> {
        if request.from_owner() || self.config.guest_query {
            return Ok(());
        }
        Err(Error::new(libc::EPERM, "only the instance owner may ask (guest-query=true opens it to guests)"))
    }

    /// What a handle has gathered. While unloading it is taken like before: what is not sent any more is left to the
    /// next load.
    fn push(&mut self, _scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.on_own_account(|agg| {
            let (now, pusher) = (agg.now(), agg.pusher(request)?);
            let receipt = agg.intake.take(&mut agg.node, now, pusher, request.json()?);
            receipt.map(Answer::Json).map_err(|refusal| Error::invalid(refusal.to_string()))
        })
    }

    /// Who pushes. A guest's message is not read before it is known to be within the guest's budget.
    fn pusher(&mut self, request: &Request<'_>) -> Result<Pusher, Error> {
        if request.from_owner() {
            return Ok(Pusher::Owner);
        }
        if !self.config.guest_push {
            let text = "only the instance owner may push (guest-push=true opens it to guests)";
            return Err(Error::new(libc::EPERM, text));
        }
        let (user, bytes, now) = (request.userid(), request.raw()?.len(), self.now());
        if bytes > GUEST_BYTES_MAX {
            let text = format!("{bytes} bytes: a guest's push may have {GUEST_BYTES_MAX}");
            return Err(Error::invalid(text));
        }
        if !self.intake.admits_guest(user, bytes, now) {
            let text = format!(
                "a guest may push {GUEST_PUSHES_MAX} times and {GUEST_BYTES_MAX} bytes in a second: send it again later"
            );
            return Err(Error::new(libc::EAGAIN, text));
        }
        Ok(Pusher::Guest(user))
    }

    /// A batch from below.
    fn merge(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        let batch = request.raw()?;
        if let Err(error) = flux::afford(Node::memory_of_merge(batch.len())) {
            self.node.count_refused();
            return Err(Error::new(error.errnum(), format!("a batch of {} bytes: {error}", batch.len())));
        }
        let merged = self.node.handle_merge(self.now(), batch);
        // While unloading, what children still send goes on at once.
        if scope.ending() {
            self.transmit(scope);
        }
        merged.map(Answer::Raw).map_err(|refused| {
            let errnum = match refused {
                MergeRefused::Overlap { .. } => OVERLAP,
                MergeRefused::Full { .. } => libc::ENOSPC,
                MergeRefused::Decode(_)
                | MergeRefused::Rank { .. }
                | MergeRefused::Above { .. }
                | MergeRefused::Generation { .. }
                | MergeRefused::Dictionary { .. } => libc::EPROTO,
            };
            Error::new(errnum, refused.to_string())
        })
    }

    /// Asks for a clear of the whole instance: as an event, whose place in the order of events says what is before it.
    fn clear_request(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        let (kept, topic) = (scope.keep(request)?, format!("{}.stats-clear", scope.name()));
        self.asked += 1;
        let number = self.asked;
        let published = scope.publish(&topic, None, Some(PUBLISH_TIMEOUT), move |agg, _, outcome| {
            agg.asking.remove(&number);
            kept.respond(outcome.map(|_| Answer::Empty));
        })?;
        self.asking.insert(number, published);
        Ok(Answer::Later)
    }

    fn clear_event(&mut self, scope: &Scope<Self>, event: &Event<'_>) -> Result<(), Error> {
        // What was measured until now is from before the clear.
        self.record(scope);
        let number = event.sequence()?.into();
        self.node.note_event(number);
        self.node.handle_clear(number);
        Ok(())
    }

    /// A changed configuration of the instance: taken whole or refused whole.
    fn config_reload(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        let applied = self.on_own_account(|agg| {
            request.json().and_then(|instance| agg.apply(scope, agg.configured_by(&instance)?))
        });
        match applied {
            Ok(()) => Ok(Answer::Empty),
            Err(error) => {
                // `flux config reload` shows the beginning of what all modules say, and no more.
                scope.log(Level::Err, &format!("config-reload: {error}: nothing was changed"));
                Err(error)
            }
        }
    }
}

/// The table of methods.
pub(crate) fn table() -> Vec<Method<StatsAgg>> {
    vec![
        Method::request("stats-get", StatsAgg::stats_get).allow(Role::All),
        Method::request("query", StatsAgg::query).allow(Role::User),
        Method::request("disconnect", StatsAgg::disconnect).allow(Role::User),
        Method::request("cancel", StatsAgg::cancel).allow(Role::User),
        Method::request("push", StatsAgg::push).allow(Role::User),
        Method::request("merge", StatsAgg::merge),
        Method::request("stats-clear", StatsAgg::clear_request),
        Method::event("stats-clear", StatsAgg::clear_event),
        Method::listen("heartbeat.pulse", StatsAgg::heartbeat),
        Method::request("config-reload", StatsAgg::config_reload),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// By their text: a method is a name and a function, and tells neither.
    #[test]
    fn the_reference_has_every_request_and_no_other() {
        let code = include_str!("methods.rs").split_once("#[cfg(test)]").unwrap().0;
        let asked: BTreeSet<&str> = code
            .split("Method::request(\"")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('"')?.0))
            .collect();
        let page = include_str!("../../../docs/settings.md");
        let section = page.split_once("## Requests").unwrap().1.split_once("\n### ").unwrap().0;
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let documented: BTreeSet<&str> = rows
            .filter_map(|row| row.split('|').nth(1))
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .collect();
        assert_eq!(documented, asked);
    }
}
