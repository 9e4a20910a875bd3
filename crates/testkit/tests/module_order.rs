//! Checks that modules stand in the order in which they build on each other: a module uses only
//! siblings that are declared before it, and nothing that the file of an enclosing module defines.
//! So no two files use each other, and each folder can be read from its first declaration on.
//!
//! The arrows come from the sources: `use` trees, and paths in code and in macros. A name that a
//! module only imports or re-exports counts where it is defined. Two things are left out: methods,
//! which would need types, and code that only tests have, which may use any module.

use proc_macro2::{TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Attribute, Expr, Item, Lit, Meta, Token, UseTree,
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// Reads a source file: from the disk, or from the made-up files of a test.
type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Index of a module in [`Modules`]. The root has index 0.
type ModuleId = usize;

/// Longest path that is followed.
const SEGMENTS_MAX: usize = 12;

/// A path as it is written, with its keywords: `super::a::B` is `["super", "a", "B"]`.
type Segments = Vec<String>;

#[derive(Debug)]
struct Module {
    name: String,
    parent: Option<ModuleId>,
    file: PathBuf,
    /// In the order of their declarations.
    children: Vec<ModuleId>,
    /// Names of the items that the module itself defines, other than modules.
    defined: BTreeSet<String>,
    /// Paths of its `use` items, by the names that they bind.
    imported: BTreeMap<String, Vec<Segments>>,
    /// Paths of its `use` items that end in `*`.
    globs: Vec<Segments>,
    /// All paths in the module, with their lines.
    paths: Vec<(Segments, usize)>,
}

/// The modules of one crate, without those that only tests have.
#[derive(Debug, Default)]
struct Modules(Vec<Module>);

fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = || attribute.parse_args::<Meta>().ok();
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && condition().is_some_and(|it| requires_test(&it))
    })
}

/// Returns whether a `cfg` condition can hold only if `test` does.
fn requires_test(condition: &Meta) -> bool {
    let mut parts = match condition {
        Meta::List(list) => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .unwrap_or_default()
            .into_iter(),
        _ => Punctuated::<Meta, Token![,]>::new().into_iter(),
    };
    let path = condition.path();
    path.is_ident("test")
        || path.is_ident("all") && parts.any(|part| requires_test(&part))
        || path.is_ident("any") && parts.all(|part| requires_test(&part))
}

/// Returns the attributes of an item, and the name that it defines.
fn attributes_and_name(item: &Item) -> (&[Attribute], Option<String>) {
    let (attributes, name) = match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident)),
        Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        Item::Impl(item) => (&item.attrs, None),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        Item::Mod(item) => (&item.attrs, None),
        Item::Static(item) => (&item.attrs, Some(&item.ident)),
        Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        Item::Type(item) => (&item.attrs, Some(&item.ident)),
        Item::Union(item) => (&item.attrs, Some(&item.ident)),
        Item::Use(item) => (&item.attrs, None),
        _ => return (&[], None),
    };
    (attributes, name.map(ToString::to_string))
}

/// One path of a `use` tree.
struct Import {
    path: Segments,
    line: usize,
    /// The name that it binds, or `None` for `*`.
    name: Option<String>,
}

fn imports(tree: &UseTree, prefix: &[String], into: &mut Vec<Import>) {
    let joined = |name: &str| {
        let mut path = prefix.to_vec();
        // `use a::{self}` is `use a`.
        if name != "self" || path.is_empty() {
            path.push(name.to_owned());
        }
        path
    };
    match tree {
        UseTree::Path(tree) => imports(&tree.tree, &joined(&tree.ident.to_string()), into),
        UseTree::Group(group) => {
            for tree in &group.items {
                imports(tree, prefix, into);
            }
        }
        UseTree::Name(tree) => {
            let path = joined(&tree.ident.to_string());
            into.push(Import {
                line: tree.ident.span().start().line,
                name: path.last().cloned(),
                path,
            });
        }
        UseTree::Rename(tree) => into.push(Import {
            path: joined(&tree.ident.to_string()),
            line: tree.ident.span().start().line,
            name: Some(tree.rename.to_string()),
        }),
        UseTree::Glob(tree) => into.push(Import {
            path: prefix.to_vec(),
            line: tree.star_token.spans[0].start().line,
            name: None,
        }),
    }
}

