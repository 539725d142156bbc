//! What the files of a crate name, define and call. Code that only tests have is left out.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Ident, ImplItem, Item, Stmt, Type, UseTree};

/// A path, as an expression, a type or a `use` has it.
#[derive(Debug)]
pub struct Named {
    pub line: usize,
    /// Its names. A path within the crate begins with `crate`, also where the file has `self`
    /// or `super`.
    pub names: Vec<String>,
    /// Name that a `use` makes known.
    pub known_as: Option<String>,
}

/// A method of the type whose `impl` calls it.
#[derive(Debug)]
pub struct Call {
    pub line: usize,
    pub of: String,
    pub method: String,
}

/// A file of a crate.
#[derive(Debug, Default)]
pub struct Source {
    pub name: String,
    /// Where it stands among the modules; empty for the root.
    pub module: Vec<String>,
    /// Modules that it declares, which have files of their own.
    children: Vec<Vec<String>>,
    pub paths: Vec<Named>,
    /// Functions and methods.
    pub functions: Vec<String>,
    /// Types and their methods, without those of traits.
    pub methods: Vec<(String, String)>,
    pub calls: Vec<Call>,
    /// Methods that are called without arguments on anything, each with its line.
    pub plain_calls: Vec<(usize, String)>,
    /// Structures and the number of their fields.
    pub structures: Vec<(String, usize)>,
    /// Type whose `impl` is being read.
    of: Option<String>,
}

/// All files of a crate, the root first. `read` returns a file of its sources, if there is one.
pub fn sources(read: &dyn Fn(&str) -> Option<String>) -> Vec<Source> {
    let open = |module: &[String], names: [String; 2]| {
        let mut names = names.iter();
        names.find_map(|name| Some(Source::new(name, module, &read(name)?)))
    };
    // A command has main.rs.
    let root = open(&[], ["lib.rs", "main.rs"].map(str::to_owned));
    let (mut waiting, mut all) = (vec![root.expect("lib.rs or main.rs")], Vec::new());
    while let Some(source) = waiting.pop() {
        waiting.extend(source.children.iter().map(|child| {
            let path = child.join("/");
            open(child, [format!("{path}.rs"), format!("{path}/mod.rs")])
                .unwrap_or_else(|| panic!("{}: there is no file of mod {path}", source.name))
        }));
        all.push(source);
    }
    all
}

/// All files of a crate of this workspace, which are read once for all tests.
pub fn sources_of(name: &str) -> &'static [Source] {
    static KNOWN: Mutex<BTreeMap<String, &[Source]>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(name.into()).or_insert_with(|| {
        let root = format!("{}/../{name}/src", env!("CARGO_MANIFEST_DIR"));
        sources(&|file| std::fs::read_to_string(format!("{root}/{file}")).ok()).leak()
    })
}

impl Source {
    pub fn new(name: &str, module: &[String], text: &str) -> Self {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut source = Self {
            name: name.into(),
            module: module.into(),
            ..Self::default()
        };
        source.visit_file(&file);
        source
    }

    /// Module right below the root.
    pub fn folder(&self) -> &str {
        self.module.first().map_or("lib.rs", String::as_str)
    }

    fn add_path(&mut self, line: usize, mut names: Vec<String>, known_as: Option<String>) {
        let begins = |name: &&String| ["crate", "self", "super"].contains(&name.as_str());
        let within = names.iter().take_while(begins).count();
        // `self` alone is a value.
        if within > 0 && names != ["self"] {
            let ups = names.iter().filter(|name| *name == "super").count();
            let from = match names[0].as_str() {
                "crate" => &[],
                _ => &self.module[..self.module.len().saturating_sub(ups)],
            };
            names = [&["crate".to_owned()], from, &names[within..]].concat();
        }
        let path = Named {
            line,
            names,
            known_as,
        };
        self.paths.push(path);
    }

    /// Adds the paths of a `use`, which begin with `path`.
    fn add_tree(&mut self, line: usize, path: &[String], tree: &UseTree) {
        let and = |name: &Ident| match name == "self" && !path.is_empty() {
            true => path.to_vec(),
            false => [path, &[name.to_string()]].concat(),
        };
        let (names, known_as) = match tree {
            UseTree::Path(it) => return self.add_tree(line, &and(&it.ident), &it.tree),
            UseTree::Group(it) => {
                return (it.items.iter()).for_each(|tree| self.add_tree(line, path, tree));
            }
            UseTree::Name(it) => (and(&it.ident), None),
            UseTree::Rename(it) => (and(&it.ident), Some(it.rename.to_string())),
            UseTree::Glob(_) => ([path, &["*".into()]].concat(), None),
        };
        let known_as = known_as.or_else(|| names.last().cloned());
        self.add_path(line, names, known_as);
    }

