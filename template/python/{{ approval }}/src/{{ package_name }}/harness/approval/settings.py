"""The setting of approvals."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class ApprovalSettings(CoreSettings):
    """The time limit of a pending turn."""

    waiting_seconds: int = integer(86400, 1, 31_536_000)
