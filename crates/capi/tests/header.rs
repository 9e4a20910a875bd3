//! The header that is checked in is the one that cbindgen makes of this crate.

use std::{env, fs, path::Path};

fn generated(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let lib = fs::read_to_string(root.join("src/lib.rs")).expect("the crate's root");
    // In the order in which the modules build on each other.
    let modules = lib.lines().filter_map(|line| line.strip_prefix("mod "));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in modules {
        let file = module.trim_end_matches(';');
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("a header").write(&mut header);
    String::from_utf8(header).expect("UTF-8")
}

#[test]
fn the_header_is_what_cbindgen_makes_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/cambium.h");
    let header = generated(root);
    if env::var_os("CAMBIUM_WRITE_HEADER").is_some() {
        fs::write(&path, &header).expect("write the header");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let same = header
        .lines()
        .zip(found.lines())
        .take_while(|(a, b)| a == b);
    let line = same.count() + 1;
    assert!(
        found == header,
        "include/cambium.h differs from line {line} on: make it anew with CAMBIUM_WRITE_HEADER=1"
    );
}

#[test]
fn every_exported_function_is_in_the_header_with_a_comment() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = generated(root);
    let mut functions = 0;
    for source in fs::read_dir(root.join("src")).expect("the sources") {
        let text = fs::read_to_string(source.expect("a file").path()).expect("a source");
        for part in text.split("extern \"C\" fn ").skip(1) {
            let name = part.split('(').next().expect("a name");
            let at = header
                .find(&format!(" {name}("))
                .or_else(|| header.find(&format!("*{name}(")));
            let at = at.unwrap_or_else(|| panic!("{name} is not in the header"));
            let before = header[..at].trim_end_matches(|c| c != '\n').trim_end();
            assert!(before.ends_with("*/"), "{name} has no comment");
            functions += 1;
        }
    }
    assert!(functions > 45, "{functions}");
}
