"""Bundles: kernels for named systems in one file, for machines that reach no hub."""