/// Collects the paths of two segments or more in an item.
#[derive(Default)]
struct Paths(Vec<(Segments, usize)>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_only(attributes_and_name(item).0) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut found = Vec::new();
        imports(&item.tree, &[], &mut found);
        self.0
            .extend(found.into_iter().map(|found| (found.path, found.line)));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let line = path.segments[0].ident.span().start().line;
        let segments: Segments = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        if segments.len() > 1 && path.leading_colon.is_none() {
            self.0.push((segments, line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let mut tokens = Vec::new();
        flatten(call.tokens.clone(), &mut tokens);
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|(token, _)| token == text);
        let is_name = |at: usize| {
            let token = tokens.get(at).and_then(|(token, _)| token.chars().next());
            token.is_some_and(|first| first.is_alphabetic() || first == '_')
        };
        let mut at = 0;
        while at < tokens.len() {
            let start = at;
            if is_name(at) {
                while is(at + 1, ":") && is(at + 2, ":") && is_name(at + 3) {
                    at += 3;
                }
            }
            if at > start {
                let names = tokens[start..=at].iter().step_by(3);
                let segments = names.map(|(name, _)| name.clone()).collect();
                self.0.push((segments, tokens[start].1));
            }
            at += 1;
        }
        visit::visit_macro(self, call);
    }

    /// `pub(super)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// Writes all tokens of a macro with their lines, in their order.
fn flatten(tokens: TokenStream, into: &mut Vec<(String, usize)>) {
    for token in tokens {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => {
                into.push(("(".to_owned(), line));
                flatten(group.stream(), into);
                into.push((")".to_owned(), line));
            }
            // A text could look like a name.
            TokenTree::Literal(_) => into.push(("0".to_owned(), line)),
            token => into.push((token.to_string(), line)),
        }
    }
}

impl Modules {
    /// Reads the crate whose root is `root`.
    ///
    /// # Panics
    ///
    /// Panics if a file is missing or doesn't parse.
    fn read(root: &Path, read_file: ReadFile<'_>) -> Self {
        let mut modules = Self::default();
        let folder = root.parent().expect("a folder").to_owned();
        modules.read_file("crate", None, root, &folder, read_file);
        modules
    }

    /// Reads the module in `file`, whose children are in `folder`.
    fn read_file(
        &mut self,
        name: &str,
        parent: Option<ModuleId>,
        file: &Path,
        folder: &Path,
        read_file: ReadFile<'_>,
    ) {
        let text = read_file(file).unwrap_or_else(|| panic!("{} is missing", file.display()));
        let source = syn::parse_file(&text).unwrap_or_else(|error| {
            let line = error.span().start().line;
            panic!("{}:{line}: {error}", file.display())
        });
        if !is_test_only(&source.attrs) {
            self.add(name, parent, (file, folder), &source.items, read_file);
        }
    }

    fn add(
        &mut self,
        name: &str,
        parent: Option<ModuleId>,
        (file, folder): (&Path, &Path),
        items: &[Item],
        read_file: ReadFile<'_>,
    ) {
        let id = self.0.len();
        self.0.push(Module {
            name: name.to_owned(),
            parent,
            file: file.to_owned(),
            children: Vec::new(),
            defined: BTreeSet::new(),
            imported: BTreeMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
        });
        if let Some(parent) = parent {
            self.0[parent].children.push(id);
        }
        for item in items {
            let (attributes, name) = attributes_and_name(item);
            if is_test_only(attributes) {
                continue;
            }
            if let Item::Mod(child) = item {
                self.add_child(id, child, (file, folder), read_file);
                continue;
            }
            let mut paths = Paths::default();
            paths.visit_item(item);
            let module = &mut self.0[id];
            module.paths.append(&mut paths.0);
            module.defined.extend(name);
            if let Item::Use(item) = item {
                let mut found = Vec::new();
                imports(&item.tree, &[], &mut found);
                for Import { path, name, .. } in found {
                    match name {
                        Some(name) => module.imported.entry(name).or_default().push(path),
                        None => module.globs.push(path),
                    }
                }
            }
        }
    }

    fn add_child(
        &mut self,
        parent: ModuleId,
        child: &syn::ItemMod,
        (file, folder): (&Path, &Path),
        read_file: ReadFile<'_>,
    ) {
        let name = child.ident.to_string();
        let own_folder = folder.join(&name);
        if let Some((_, items)) = &child.content {
            self.add(&name, Some(parent), (file, &own_folder), items, read_file);
            return;
        }
        let file = match path_attribute(&child.attrs) {
            Some(path) => file.with_file_name(path),
            None => {
                let beside = folder.join(format!("{name}.rs"));
                match read_file(&beside) {
                    Some(_) => beside,
                    None => own_folder.join("mod.rs"),
                }
            }
        };
        self.read_file(&name, Some(parent), &file, &own_folder, read_file);
    }

    /// Returns the ids from the root to `module`.
    fn chain(&self, module: ModuleId) -> Vec<ModuleId> {
        let mut chain: Vec<_> =
            std::iter::successors(Some(module), |&id| self.0[id].parent).collect();
        chain.reverse();
        chain
    }

    fn full_name(&self, module: ModuleId) -> String {
        let names: Vec<_> = self
            .chain(module)
            .iter()
            .map(|&id| self.0[id].name.as_str())
            .collect();
        names.join("::")
    }

    /// Adds to `targets` the modules that define what `path` means in `module`. Paths into other
    /// crates have none.
    ///
    /// `is_inside` says that the path's first name is one of the module's own, and not perhaps
    /// another crate: where nothing shows its definition, a macro makes it there.
    fn resolve(
        &self,
        module: ModuleId,
        path: &[String],
        is_inside: bool,
        seen: &mut BTreeSet<(ModuleId, Segments)>,
        targets: &mut BTreeSet<ModuleId>,
    ) {
        let Some((name, rest)) = path.split_first() else {
            targets.insert(module);
            return;
        };
        // A path that grows without end comes from an import whose first name is another crate's,
        // though a module has it, too.
        if path.len() > SEGMENTS_MAX || !seen.insert((module, path.to_vec())) {
            return;
        }
        let here = &self.0[module];
        let keyword = match name.as_str() {
            "crate" => Some(0),
            "self" => Some(module),
            "super" => here.parent,
            _ => None,
        };
        if let Some(start) = keyword {
            return self.resolve(start, rest, true, seen, targets);
        }
        let before = targets.len();
        if here.defined.contains(name) {
            targets.insert(module);
        }
        let child = self.child(module, name);
        if let Some(child) = child {
            self.resolve(child, rest, true, seen, targets);
        }
        let imported = here.imported.get(name);
        for import in imported.into_iter().flatten() {
            match (import.split_first(), child) {
                // `use a::a`: the first `a` is the child or another crate, not what this binds.
                (Some((first, inner)), Some(child)) if first == name => {
                    self.resolve(child, &[inner, rest].concat(), true, seen, targets);
                }
                (Some((first, _)), None) if first == name => {}
                _ => {
                    let path = [import.as_slice(), rest].concat();
                    self.resolve(module, &path, false, seen, targets);
                }
            }
        }
        if targets.len() > before || imported.is_some() || child.is_some() {
            return;
        }
        // The glob's own first segment can't come from a glob: then it is another crate's.
        let is_local = |first: &str| {
            matches!(first, "crate" | "self" | "super") || self.child(module, first).is_some()
        };
        for glob in here.globs.iter().filter(|glob| is_local(&glob[0])) {
            let path = [glob.as_slice(), path].concat();
            self.resolve(module, &path, false, seen, targets);
        }
        if is_inside && targets.len() == before {
            targets.insert(module);
        }
    }

    fn child(&self, module: ModuleId, name: &str) -> Option<ModuleId> {
        let mut children = self.0[module].children.iter().copied();
        children.find(|&child| self.0[child].name == name)
    }

    /// Returns what is wrong with a use of `to` by `from`, if anything is.
    fn complaint(&self, from: ModuleId, to: ModuleId) -> Option<String> {
        if self.0[from].file == self.0[to].file {
            return None;
        }
        let (above, below) = (self.chain(from), self.chain(to));
        let shared = above.iter().zip(&below).take_while(|(a, b)| a == b).count();
        let name = self.full_name(to);
        match (above.get(shared), below.get(shared)) {
            (_, None) => Some(format!("uses what the file of `{name}` around it defines")),
            (Some(user), Some(used)) if user < used => {
                Some(format!("uses `{name}`, which is declared above it"))
            }
            _ => None,
        }
    }

    /// Returns each use that goes up, with its file and line, once for each pair of modules.
    fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for (from, module) in self.0.iter().enumerate() {
            let mut told = BTreeSet::new();
            for (path, line) in &module.paths {
                let mut targets = BTreeSet::new();
                self.resolve(from, path, false, &mut BTreeSet::new(), &mut targets);
                for to in targets {
                    let complaint = self.complaint(from, to).filter(|_| told.insert(to));
                    let place = format!("{}:{line}", module.file.display());
                    complaints.extend(complaint.map(|complaint| format!("{place} {complaint}")));
                }
            }
        }
        complaints
    }
}

