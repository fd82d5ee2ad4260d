"""The kernel hub: repositories of kernels served over the wire contract of the Hub's clients."""
