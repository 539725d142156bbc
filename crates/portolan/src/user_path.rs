//! Paths of a user's own files.

use std::ffi::OsString;
use std::path::PathBuf;

use portolan_sys::environment::var_os;

/// A path below the folder that a variable of the XDG base directories names, else below
/// one in the home directory: `user_path("XDG_CACHE_HOME", ".cache", "portolan/bsp")`.
/// `None` if neither is known. As the XDG specification asks, relative paths do not count.
#[must_use]
pub fn user_path(variable: &str, in_home: &str, path: &str) -> Option<PathBuf> {
    find(var_os, variable, in_home, path)
}

fn find(
    value: impl Fn(&str) -> Option<OsString>,
    variable: &str,
    in_home: &str,
    path: &str,
) -> Option<PathBuf> {
    let absolute = |name: &str| value(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let folder = absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)));
    Some(folder?.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_count() {
        for (xdg, home, expected) in [
            (Some("/x"), Some("/h"), Some("/x/portolan/bsp")),
            (None, Some("/h"), Some("/h/.cache/portolan/bsp")),
            (Some(""), Some("/h"), Some("/h/.cache/portolan/bsp")),
            (Some("x"), Some("/h"), Some("/h/.cache/portolan/bsp")),
            (Some("x"), Some("h"), None),
            (None, None, None),
        ] {
            let value = |name: &str| if name == "HOME" { home } else { xdg }.map(Into::into);
            let found = find(value, "XDG_CACHE_HOME", ".cache", "portolan/bsp");
            assert_eq!(found, expected.map(PathBuf::from), "{xdg:?} {home:?}");
        }
    }
}
