"""The contract: what kernels look like on disk and on the wire.

Every other package builds on this one; it needs only the standard library,
``packaging`` and ``pyelftools``, and never imports torch. Small values that every load defines are
named tuples rather than frozen dataclasses, which take four times as long to define.
"""
