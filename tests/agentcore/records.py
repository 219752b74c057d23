"""The operations on memory records: what the service remembers, by namespace."""

from datetime import datetime
from typing import Any

from tests.agentcore.paging import page
from tests.agentcore.search import in_namespace, matches, normalised, score, words
from tests.agentcore.state import DAY, Given, Memory, Record, ServiceError, State, at

DEFAULT_TOP = 10
NO_STRATEGY = "NONE"  # of a record that was created without one


class Records(State):
    def retrieve_memory_records(self, given: Given) -> Given:
        """The best `topK` first; a page holds 20 of them unless more are asked for."""
        criteria = given["searchCriteria"]
        query = words(criteria["searchQuery"])
        found = [
            (score(query, record), record)
            for record in self._where(given, criteria.get("memoryStrategyId"))
            if matches(criteria.get("metadataFilters", []), record.metadata)
        ]
        best = sorted(found, key=lambda one: (-one[0], one[1].created, one[1].id))
        ranked = best[: criteria.get("topK", DEFAULT_TOP)]
        shown, more = page(given, ((f"{at:04d}", one) for at, one in enumerate(ranked)))
        summaries = [{**described(record), "score": value} for value, record in shown]
        return {"memoryRecordSummaries": summaries, **more}

    def list_memory_records(self, given: Given) -> Given:
        """Newest first; metadata is filtered after a page was cut, so one may be empty."""
        records = self._where(given, given.get("memoryStrategyId"))
        rows = ((f"{record.created:020.6f}{record.id}", record) for record in records)
        found, more = page(given, rows, newest_first=True, frail=self.frail_tokens)
        filters = given.get("metadataFilters", [])
        shown = [described(record) for record in found if matches(filters, record.metadata)]
        return {"memoryRecordSummaries": shown, **more}

    def get_memory_record(self, given: Given) -> Given:
        record = self._record(self.find(given), given["memoryRecordId"])
        expiry = {"expiresAt": at(record.expires)} if record.days else {}
        return {"memoryRecord": {**described(record), **expiry}}

    def delete_memory_record(self, given: Given) -> Given:
        memory = self.find(given)
        record = self._record(memory, given["memoryRecordId"])
        del memory.records[record.id]
        return {"memoryRecordId": record.id}

    def batch_create_memory_records(self, given: Given) -> Given:
        memory = self.find(given)
        repeated = self.once(memory, "BatchCreateMemoryRecords", given)
        if repeated is not None:
            return repeated
        known = {strategy["strategyId"] for strategy in memory.strategies}
        done, failed = [], []
        for row in given["records"]:
            identity = f"mem-{self.unique(36)}"
            result = {"memoryRecordId": identity, "requestIdentifier": row["requestIdentifier"]}
            strategy = row.get("memoryStrategyId")
            if strategy is not None and strategy not in known:
                failed.append(_failed(result, 404, f"Strategy not found: {strategy}"))
                continue
            self._create(memory, identity, row, given.get("recordExpirySpecification", {}))
            done.append({**result, "status": "SUCCEEDED"})
        reply = {"successfulRecords": done, "failedRecords": failed}
        return self.remember(memory, "BatchCreateMemoryRecords", given, reply)

    def batch_update_memory_records(self, given: Given) -> Given:
        expiry = given.get("recordExpirySpecification", {})
        return self._each(given, lambda record, row: self._update(record, row, expiry))

    def batch_delete_memory_records(self, given: Given) -> Given:
        memory = self.find(given)
        return self._each(given, lambda record, _: memory.records.pop(record.id))

    def _each(self, given: Given, work: Any) -> Given:
        memory = self.find(given)
        done, failed = [], []
        for row in given["records"]:
            result = {"memoryRecordId": row["memoryRecordId"]}
            try:
                work(self._record(memory, row["memoryRecordId"]), row)
                done.append({**result, "status": "SUCCEEDED"})
            except ServiceError as error:
                failed.append(_failed(result, 404, str(error)))
        return {"successfulRecords": done, "failedRecords": failed}

    def _create(self, memory: Memory, identity: str, row: Given, expiry: Given) -> None:
        now = self.clock.now()
        record = Record(
            id=identity,
            text=row["content"]["text"],
            strategy=row.get("memoryStrategyId", NO_STRATEGY),
            namespace=normalised((row["namespaces"] or ["/"])[0]),
            created=now,
            visible=now,
            timestamp=row["timestamp"],
            metadata=row.get("metadata", {}),
            words=words(row["content"]["text"]),
        )
        self._expire(record, expiry)
        memory.records[identity] = record

    def _update(self, record: Record, row: Given, expiry: Given) -> None:
        record.timestamp = row["timestamp"]
        if "content" in row:
            record.text = row["content"]["text"]
            record.words = words(record.text)
        if row.get("namespaces"):
            record.namespace = normalised(row["namespaces"][0])
        record.strategy = row.get("memoryStrategyId", record.strategy)
        record.metadata = row.get("metadata", record.metadata)
        self._expire(record, expiry)

    def _expire(self, record: Record, expiry: Given) -> None:
        record.days = expiry.get("recordExpiryDurationDays", record.days)
        if "action" in expiry:
            record.days = None
        record.expires = self.clock.now() + record.days * DAY if record.days else float("inf")

    def everything(self, memory: Memory, given: Given) -> list[Record]:
        """The records in a namespace, even those that are not to be seen yet."""
        return list(filter(in_namespace(given), memory.records.values()))

    def _seen(self, memory: Memory) -> list[Record]:
        now = self.clock.now()
        return [one for one in memory.records.values() if one.visible <= now < one.expires]

    def _where(self, given: Given, strategy: str | None) -> list[Record]:
        memory, belongs = self.find(given), in_namespace(given)
        return [
            record
            for record in self._seen(memory)
            if belongs(record) and strategy in (None, record.strategy)
        ]

    def _record(self, memory: Memory, identity: str) -> Record:
        for record in self._seen(memory):
            if record.id == identity:
                return record
        raise ServiceError("ResourceNotFoundException", f"Memory record not found: {identity}")


def described(record: Record) -> Given:
    created: datetime = at(record.created)
    shown: Given = {
        "memoryRecordId": record.id,
        "content": {"text": record.text},
        "memoryStrategyId": record.strategy,
        "namespaces": [record.namespace],
        "createdAt": created,
        "timestamp": record.timestamp,
    }
    return {**shown, "metadata": record.metadata} if record.metadata else shown


def _failed(result: Given, code: int, message: str) -> Given:
    return {**result, "status": "FAILED", "errorCode": code, "errorMessage": message}
