"""The places where repositories are kept."""
