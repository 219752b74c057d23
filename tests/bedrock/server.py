"""Knowledge bases over HTTP on 127.0.0.1: both planes on one port."""

import itertools
from typing import Any

from tests.agentcore.server import REGION, LocalServer
from tests.bedrock.knowledge_bases import Base, Document, KnowledgeBases

_numbers = itertools.count(1)


class Bedrock(LocalServer):
    """The server: `with Bedrock() as server`."""

    signed_for = "bedrock"

    def __init__(self) -> None:
        self.service = KnowledgeBases()
        super().__init__(self.service)

    def add_base(self, **more: Any) -> str:
        """A new knowledge base's id."""
        id = f"KB{next(_numbers):08}"
        self.service.bases[id] = Base(**more)
        return id

    def remember(self, base: str, namespace: str, *texts: str) -> None:
        """Put documents into a knowledge base, which are indexed at once."""
        documents = self.service.bases[base].documents
        for text in texts:
            id = f"{namespace}{next(_numbers)}"
            documents[id] = Document(text, {"namespace": namespace}, 0)

    def environment(self) -> dict[str, str]:
        """The variables that bring every AWS SDK here."""
        return {
            "AWS_ENDPOINT_URL_BEDROCK_AGENT": self.url,
            "AWS_ENDPOINT_URL_BEDROCK_AGENT_RUNTIME": self.url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
