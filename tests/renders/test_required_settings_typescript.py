"""Settings of an owner in TypeScript: kinds, required values, and the tests of a render."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import (
    NODE,
    clean_environment,
    environment,
    link_environment,
    rendered,
)

pytestmark = pytest.mark.slow

OWN_CAPABILITIES = """// Needs ORDERS_URL.

import { AgentError, Capability, type CapabilityClass, type CoreSettings } from './harness/index.ts'
import { boolean, integer, secret, type SettingsOf, string, stringList } from './harness/index.ts'
import type { Turn } from './harness/index.ts'

export const OWN_SETTINGS = {
  ordersUrl: string('https://.+', 'a URL', '', { required: true }),
  ordersDryRun: boolean(),
  ordersRegions: stringList('[a-z]{2}', 'a list like de,fr', ['de']),
  ordersDays: integer(0, -30, 999_999_999_999_999),
  ordersPin: secret('[0-9]{4}', 'four digits'),
}

export class Orders extends Capability<CoreSettings & SettingsOf<typeof OWN_SETTINGS>> {
  isOpen = false

  override async open(): Promise<void> {
    this.isOpen = true
  }

  override async around(_turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
    if (!this.isOpen) throw new AgentError('internal_error', 'Orders is not open.')
    return run()
  }
}

export const OWN_CAPABILITIES: CapabilityClass[] = [Orders]
"""
FIXTURES = "export const ENVIRONMENT = { ORDERS_URL: 'https://orders.test' }\n"
OWN_TEST = """import assert from 'node:assert/strict'
import { test } from 'node:test'

import { app } from '../src/app.ts'
import { Orders } from '../src/own_capabilities.ts'
import { openClient, reply } from './client.ts'

test('a turn with own capabilities', async (context) => {
  const client = await openClient(context, [reply('Fine.')])
  assert.equal((await client.say('Hello')).reply, 'Fine.')
  const orders = client.runtime.capabilities.find((capability) => capability instanceof Orders)
  assert.equal(orders?.isOpen, true)
  assert.equal(orders?.settings.ordersUrl, 'https://orders.test')
  assert.equal(orders?.settings.ordersDryRun, false)
  assert.deepEqual(orders?.settings.ordersRegions, ['de'])
  assert.deepEqual(app.readSettings()[1], [])
})
"""


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    project = tmp_path / "project"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param.partition("+")[0]))
    (project / "src" / "own_capabilities.ts").write_text(OWN_CAPABILITIES, "utf-8")
    return project


def run(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(NODE), *words],
        cwd=project,
        env={**clean_environment(), **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "project",
    [
        "strands-typescript+evals",
        pytest.param("vercel-typescript+evals", marks=pytest.mark.full),
        pytest.param("vercel-typescript+valkey", marks=pytest.mark.full),
        pytest.param("strands-typescript+agentcore", marks=pytest.mark.full),
    ],
    indirect=True,
)
def test_tests_of_the_harness_pass_without_a_required_setting(project: Path) -> None:
    result = run(project, "--test", "tests/harness/*.test.ts")
    assert result.returncode == 0, result.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "project",
    ["vercel-typescript", "strands-typescript"],
    indirect=True,
)
def test_an_owner_tests_own_capabilities_with_an_environment_of_the_tests(project: Path) -> None:
    (project / "tests" / "own_fixtures.ts").write_text(FIXTURES, "utf-8")
    (project / "tests" / "orders.test.ts").write_text(OWN_TEST, "utf-8")
    result = run(project, "--test", "tests/agent.test.ts", "tests/orders.test.ts")
    assert result.returncode == 0, result.stdout
    typed = run(project, "node_modules/typescript/bin/tsc")
    assert typed.returncode == 0, typed.stdout


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, ["ORDERS_URL is not set: use a URL."]),
        (
            {
                "ORDERS_URL": "http://a",
                "ORDERS_DRY_RUN": "maybe",
                "ORDERS_REGIONS": "de,germany",
                "ORDERS_PIN": "12345",
            },
            [
                "ORDERS_URL is 'http://a': use a URL.",
                "ORDERS_DRY_RUN is 'maybe': use true or false.",
                "ORDERS_REGIONS is 'de,germany': use a list like de,fr.",
                "ORDERS_PIN is invalid: use four digits.",
            ],
        ),
        (
            {
                "ORDERS_URL": "https://a",
                "ORDERS_DRY_RUN": "TRUE",
                "ORDERS_DAYS": "-30",
                "ORDERS_REGIONS": "de, fr",
                "ORDERS_PIN": "1234",
            },
            [],
        ),
        (
            {
                "ORDERS_URL": "https://a",
                "ORDERS_DRY_RUN": "constructor",
                "ORDERS_DAYS": "1000000000000000",
            },
            [
                "ORDERS_DRY_RUN is 'constructor': use true or false.",
                "ORDERS_DAYS is '1000000000000000': use a whole number from -30 to "
                "999999999999999.",
            ],
        ),
        ({"ORDERS_URL": "https://a", "ORDERS_DAYS": "999999999999999"}, []),
    ],
    ids=["unset", "bad", "good", "nearly", "large"],
)
@pytest.mark.parametrize("project", ["strands-typescript"], indirect=True)
def test_check_reports_own_settings(
    project: Path, variables: dict[str, str], lines: list[str]
) -> None:
    result = run(project, "src/main.ts", "check", **variables)
    assert result.returncode == (1 if lines else 0), result.stdout
    assert "12345" not in result.stdout
    for line in lines:
        assert line in result.stdout
