"""Further memories, beside the collections: any stores of Strands. Make this file your own."""

from strands.memory import MemoryStore

from .namespaces import Who


def own_stores(who: Who) -> list[MemoryStore]:
    """The stores of one turn. It is called in each turn, so clients belong outside of it.

    They are searched with the collections, within RECALL_TIMEOUT_SECONDS. What a turn commits goes
    to those that are writable, beside the turns and again until it succeeds: its messages to a
    store with `add_messages`, else facts that the agent's model finds in them. `extraction` may
    name another extractor; its trigger is not used. A writable store with `add` also gets the texts
    that a tool or your code adds. `forget` calls `await store.erase(actor)` where
    a store has it, and reports a writable store without it. For example, a knowledge base:

        RUNTIME = boto3.client("bedrock-agent-runtime", region_name="eu-west-1")

        def own_stores(who: Who) -> list[MemoryStore]:
            config = BedrockKnowledgeBaseConfig(
                knowledge_base_id="KB12345678",
                knowledge_base_type="VECTOR",
                runtime_client=RUNTIME,
            )
            return [BedrockKnowledgeBaseStore(name="manuals", config=config)]

    A store that keeps what people say needs `who.actor` in its scope, so that they stay apart.
    """
    return []
