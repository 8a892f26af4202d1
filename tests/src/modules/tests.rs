#![allow(clippy::unwrap_used)]

use super::{Edge, Modules, components, siblings};

/// Returns the edges of a crate whose files are given as (module, text).
fn edges(files: &[(&str, &str)]) -> Vec<Edge> {
    let mut modules = Modules::default();
    for (path, text) in files {
        modules.add(path, &format!("{path}.rs"), text);
    }
    modules.edges()
}

fn pairs(files: &[(&str, &str)]) -> Vec<String> {
    edges(files).iter().map(|edge| format!("{}>{}:{}", edge.from, edge.to, edge.line)).collect()
}

const ROOT: (&str, &str) = ("crate", "mod a;\npub mod b;\n");

#[test]
fn use_items_and_code_paths_are_edges() {
    let users = [
        "use crate::b::Thing;",
        "use super::b::{Other, Thing as Renamed};",
        "use crate::b::*;",
        "fn f() { crate::b::thing() }",
        "fn f() -> Vec<super::b::Thing> { matches!(x, crate::b::Thing) }",
        "use crate::b;\nfn f() { b::thing() }",
        "mod inner { fn f() { super::super::b::thing() } }",
        "use {std::fmt, crate::{b::Thing}};",
    ];
    for user in users {
        let found =
            pairs(&[ROOT, ("crate::a", user), ("crate::b", "pub struct Thing; pub struct Other; pub fn thing() {}")]);
        assert_eq!(found.len(), 1, "{user}: {found:?}");
        assert!(found[0].starts_with("crate::a>crate::b:"), "{user}: {found:?}");
    }
}

#[test]
fn other_text_is_no_edge() {
    let others = [
        "// crate::b::thing()\n/* use /* crate::b::T */ crate::b::T; */",
        r###"const T: &str = "crate::b::thing()"; const R: &[u8] = br#"" crate::b::thing""#;"###,
        r"fn f<'a>(x: &'a str) -> char { '\'' } // crate::b::x",
        "#[cfg(test)]\nmod tests { use crate::b::Thing; }",
        "#[cfg(test)]\n#[allow(unused)]\nuse crate::b::{Thing, Other};\n#[cfg(test)]\nfn f(x: [u8; 2]) { crate::b::f() }",
        "use crate::b;",
        "use std::b::Thing; fn f() { ::b::c() }",
        "#[serde(with = \"crate::b\")] struct A;",
    ];
    for other in others {
        let found = pairs(&[ROOT, ("crate::a", other), ("crate::b", "pub struct Thing;")]);
        assert_eq!(found, Vec::<String>::new(), "{other}");
    }
}

#[test]
fn a_name_leads_to_the_module_that_defines_it() {
    let parent = "mod one;\nmod two;\npub use one::One;\npub use two::*;\npub struct Own;";
    let found = |user: &str| {
        let files = [
            ROOT,
            ("crate::a", user),
            ("crate::b", parent),
            ("crate::b::one", "pub struct One;"),
            ("crate::b::two", "pub struct Two;"),
        ];
        pairs(&files)
    };
    assert_eq!(found("use crate::b::One;"), ["crate::a>crate::b::one:1"]);
    assert_eq!(found("use crate::b::Two;"), ["crate::a>crate::b::two:1"]);
    assert_eq!(found("\nuse crate::b::Own;"), ["crate::a>crate::b:2"]);
    assert_eq!(found("fn f() { crate::b::One::new() }"), ["crate::a>crate::b::one:1"]);
    assert_eq!(found(""), Vec::<String>::new());
}

#[test]
fn a_parent_that_uses_a_reexported_item_has_an_edge() {
    let found =
        |parent: &str| pairs(&[("crate", "mod b;"), ("crate::b", parent), ("crate::b::one", "pub struct One;")]);
    assert_eq!(found("mod one;\npub use one::One;"), Vec::<String>::new());
    assert_eq!(found("mod one;\npub use one::One;\nfn f() -> One { One }"), ["crate::b>crate::b::one:2"]);
    assert_eq!(found("mod one;\nuse one::One;"), ["crate::b>crate::b::one:2"]);
    assert_eq!(found("mod one;\nfn f() { one::f() }"), ["crate::b>crate::b::one:2"]);
}

#[test]
fn circular_reexports_end() {
    let files = [ROOT, ("crate::a", "pub use crate::b::*;\nuse crate::b::X;"), ("crate::b", "pub use crate::a::*;")];
    assert_eq!(pairs(&files), ["crate::a>crate::b:1", "crate::b>crate::a:1"]);
}

#[test]
fn the_shortest_cycle_is_reported_with_its_places() {
    let files = [
        ("crate", "mod a; mod b; mod c; mod d;"),
        ("crate::a", "use crate::b::B;"),
        ("crate::b", "\nuse crate::c::C;"),
        ("crate::c", "use crate::a::A;\nuse super::b::B;"),
        ("crate::d", "use crate::a::A;"),
    ];
    let found = components(&siblings(&edges(&files)));
    assert_eq!(found.len(), 1);
    assert_eq!(Vec::from_iter(found[0].modules.iter().map(String::as_str)), ["crate::a", "crate::b", "crate::c"]);
    let places: Vec<String> = found[0].cycle.iter().map(|edge| format!("{}:{}", edge.file, edge.line)).collect();
    assert_eq!(places, ["crate::b.rs:2", "crate::c.rs:2"]);
    assert_eq!(found[0].edges.len(), 4);
}

#[test]
fn a_child_stands_for_its_descendants() {
    let files = [
        ("crate", "mod a; mod b;"),
        ("crate::a", "mod one; use one::One; pub struct A;"),
        ("crate::a::one", "use super::A; use crate::b::B; pub struct One;"),
        ("crate::b", "mod two; pub struct B;"),
        ("crate::b::two", "use crate::a::A;"),
    ];
    let found = components(&siblings(&edges(&files)));
    assert_eq!(found.len(), 1, "a module and its own child are no cycle: {found:?}");
    assert_eq!(Vec::from_iter(found[0].modules.iter().map(String::as_str)), ["crate::a", "crate::b"]);
}

#[test]
fn the_files_of_a_crate_are_found() {
    let base = crate::env::project_root();
    let modules = Modules::read(base, "tests/src/lib.rs").unwrap();
    assert!(modules.by_path.len() > 10);
    assert!(modules.edges().iter().any(|edge| edge.from == "crate::modules" && edge.to == "crate::modules::source"));
}
