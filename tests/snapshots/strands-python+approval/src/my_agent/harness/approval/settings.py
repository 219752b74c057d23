"""The setting of approvals."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class ApprovalSettings(CoreSettings):
    """How long a turn waits for a person."""

    waiting_seconds: int = integer(86400, 1, 31_536_000)
