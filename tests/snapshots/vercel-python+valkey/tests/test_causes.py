"""Why a store fails is said in words, and without what a secret holds."""

from typing import Any

import pytest

from app.memory.backends import Unavailable
from app.memory.options import Options
from app.memory.secrets import Secrets
from app.memory.valkey_client import ValkeyClient

NO_ADDRESS = "secret 'env:STORE' is no address such as valkeys://user:p%40ss@host:6379"
TOLD = {
    "valkey://:p4ss@127.0.0.1:1": "valkey at 127.0.0.1:1 cannot be reached: connection refused",
    "valkey://:p4ss@[::1]:99999": NO_ADDRESS,
    "valkey://p4ss/word@host": NO_ADDRESS,
    '{"host":"h","password":"p4ss"}': NO_ADDRESS,
}


@pytest.mark.parametrize("secret", TOLD)
async def test_valkey_is_named_without_its_password(secret: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("STORE", secret)
    client = ValkeyClient("env:STORE", 1, 3, Secrets(Options()))
    with pytest.raises(Unavailable) as raised:
        await client.run(lambda it: it.ping())
    assert str(raised.value) == TOLD[secret]
    assert raised.value.is_certain
    await client.close()


async def test_a_secret_names_its_variable_and_what_aws_lacks(monkeypatch: Any) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(Unavailable) as raised:
        await Secrets(Options()).get("path/x")
    why = "AWS Secrets Manager cannot be used: no AWS region, set AWS_REGION"
    assert str(raised.value) == f"secret 'path/x': {why}; locally, set PATH_X"
