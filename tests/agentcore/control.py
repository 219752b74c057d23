"""The operations of the control plane: memory resources and their strategies."""

from typing import Any

from tests.agentcore.extraction import BUILT_IN, PLACEHOLDER
from tests.agentcore.paging import page
from tests.agentcore.state import Given, Memory, ServiceError, State, at, invalid

ARN = "arn:aws:bedrock-agentcore:us-east-1:123456789012:memory/"
MOST_STRATEGIES = 6
OF_ACTOR = "/strategies/{memoryStrategyId}/actors/{actorId}/"
OF_SESSION = OF_ACTOR + "sessions/{sessionId}/"

# By the member of the input's union: the type in replies, and the namespace that is the default.
KINDS = {
    "semanticMemoryStrategy": ("SEMANTIC", OF_ACTOR),
    "summaryMemoryStrategy": ("SUMMARIZATION", OF_SESSION),
    "userPreferenceMemoryStrategy": ("USER_PREFERENCE", OF_ACTOR),
    "episodicMemoryStrategy": ("EPISODIC", OF_SESSION),
    "customMemoryStrategy": ("CUSTOM", OF_ACTOR),
}
OVERRIDES = {
    "semanticOverride": "SEMANTIC_OVERRIDE",
    "summaryOverride": "SUMMARY_OVERRIDE",
    "userPreferenceOverride": "USER_PREFERENCE_OVERRIDE",
    "episodicOverride": "EPISODIC_OVERRIDE",
    "selfManagedConfiguration": "SELF_MANAGED",
}
COPIED = (
    *("name", "description", "encryptionKeyArn", "memoryExecutionRoleArn", "eventExpiryDuration"),
    *("indexedKeys", "namespaceKeys", "streamDeliveryResources"),
)


class Control(State):
    def create_memory(self, given: Given) -> Given:
        for memory in self.memories.values():
            repeated = self.once(memory, "CreateMemory", given)
            if repeated is not None:
                return repeated
            if memory.description["name"] == given["name"]:
                raise invalid("name", f"Memory with name {given['name']} already exists")
        now = self.clock.now()
        identity = f"{given['name']}-{self.unique(10)}"
        description: Given = {name: given[name] for name in COPIED if name in given}
        description |= {
            "id": identity,
            "arn": f"{ARN}{identity}",
            "createdAt": at(now),
            "updatedAt": at(now),
            "strategies": [],
        }
        memory = Memory(identity, description, active=now + self.creation_delay)
        self._add(memory, given.get("memoryStrategies", []))
        self.memories[identity] = memory
        reply = {"memory": {**description, "status": "CREATING"}}
        return self.remember(memory, "CreateMemory", given, reply)

    def get_memory(self, given: Given) -> Given:
        return {"memory": self._described(self.find(given))}

    def list_memories(self, given: Given) -> Given:
        found, more = page(given, self.memories.items())
        names = ("arn", "id", "status", "createdAt", "updatedAt")
        described = [self._described(memory) for memory in found]
        return {"memories": [{name: one[name] for name in names} for one in described], **more}

    def update_memory(self, given: Given) -> Given:
        memory = self.find(given)
        changes = given.get("memoryStrategies", {})
        description = memory.description
        for name in ("description", "eventExpiryDuration", "memoryExecutionRoleArn"):
            if name in given:
                description[name] = given[name]
        if "namespaceKeys" in given:
            description["namespaceKeys"] = given["namespaceKeys"]
        if "addIndexedKeys" in given:
            description["indexedKeys"] = [
                *description.get("indexedKeys", []),
                *given["addIndexedKeys"],
            ]
        for change in changes.get("modifyMemoryStrategies", []):
            self._modify(memory, change)
        for change in changes.get("deleteMemoryStrategies", []):
            memory.strategies.remove(_strategy(memory, change))
        self._add(memory, changes.get("addMemoryStrategies", []))
        description["updatedAt"] = at(self.clock.now())
        return {"memory": self._described(memory)}

    def delete_memory(self, given: Given) -> Given:
        memory = self.find(given)
        del self.memories[memory.id]
        return {"memoryId": memory.id, "status": "DELETING"}

    def _described(self, memory: Memory) -> Given:
        status = "ACTIVE" if memory.active <= self.clock.now() else "CREATING"
        return {**memory.description, "status": status}

    def _add(self, memory: Memory, inputs: list[Given]) -> None:
        if len(memory.strategies) + len(inputs) > MOST_STRATEGIES:
            raise ServiceError("ServiceQuotaExceededException", "Too many strategies")
        for union in inputs:
            ((member, given),) = union.items()
            strategy = self._strategy(member, given)
            self._check(memory, strategy["namespaceTemplates"])
            if any(one["name"] == strategy["name"] for one in memory.strategies):
                raise invalid("memoryStrategies", f"Two strategies are called {strategy['name']}")
            memory.strategies.append(strategy)

    def _strategy(self, member: str, given: Given) -> Given:
        kind, default = KINDS[member]
        templates = given.get("namespaceTemplates", given.get("namespaces"))
        now = at(self.clock.now())
        more: dict[str, Any] = {}
        if member == "customMemoryStrategy" and "configuration" in given:
            (override,) = given["configuration"]
            if override == "selfManagedConfiguration" and templates is not None:
                raise invalid("memoryStrategies", "A self-managed strategy has no namespaces")
            more["configuration"] = {"type": OVERRIDES[override]}
        if "reflectionConfiguration" in given:
            reflected = given["reflectionConfiguration"]["namespaceTemplates"]
            names = {"namespaces": reflected, "namespaceTemplates": reflected}
            reflection = {"episodicReflectionConfiguration": names}
            more["configuration"] = {"reflection": reflection}
        for name in ("description", "memoryRecordSchema"):
            if name in given:
                more[name] = given[name]
        if "recordExpiryDurationDays" in given.get("recordExpirySpecification", {}):
            days = given["recordExpirySpecification"]["recordExpiryDurationDays"]
            more["recordExpiryDurationDays"] = days
        return {
            "strategyId": f"{given['name']}-{self.unique(10)}",
            "name": given["name"],
            "type": kind,
            "namespaces": templates or [default],
            "namespaceTemplates": templates or [default],
            "createdAt": now,
            "updatedAt": now,
            "status": "ACTIVE",
            **more,
        }

    def _modify(self, memory: Memory, change: Given) -> None:
        strategy = _strategy(memory, change)
        templates = change.get("namespaceTemplates", change.get("namespaces"))
        if templates is not None:
            self._check(memory, templates)
            strategy["namespaces"] = strategy["namespaceTemplates"] = templates
        if "description" in change:
            strategy["description"] = change["description"]
        strategy["updatedAt"] = at(self.clock.now())

    def _check(self, memory: Memory, templates: list[str]) -> None:
        """Every variable of a namespace must be the service's own or a key of the memory."""
        known = BUILT_IN | {one["key"] for one in memory.description.get("namespaceKeys", [])}
        for template in templates:
            missing = set(PLACEHOLDER.findall(template)) - known
            if missing:
                raise invalid("namespaceTemplates", f"Unknown variables: {sorted(missing)}")


def _strategy(memory: Memory, change: Given) -> Given:
    for strategy in memory.strategies:
        if strategy["strategyId"] == change["memoryStrategyId"]:
            return strategy
    raise invalid("memoryStrategies", f"No strategy {change['memoryStrategyId']}")
