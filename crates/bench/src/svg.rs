//! What plots as SVG have in common: they are readable on light and dark ground.

// Of a palette that colour-blind readers can tell apart; each line has dashes of its own as well.
/// Style of texts, axes and lines.
pub(crate) const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#222}.h{font-size:15px;font-weight:600}.s{fill:#666}\
.g{stroke:#ddd}.a{stroke:#888}.l{fill:none;stroke-width:2}\
.c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#009e73}.c3{stroke:#a3458d}\
.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}\
.bg{fill:#fff}\
@media(prefers-color-scheme:dark){.bg{fill:#16181c}text{fill:#e6e6e6}.s{fill:#a0a4ab}.g{stroke:#33373e}.a{stroke:#777}\
.c0{stroke:#56b4e9}.c1{stroke:#ff9f4a}.c2{stroke:#3fd6a3}.c3{stroke:#e29ad2}}";

/// The classes of a plot's line, by its number.
pub(crate) fn class(line: usize) -> String {
    format!("c{} d{}", line % 4, line % 4)
}

/// Escapes text that is to stand between tags.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
