"""The settings that the shop requires, for all tests."""

ENVIRONMENT: dict[str, str] = {"CARRIER_SECRET": "a-secret-for-tests"}