/// Returns the path in an attribute `#[path = ".."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|it| it.path().is_ident("path"))?;
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(value) => match &value.lit {
            Lit::Str(path) => Some(path.value()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the complaints about a made-up crate, given as pairs of a file and its text.
fn complaints_of(files: &[(&str, &str)]) -> Vec<String> {
    let files: BTreeMap<_, _> = files
        .iter()
        .map(|&(name, text)| (PathBuf::from(name), text))
        .collect();
    let read = |path: &Path| files.get(path).map(|&text| text.to_owned());
    Modules::read(Path::new("lib.rs"), &read).complaints()
}

/// Returns the roots of all crates of the workspace, and of `fuzz`.
fn roots() -> Vec<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = fs::read_dir(workspace.join("crates")).expect("the crates");
    let mut folders: Vec<_> = folders
        .map(|entry| entry.expect("a crate").path())
        .filter(|folder| folder.join("Cargo.toml").exists())
        .collect();
    folders.push(workspace.join("fuzz"));
    folders.sort();
    let roots = folders.iter().flat_map(|folder| {
        let root = |file: &str| folder.join("src").join(file);
        [root("lib.rs"), root("main.rs")]
    });
    roots.filter(|root| root.exists()).collect()
}

#[test]
fn each_module_uses_only_modules_that_are_declared_before_it() {
    let roots = roots();
    assert!(roots.len() > 12, "{roots:?}");
    let read = |path: &Path| fs::read_to_string(path).ok();
    let complaints: Vec<_> = roots
        .iter()
        .flat_map(|root| Modules::read(root, &read).complaints())
        .map(|complaint| match complaint.split_once("/../../") {
            Some((_, complaint)) => complaint.to_owned(),
            None => complaint,
        })
        .collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_use_of_a_sibling_declared_later_is_found() {
    let root = ("lib.rs", "mod low;\nmod high;");
    let high = ("high.rs", "use crate::low::Low;\npub struct High(Low);");
    let low = ("low.rs", "pub struct Low;");
    assert_eq!(complaints_of(&[root, high, low]), Vec::<String>::new());
    let expected = ["low.rs:2 uses `crate::high`, which is declared above it"];
    for low in [
        "pub struct Low;\nuse crate::high::{self, High};",
        "pub struct Low;\nfn f(_: super::high::High) {}",
        "pub struct Low;\nfn f() { let _ = crate::high::High::new(); }",
        "pub struct Low;\nfn f() { assert!(g(&[crate::high::High::new()]), \"self::x\"); }",
        "pub struct Low;\nfn f() { use super::high::*; }",
        "pub struct Low;\nimpl Low { fn f() -> Vec<crate::high::High> { vec![] } }",
        "pub struct Low;\nuse super::high as top; fn f() { top::g() }",
        "pub struct Low;\nfn f() { use crate::high::made_by_a_macro; made_by_a_macro() }",
    ] {
        assert_eq!(
            complaints_of(&[root, high, ("low.rs", low)]),
            expected,
            "{low}"
        );
    }
}

#[test]
fn a_circle_through_a_parent_is_found() {
    let root = ("lib.rs", "mod folder;");
    let parent = (
        "folder/mod.rs",
        "mod child;\nuse child::f;\npub struct Own;\nfn g() { f() }",
    );
    let expected = ["folder/child.rs:1 uses what the file of `crate::folder` around it defines"];
    for child in [
        "use super::Own;\npub fn f() {}",
        "use super::*;\npub fn f() {}",
        "pub fn f() { super::g() }",
        "pub fn f() -> crate::folder::Own { todo!() }",
    ] {
        let files = [root, parent, ("folder/child.rs", child)];
        assert_eq!(complaints_of(&files), expected, "{child}");
    }
    let expected = ["folder/child.rs:1 uses what the file of `crate` around it defines"];
    let root = ("lib.rs", "mod folder;\npub fn helper() {}");
    let child = (
        "folder/child.rs",
        "use crate::helper;\npub fn f() { helper() }",
    );
    assert_eq!(complaints_of(&[root, parent, child]), expected);
}

#[test]
fn names_count_where_they_are_defined() {
    let root = (
        "lib.rs",
        "mod a;\npub mod b;\npub use a::{A, inner as renamed};\npub use b::*;",
    );
    let a = (
        "a/mod.rs",
        "mod one;\nmod two;\npub use one::A;\npub fn inner() {}",
    );
    let one = ("a/one.rs", "pub struct A;");
    let b = ("b.rs", "use crate::{A, renamed};\npub struct B(A);");
    // A name that the parent re-exports or imports from an earlier sibling is that sibling's.
    let two = (
        "a/two.rs",
        "use super::A;\nuse crate::a::one;\nuse std::fmt;\npub struct Two(A);",
    );
    assert_eq!(complaints_of(&[root, a, one, two, b]), Vec::<String>::new());
    let upward = ("a/two.rs", "use crate::renamed;\n\nuse crate::B;");
    assert_eq!(
        complaints_of(&[root, a, one, upward, b]),
        [
            "a/two.rs:1 uses what the file of `crate::a` around it defines",
            "a/two.rs:3 uses `crate::b`, which is declared above it",
        ]
    );
}

#[test]
fn nephews_count_as_their_uncles() {
    let root = ("lib.rs", "mod a;\nmod b;");
    let (a, x) = ("a/mod.rs", "a/x.rs");
    let files = |inner: &'static str, b: &'static str| {
        complaints_of(&[root, (a, "pub mod x;"), (x, inner), ("b.rs", b)])
    };
    assert_eq!(
        files("pub struct X;", "use crate::a::x::X;"),
        Vec::<String>::new()
    );
    assert_eq!(
        files("use crate::b::B;", "pub struct B;"),
        ["a/x.rs:1 uses `crate::b`, which is declared above it"]
    );
}

#[test]
fn what_only_tests_have_may_use_anything() {
    let root = (
        "lib.rs",
        "mod low;\nmod high;\n#[cfg(all(test, unix))]\nmod missing;",
    );
    let high = ("high.rs", "pub struct High;");
    let low = "#[cfg(test)]\nuse crate::high::High;\n#[cfg(test)]\nmod tests;\n\
               #[test]\nfn f() { crate::high::High; }\n\
               struct S; impl S { #[cfg(test)]\n pub(crate) fn g() -> crate::high::High { High } }";
    assert_eq!(
        complaints_of(&[root, high, ("low.rs", low)]),
        Vec::<String>::new()
    );
    let low = "#[cfg(any(test, unix))]\nuse crate::high::High;\n#[cfg(not(test))]\nuse crate::G;";
    let root = ("lib.rs", "mod low;\nmod high;\nfn G() {}");
    assert_eq!(complaints_of(&[root, high, ("low.rs", low)]).len(), 2);
}

#[test]
fn modules_of_one_file_may_use_each_other() {
    let root = (
        "lib.rs",
        "mod a { use super::f; use super::b::g; }\nmod b { mod deep; }\nfn f() {}",
    );
    let deep = ("b/deep.rs", "use crate::a;");
    assert_eq!(complaints_of(&[root, deep]), Vec::<String>::new());
    let deep = ("b/deep.rs", "use crate::f;");
    assert_eq!(complaints_of(&[root, deep]).len(), 1);
}
