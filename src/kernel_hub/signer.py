"""The signatures of upload URLs, since clients send no token with the bytes of large files."""

from __future__ import annotations

import hashlib
import hmac
import secrets


class Signer:
    """Signs with a key that lives as long as the process: after a restart a client asks for URLs again."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def sign(self, *parts: str) -> str:
        """Return the signature of an action: what, where, how large, until when."""
        message = "\0".join(parts).encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def is_signed(self, signature: str, *parts: str) -> bool:
        """Say whether the signature is ours and of this very action."""
        return hmac.compare_digest(signature.encode("utf-8", "replace"), self.sign(*parts).encode())
