"""Whether the shared libraries of a variant would link on this machine: read from their bytes, nothing is loaded."""
