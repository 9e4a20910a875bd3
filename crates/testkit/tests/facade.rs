//! Checks that a user of the crate `cambium` can name every type that its functions take or return: from the names that
//! the facade exports, at its root or in a module, public signatures are followed (functions, methods, fields,
//! variants, traits, aliases), and each type in them must be exported as well, or its crate, if it is not one of ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Fields, FnArg, ImplItem, Item, ReturnType, Signature, TraitItem, Type, UseTree, Visibility,
    visit::{self, Visit},
};

/// The crates whose items can be in signatures, by the names in code.
const CRATES: [&str; 14] = [
    "cambium",
    "node",
    "chain",
    "evm",
    "history",
    "index",
    "preimages",
    "kv",
    "state",
    "snapshot",
    "store",
    "trie",
    "disk",
    "primitives",
];
/// Crates whose types everybody can name.
const STANDARD: [&str; 3] = ["std", "core", "alloc"];

/// Crates that the facade exports as modules.
const MODULES: [&str; 2] = ["kv", "trie"];
/// Types that the library hands out to be given back. Their functions are the engine's.
const OPAQUE: [(&str, &str); 1] = [("snapshot", "PagePin")];

/// A type's name, and the crate that defines it.
type Name = (String, String);

/// The names that a file imports, with the paths that they stand for.
type Imports = BTreeMap<String, Vec<String>>;

