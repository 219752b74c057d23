"""The JWT authorizer of AgentCore Runtime, in front of a server that runs as a stack says.

It does what "Configure inbound JWT authorizer" in the developer guide of Amazon Bedrock AgentCore
says: it reads the keys and the issuer at DiscoveryUrl, compares `aud` with AllowedAudience and
`client_id` with AllowedClients, and passes on only headers that RequestHeaderAllowlist lists. A
token that is missing or invalid is an UnauthorizedException, other claims an AccessDeniedException.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import httpx
import jwt

from tests.conformance.client import SESSION
from tests.conformance.server import Front, Server

UNAUTHORIZED, ACCESS_DENIED = 401, 403
OWN_HEADERS = (SESSION, "Accept", "Content-Type")


class _Handler(BaseHTTPRequestHandler):
    server: "Authorizer"
    protocol_version, timeout = "HTTP/1.1", 30

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.refusal(self.headers.get("Authorization", ""))
        if status:
            self._reply(status, {"Content-Type": "application/json"}, b'{"message": "refused"}')
            return
        allowed = {name.lower() for name in (*OWN_HEADERS, *self.server.allowlist)}
        headers = {name: it for name, it in self.headers.items() if name.lower() in allowed}
        host, port = self.server.agent.address
        self.server.forwarded.append(headers)
        url = f"http://{host}:{port}/invocations"
        reply = httpx.post(url, content=body, headers=headers, timeout=60)
        kept = {name: reply.headers[name] for name in ("Content-Type", SESSION)}
        self._reply(reply.status_code, kept, reply.content)

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Authorizer(ThreadingHTTPServer):
    """The authorizer; `forwarded` are the headers of the requests that reached the agent.

    `properties` are those of the runtime, with addresses that can be read here.
    """

    daemon_threads = True

    def __init__(self, agent: Server, properties: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.agent = agent
        self.front = Front(agent.folder, self.server_address[1])
        self.forwarded: list[dict[str, str]] = []
        configuration = properties["AuthorizerConfiguration"]["CustomJWTAuthorizer"]
        self._discovery_url = configuration["DiscoveryUrl"]
        self._audiences = configuration.get("AllowedAudience")
        self._clients = configuration.get("AllowedClients")
        self.allowlist = properties["RequestHeaderConfiguration"]["RequestHeaderAllowlist"]
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def refusal(self, authorization: str) -> int:
        """The status with which a request is refused; 0 if it is allowed."""
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer":
            return UNAUTHORIZED
        try:
            claims = self._claims(token)
        except jwt.InvalidTokenError:
            return UNAUTHORIZED
        audience = claims.get("aud", [])
        audiences = audience if isinstance(audience, list) else [audience]
        if self._audiences is not None and not {*audiences} & {*self._audiences}:
            return ACCESS_DENIED
        if self._clients is not None and claims.get("client_id") not in self._clients:
            return ACCESS_DENIED
        return 0

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a token that the issuer has signed. Raises InvalidTokenError."""
        document = httpx.get(self._discovery_url).raise_for_status().json()
        published = httpx.get(document["jwks_uri"]).raise_for_status().json()["keys"]
        id = jwt.get_unverified_header(token).get("kid")
        found = [it for it in published if isinstance(it, dict) and it.get("kid") == id]
        signing = [it for it in found if it.get("use") == "sig"]
        if not signing:
            raise jwt.InvalidTokenError(f"no key {json.dumps(id)}")
        claims: dict[str, Any] = jwt.decode(
            token,
            jwt.PyJWK(signing[0]),
            algorithms=[signing[0]["alg"]],
            issuer=document["issuer"],
            options={"require": ["exp", "iss"], "verify_aud": False},
        )
        return claims
