//! Which browsers may call: by the name under which they reach the server, and by the site whose page calls.
//!
//! A page of any site can make a browser send requests to the loopback, under a name of the site's own if its name server says so.

use http::{
    HeaderMap, HeaderValue, Uri,
    header::{HOST, HeaderName, ORIGIN},
};
use std::net::IpAddr;

/// Names and sites that are let in. By default none besides addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Names of this server, without ports, besides its addresses and `localhost`; `*` stands for all.
    pub hosts: Vec<String>,
    /// Sites whose pages may call, such as `https://example.org`; `*` stands for all.
    pub origins: Vec<String>,
}

/// What is wrong with a request.
pub(super) type Refused = &'static str;

impl Access {
    /// Whether a request may come in. Returns the site to which the answer may be shown, if it comes from one.
    pub(super) fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, Refused> {
        let hosts = headers.get_all(HOST).iter().map(HeaderValue::to_str);
        let named = uri.authority().map(|named| Ok(named.as_str()));
        if !hosts
            .chain(named)
            .all(|host| host.is_ok_and(|host| self.knows(host)))
        {
            return Err("this is not a name of this server: its operator lists more of them\n");
        }
        let Some(origin) = only(headers, ORIGIN)? else {
            return Ok(None);
        };
        if self.is_own_page(origin, uri, headers) {
            return Ok(None);
        }
        let is_let_in =
            |own: &String| own == "*" || own.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
        match self.origins.iter().any(is_let_in) {
            true => Ok(Some(origin.clone())),
            false => Err("pages of this site may not call: the operator lists those that may\n"),
        }
    }

    /// Whether a request comes from a page of this server: of the name that it was asked under, which is not known by `*` alone, since
    /// a stranger's name may lead to the loopback.
    fn is_own_page(&self, origin: &HeaderValue, uri: &Uri, headers: &HeaderMap) -> bool {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let Some(host) = host.or_else(|| Some(uri.authority()?.as_str())) else {
            return false;
        };
        let origin = origin.to_str().unwrap_or_default();
        let site = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        let is_it = site.is_some_and(|site| site.eq_ignore_ascii_case(host));
        is_it && self.is_name(host, |own| own != "*")
    }

    fn knows(&self, host: &str) -> bool {
        self.is_name(host, |_| true)
    }

    /// Whether a host is an address, the loopback, or a name of the list that counts.
    fn is_name(&self, host: &str, counts: impl Fn(&str) -> bool) -> bool {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').unwrap_or_default(),
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        if !port.is_empty() && !port.starts_with(':') {
            return false;
        }
        let is_own = |own: &String| counts(own) && (own == "*" || own.eq_ignore_ascii_case(name));
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(is_own)
    }
}

/// The only header of a name, if it is there. Of several ones nobody knows which counts.
fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&HeaderValue>, Refused> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (_, Some(_)) => Err("a header is there more than once\n"),
        (own, None) => Ok(own),
    }
}