/// Paths in a public item as they are written, resolved by the imports of its file.
#[derive(Debug, Default)]
struct Mentions(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Mentions {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        self.0
            .push(segments.map(|it| it.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// Bodies are not part of a signature.
    fn visit_block(&mut self, _: &'ast syn::Block) {}
    fn visit_expr(&mut self, _: &'ast syn::Expr) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// The public items of all crates, by crate and name, with the paths that they mention.
#[derive(Default)]
struct Items {
    mentions: BTreeMap<Name, BTreeSet<Vec<String>>>,
    /// Items that the crate itself defines: not those of others that it implements traits for.
    defined: BTreeSet<Name>,
    /// Exports of each crate's root and of the public modules in it: the name, and the path that it stands for.
    exports: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn uses(tree: &UseTree, prefix: &[String], into: &mut Vec<(String, Vec<String>)>) {
    let path = |name: &syn::Ident| {
        let name = (name != "self").then(|| name.to_string());
        prefix.iter().cloned().chain(name).collect::<Vec<_>>()
    };
    match tree {
        UseTree::Path(tree) => uses(&tree.tree, &path(&tree.ident), into),
        UseTree::Group(group) => group.items.iter().for_each(|it| uses(it, prefix, into)),
        UseTree::Name(tree) => {
            let path = path(&tree.ident);
            into.push((path.last().cloned().unwrap_or_default(), path));
        }
        UseTree::Rename(tree) => into.push((tree.rename.to_string(), path(&tree.ident))),
        UseTree::Glob(_) => into.push(("*".to_owned(), prefix.to_vec())),
    }
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, into),
            false if path.extension().is_some_and(|it| it == "rs") => into.push(path),
            false => {}
        }
    }
}

impl Items {
    fn read(&mut self, name: &str, folder: &Path) {
        let mut files = Vec::new();
        sources(folder, &mut files);
        for path in files {
            let text = fs::read_to_string(&path).expect("a source");
            let file = syn::parse_file(&text).expect("Rust");
            let exports = path == folder.join("lib.rs");
            self.read_items(name, exports, &file.items, &Imports::new());
        }
    }

    /// `exports` says that public items of these can be named outside of the crate.
    fn read_items(&mut self, name: &str, exports: bool, items: &[Item], above: &Imports) {
        let mut imports = above.clone();
        for item in items {
            if let Item::Use(item) = item {
                let mut found = Vec::new();
                uses(&item.tree, &[], &mut found);
                if exports && is_public(&item.vis) {
                    let exported = self.exports.entry(name.to_owned()).or_default();
                    exported.extend(found.iter().cloned());
                }
                imports.extend(found);
            }
        }
        for item in items {
            let mut found = Mentions::default();
            let subject = match item {
                Item::Struct(item) if is_public(&item.vis) => {
                    found.fields(&item.fields);
                    found.visit_generics(&item.generics);
                    item.ident.to_string()
                }
                Item::Enum(item) if is_public(&item.vis) => {
                    item.variants
                        .iter()
                        .for_each(|it| found.visit_fields(&it.fields));
                    found.visit_generics(&item.generics);
                    item.ident.to_string()
                }
                Item::Type(item) if is_public(&item.vis) => {
                    found.visit_type(&item.ty);
                    item.ident.to_string()
                }
                Item::Trait(item) if is_public(&item.vis) => {
                    item.supertraits
                        .iter()
                        .for_each(|it| found.visit_type_param_bound(it));
                    for item in &item.items {
                        match item {
                            TraitItem::Fn(item) => found.signature(&item.sig),
                            TraitItem::Const(item) => found.visit_type(&item.ty),
                            _ => {}
                        }
                    }
                    item.ident.to_string()
                }
                Item::Fn(item) if is_public(&item.vis) => {
                    found.signature(&item.sig);
                    item.sig.ident.to_string()
                }
                Item::Const(item) if is_public(&item.vis) => {
                    found.visit_type(&item.ty);
                    item.ident.to_string()
                }
                Item::Impl(item) => {
                    let Type::Path(of) = &*item.self_ty else {
                        continue;
                    };
                    let is_trait = item.trait_.is_some();
                    for inner in &item.items {
                        match inner {
                            ImplItem::Fn(it) if is_public(&it.vis) => found.signature(&it.sig),
                            ImplItem::Const(it) if is_public(&it.vis) => found.visit_type(&it.ty),
                            // An error of `TryFrom`, or of a database.
                            ImplItem::Type(it) if is_trait => found.visit_type(&it.ty),
                            _ => {}
                        }
                    }
                    let last = of.path.segments.last().expect("a path");
                    last.ident.to_string()
                }
                Item::Mod(item) => {
                    let is_test = item
                        .attrs
                        .iter()
                        .any(|it| it.path().is_ident("cfg") && quoted(it).contains("test"));
                    if let (Some((_, items)), false) = (&item.content, is_test) {
                        let exports = exports && is_public(&item.vis);
                        self.read_items(name, exports, items, &imports);
                    }
                    continue;
                }
                _ => continue,
            };
            let resolved = found.0.into_iter().map(|path| {
                let rest = path.iter().skip(1).cloned();
                match path.first().and_then(|first| imports.get(first)) {
                    Some(import) => import.iter().cloned().chain(rest).collect(),
                    None => path,
                }
            });
            let key = (name.to_owned(), subject);
            if !matches!(item, Item::Impl(_)) {
                self.defined.insert(key.clone());
            }
            self.mentions.entry(key).or_default().extend(resolved);
        }
    }

    /// The crate and name of the item that a path names in `at`, if one of our crates defines it.
    fn definition(&self, at: &str, path: &[String]) -> Option<Name> {
        let last = path.last()?;
        let first = path.first()?.as_str();
        let owner = first.strip_prefix("cambium_").unwrap_or(at);
        let key = (owner.to_owned(), last.clone());
        if self.defined.contains(&key) {
            return Some(key);
        }
        // A crate's export of another one's item.
        let export = self.exports.get(owner)?.get(last)?;
        (export != path && export.first().is_some_and(|it| it.starts_with("cambium_")))
            .then(|| self.definition(owner, export))?
    }
}

impl Mentions {
    fn fields(&mut self, fields: &Fields) {
        let public = fields.iter().filter(|field| is_public(&field.vis));
        public.for_each(|field| self.visit_type(&field.ty));
    }

    fn signature(&mut self, signature: &Signature) {
        self.visit_generics(&signature.generics);
        for input in &signature.inputs {
            if let FnArg::Typed(input) = input {
                self.visit_type(&input.ty);
            }
        }
        if let ReturnType::Type(_, output) = &signature.output {
            self.visit_type(output);
        }
    }
}

fn quoted(attribute: &syn::Attribute) -> String {
    match &attribute.meta {
        syn::Meta::List(list) => list.tokens.to_string(),
        _ => String::new(),
    }
}

/// Types in signatures that the facade does not export, each with an item that mentions it.
fn missing(items: &Items) -> BTreeMap<String, String> {
    let facade = &items.exports["cambium"];
    let crates: BTreeSet<_> = facade
        .values()
        .filter(|path| path.len() == 1)
        .map(|path| path[0].as_str())
        .collect();
    let mut exported: BTreeSet<Name> = BTreeSet::new();
    for path in facade.values() {
        exported.extend(items.definition("cambium", path));
    }
    for module in MODULES {
        for path in items
            .exports
            .get(module)
            .into_iter()
            .flat_map(BTreeMap::values)
        {
            exported.extend(items.definition(module, path));
        }
    }
    // Where a macro defines a type, its name is all that there is.
    let modules = MODULES.iter().filter_map(|it| items.exports.get(*it));
    let names: BTreeSet<_> = modules.chain([facade]).flat_map(BTreeMap::keys).collect();
    let (mut missing, mut todo) = (BTreeMap::new(), exported.clone());
    let mut seen = BTreeSet::new();
    while let Some(name) = todo.pop_first() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if OPAQUE.contains(&(&*name.0, &*name.1)) {
            continue;
        }
        let by = format!("{}::{}", name.0, name.1);
        for path in items.mentions.get(&name).into_iter().flatten() {
            let first = path.first().map_or("", String::as_str);
            if let Some(found) = items.definition(&name.0, path) {
                if !exported.contains(&found) {
                    missing.insert(format!("{}::{}", found.0, found.1), by.clone());
                }
                todo.insert(found);
            } else if first.starts_with("cambium_")
                && path.last().is_some_and(|it| names.contains(it))
            {
                continue;
            } else if path.len() > 1
                && !STANDARD.contains(&first)
                && !crates.contains(first)
                && !["Self", "crate", "super", "self"].contains(&first)
                && first.chars().next().is_some_and(char::is_lowercase)
            {
                missing.insert(path.join("::"), by.clone());
            }
        }
    }
    missing
}

#[test]
fn every_type_in_a_signature_can_be_named_with_the_facade_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut items = Items::default();
    for name in CRATES {
        items.read(name, &root.join(name).join("src"));
    }
    assert!(items.defined.len() > 400, "{}", items.defined.len());
    let missing = missing(&items);
    let list: Vec<_> = missing
        .iter()
        .map(|(name, by)| format!("{name}, in the signature of {by}"))
        .collect();
    assert!(missing.is_empty(), "not exported:\n{}", list.join("\n"));
}

#[test]
fn what_is_not_exported_is_found() {
    let mut items = Items::default();
    let file = |text: &str| syn::parse_file(text).expect("Rust").items;
    let state = "
        pub use a::{Db, Kept};
        use alloy_primitives::B256;
        use std::sync::Arc;
        pub struct Db { hidden: Hidden, pub kept: Kept }
        pub struct Kept;
        pub struct Hidden;
        pub struct Named;
        pub enum Fault { One(Deep) }
        pub struct Deep;
        impl Db {
            pub fn a(&self, hash: &[B256]) -> Result<Arc<Named>, Fault> { Hidden }
            fn b(&self) -> Hidden { Hidden }
        }";
    items.read_items("state", true, &file(state), &Imports::new());
    let found = |items: &Items| missing(items).into_keys().collect::<Vec<_>>();
    let facade = "pub use cambium_state::{Db, Kept};";
    items.read_items("cambium", true, &file(facade), &Imports::new());
    let all = [
        "alloy_primitives::B256",
        "state::Deep",
        "state::Fault",
        "state::Named",
    ];
    assert_eq!(found(&items), all);
    let facade = "pub use alloy_primitives; pub mod db { pub use cambium_state::{Fault, Named}; }";
    items.read_items("cambium", true, &file(facade), &Imports::new());
    assert_eq!(found(&items), ["state::Deep"]);
    let facade = "mod private { pub use cambium_state::Deep; }";
    items.read_items("cambium", true, &file(facade), &Imports::new());
    assert_eq!(found(&items), ["state::Deep"]);
    let facade = "pub mod faults { pub use cambium_state::Deep; }";
    items.read_items("cambium", true, &file(facade), &Imports::new());
    assert_eq!(found(&items), Vec::<String>::new());
}

/// Maximum number of names at the root, crates and modules aside.
const ROOT_NAMES_MAX: usize = 50;

#[test]
fn the_root_repeats_some_names_of_modules_and_no_two_modules_have_the_same() {
    let facade = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cambium/src/lib.rs");
    let text = fs::read_to_string(facade).expect("the facade");
    let mut by_module = BTreeMap::<String, Vec<String>>::new();
    let mut root = Vec::new();
    for item in syn::parse_file(&text).expect("Rust").items {
        match item {
            Item::Mod(module) if is_public(&module.vis) => {
                let (_, items) = module
                    .content
                    .expect("modules of the facade are written in it");
                let mut found = Vec::new();
                for item in items {
                    let Item::Use(item) = item else {
                        panic!("{} has more than names", module.ident)
                    };
                    uses(&item.tree, &[], &mut found);
                }
                for (name, _) in found {
                    let modules = by_module.entry(name).or_default();
                    modules.push(module.ident.to_string());
                }
            }
            Item::Use(item) if is_public(&item.vis) => uses(&item.tree, &[], &mut root),
            _ => {}
        }
    }
    let several: Vec<_> = by_module.iter().filter(|(_, of)| of.len() > 1).collect();
    assert!(several.is_empty(), "{several:?}");
    root.retain(|(_, path)| path.len() > 1);
    assert!(root.len() <= ROOT_NAMES_MAX, "{} names", root.len());
    let primitives = |path: &[String]| path[0] == "alloy_primitives";
    for (name, path) in root.iter().filter(|(_, path)| !primitives(path)) {
        assert_eq!(by_module.get(name), Some(&vec![path[0].clone()]), "{name}");
    }
}
