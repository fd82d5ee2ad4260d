"""What builds: the compiler of each backend, torch's headers, and stub libraries to link with."""
