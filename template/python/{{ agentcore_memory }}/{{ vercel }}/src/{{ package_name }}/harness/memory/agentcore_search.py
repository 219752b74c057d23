"""Search AgentCore memories with the AWS client."""

from datetime import UTC

from .agentcore import AgentCore, AgentCoreClients, filters
from .base import Metadata, Record
from .namespaces import Namespace, Who

__all__ = ["AgentCoreClients", "AgentCoreMemory"]


class AgentCoreMemory(AgentCore):
    """A memory that the AWS client searches."""

    async def retrieve(
        self, identity: Who, namespace: Namespace, query: str, limit: int, metadata: Metadata
    ) -> list[Record]:
        criteria = {"searchQuery": query, "topK": limit, **filters(metadata)}
        options = {"searchCriteria": criteria, "maxResults": limit}
        reply = await self.call(
            "recall", "retrieve_memory_records", **namespace.parameter, **options
        )
        return [
            Record(
                id=summary["memoryRecordId"],
                text=summary["content"].get("text", ""),
                score=summary.get("score", 0.0),
                namespace=next(iter(summary["namespaces"]), ""),
                created_at=summary["createdAt"].astimezone(UTC).isoformat(),
            )
            for summary in reply["memoryRecordSummaries"]
        ]
