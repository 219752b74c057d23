"""The service without HTTP: one method for each operation of AWS's, with the state behind them.

Where neither AWS's model nor its documentation says what happens, this is what happens here:
`includePayloads` is true unless given; the default of `topK` is 10; a session or an actor that is
unknown has no events; deleting an event does not touch what was extracted from it; a second
request with a client token is ignored whatever is in it.
"""

from collections.abc import Callable

from botocore import xform_name

from tests.agentcore.control import Control
from tests.agentcore.events import Events
from tests.agentcore.records import Records
from tests.agentcore.state import Given, Memory


class Service(Events, Records, Control):
    """AgentCore Memory. Extraction takes `extraction_delay` seconds, of a `clock` that a test can
    advance; with math.inf it takes until settle().
    """

    def call(self, operation: str, given: Given) -> Given:
        """What the operation of that name answers. Raises ServiceError."""
        method: Callable[[Given], Given] = getattr(self, xform_name(operation))
        with self.lock:
            return method(given)

    def settle(self) -> None:
        """End all extraction that is under way."""
        with self.lock:
            for memory in self.memories.values():
                for record in memory.records.values():
                    record.visible = 0.0

    def texts(self, memory_id: str, namespace_path: str = "/") -> list[str]:
        """What is remembered there, visible or not yet, oldest first."""
        with self.lock:
            memory = self.find({"memoryId": memory_id})
            path = {"memoryId": memory_id, "namespacePath": namespace_path}
            return [record.text for record in self.everything(memory, path)]

    def said(self, memory_id: str, actor: str | None = None) -> list[Given]:
        """The payload items of all events, of one actor or of all, in the order they came."""
        with self.lock:
            memory: Memory = self.find({"memoryId": memory_id})
            events = list(memory.events.values())
            return [item for one in events if actor in (None, one.actor) for item in one.payload]
