//! The table of methods.

use crate::{
    cancel::Cancel,
    error::RpcError,
    figures::MethodFigures,
    limits::{Kind, Limits},
    params::Params,
    reply::Reply,
    served::Served,
    signature::Signature,
};
use cambium_node::Node;
use std::{collections::HashMap, sync::Arc};

/// What a method has besides its parameters.
pub struct Call<'c> {
    /// The chain, as it was when the call began.
    pub node: &'c Node,
    /// What is served.
    pub served: &'c Served,
    /// Whether the answer is still wanted.
    pub cancel: &'c Cancel,
}

impl Call<'_> {
    /// What the server allows.
    pub const fn limits(&self) -> &Limits {
        &self.served.limits
    }
}

type Run = dyn Fn(&Call<'_>, Params<'_>, &mut Reply<'_>) -> Result<(), RpcError> + Send + Sync;

/// A method.
#[derive(Clone)]
pub(crate) struct Method {
    pub(crate) signature: Arc<Signature>,
    pub(crate) kind: Kind,
    pub(crate) run: Arc<Run>,
    pub(crate) figures: Arc<MethodFigures>,
}

/// Methods by their names.
///
/// ```
/// use cambium_rpc::{Kind, Methods};
///
/// let methods = Methods::of_chain().with("my_head", Kind::Quick, |call, params, reply| {
///     params.end()?;
///     reply.value(&call.node.head().number)
/// });
/// assert!(methods.names().any(|name| name == "my_head"));
/// ```
#[derive(Clone, Default)]
pub struct Methods {
    all: HashMap<String, Method>,
}

impl std::fmt::Debug for Methods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

impl Methods {
    /// No methods.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a method, or replaces the one with this name.
    ///
    /// `signature` is its name, with which it may declare parameters and its result: `my_sum(First, Second?) -> Sum`. A question mark
    /// marks what may be missing. Errors name declared parameters, and `rpc.discover` lists them.
    ///
    /// # Panics
    ///
    /// If the signature is malformed, or a parameter that must be there follows one that may be missing.
    #[must_use]
    pub fn with(
        mut self,
        signature: &str,
        kind: Kind,
        run: impl Fn(&Call<'_>, Params<'_>, &mut Reply<'_>) -> Result<(), RpcError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let parsed = Signature::parse(signature);
        let parsed = parsed.unwrap_or_else(|| panic!("{signature:?} is not a signature"));
        let method = Method {
            signature: Arc::new(parsed),
            kind,
            run: Arc::new(run),
            figures: Arc::default(),
        };
        self.all.insert(method.signature.name.clone(), method);
        self
    }

    /// Leaves those that `keeps` does not like out.
    #[must_use]
    pub fn only(mut self, keeps: impl Fn(&str) -> bool) -> Self {
        self.all.retain(|name, _| keeps(name));
        self
    }

    /// The names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// The same methods with counters of their own.
    pub(crate) fn counted_anew(mut self) -> Self {
        for method in self.all.values_mut() {
            method.figures = Arc::default();
        }
        self
    }

    /// The methods, by their names in order.
    pub(crate) fn sorted(&self) -> Vec<&Method> {
        let mut all: Vec<_> = self.all.values().collect();
        all.sort_unstable_by_key(|own| &own.signature.name);
        all
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Method> {
        self.all.get(name)
    }
}
