//! Where the module's file is: beside the command, as `cargo xtask install` puts it.

use super::{MODULE, PathBuf};
use std::path::Path;

/// The file that belongs to the running command; `None`: brokers have to find the module themselves.
pub(super) fn beside_this() -> Option<PathBuf> {
    beside(&std::env::current_exe().ok()?.canonicalize().ok()?)
}

/// In the command's own folder, or of `PREFIX/libexec/flux/cmd/flux-stats` in `PREFIX/lib*/flux/modules` (Debian has
/// another folder between, for the processor).
fn beside(command: &Path) -> Option<PathBuf> {
    let file = format!("{MODULE}.so");
    let folder = command.parent()?;
    if folder.join(&file).is_file() {
        return Some(folder.join(file));
    }
    let prefix = folder.ancestors().nth(3).filter(|_| folder.ends_with("libexec/flux/cmd"))?;
    let module = Path::new("flux/modules").join(file);
    let libraries = folders(prefix)
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lib")));
    let candidates = libraries.flat_map(|library| {
        let below = folders(&library).into_iter().map(|folder| folder.join(&module)).collect::<Vec<_>>();
        std::iter::once(library.join(&module)).chain(below)
    });
    candidates.into_iter().find(|path| path.is_file())
}

/// The folders in a folder, in order.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn the_module_is_found_where_it_is_installed() {
        for modules in ["lib/flux/modules", "lib64/flux/modules", "lib/x86_64-linux-gnu/flux/modules"] {
            let prefix = tempfile::tempdir().unwrap();
            let command = prefix.path().join("libexec/flux/cmd/flux-stats");
            assert_eq!(beside(&command), None);
            let module = prefix.path().join(modules).join("stats-agg.so");
            create_dir_all(module.parent().unwrap()).unwrap();
            write(&module, "").unwrap();
            assert_eq!(beside(&command), Some(module));
        }
        let folder = tempfile::tempdir().unwrap();
        write(folder.path().join("stats-agg.so"), "").unwrap();
        assert_eq!(beside(&folder.path().join("flux-stats")), Some(folder.path().join("stats-agg.so")));
        assert_eq!(beside(&folder.path().join("elsewhere/flux-stats")), None);
    }
}
