//! Which MPIs there are, and whether they would load the provider for libfabric.

use clap::ValueEnum;
use portolan_hosts::mpi::{Mpi, provider_folder};

use super::Finding;

/// Looks at each MPI whose launcher is in `PATH`. None is missed, so all are well.
pub fn look() -> Vec<Finding> {
    let provider = std::env::current_exe().map(|own| provider_folder(&own));
    let found = |mpi: Mpi| {
        let launcher = mpi.launcher().ok()?;
        let at = launcher.display();
        let found = match (mpi.uses_libfabric(&launcher), &provider) {
            (Err(why), _) => {
                format!("{at}: whether it loads Portolan's provider is unknown: {why}")
            }
            (Ok(false), _) => {
                format!("{at} cannot load Portolan's provider: it was built without libfabric")
            }
            (Ok(true), Ok(Err(why))) => format!("{at} would load Portolan's provider, but {why}"),
            (Ok(true), Err(why)) => {
                format!("{at} can load Portolan's provider; where it is: {why}")
            }
            (Ok(true), Ok(Ok(folder))) => format!(
                "{at} loads Portolan's provider from {} (portolan run --mpi {})",
                folder.display(),
                mpi.name()
            ),
        };
        Some(Finding::ok(&format!("mpi-{}", mpi.name()), found))
    };
    Mpi::value_variants()
        .iter()
        .copied()
        .filter_map(found)
        .collect()
}
