//! The explorer page: files of a browser's page that a server embeds and answers with.
//!
//! The sources are in `page/`, and `page/dist/` has the bundle that is embedded here: `scripts/page` builds it again and
//! compares. The page asks the server's origin alone, by JSON-RPC, and checks headers, proofs and receipts itself.
//!
//! ```
//! let page = cambium_page::asset("/").unwrap();
//! assert_eq!(page.content_type, "text/html; charset=utf-8");
//! assert!(cambium_page::asset("/../secret").is_none());
//! ```

/// The policy with which every file is to be answered (`Content-Security-Policy`): scripts, styles and requests of the
/// page's own origin and of no other, no inline script, no frame around it.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Where it is served: a path that begins with `/`.
    pub path: &'static str,
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

/// All files of the page.
pub const ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../../../page/dist/index.html"),
    },
    Asset {
        path: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../../page/dist/app.js"),
    },
    Asset {
        path: "/app.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../../../page/dist/app.css"),
    },
    Asset {
        path: "/icon.svg",
        content_type: "image/svg+xml",
        bytes: include_bytes!("../../../page/dist/icon.svg"),
    },
    Asset {
        path: "/licenses.txt",
        content_type: "text/plain; charset=utf-8",
        bytes: include_bytes!("../../../page/dist/licenses.txt"),
    },
];

/// The file that is served at `path`, without a query.
#[must_use]
pub fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    #[test]
    fn every_file_of_the_bundle_is_an_asset() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../page/dist");
        let files = fs::read_dir(folder).expect("the bundle");
        let files = files.map(|file| file.expect("a file").file_name().into_string());
        let files: BTreeSet<_> = files.map(|name| name.expect("a name")).collect();
        let assets = ASSETS.iter().map(|asset| match asset.path {
            "/" => "index.html".to_owned(),
            path => path.trim_start_matches('/').to_owned(),
        });
        assert_eq!(files, assets.collect::<BTreeSet<_>>());
    }

    #[test]
    fn the_page_names_no_other_origin_and_has_no_inline_script() {
        let page = asset("/").expect("the page");
        let page = std::str::from_utf8(page.bytes).expect("text");
        let mut named = 0;
        for attribute in ["href=\"", "src=\""] {
            for rest in page.split(attribute).skip(1) {
                let path = rest.split('"').next().unwrap_or_default();
                assert!(asset(path).is_some(), "{path} is no asset");
                named += 1;
            }
        }
        assert_eq!(named, 3);
        for inline in ["<style", " style=", " onclick=", "<script>"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[test]
    fn the_bundle_is_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(bytes < 300_000, "{bytes} bytes before compression");
    }
}
