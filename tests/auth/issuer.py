"""An issuer of tokens on loopback: discovery, keys that rotate, and tokens of any kind."""

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "my-agent"
KINDS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


def new_key(algorithm: str) -> Any:
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Handler(BaseHTTPRequestHandler):
    server: "Issuer"
    protocol_version, timeout = "HTTP/1.1", 30

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.is_hung:
            self.server.released.wait(30)
        status, body = self.server.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.end_headers()
        while self.server.is_slow and body:
            self.wfile.write(body[:1])
            body = body[1:]
            time.sleep(1)
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Issuer(ThreadingHTTPServer):
    """The issuer; `keys` are its private keys by their ids, of which `published` are public."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.keys = {algorithm.lower(): (algorithm, new_key(algorithm)) for algorithm in KINDS}
        self.published = [*self.keys]
        self.asked: list[str] = []
        self.wrong: dict[str, tuple[int, bytes]] = {}  # answers by path
        self.is_hung = self.is_slow = False
        self.released = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave before its answer."""

    @property
    def environment(self) -> dict[str, Any]:
        return {"AUTH_ISSUER": self.url, "AUTH_AUDIENCE": f"others, {AUDIENCE}"}

    def rotate(self, id: str, algorithm: str = "RS256") -> None:
        """From now on this is the only key."""
        self.keys[id] = algorithm, new_key(algorithm)
        self.published = [id]

    def public(self, id: str) -> dict[str, Any]:
        algorithm, key = self.keys[id]
        value: dict[str, Any] = json.loads(KINDS[algorithm].to_jwk(key.public_key()))
        return {**value, "kid": id, "use": "sig", "alg": algorithm}

    def answer(self, path: str) -> tuple[int, bytes]:
        if path in self.wrong:
            return self.wrong[path]
        if path == "/.well-known/openid-configuration":
            found: dict[str, Any] = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        elif path == "/keys":
            other = {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"}
            odd = [{"kty": "new"}, "text", {**self.public(self.published[0]), "use": "enc"}]
            found = {"keys": [other, *odd, *map(self.public, self.published)]}
        else:
            return 404, b"{}"
        return 200, json.dumps(found).encode()

    def claims(self, sub: object, **more: object) -> dict[str, object]:
        """Usual claims; one that is None is left out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": sub, "iat": now, "exp": now + 300}
        return {name: value for name, value in {**usual, **more}.items() if value is not None}

    def token(
        self,
        sub: object,
        id: str = "rs256",
        head: Mapping[str, object] | None = None,
        key: Any = None,
        **more: object,
    ) -> str:
        """A token of the issuer, or one that another key has signed.

        A header field or claim that is None is left out.
        """
        algorithm, own = self.keys[id]
        fields = {"kid": id, **(head or {})}
        headers = {name: value for name, value in fields.items() if value is not None}
        return jwt.encode(self.claims(sub, **more), key or own, algorithm, headers=headers)

    def eddsa(self, head: Mapping[str, object], **claims: object) -> str:
        """A token with exactly this header, signed with the key "eddsa"."""
        text = f"{encoded(head)}.{encoded(self.claims('ada', **claims))}"
        signature = self.keys["eddsa"][1].sign(text.encode())
        return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    def publish(self, *keys: object, prefix: bytes = b"") -> None:
        """Publish exactly these keys."""
        body = json.dumps({"keys": keys}).encode()
        self.wrong = {**self.wrong, "/keys": (200, prefix + body)}

    def unsigned(self, sub: object) -> str:
        return f"{encoded({'alg': 'none', 'kid': 'rs256'})}.{encoded(self.claims(sub))}."

    def of_public_key(self, sub: object) -> str:
        """A token whose shared secret is the public key, which everybody knows."""
        import hashlib
        import hmac

        from cryptography.hazmat.primitives import serialization as form

        _, key = self.keys["rs256"]
        pem = key.public_key().public_bytes(
            form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
        )
        text = f"{encoded({'alg': 'HS256', 'kid': 'rs256'})}.{encoded(self.claims(sub))}"
        mac = hmac.new(pem, text.encode(), hashlib.sha256).digest()
        return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
