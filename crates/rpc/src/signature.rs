//! What a method is called with: its name, its parameters and its result, as OpenRPC and error messages name them.

use std::fmt;

/// A parameter of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// Whether a call without it is refused.
    pub(crate) is_required: bool,
}

/// The name of a method with its parameters, in the form `name(First, Second?) -> Result`: parameters with a question mark may be
/// missing. A bare name says nothing of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) name: String,
    /// `None` if they are not declared.
    pub(crate) params: Option<Vec<Parameter>>,
    /// The name of the result, if it is declared.
    pub(crate) result: Option<String>,
}

impl Signature {
    /// Parses a signature; `None` if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Some((name, rest)) = text.split_once('(') else {
            return Some(Self {
                name: text.to_owned(),
                params: None,
                result: None,
            });
        };
        let (params, rest) = rest.split_once(')')?;
        let result = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(" -> ")?.to_owned()),
        };
        let parameter = |text: &str| {
            let name = text.strip_suffix('?').unwrap_or(text);
            Parameter {
                name: name.to_owned(),
                is_required: name.len() == text.len(),
            }
        };
        let params: Vec<_> = match params {
            "" => Vec::new(),
            params => params.split(", ").map(parameter).collect(),
        };
        let is_named = params.iter().all(|own| !own.name.is_empty());
        // By position, what follows a missing parameter is missing as well.
        let is_ordered = params.is_sorted_by_key(|own| !own.is_required);
        (is_named && is_ordered).then(|| Self {
            name: name.to_owned(),
            params: Some(params),
            result,
        })
    }

    /// The parameter at a position, if parameters are declared and there is one.
    pub(crate) fn param(&self, at: usize) -> Option<&Parameter> {
        self.params.as_ref()?.get(at)
    }
}

/// A position with the name of its parameter, for messages: `1 (Block)`.
pub(crate) struct Position<'s>(pub(crate) usize, pub(crate) Option<&'s Signature>);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        match self.1.and_then(|own| own.param(self.0)) {
            Some(own) => write!(f, " ({})", own.name),
            None => Ok(()),
        }
    }
}
