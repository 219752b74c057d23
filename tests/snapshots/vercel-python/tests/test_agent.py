"""Tests of your tools, which the offline model calls. Updates leave this file alone."""

from click.testing import CliRunner

from my_agent.main import cli


def test_word_count() -> None:
    result = CliRunner().invoke(cli, ["chat"], input="use word_count: one two three\n")
    assert "The tool answered: 3" in result.stdout
