"""What a collection, an agent and its grants are: each field, its default and what it allows.

What concerns more than one field stands in `lint` and `references`.
"""

from typing import Annotated, Literal

from pydantic import Field

from .access import Lambda, RestApi
from .values import (
    WHOLE,
    AgentId,
    Closed,
    CollectionId,
    Day,
    Life,
    Open,
    Prose,
    Reference,
    Region,
    Version,
    matches,
)


class Meta(Closed):
    name: Prose
    description: Prose
    owner: Prose
    tags: list[Prose] = Field(default=[])
    last_updated: Day | None = None


class Scope(Closed):
    lifetime: Literal["session", "project", "user"]


class Namespace(Closed):
    top_k: Annotated[int, WHOLE, Field(ge=1, le=1000)] = 10
    relevance_score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.2


class AgentCoreMemory(Closed):
    type: Literal["agentcore_memory"]
    memory_id_secret: Reference | None = None
    region: Region
    retrieval_config: Annotated[dict[str, Namespace], Field(min_length=1)] | None = None
    batch_size: Annotated[int, WHOLE, Field(ge=1, le=100)] = 1


class Valkey(Closed):
    type: Literal["valkey"]
    endpoint_secret: Reference | None = None
    port: Annotated[int, WHOLE, Field(ge=1, le=65535)] = 6379
    key_prefix: Annotated[str, matches("[A-Za-z0-9_.:/-]{1,128}")] = "session"
    ttl_seconds: Life | None = None


class S3(Closed):
    type: Literal["s3"]
    bucket_secret: Reference | None = None
    region: Region
    prefix: Annotated[str, matches("(?=.{1,256}$)[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")] | None = None
    ttl_days: Life | None = None


class Custom(Closed):
    type: Literal["custom"]
    transport: Annotated[RestApi | Lambda, Field(discriminator="type")] | None = None


Backend = Annotated[AgentCoreMemory | Valkey | S3 | Custom, Field(discriminator="type")]


class Writeback(Closed):
    enabled: bool


class Collection(Closed):
    spec_version: Literal["1.2"]
    collection_id: CollectionId
    version: Version
    status: Literal["draft", "active", "deprecated", "disabled"]
    meta: Meta
    scope: Scope
    backend: Backend
    writeback: Writeback


class Memory(Open):
    mode: Literal["none", "session", "project", "user"]
    read_collections: list[str] = Field(default=[])
    write_collections: list[str] = Field(default=[])


class Agent(Open):
    agent_id: AgentId
    memory: Memory


class Grant(Open):
    ref: CollectionId
    access: Literal["read", "write", "read-write", "deny"]


class Iam(Open):
    agent_id: AgentId
    collections: list[Grant] = Field(default=[])
