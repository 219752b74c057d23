"""The order desk in processes of its own, as its customers, its staff and its carrier see it."""

import shlex
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser

from tests.auth.issuer import Issuer
from tests.conformance.client import JSON, SESSION
from tests.conformance.provider import PATIENCE
from tests.deploy.dockerfile import calls_of_apt
from tests.examples.projects import command, lived_in, replicas, run
from tests.installed import clean_environment
from tests.updates.history import History, git

REFUND = 'use refund_order: {"order_id": "1001", "reason": "It leaks."}'
CSV = "id,customer,item,price,state\n1004,bob,a tray,12.00 EUR,packed\n"
pytestmark = [pytest.mark.slow, pytest.mark.full]


@pytest.fixture
def project(history: History, tmp_path: Path) -> Path:
    return lived_in(history, "order-desk", tmp_path)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def headers_of(issuer: Issuer, customer: str) -> dict[str, str]:
    return {**JSON, SESSION: f"session-of-{customer}", "Authorization": bearer(issuer, customer)}


def bearer(issuer: Issuer, actor: str) -> str:
    return f"Bearer {issuer.token(actor)}"


def reminders(project: Path) -> int:
    """How often the packers were reminded of the one order that waits for them."""
    path = project / "orders.db"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path, timeout=PATIENCE)) as database:
        query = "SELECT reminders FROM orders WHERE id = '1002'"
        try:
            rows = database.execute(query).fetchall()
        except sqlite3.OperationalError:  # the table is not there yet
            return 0
    return int(rows[0][0]) if rows else 0


def wait_for_reminders(project: Path, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while reminders(project) < number:
        assert time.monotonic() < deadline, "the packers are not reminded"
        time.sleep(0.05)


def test_a_customer_is_the_one_of_the_token_and_a_refund_goes_on_in_another_replica(
    project: Path, issuer: Issuer
) -> None:
    ada, bob = headers_of(issuer, "ada"), headers_of(issuer, "bob")
    with replicas(project, 2, **issuer.environment) as (one, other):
        look_up = {"prompt": "use look_up_order: 1001"}
        assert one.post(look_up, JSON).error == "unauthorized"
        assert "a blue teapot" in one.post(look_up, ada).json["reply"]
        assert "no order 1001 of this customer" in other.post(look_up, bob).json["reply"]
        (waiting,) = one.post({"prompt": REFUND}, ada).json["waiting"]
        approval = {"approve": [waiting["id"]]}
        assert other.post(approval, bob).status in {403, 409}
        assert "Order 1001 is refunded" in other.post(approval, ada).json["reply"]
        assert 'turns_total{outcome="committed"}' in one.get("/outcomes", ada).body.decode()


def test_of_two_replicas_one_reminds_the_packers_when_it_is_time(project: Path) -> None:
    start = time.monotonic()
    with replicas(project, 2, REMINDER_SECONDS="1"):
        wait_for_reminders(project, 4)
        # Each replica by itself would remind them twice as often.
        assert reminders(project) <= time.monotonic() - start + 1


def test_the_packers_are_reminded_while_the_chat_waits_for_a_prompt(project: Path) -> None:
    chat = subprocess.Popen(
        command(project, "chat", "--actor", "ada"),
        cwd=project,
        env=clean_environment() | {"REMINDER_SECONDS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for_reminders(project, 3)
    finally:
        chat.communicate(timeout=PATIENCE)
    assert chat.returncode == 0


def test_the_staff_import_orders_on_their_page(
    project: Path, issuer: Issuer, browser: Browser
) -> None:
    (project / "orders.csv").write_text(CSV)
    with replicas(project, 1, STAFF="carol, dave", **issuer.environment) as (server,):
        host, port = server.address
        page = browser.new_page()
        page.goto(f"http://{host}:{port}/import")
        for actor, answer in [
            ("ada", "Only the staff import orders."),
            ("carol", "1 orders were added."),
        ]:
            page.get_by_placeholder("Token").fill(issuer.token(actor))
            page.locator("[type=file]").set_input_files(project / "orders.csv")
            page.get_by_role("button", name="Import").click()
            page.get_by_text(answer).wait_for()
        page.close()
    assert "a tray for 12.00 EUR" in run(
        project, "chat", "--actor", "bob", "use look_up_order: 1004"
    )


def test_its_own_workflow_has_the_variable_that_it_requires(project: Path) -> None:
    (project / ".env").unlink()
    refused = subprocess.run(
        command(project, "check"),
        cwd=project,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert "CARRIER_SECRET" in refused.stdout
    path = project / ".github" / "workflows" / "own.yml"
    (job,) = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    commands = [shlex.split(step["run"]) for step in job["steps"] if "order-desk" in str(step)]
    assert len(commands) == 2
    for words in commands:
        run(project, *words[3:], **job["env"])


def test_the_image_gets_its_debian_package(project: Path, tmp_path: Path) -> None:
    packages = (project / "apt.txt").read_text()
    assert calls_of_apt(project, packages, tmp_path) == [
        "update",
        "install -y --no-install-recommends tini sqlite3",
    ]


def test_git_leaves_the_settings_of_staging_and_production_alone(project: Path) -> None:
    for name in (".env.staging", ".env.production", "orders.db"):
        (project / name).touch()
    assert git(project, "status", "--porcelain") == ""
    assert ".env.example" in git(project, "ls-files").split()