    fn read(&mut self, tokens: TokenStream) {
        for statement in statements(tokens) {
            self.visit_stmt(&statement);
        }
    }

    fn add_call(&mut self, method: &Ident) {
        self.calls.extend(self.of.clone().map(|of| Call {
            line: line(method),
            of,
            method: method.to_string(),
        }));
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, node: &'ast Item) {
        if !only_tests(attributes(node)) {
            visit::visit_item(self, node);
        }
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        self.module.push(node.ident.to_string());
        match node.content {
            Some(_) => visit::visit_item_mod(self, node),
            None => self.children.push(self.module.clone()),
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, node: &'ast syn::ItemUse) {
        self.add_tree(node.use_token.span.start().line, &[], &node.tree);
    }

    fn visit_item_struct(&mut self, node: &'ast syn::ItemStruct) {
        let structure = (node.ident.to_string(), node.fields.len());
        self.structures.push(structure);
        visit::visit_item_struct(self, node);
    }

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        let name = name_of(&node.self_ty);
        let methods = node.items.iter().filter_map(|item| match item {
            ImplItem::Fn(it) if !only_tests(&it.attrs) => Some(it.sig.ident.to_string()),
            _ => None,
        });
        if let (Some(name), None) = (&name, &node.trait_) {
            let methods = methods.map(|method| (name.clone(), method));
            self.methods.extend(methods);
        }
        let outer = std::mem::replace(&mut self.of, name);
        visit::visit_item_impl(self, node);
        self.of = outer;
    }

    fn visit_impl_item(&mut self, node: &'ast ImplItem) {
        let attributes = match node {
            ImplItem::Const(it) => &it.attrs,
            ImplItem::Fn(it) => &it.attrs,
            _ => &Vec::new(),
        };
        if !only_tests(attributes) {
            visit::visit_impl_item(self, node);
        }
    }

    fn visit_signature(&mut self, node: &'ast syn::Signature) {
        self.functions.push(node.ident.to_string());
        visit::visit_signature(self, node);
    }

    fn visit_path(&mut self, node: &'ast syn::Path) {
        let first = line(&node.segments[0].ident);
        let names: Vec<_> = (node.segments.iter())
            .map(|it| it.ident.to_string())
            .collect();
        if names.len() > 1 && (names[0] == "Self" || Some(&names[0]) == self.of.as_ref()) {
            self.add_call(&node.segments[1].ident);
        }
        self.add_path(first, names, None);
        visit::visit_path(self, node);
    }

    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        if matches!(&*node.receiver, Expr::Path(it) if it.path.is_ident("self")) {
            self.add_call(&node.method);
        }
        if node.args.is_empty() {
            let call = (line(&node.method), node.method.to_string());
            self.plain_calls.push(call);
        }
        visit::visit_expr_method_call(self, node);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        self.visit_path(&node.path);
        self.read(node.tokens.clone());
    }

    // Attributes of macros have code too.
    fn visit_meta_list(&mut self, node: &'ast syn::MetaList) {
        self.read(node.tokens.clone());
    }
}

fn line(name: &Ident) -> usize {
    name.span().start().line
}

/// Name of a type, without what it is a reference to or made of.
fn name_of(node: &Type) -> Option<String> {
    match node {
        Type::Path(it) => Some(it.path.segments.last()?.ident.to_string()),
        Type::Reference(it) => name_of(&it.elem),
        _ => None,
    }
}

/// The items and expressions in what a macro is called with. `syn` cannot know its grammar:
/// tokens that begin neither are passed over, and brackets among them are looked into.
fn statements(tokens: TokenStream) -> Vec<Stmt> {
    let all = |input: ParseStream| {
        let mut found = Vec::new();
        while !input.is_empty() {
            let (item, expression) = (input.fork(), input.fork());
            match (item.parse(), expression.parse()) {
                (Ok(it), _) if !matches!(it, Item::Verbatim(_)) => {
                    input.advance_to(&item);
                    found.push(Stmt::Item(it));
                }
                (_, Ok(it)) => {
                    input.advance_to(&expression);
                    found.push(Stmt::Expr(it, None));
                }
                _ => {
                    if let TokenTree::Group(group) = input.parse()? {
                        found.extend(statements(group.stream()));
                    }
                }
            }
        }
        Ok(found)
    };
    all.parse2(tokens).expect("any token is taken")
}

/// Whether what has these attributes is there for tests alone.
fn only_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        let condition = it.parse_args::<syn::Path>();
        it.path().is_ident("cfg") && condition.is_ok_and(|it| it.is_ident("test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}
