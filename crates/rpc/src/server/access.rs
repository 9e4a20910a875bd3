//! Which browsers may call: by the name under which they reach the server, and by the site whose page calls.
//!
//! A page of any site can make a browser send requests to the loopback, under a name of the site's own if its name server says so.

use http::{
    HeaderMap, HeaderValue, Uri,
    header::{HOST, ORIGIN},
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
        // HTTP/2 has the name in the URI.
        let named = uri.authority().is_none_or(|own| self.knows(own.as_str()));
        let host = headers.get(HOST);
        let is_own = |host: &HeaderValue| host.to_str().is_ok_and(|host| self.knows(host));
        if !named || !host.is_none_or(is_own) {
            return Err("this is not a name of this server: its operator lists more of them\n");
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return Ok(None);
        };
        let is_let_in =
            |own: &String| own == "*" || own.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
        match self.origins.iter().any(is_let_in) {
            true => Ok(Some(origin.clone())),
            false => Err("pages of this site may not call: the operator lists those that may\n"),
        }
    }

    fn knows(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        let is_own = |own: &String| own == "*" || own.eq_ignore_ascii_case(name);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(is_own)
    }
}
