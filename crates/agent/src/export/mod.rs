//! A conversation as Markdown or HTML, for reading. The output contains no control character except line feeds and tabs.

mod clean;
mod html;
mod markdown;
mod markup;
mod parts;

pub use self::html::html;
pub use self::markdown::markdown;

#[cfg(test)]
mod tests;
