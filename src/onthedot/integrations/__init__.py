"""Other frameworks. Nothing else of the package imports these modules, and each needs its own extra."""
